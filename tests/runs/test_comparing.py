"""Rewards compared as people compare them: a run with the truth, two rewards of a simulator, and what is refused."""

import json
from pathlib import Path

import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float

import trustirl as ti
from trustirl.cli.main import main
from trustirl.core.spaces import Finite
from trustirl.core.types import Transition
from trustirl.rewards.reward import LearnedReward
from trustirl.tasks.gym import make_control_task


def pendulum(batch: Transition) -> Float[Array, "..."]:
    """What Pendulum-v1 pays, of an observation (cos, sin, speed) and an action in [-1, 1]."""
    angle = jnp.arctan2(batch.obs[:, 1], batch.obs[:, 0])
    return -(angle**2 + 0.1 * batch.obs[:, 2] ** 2 + 0.001 * (2 * batch.action[:, 0]) ** 2)


def reward_of(function: object, task: str = "Pendulum-v1") -> LearnedReward:
    return LearnedReward(function, make_control_task(task))


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("grid") / "run"
    ti.train("mce", task="gridworld", task_args={"size": 3}, seeds=2, steps=60, out=out)
    return out


@pytest.mark.slow
def test_a_run_of_the_exact_world_beside_the_true_reward(grid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["reward", "compare", str(grid), "true", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["measures"]["pearson"]["mean"] > 0.99
    assert found["measures"]["epic"]["mean"] < 0.1
    assert found["measures"]["regret"]["mean"] < 0.02
    assert len(found["measures"]["starc"]["values"]) == 2
    assert found["measures"]["starc"]["low"] <= found["measures"]["starc"]["high"]
    same = ti.compare_rewards(grid, ti.load(grid))
    assert {name: round(measure.mean, 9) for name, measure in same.measures.items()} == {
        "pearson": 1,
        "spearman": 1,
        "epic": 0,
        "dard": 0,
        "starc": 0,
        "regret": 0,
        "regret_back": 0,
    }


def test_a_simulators_true_reward_is_known_where_steps_happened(capsys: pytest.CaptureFixture[str]) -> None:
    found = ti.compare_rewards(reward_of(pendulum), task="Pendulum-v1", episodes=3, transitions=200)
    assert found.measures["pearson"].mean == pytest.approx(1, abs=1e-4)
    assert found.measures["starc"].mean == pytest.approx(0, abs=1e-2)
    assert found.measures["pearson"].low == pytest.approx(1, abs=1e-4)
    assert set(found.missing) == {"epic", "dard", "regret", "regret_back"}
    assert "200 steps" in found.steps
    assert "random actions" in found.steps


def test_two_rewards_of_a_simulator_are_apart_by_more_than_a_potential_or_a_scale() -> None:
    def potential(obs: Array) -> Array:
        return 30 * obs[:, 0] - 10 * obs[:, 2]

    def shaped(batch: Transition) -> Float[Array, "..."]:
        return 2 * (pendulum(batch) + 0.99 * potential(batch.next_obs) - potential(batch.obs)) + 1

    def opposed(batch: Transition) -> Float[Array, "..."]:
        return -shaped(batch)

    for function in (shaped, opposed):
        function.needs = ("next_obs",)
    told = {"task": "Pendulum-v1", "episodes": 3, "transitions": 150}
    alike = ti.compare_rewards(reward_of(pendulum), reward_of(shaped), **told).measures
    apart = ti.compare_rewards(reward_of(pendulum), reward_of(opposed), **told).measures
    for name in ("epic", "dard", "starc"):
        assert alike[name].mean == pytest.approx(0, abs=0.03)
        assert apart[name].mean == pytest.approx(1, abs=0.03)
        assert alike[name].low <= alike[name].mean <= alike[name].high + 1e-9
    assert 0.05 < alike["pearson"].mean < 0.95


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (("true", "true"), "two true ones are the same"),
        (("{grid}", "true", "--task", "cliff"), "is not one of cliff of that size"),
        (("{grid}", "true", "--task", "Pendulum-v1"), "holds a reward of numbered states: name one of"),
        (("{grid}", "nowhere"), "nowhere/reward.json does not exist"),
        (("{grid}", "true", "--episodes", "0"), "episodes must be at least 1"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_sentence(
    grid: Path, asked: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reward", "compare", *(text.format(grid=grid) for text in asked)])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.splitlines()) == 1


def test_rewards_without_a_run_need_a_task_that_fits() -> None:
    with pytest.raises(ti.InputError, match="name the task"):
        ti.compare_rewards(reward_of(pendulum))
    with pytest.raises(ti.InputError, match="other observations or actions than CartPole-v1"):
        ti.compare_rewards(reward_of(pendulum), task="CartPole-v1")
    tables = [LearnedReward(lambda b: b.obs * 1.0, Finite(size, 2)) for size in (3, 4)]
    with pytest.raises(ti.InputError, match="rewards of worlds of different size"):
        ti.compare_rewards(*tables, task="chain")
