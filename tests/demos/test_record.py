"""Recording: what the environment said, in the order in which it said it, and the way back."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.demos.samples import assert_sound
from tests.rollouts.worlds import Static, dict_space
from trustirl import DemoError
from trustirl.demos import Demos, restore_state


class Random:
    """A policy with Stable-Baselines3's signature."""

    def __init__(self, space: gym.Space) -> None:
        self._space = space
        space.seed(0)

    def predict(self, observation: Any, deterministic: bool = False) -> tuple[Any, None]:
        """Anything."""
        assert deterministic
        return self._space.sample(), None


def test_a_recording_is_what_happened() -> None:
    env = gym.wrappers.TimeLimit(gym.make("CartPole-v1"), 12)
    demos = Demos.record(lambda observation: int(observation[2] > 0) ^ int(observation[0] > 0.03), env, 6, seed=4)
    assert_sound(demos)
    np.testing.assert_array_equal(demos.states.astype(np.float32), demos.observations)  # CartPole shows all of it
    assert demos.provenance["env_id"] == "CartPole-v1"
    assert demos.provenance["seed"] == 4
    for number, episode in enumerate(demos):
        observation, _ = env.reset(seed=4 + number)
        for step, action in enumerate(episode.actions):
            np.testing.assert_array_equal(observation, episode.observations[step])
            observation, reward, terminated, truncated, _ = env.step(int(action))
            np.testing.assert_array_equal(observation, episode.next_observations[step])
            assert reward == episode.rewards[step]
            assert (terminated or truncated) == (step == len(episode.actions) - 1)
        assert terminated == episode.terminated[0]
    assert demos.terminated.any()
    assert not demos.terminated.all()


@pytest.mark.parametrize("task", ["Hopper-v5", "Ant-v5", "Pendulum-v1"])
def test_a_step_from_a_restored_state_is_the_recorded_one(task: str) -> None:
    env = gym.make(task)
    demos = Demos.record(Random(env.action_space), env, 2, seed=1)
    env.reset(seed=77)
    for step in np.random.default_rng(0).permutation(len(demos.actions))[:25]:
        restore_state(env, demos.states[step])
        observation, reward, *_ = env.step(demos.actions[step])
        np.testing.assert_array_equal(observation, demos.next_observations[step])
        assert reward == pytest.approx(demos.rewards[step], abs=0.05)  # see `restore_state`
        env.reset(seed=int(step))
    with pytest.raises(DemoError, match="states of"):
        restore_state(env, demos.states[0][1:])
    with pytest.raises(DemoError, match="has no state that can be set"):
        restore_state(gym.make("FrozenLake-v1"), demos.states[0])


def test_dictionaries_are_flattened_in_sorted_key_order() -> None:
    observation = {"target": np.array([4.0, 5.0]), "clock": np.array(3.0), "body": np.array([0.0, 1.0, 2.0])}
    env = gym.wrappers.TimeLimit(Static(dict_space(), gym.spaces.Discrete(2), observation), 3)
    demos = Demos.record(lambda _: 1, env, 1)
    np.testing.assert_array_equal(demos.observations, np.tile(np.arange(6), (3, 1)))
    np.testing.assert_array_equal(demos.actions, [1, 1, 1])


def test_what_cannot_be_recorded_is_refused() -> None:
    env = gym.make("CartPole-v1")
    with pytest.raises(DemoError, match="at least one episode"):
        Demos.record(lambda _: 0, env, 0)
    with pytest.raises(DemoError, match="a policy is a function"):
        Demos.record("expert", env, 1)
