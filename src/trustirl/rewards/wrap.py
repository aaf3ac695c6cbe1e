"""Gymnasium environments that pay a learned reward: one, or many in a vector."""

from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Num

from trustirl.core.checks import of_kind
from trustirl.core.errors import RewardError, told_as
from trustirl.core.spaces import Finite, Spaces
from trustirl.rollouts.spaces import flatten_observations
from trustirl.tasks.gym import action_fields, observation_size


@runtime_checkable
class Pays(Protocol):
    """What a wrapper asks of a reward."""

    @property
    def spaces(self) -> Spaces | Finite:
        """What it was learned for."""

    @property
    def needs(self) -> tuple[str, ...]:
        """What it depends on beside the observation."""

    def __call__(self, obs: Any, action: Any, next_obs: Any, terminated: Any, /) -> Any:
        """Rewards."""


class RewardReplaced(gym.Wrapper):
    """An environment that pays a learned reward; `info` tells `true_reward` and `learned_reward`.

    Where the reward was learned in a range of actions, that is the action space.
    """

    def __init__(self, env: gym.Env, reward: Pays, mix: float = 0.0) -> None:
        """Wrap any environment with the observations and actions that the reward was learned for."""
        check_spaces(_name(env), env.observation_space, env.action_space, reward)
        super().__init__(env)
        self.learned_reward, self.mix = reward, _share(mix)
        if (ranged := _range(reward)) is not None:
            self.action_space = ranged

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._obs, info = self.env.reset(**arguments)
        return self._obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and pay what the learned reward says."""
        before = self._obs
        self._obs, own, terminated, truncated, info = self.env.step(action)
        learned = float(self.learned_reward(before, action, self._obs, terminated))
        told = {"true_reward": own, "learned_reward": learned}
        return self._obs, _mixed(learned, own, self.mix), terminated, truncated, info | told


class VectorRewardReplaced(VectorWrapper):
    """Vector environments that pay a learned reward; a step that only resets is paid nothing."""

    def __init__(self, envs: VectorEnv, reward: Pays, mix: float = 0.0) -> None:
        """Wrap any of Gymnasium's vectors of environments that the reward was learned for."""
        check_spaces(_name(envs), envs.single_observation_space, envs.single_action_space, reward)
        super().__init__(envs)
        self.learned_reward, self.mix = reward, _share(mix)
        if (ranged := _range(reward)) is not None:
            self.single_action_space, self.action_space = ranged, batch_space(ranged, self.num_envs)
        # The metadata may be those of the class, which other vectors share; where nothing is said, it is the default.
        said = getattr(envs.unwrapped, "autoreset_mode", envs.metadata.get("autoreset_mode"))
        self._mode = AutoresetMode.NEXT_STEP if said is None else AutoresetMode(said)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begin episodes, everywhere or where options["reset_mask"] says."""
        obs, info = self.env.reset(**arguments)
        self._rows, self._over = self._as_rows(obs), np.zeros(self.num_envs, bool)
        return obs, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step, and pay what the learned reward says."""
        obs, own, terminated, truncated, info = self.env.step(actions)
        before, after = self._rows, self._as_rows(obs)
        # An episode that was over began anew: the action was not played, and nothing led from one state to the other.
        played = ~self._over if self._mode is AutoresetMode.NEXT_STEP else np.ones(self.num_envs, bool)
        learned = self.learned_reward(before, actions, self._followed(after, info), terminated)
        learned = np.where(played, learned, 0.0)
        self._rows, self._over = after, terminated | truncated
        told = {"true_reward": own, "learned_reward": learned, "_true_reward": played, "_learned_reward": played}
        return obs, np.where(played, _mixed(learned, own, self.mix), 0.0), terminated, truncated, info | told

    def _followed(self, after: Num[np.ndarray, "envs ..."], info: dict[str, Any]) -> Num[np.ndarray, "envs ..."]:
        """What followed each step, also where `obs` is the next episode's first observation already."""
        ended: Bool[np.ndarray, " envs"] = info.get("_final_obs", np.zeros(self.num_envs, bool))
        if self._mode is not AutoresetMode.SAME_STEP or not ended.any():
            return after
        followed = after.copy()
        for env in np.flatnonzero(ended):
            followed[env] = self._as_rows(info["final_obs"][env], 1)[0]
        return followed

    def _as_rows(self, obs: Any, count: int | None = None) -> Num[np.ndarray, "count ..."]:
        """In fresh memory: a vector may write the next observations into the same."""
        count = self.num_envs if count is None else count
        if isinstance(self.learned_reward.spaces, Finite):
            return np.array(obs).reshape(count)
        return flatten_observations(obs, count)


@told_as(RewardError)
def check_spaces(name: str, observations: Space, actions: Space, reward: Pays) -> None:
    """Refuse an environment of other sizes or kinds than the reward sees; actions, where it sees them."""
    learned, acted = reward.spaces, "action" in reward.needs
    if isinstance(learned, Finite):
        wanted = [(observations, learned.states), *([(actions, learned.actions)] if acted else [])]
        if any(not isinstance(space, Discrete) or space.n != n or space.start != 0 for space, n in wanted):
            raise RewardError(
                f"the reward was learned for {learned.states} numbered states and {learned.actions} actions, and "
                f"{name} has {observations} and {actions}; use reward.table()."
            )
        return
    here: dict[str, Any] = {"obs_dim": observation_size(name, observations)}
    here |= action_fields(name, actions) if acted else {}
    if differ := [word for word, value in here.items() if not np.array_equal(value, getattr(learned, word))]:
        told = ", ".join(f"{word} {here[word]} instead of {getattr(learned, word)}" for word in differ)
        raise RewardError(f"the reward was learned for {learned.name}, and {name} has {told}; wrap that task.")


def _range(reward: Pays) -> Box | None:
    """The actions among which it was learned, if these are not all."""
    spaces = reward.spaces
    if isinstance(spaces, Finite) or spaces.range_low is None or spaces.bounds is None:
        return None
    low, high = spaces.bounds
    return Box(low, high, dtype=low.dtype.type)


def _name(env: gym.Env | VectorEnv) -> str:
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def _share(mix: float) -> float:
    mix = of_kind(float, "mix", mix)
    if not 0 <= mix <= 1:
        raise RewardError(f"mix is the share of the environment's own reward, from 0 to 1, got {mix}.")
    return mix


def _mixed(learned: Any, own: Any, mix: float) -> Any:
    """Without a share of it, the environment's own reward is not looked at: it may be anything."""
    return learned if mix == 0 else (1 - mix) * learned + mix * own
