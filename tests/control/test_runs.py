"""Runs on Gymnasium tasks as a person meets them: files, policy, reward, resume after any end, the NaN guard."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import trustirl as ti
from tests.control.small import SETTINGS, cartpole_demo, flags, pendulum_demo, stopping
from trustirl.report import write_report
from trustirl.runs.folder import RunFolder

DEMOS = {"CartPole-v1": cartpole_demo, "Pendulum-v1": pendulum_demo}


def hopper_demo() -> ti.Demos:
    rng = np.random.default_rng(2)
    return ti.Demos.from_numpy(rng.normal(size=(60, 11)), rng.uniform(-1, 1, (60, 3)))


def metrics(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


@pytest.fixture(scope="module", params=["CartPole-v1", "Pendulum-v1"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ti.Run:
    demos = DEMOS[request.param]()
    return ti.train("piro", request.param, demos, seeds=2, steps=260, out=tmp_path_factory.mktemp("run"), **SETTINGS)


def test_a_run_leaves_its_files_and_counts_its_steps(run: ti.Run) -> None:
    names = ["config", "manifest", "metrics", "summary", "checkpoints", "reward", "policy", "tb", "report"]
    assert {file.stem for file in run.path.iterdir()} >= set(names)
    rows = metrics(run.path)
    assert [row["env_steps"] for row in rows if row["seed"] == 0] == [100, 180, 260]
    assert {"return_mean", "return_std", "gap", "drift", "mu", "q", "entropy", "critic_loss"} <= rows[-1].keys()
    assert run.summary["returns"] == [row["return_mean"] for row in rows[-2:]]
    assert run.summary["env_steps"]["train"] == 2 * 260
    assert run.summary["env_steps"]["evaluation"] > 0
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert "gymnasium" in manifest["task_versions"]
    row = {"CartPole-v1": 4 * (4 + 4 + 1 + 1) + 1, "Pendulum-v1": 4 * (3 + 3 + 1 + 1) + 1}[run.config["task"]]
    assert manifest["replay_bytes"] == 2 * 260 * row  # two observations, an action, a weight, a flag
    assert list((run.path / "tb" / "seed-1").iterdir())
    spent = run.summary["practice_seconds"]
    assert 0 < spent["stepping"] < spent["practice"]
    assert 0 < spent["updating"] < spent["practice"]
    assert "-bound: updates" in (run.path / "report.html").read_text()


def test_evaluations_beside_training_are_those_between(run: ti.Run, tmp_path: Path) -> None:
    if run.config["task"] == "CartPole-v1":
        pytest.skip("one task is enough")
    settings = SETTINGS | {"backend": "async"}
    aside = ti.train("piro", "Pendulum-v1", pendulum_demo(), seeds=2, steps=260, out=tmp_path / "run", **settings)
    assert metrics(aside.path) == metrics(run.path)
    assert aside.summary["env_steps"] == run.summary["env_steps"]
    pointers = [json.loads((path / "checkpoints" / "latest.json").read_text()) for path in (aside.path, run.path)]
    assert pointers[0]["checkpoints"][-1]["env_steps"] == pointers[1]["checkpoints"][-1]["env_steps"]


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("run", [pytest.param("CartPole-v1", marks=pytest.mark.slow), "Pendulum-v1"], indirect=True)
def test_the_page_of_a_run_is_drawn(run: ti.Run) -> None:
    page = write_report(run.path).read_text()
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) == 2 * page.count("data-figure") > 2  # each in both layouts
    assert all("<path" in drawing for drawing in drawings)


@pytest.mark.slow  # two whole runs for a rare kind of demonstrations
def test_demonstrations_without_known_successors_teach_the_reward_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apart = cartpole_demo().subsample(2)
    settings = SETTINGS | {"demo_share": 0.25}
    run = ti.train("piro", "CartPole-v1", apart, steps=260, out=tmp_path / "run", **settings)
    assert "not known what followed any demonstrated step" in capsys.readouterr().err
    without = ti.train("piro", "CartPole-v1", apart, steps=260, out=tmp_path / "no", **settings | {"demo_share": 0.0})
    assert metrics(run.path) == metrics(without.path)
    assert "not known" not in capsys.readouterr().err


@pytest.mark.slow  # tests/control/test_loop.py has a quick one like it
def test_a_seed_alone_does_what_it_does_beside_others(run: ti.Run, tmp_path: Path) -> None:
    """Up to rounding, which another number of seeds makes the compiler do elsewhere."""
    task = run.config["task"]
    ti.train("piro", task, DEMOS[task](), seeds=1, first_seed=1, steps=260, out=tmp_path, **SETTINGS)
    rows, beside = metrics(tmp_path), [row for row in metrics(run.path) if row["seed"] == 1]
    assert [row.keys() for row in rows] == [row.keys() for row in beside]
    for name in rows[0]:
        found, expected = ([row[name] for row in some if row[name] is not None] for some in (rows, beside))
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-4, err_msg=name)
    other = metrics(run.path)[0]
    assert rows[0]["return_mean"] != other["return_mean"]  # seed 0 did something else
    assert json.loads((tmp_path / "manifest.json").read_text())["seeds"] == [1]
    assert [folder.name for folder in (tmp_path / "tb").iterdir()] == ["seed-1"]


def test_policy_and_reward_speak_numpy(run: ti.Run) -> None:
    env = gym.make(run.config["task"])
    obs, _ = env.reset(seed=0)
    action, state = run.policy.predict(obs, deterministic=True)
    assert state is None
    assert env.action_space.contains(action) or env.action_space.contains(int(action))
    batch = np.stack([obs, 2 * obs, -obs])
    actions, _ = run.policy.predict(batch)
    assert actions.shape == (3, *np.shape(action))
    rewards = run.reward(batch, actions, batch, np.array([False, False, True]))
    assert isinstance(rewards, np.ndarray)
    alone = [run.reward(o, a, o, t) for o, a, t in zip(batch, actions, [False, False, True], strict=True)]
    np.testing.assert_allclose(rewards, alone, rtol=1e-5, atol=1e-5)
    loaded = ti.load(run.path)
    np.testing.assert_array_equal(ti.load_reward(run.path)(batch, actions), run.reward(batch, actions))
    np.testing.assert_array_equal(
        loaded.policy.predict(batch, deterministic=True)[0], run.policy.predict(batch, None, None, True)[0]
    )
    assert not np.array_equal(run.rewards[0](batch, actions), run.rewards[1](batch, actions))
    with pytest.raises(ti.InputError, match="dimensions"):
        run.policy.predict(np.zeros(7))


def test_a_wrapped_environment_pays_the_learned_reward(run: ti.Run) -> None:
    env = run.reward.wrap(gym.make(run.config["task"]))
    obs, _ = env.reset(seed=1)
    env.action_space.seed(1)
    for _ in range(200):
        action = env.action_space.sample()
        after, reward, terminated, truncated, info = env.step(action)
        assert reward == pytest.approx(float(run.reward(obs, action, after, terminated)))
        assert isinstance(info["true_reward"], float)
        if terminated or truncated:
            break
        obs = after
    if terminated:  # what follows an end in mode T2 is paid at once, g/(1-g) times
        plain = float(run.reward(obs, action, after, False))
        assert abs(reward - plain) > 1e-3


def test_a_batch_of_one_stays_a_batch(run: ti.Run) -> None:
    obs = np.linspace(-0.1, 0.1, run.policy.spaces.obs_dim)
    alone, batch = (run.policy.predict(given, deterministic=True)[0] for given in (obs, obs[None]))
    assert batch.shape == (1, *np.shape(alone))
    np.testing.assert_allclose(batch[0], alone, rtol=1e-6)
    assert run.policy.predict([list(obs)])[0].shape == batch.shape
    assert run.policy.predict((obs, obs, obs), deterministic=True)[0].shape == (3, *np.shape(alone))
    assert run.reward(obs[None], batch).shape == (1,)
    assert np.shape(run.reward(obs, alone)) == ()


@pytest.mark.parametrize("envs", [1, 2])
def test_a_vector_environment_is_played_as_stable_baselines_does(run: ti.Run, envs: int) -> None:
    """The loop of its `evaluate_policy`: observations of all environments in, actions of all out."""
    vector = gym.vector.SyncVectorEnv([lambda: gym.make(run.config["task"], max_episode_steps=5)] * envs)
    obs, _ = vector.reset(seed=0)
    states, starts = None, np.ones(envs, bool)
    returns, played = np.zeros(envs), np.zeros(envs, int)
    for _ in range(8):
        actions, states = run.policy.predict(obs, state=states, episode_start=starts, deterministic=True)
        assert actions.shape == vector.action_space.shape
        obs, rewards, terminated, truncated, _ = vector.step(actions)
        starts = terminated | truncated
        returns, played = returns + rewards, played + 1
    vector.close()
    assert np.isfinite(returns).all()
    assert run.reward(obs, actions).shape == (envs,)


def test_what_is_no_number_is_refused(run: ti.Run) -> None:
    obs = np.zeros((2, run.policy.spaces.obs_dim))
    actions = run.policy.predict(obs)[0]
    obs[1, 2] = np.nan
    for asked in (lambda: run.policy.predict(obs), lambda: run.reward(obs, actions)):
        with pytest.raises(ti.InputError, match="observation 1 has nan at entry 2"):
            asked()
    with pytest.raises(ti.InputError, match="has inf at entry 0"):
        run.policy.predict(np.full(run.policy.spaces.obs_dim, 1e300))
    for odd in (None, "left", [[0.0], [0.0, 1.0]], np.zeros(0)):
        with pytest.raises(ti.InputError, match="observations of"):
            run.policy.predict(odd)


def test_the_reward_of_another_task_is_refused_when_wrapping(run: ti.Run) -> None:
    with pytest.raises(ti.InputError, match="and Acrobot-v1 has obs_dim 6 instead of"):
        run.reward.wrap(gym.make("Acrobot-v1"))


@pytest.mark.slow  # kill -9 below and the expert's interruption (tests/control/test_expert.py) are quick
def test_an_interrupted_run_saves_and_resumes_to_the_same_metrics(run: ti.Run, tmp_path: Path) -> None:
    """A signal in the middle of an iteration: it is finished, saved, and the exit says how to go on."""
    task = run.config["task"]
    make = stopping(task, tmp_path / "run")
    with pytest.raises(ti.Interrupted, match=r"stopped after \d of 2 .*trustirl resume"):
        ti.train("piro", make, DEMOS[task](), seeds=2, steps=260, out=tmp_path / "run", **SETTINGS)
    assert not (tmp_path / "run" / "summary.json").exists()
    ti.resume(tmp_path / "run")
    assert metrics(tmp_path / "run") == metrics(run.path)
    once, again = (json.loads((path / "summary.json").read_text()) for path in (run.path, tmp_path / "run"))
    assert again["env_steps"] == once["env_steps"]


def test_checkpoints_that_do_not_fit_are_refused(run: ti.Run, tmp_path: Path) -> None:
    def broken(name: str) -> Path:
        copy = tmp_path / name
        shutil.copytree(run.path, copy)
        (copy / "summary.json").unlink()
        return copy

    cut = broken("cut")
    for file in (cut / "checkpoints").glob("0*.safetensors"):
        file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(ti.InputError, match="has changed since it was written, and no older checkpoint is whole"):
        ti.resume(cut)
    other = broken("other")
    config = RunFolder(other).config()
    config["plan"]["batch"] = 17
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(ti.InputError, match="belongs to another config"):
        ti.resume(other)
    newer = broken("newer")
    pointer = json.loads((newer / "checkpoints" / "latest.json").read_text())
    (newer / "checkpoints" / "latest.json").write_text(json.dumps(pointer | {"format_version": 99}))
    with pytest.raises(ti.InputError, match="has format 99"):
        ti.resume(newer)
    for folder in (cut, other, newer):
        assert metrics(folder) == metrics(run.path)  # nothing lost


class Poisoned(gym.Wrapper):
    """An environment whose observations turn into NaN."""

    steps = 0

    def step(self, action: Any) -> Any:
        obs, *rest = self.env.step(action)
        self.steps += 1
        return (obs * np.nan if self.steps > 450 else obs), *rest


def test_an_environment_that_returns_nan_stops_the_run(tmp_path: Path) -> None:
    def poisoned() -> gym.Env:
        return Poisoned(gym.make("Pendulum-v1"))

    with pytest.raises(ti.NumericalError, match="NaN or infinite observation"):  # in the third evaluation
        ti.train("piro", poisoned, pendulum_demo(), seeds=2, steps=260, out=tmp_path / "run", **SETTINGS)
    assert metrics(tmp_path / "run")  # what was good before is still there
    assert (tmp_path / "run" / "checkpoints" / "latest.json").exists()


@pytest.mark.slow
def test_a_solver_that_explodes_stops_the_run_and_is_named(tmp_path: Path) -> None:
    words = r"(policy|critic|actor|q|reward|gap).* became (nan|inf|-inf) at iteration"
    with pytest.raises(ti.NumericalError, match=words):
        ti.train(
            "ml-irl", "Pendulum-v1", pendulum_demo(), steps=260, learning_rate=1e30, out=tmp_path / "run", **SETTINGS
        )


def test_a_reward_that_explodes_stops_the_run_and_is_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(ti.NumericalError, match=r"became (nan|inf|-inf) at iteration 1 of seed 0"):
        ti.train("ml-irl", "CartPole-v1", cartpole_demo(), steps=260, reward_step=1e38, out=run, **SETTINGS)
    assert {row["iteration"] for row in metrics(run)} == {0}
    assert RunFolder(run).has_checkpoint()


@pytest.mark.parametrize("run", [pytest.param("CartPole-v1", marks=pytest.mark.slow), "Pendulum-v1"], indirect=True)
def test_kill_9_loses_nothing(run: ti.Run, tmp_path: Path) -> None:
    """In a process that computes exactly as this one does: the same precision, the same compiled programs."""
    task, out = run.config["task"], tmp_path / "run"
    env = os.environ | {"JAX_ENABLE_X64": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_PLATFORMS": "cpu"}
    demos = ["--demos", str(run.path / "demos.npz"), "--seeds", "2", "--steps", "260"]
    words = ["train", "piro", "--task", task, *demos, "--out", str(out), *flags()]
    process = subprocess.Popen([sys.executable, "-m", "trustirl", *words], env=env, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if (out / "metrics.jsonl").exists() and (out / "metrics.jsonl").read_text():
            process.kill()
    assert process.returncode == -signal.SIGKILL
    ti.resume(out)
    assert metrics(out) == metrics(run.path)


def command(task: str, demos: Path, out: Path, cache: Path) -> subprocess.Popen[bytes]:
    """`trustirl train` or, where a run was begun, `trustirl resume`, in a process of its own."""
    begin = ["train", "piro", "--task", task, "--demos", str(demos), "--steps", "340", "--out", str(out), *flags()]
    begun = (out / "config.json").exists() and (out / "manifest.json").exists() and (out / "metrics.jsonl").exists()
    words = ["resume", str(out)] if begun else [*begin, "--overwrite"]
    env = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "trustirl", *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    _, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint.decode()


def survives_kills(task: str, demos: ti.Demos, kills: int, tmp_path: Path) -> None:
    """kill -9 at random moments, resume each time: the metrics equal those of a run left in peace."""
    demos.save(tmp_path / "demos.npz")
    whole, broken, cache = tmp_path / "whole", tmp_path / "broken", tmp_path / "cache"
    finish(command(task, tmp_path / "demos.npz", whole, cache))  # fills the cache, so that resumed runs start fast
    began = time.monotonic()
    finish(command(task, tmp_path / "demos.npz", tmp_path / "timed", cache))
    usual = time.monotonic() - began
    moments = random.Random(0)
    done = 0
    while done < kills:
        process = command(task, tmp_path / "demos.npz", broken, cache)
        time.sleep(moments.uniform(0.2, 1.0) * usual)
        if process.poll() == 0:  # it was finished already: begin again
            assert metrics(broken) == metrics(whole)
            shutil.rmtree(broken)
            continue
        process.send_signal(signal.SIGKILL)
        process.communicate()
        done += 1
    if not (broken / "summary.json").exists():
        finish(command(task, tmp_path / "demos.npz", broken, cache))
    assert metrics(broken) == metrics(whole) == metrics(tmp_path / "timed")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1", "Hopper-v4"])
def test_kill_9_at_twenty_random_moments_loses_nothing(task: str, tmp_path: Path) -> None:
    demos = hopper_demo() if task == "Hopper-v4" else DEMOS[task]()
    survives_kills(task, demos, 20, tmp_path)
