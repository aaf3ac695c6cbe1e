"""Environments that pay a learned reward: one, or many in a vector, whatever their autoreset mode."""

from typing import Any

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import trustirl as ti
from trustirl.core.spaces import Finite, Spaces
from trustirl.core.types import Transition
from trustirl.nets.rewards import TableReward
from trustirl.rewards.reward import LearnedReward

COUNTER = Spaces(name="Counter", obs_dim=1, action_dim=2, discrete=True)


class Counter(gym.Env):
    """Counts its own steps and ends at 3, or, if `cut`, is cut there; its own reward is 100."""

    def __init__(self, cut: bool = False, first: float = 0.0, own: Any = 100.0) -> None:
        self.observation_space, self.action_space = Box(-np.inf, np.inf, (1,)), Discrete(2)
        self.cut, self.first, self.own = cut, first, own

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        self.count = 0
        return self._obs(), {}

    def step(self, action: int) -> tuple[np.ndarray, Any, bool, bool, dict]:
        self.count += 1
        over = self.count == 3
        return self._obs(), self.own, over and not self.cut, over and self.cut, {}

    def _obs(self) -> np.ndarray:
        return np.array([self.first + self.count], np.float32)


class TellsAll:
    """1000 for an end, 10 s', and s: every argument can be read off what is paid."""

    needs = ("next_obs", "terminated")

    def __call__(self, batch: Transition) -> Any:
        return batch.obs[:, 0] + 10 * batch.next_obs[:, 0] + 1000 * batch.terminated


def telling() -> LearnedReward:
    return LearnedReward(TellsAll(), COUNTER)


def played(envs: Any, steps: int) -> np.ndarray:
    envs.reset(seed=0)
    return np.stack([envs.step(np.zeros(2, int))[1] for _ in range(steps)])


def test_steps_that_only_reset_are_paid_nothing() -> None:
    """Next-step mode: the fourth step begins anew; 10, 21, 32 with or without an end, 0, and the same again."""
    envs = SyncVectorEnv([Counter, lambda: Counter(cut=True)])
    paid = played(telling().wrap_vec(envs), 6)
    np.testing.assert_array_equal(paid[:, 0], [10, 21, 1032, 0, 10, 21])
    np.testing.assert_array_equal(paid[:, 1], [10, 21, 32, 0, 10, 21])


def test_where_the_next_episode_begins_at_once_the_final_observation_is_what_followed() -> None:
    envs = SyncVectorEnv([Counter, lambda: Counter(first=5.0)], autoreset_mode=AutoresetMode.SAME_STEP)
    paid = played(telling().wrap_vec(envs), 5)
    np.testing.assert_array_equal(paid[:, 0], [10, 21, 1032, 10, 21])
    np.testing.assert_array_equal(paid[:, 1], [65, 76, 1087, 65, 76])


def test_episodes_that_are_begun_by_hand_are_paid_from_their_first_step() -> None:
    envs = SyncVectorEnv([Counter, Counter], autoreset_mode=AutoresetMode.DISABLED)
    env = telling().wrap_vec(envs)
    np.testing.assert_array_equal(played(env, 3)[:, 0], [10, 21, 1032])
    env.reset(options={"reset_mask": np.array([True, True])})
    np.testing.assert_array_equal(env.step(np.zeros(2, int))[1], [10, 10])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_vector_pays_what_its_environments_alone_are_paid(mode: AutoresetMode) -> None:
    """CartPole, played at random: the rewards of every episode, one after the other."""
    shape = Spaces(name="CartPole-v1", obs_dim=4, action_dim=2, discrete=True)

    class Linear:
        needs = ("action", "next_obs", "terminated")

        def __call__(self, batch: Transition) -> Any:
            return batch.obs.sum(1) - 2 * batch.next_obs[:, 1] + 3 * batch.terminated + 0.5 * batch.action

    reward = LearnedReward(Linear(), shape)
    envs = reward.wrap_vec(gym.make_vec("CartPole-v1", 2, "sync", vector_kwargs={"autoreset_mode": mode}))
    alone = [reward.wrap(gym.make("CartPole-v1")) for _ in range(2)]
    envs.reset(seed=[7, 8])
    for env, seed in zip(alone, (7, 8), strict=True):
        env.reset(seed=seed)
    over, random = np.zeros(2, bool), np.random.default_rng(0)
    for _ in range(60):
        actions = random.integers(2, size=2)
        _, paid, terminated, truncated, info = envs.step(actions)
        for place, env in enumerate(alone):
            if over[place] and mode is AutoresetMode.NEXT_STEP:
                env.reset()
                assert paid[place] == 0
                assert not info["_learned_reward"][place]
                continue
            _, expected, ended, cut, told = env.step(actions[place])
            assert paid[place] == pytest.approx(expected, rel=1e-5, abs=1e-5)
            assert info["true_reward"][place] == told["true_reward"] == 1
            if (ended or cut) and mode is AutoresetMode.SAME_STEP:
                env.reset()
        over = terminated | truncated
    envs.close()


def test_a_share_of_the_own_reward_can_be_mixed_in() -> None:
    env = telling().wrap(Counter(), mix=0.25)
    env.reset()
    _, paid, *_, info = env.step(0)
    assert paid == 0.75 * 10 + 0.25 * 100
    assert (info["learned_reward"], info["true_reward"]) == (10, 100)
    vector = telling().wrap_vec(SyncVectorEnv([Counter, Counter]), mix=1.0)
    np.testing.assert_array_equal(played(vector, 4)[:, 0], [100, 100, 100, 0])
    for mix in (-0.1, 1.5, float("nan")):
        with pytest.raises(ti.RewardError, match="from 0 to 1"):
            telling().wrap(Counter(), mix=mix)


def test_an_own_reward_that_is_not_asked_for_may_be_anything() -> None:
    env = telling().wrap(Counter(own=None))
    env.reset()
    assert env.step(0)[1] == 10


def test_a_reward_of_states_is_paid_whatever_the_actions_are() -> None:
    class State:
        needs = ()

        def __call__(self, batch: Transition) -> Any:
            return batch.obs[:, 0]

    reward = LearnedReward(State(), COUNTER)
    np.testing.assert_array_equal(reward([[1.0], [2.0]]), [1, 2])
    assert reward.form == "r(s)"
    env = Counter()
    env.action_space = Dict({"odd": Discrete(7)})
    wrapped = reward.wrap(env)
    wrapped.reset()
    assert wrapped.step({"odd": 1})[1] == 0


def test_environments_of_another_size_or_kind_are_refused() -> None:
    with pytest.raises(ti.RewardError, match="learned for Counter, and CartPole-v1 has obs_dim 4 instead of 1"):
        telling().wrap_vec(gym.make_vec("CartPole-v1", 2, "sync"))
    env = Counter()
    env.action_space = Discrete(3)
    acting = LearnedReward(lambda batch: batch.obs[:, 0], COUNTER)
    with pytest.raises(ti.RewardError, match="action_dim 3 instead of 2"):
        acting.wrap(env)
    env.observation_space = Box(0, 255, (8, 8, 3))
    with pytest.raises(ti.RewardError, match="only Box vectors"):
        acting.wrap(env)


def test_numbered_states_are_paid_where_observations_are_numbers() -> None:
    with ti.double_precision():
        reward = LearnedReward(TableReward(jnp.arange(64.0).reshape(16, 4)), Finite(16, 4))
    env = reward.wrap(gym.make("FrozenLake-v1", is_slippery=False))
    env.reset(seed=0)
    assert [env.step(action)[1] for action in (2, 1)] == [2, 5]
    envs = reward.wrap_vec(gym.make_vec("FrozenLake-v1", 2, "sync", is_slippery=False))
    envs.reset(seed=0)
    np.testing.assert_array_equal(envs.step(np.array([2, 1]))[1], [2, 1])
    with pytest.raises(ti.RewardError, match="16 numbered states and 4 actions, and FrozenLake"):
        reward.wrap(gym.make("FrozenLake-v1", map_name="8x8"))
