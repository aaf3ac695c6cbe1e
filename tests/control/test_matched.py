"""What is said of demonstrations before a run begins: what is wrong with them, and what cannot be compared."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import register

from tests.control.small import experiment
from trustirl.demos.inspect import inspect
from trustirl.demos.schema import Demos
from trustirl.worlds.matching import Matched, matched


@pytest.fixture(autouse=True, scope="module")
def door() -> Any:
    """A task with a dense and a sparse reward, as robots have them."""
    for name in ("Door-v1", "DoorSparse-v1"):
        register(name, "gymnasium.envs.classic_control.cartpole:CartPoleEnv", max_episode_steps=20)
    yield
    for name in ("Door-v1", "DoorSparse-v1"):
        gym.registry.pop(name)


def demos(steps: int = 30, rewards: float | None = 1.0, **provenance: Any) -> Demos:
    rng = np.random.default_rng(0)
    paid = None if rewards is None else np.full(steps, rewards)
    return Demos.from_numpy(
        rng.normal(size=(steps, 4)), rng.integers(2, size=steps), rewards=paid, provenance=provenance
    )


def given(demos: Demos, task: str = "Door-v1", **task_args: Any) -> Matched:
    return matched(replace(experiment(), task=task, task_args=task_args), False, demos)


def test_problems_are_told_when_training_begins_each_with_its_cure() -> None:
    """People's demonstrations of a door last longer than the task does."""
    told = given(demos(30))
    problems = [
        finding.sentence for finding in inspect(told.demos, told.task).findings if finding.severity == "problem"
    ]
    assert len(problems) == 1
    notes = [note for note in told.notes() if note.startswith("episode 0 of the demos: ")]
    assert [f"{note.removeprefix('episode 0 of the demos: ')}." for note in notes] == problems
    assert "--task-args max_episode_steps=30" in notes[0]
    cured = given(demos(30), max_episode_steps=30)
    assert (cured.notes(), cured.expert_return()) == ([], {"expert_return": 30.0})
    assert cured.task.horizon == 30


@pytest.mark.parametrize(
    ("shown", "asked", "why"),
    [
        (demos(30), {}, "demonstrated episodes last up to 30 steps, and the task stops after 20"),
        (demos(20, env_id="Door-v1"), {"task": "DoorSparse-v1"}, "Door-v1 pays another reward than DoorSparse-v1"),
        (
            demos(20, env_id="Door-v1", env_kwargs={"sutton_barto_reward": False}),
            {"sutton_barto_reward": True},
            "they were recorded without sutton_barto_reward=True",
        ),
        (demos(20, rewards=1.7e308), {}, "they are too large to be added up"),
    ],
)
def test_returns_that_cannot_be_compared_are_left_out_with_a_sentence(
    shown: Demos, asked: dict[str, Any], why: str
) -> None:
    told = given(shown, **asked)
    assert told.expert_return() == {}
    assert told.facts()["expert_incomparable"] == why
    assert f"the demos' returns are not shown as the expert's: {why}" in told.notes()


@pytest.mark.parametrize(
    "shown",
    [demos(20), demos(20, env_id="Door-v1", env_kwargs={"render_mode": "x"}), demos(15, env_id="Door-v0")],
)
def test_other_returns_are_the_experts(shown: Demos) -> None:
    told = given(shown)
    assert told.expert_return() == {"expert_return": float(len(shown.actions))}
    assert "expert_incomparable" not in told.facts()
    assert given(demos(30, rewards=None)).incomparable() == ""
