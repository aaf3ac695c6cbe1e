"""Tasks that tell a position and a goal: the way that is left is seen, and all three are on one scale."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from hypothesis import given
from hypothesis import strategies as st

import trustirl as ti
from tests.control.small import SETTINGS
from trustirl.core.observations import Goal, flatten, goal_in
from trustirl.core.types import Transition
from trustirl.nets.mlp import CONSTANT, LEAST_SCALE, OBS_LIMIT, scales, standardiser
from trustirl.nets.rewards import network_reward_factory
from trustirl.rewards.reward import LearnedReward
from trustirl.tasks.gym import make_control_task
from trustirl.worlds.matching import standards


class Reach(gym.Env):
    """A point in a plane that goes where the action says, and a goal that is drawn anew; what is seen comes last."""

    def __init__(self) -> None:
        parts = {"achieved_goal": 2, "desired_goal": 2, "observation": 1}
        self.observation_space = Dict({name: Box(-np.inf, np.inf, (size,)) for name, size in parts.items()})
        self.action_space = Box(-1, 1, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        super().reset(seed=seed)
        self.place, self.goal = np.zeros(2), self.np_random.uniform(-20, 20, 2)
        return self._seen(), {}

    def step(self, action: np.ndarray) -> tuple[dict, float, bool, bool, dict]:
        self.place = self.place + action
        near = float(np.linalg.norm(self.goal - self.place)) < 1
        return self._seen(), float(near), False, False, {"success": near}

    def _seen(self) -> dict[str, np.ndarray]:
        seen = {"achieved_goal": self.place, "desired_goal": self.goal, "observation": self.place[:1] * 0 + 5}
        return {name: part.astype(np.float32) for name, part in seen.items()}


def reach(**_: Any) -> gym.Env:
    return gym.wrappers.TimeLimit(Reach(), 20)


def shown(episodes: int = 3) -> ti.Demos:
    def act(obs: dict) -> np.ndarray:
        return np.clip(obs["desired_goal"] - obs["achieved_goal"], -1, 1)

    return ti.Demos.record(act, reach(), episodes)


def test_the_way_that_is_left_comes_last_wherever_observations_come_from() -> None:
    demos = shown()
    task = make_control_task(reach)
    assert (task.obs_dim, task.goal) == (7, Goal(0, 2, 2))
    obs = demos.observations
    assert obs.shape[1] == 7
    np.testing.assert_array_equal(obs[:, 5:], (obs[:, 2:4] - obs[:, :2]).astype(np.float32))
    parts = {"achieved_goal": obs[:, :2], "desired_goal": obs[:, 2:4], "observation": obs[:, 4:5]}
    flat = ti.Demos.from_numpy(parts, demos.actions, demos.episode_ends)
    np.testing.assert_array_equal(flat.observations, obs)
    padded = {name: part.reshape(3, 20, -1) for name, part in parts.items()}
    np.testing.assert_array_equal(
        ti.Demos.from_numpy(padded, demos.actions.reshape(3, 20, -1), lengths=[20, 20, 20]).observations, obs
    )
    episodes = [{name: part[first : first + 20] for name, part in parts.items()} for first in (0, 20, 40)]
    listed = ti.Demos.from_numpy(episodes, [demos.actions[first : first + 20] for first in (0, 20, 40)])
    np.testing.assert_array_equal(listed.observations, obs)
    with pytest.raises(ti.DemoError, match="one row per step in each part"):
        ti.Demos.from_numpy(parts | {"observation": obs[:5, 4:5]}, demos.actions)


def test_other_dictionaries_stay_as_they_are() -> None:
    assert goal_in({"achieved_goal": 2, "observation": 3}) is None
    assert goal_in({"achieved_goal": 2, "desired_goal": 3}) is None
    assert goal_in({"a": 4, "achieved_goal": 2, "b": 1, "desired_goal": 2}) == Goal(4, 7, 2)
    several = {"achieved_goal": {"kettle": np.ones(2)}, "desired_goal": {"kettle": np.ones(2)}}
    assert flatten(several, 1).shape == (1, 4)


@given(st.integers(0, 1000), st.floats(0.01, 100), st.booleans())
def test_standardised_the_difference_is_still_the_difference(seed: int, size: float, alone: bool) -> None:
    """And a goal that one demonstration never changes, which other episodes will, is far from the clip."""
    rng = np.random.default_rng(seed)
    place, goal = size * rng.normal(size=(50, 2)) + 3, size * rng.normal(size=(50, 2))
    goal = goal[:1].repeat(50, axis=0) if alone else goal
    rows = flatten({"achieved_goal": place, "desired_goal": goal, "observation": np.zeros((50, 1))}, 50)
    demos = ti.Demos.from_numpy(rows, rng.normal(size=(50, 2)))
    mean, scale = standards(demos, Goal(0, 2, 2))
    seen = np.asarray(standardiser(mean, scale)(rows.astype(np.float32)))
    np.testing.assert_allclose(seen[:, 5:], seen[:, 2:4] - seen[:, :2], atol=1e-4)
    assert len(set(scale[[0, 1, 2, 3, 5, 6]].tolist())) == 1
    other = rows[:1] + np.array([0, 0, size, -size, 0, size, -size])
    assert np.abs(standardiser(mean, scale)(other.astype(np.float32))).max() < OBS_LIMIT


@pytest.mark.parametrize("task", ["Ant-v4", "HalfCheetah-v4", "Hopper-v4", "Humanoid-v4", "Walker2d-v4"])
def test_nothing_that_runs_or_hops_has_such_columns(task: str) -> None:
    """What is constant is constant to the bit there, so that their inputs are what they were."""
    for demos in (ti.Demos.packaged(task).take(1), ti.Demos.packaged(task)):
        mean, deviation = (moment.ravel() for moment in demos.statistics())
        plain = np.where(deviation > CONSTANT, np.maximum(deviation.astype(np.float32), LEAST_SCALE), np.float32(1))
        np.testing.assert_array_equal(standards(demos), [mean.astype(np.float32), plain])


def test_a_column_that_hardly_varies_is_not_blown_up() -> None:
    deviation, mean = np.array([1e-9, 1e-4, 1e-4, 5e-3, 30.0, 0.5]), np.array([4.0, 20.0, 0.01, 1.0, 1e6, 2.0])
    np.testing.assert_allclose(scales(deviation, mean), [1, 1, 0.01, 0.01, 30, 0.5], rtol=1e-6)


def test_rewards_see_the_same_and_are_paid_where_observations_are_dictionaries() -> None:
    demos, task = shown(), make_control_task(reach)
    seen, done = jnp.asarray(demos.observations), jnp.asarray(demos.actions, jnp.float32)
    pairs = Transition(seen, done, jnp.ones(60), seen)
    for inputs in ("state-action", "transition"):
        made = network_reward_factory(pairs, 0, inputs, 8, 1, 10.0, task.goal)(jax.random.key(0))
        reward = LearnedReward(made, task)
        for first in (0, 7) if inputs == "transition" else (0,):
            moments = [moment[first : first + 7] for moment in reward.normalisation]
            np.testing.assert_allclose(moments, standards(demos, task.goal), rtol=1e-5, atol=1e-6)
        env = reward.wrap(reach())
        env.reset(seed=0)
        assert env.step(np.ones(2))[1] == 0  # as every network reward at first


@pytest.mark.slow
def test_a_goal_task_is_learned_and_evaluated(tmp_path: Path) -> None:
    run = ti.train("ml-irl", reach, shown(), seeds=1, steps=260, out=tmp_path / "run", **SETTINGS)
    assert "success" in run.summary
    obs, _ = reach().reset(seed=0)
    assert run.policy.predict(obs)[0].shape == (2,)
    batch = {name: np.stack([part, part]) for name, part in obs.items()}
    assert run.policy.predict(batch)[0].shape == (2, 2)


def test_demonstrations_without_the_difference_are_told_how_to_be_given() -> None:
    demos = shown()
    short = ti.Demos.from_numpy(demos.observations[:, :5], demos.actions, demos.episode_ends)
    with pytest.raises(ti.DemoError, match="give them as a dictionary"):
        ti.train("ml-irl", reach, short, steps=260, **SETTINGS)
