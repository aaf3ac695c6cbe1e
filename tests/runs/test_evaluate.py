"""Evaluating a finished run again: the very policies, in episodes that the run's own evaluations never saw."""

import json
import shutil
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import trustirl as ti
from tests.control.small import cartpole_demo, pendulum_demo
from trustirl.cli.main import main
from trustirl.rollouts.host import episode_seeds
from trustirl.runs.run import NEW_EPISODES
from trustirl.training.train import task_name

FIRST_SEED = 3
SMALL = {"updates": 10, "fit_batch": 16, "width": 8, "depth": 1, "backend": "sync", "evaluation_episodes": 2}


@pytest.fixture(scope="module", params=["CartPole-v1", "Pendulum-v1"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ti.Run:
    demos = cartpole_demo() if request.param == "CartPole-v1" else pendulum_demo()
    out = tmp_path_factory.mktemp("runs") / request.param
    return ti.train("bc", request.param, demos, seeds=2, first_seed=FIRST_SEED, steps=20, out=out, **SMALL)


def played(run: ti.Run, place: int, start: int) -> tuple[float, int]:
    """Return and length of an episode, by nothing but Gymnasium and `predict`."""
    with gym.make(run.config["task"]) as env:
        obs, _ = env.reset(seed=start)
        total, steps, ended = 0.0, 0, False
        while not ended:
            action, _ = run.policies[place].predict(obs, deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            total, steps, ended = total + float(reward), steps + 1, terminated or truncated
    return total, steps


def test_it_plays_what_anyone_would_play(run: ti.Run) -> None:
    returns, env_steps, success = run.evaluate(3)
    assert success is None  # LunarLander and the like report none
    assert returns.shape == (2, 3)
    starts = [episode_seeds(NEW_EPISODES, FIRST_SEED + place, 3, "evaluation") for place in range(2)]
    mine = [[played(run, place, int(start)) for start in starts[place]] for place in range(2)]
    np.testing.assert_allclose(returns, [[total for total, _ in row] for row in mine], rtol=1e-5)
    assert env_steps == sum(steps for row in mine for _, steps in row)


def test_episodes_repeat_and_are_others_for_another_seed_and_than_those_on_the_way(run: ti.Run) -> None:
    first = run.evaluate(2)
    np.testing.assert_array_equal(first.returns, ti.load(run.path).evaluate(2).returns)
    np.testing.assert_array_equal(first.returns, run.evaluate(2, task=lambda: gym.make(run.config["task"])).returns)
    assert not np.array_equal(first.returns, run.evaluate(2, seed=1).returns)
    assert not np.allclose(first.returns.mean(axis=1), run.summary["returns"])  # two episodes each, too


def test_a_task_without_a_name_has_a_usable_one_and_is_given_again(run: ti.Run, tmp_path: Path) -> None:
    def mine() -> gym.Env:
        return gym.make(run.config["task"])

    assert [task_name(task) for task in (mine, lambda: mine(), partial(mine))] == ["mine", "own-task", "partial"]
    copy = ti.load(shutil.copytree(run.path, tmp_path / "run"))
    (copy.path / "config.json").write_text(json.dumps(copy.config | {"task": "own-task"}))
    nameless = ti.load(copy.path)
    with pytest.raises(ti.InputError, match=r"names the task own-task, which no id here means: give it again, as"):
        nameless.evaluate(1)
    assert nameless.evaluate(1, task=lambda: mine()).returns.shape == (2, 1)


def test_the_command_tells_every_seed(run: ti.Run, capsys: pytest.CaptureFixture[str]) -> None:
    returns, env_steps, _ = run.evaluate(2)
    main(["evaluate", str(run.path), "--episodes", "2", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["seeds"] == [FIRST_SEED, FIRST_SEED + 1]
    assert told["returns"] == returns.tolist()
    assert (told["exact"], told["env_steps"]) == (False, env_steps)
    main(["evaluate", str(run.path), "--episodes", "2"])
    heading, *rows, mean, steps = capsys.readouterr().out.splitlines()
    assert heading.split() == ["Seed", "Mean", "Deviation", "Worst", "Best"]
    assert [row.split()[:2] for row in rows] == [
        [str(FIRST_SEED + place), f"{returns[place].mean():,.2f}"] for place in range(2)
    ]
    assert f"{returns.mean():,.2f}" in mean
    assert steps == f"2 new episodes per seed, {env_steps:,} environment steps"


def test_another_task_no_episode_and_a_negative_seed_are_refused(run: ti.Run) -> None:
    other = "Pendulum-v1" if run.config["task"] == "CartPole-v1" else "CartPole-v1"
    with pytest.raises(ti.InputError, match=f"learned {run.config['task']} and cannot act in {other}"):
        run.evaluate(task=other)
    with pytest.raises(ti.InputError, match="episodes must be at least 1, got 0"):
        run.evaluate(0)
    with pytest.raises(ti.InputError, match="seed must be at least 0, got -1"):
        run.evaluate(seed=-1)
