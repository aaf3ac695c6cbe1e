"""A learned reward as people use it, NumPy in and NumPy out, whatever the world."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Num, PyTree

from trustirl.core.errors import InputError
from trustirl.core.precision import double_precision
from trustirl.core.types import Transition
from trustirl.rollouts.spaces import from_env_actions, observation_rows, whole_numbers
from trustirl.tasks.gym import Spaces, described_spaces

Rows = Num[np.ndarray, "batch ..."]
Pairs = tuple[Rows, Rows, Rows | None]  # observations, actions and, where they count, the observations that follow


@dataclass(frozen=True)
class Finite:
    """The spaces of the exact world, whose states and actions are numbered."""

    states: int
    actions: int


class LearnedReward:
    """A recovered reward."""

    def __init__(
        self, function: Callable[[Transition], Any], spaces: Spaces | Finite, end_share: float = 0.0
    ) -> None:
        """`end_share` is how often an end counts its absorbing reward: g/(1-g) in mode T2, else 0.

        A function that depends on what follows names those of next_obs and terminated that it needs, in `needs`.
        """
        self.spaces, self._end_share = spaces, end_share
        self._needs: tuple[str, ...] = getattr(function, "needs", ())
        self._function, self._precision = eqx.filter_jit(function), partial(precision_of, function)

    def __call__(
        self, obs: Any, action: Any, next_obs: Any = None, terminated: Any = None
    ) -> Float[np.ndarray, "..."] | np.floating:
        """Rewards of a batch of transitions, or of one.

        A step that `terminated` also earns what the absorbing state pays for ever after (mode T2), so that any
        learner, for which nothing follows an end, sees the return that this reward was trained with.
        """
        given = {"next_obs": next_obs, "terminated": terminated}
        if missing := [name for name in self._needs if given[name] is None]:
            raise InputError(
                f"this reward depends on {' and '.join(missing)}: call reward(obs, action, next_obs, terminated)."
            )
        rows, shape = _observations(obs, self.spaces)
        actions = _actions(action, self.spaces, shape)
        after = _observations(next_obs, self.spaces)[0] if "next_obs" in self._needs else None
        if after is not None and len(after) != len(rows):
            raise InputError(f"a reward needs one next_obs per observation, got {len(after)} and {len(rows)}.")
        pairs, ended = (rows, actions, after), _ended(terminated, len(rows))
        values = self._values(pairs, ended, absorbing=False)
        if self._end_share and ended.any():
            nothing = jax.tree.map(np.zeros_like, pairs)
            values = values + np.where(ended, self._end_share * self._values(nothing, ended, absorbing=True), 0.0)
        return values.reshape(shape)[()]

    def table(self) -> Float[np.ndarray, "states actions"]:
        """The reward of every state and action, where they are finitely many."""
        if not isinstance(self.spaces, Finite):
            raise InputError(f"a reward of {self.spaces.name} has no table of its states; call it with observations.")
        return np.asarray(self(*np.indices((self.spaces.states, self.spaces.actions))))

    def wrap(self, env: gym.Env) -> "RewardReplaced":
        """The environment with this reward in place of its own, which stays in info["true_reward"]."""
        return RewardReplaced(env, self)

    def _values(
        self, pairs: Pairs, ended: Bool[np.ndarray, " batch"], absorbing: bool
    ) -> Float[np.ndarray, " batch"]:
        with self._precision():
            obs, action, next_obs = jax.tree.map(jnp.asarray, pairs)
            flags = jnp.asarray(ended) if "terminated" in self._needs else None
            batch = Transition(obs, action, jnp.ones(len(obs)), next_obs, flags, jnp.full(len(obs), absorbing))
            return np.asarray(self._function(batch))


class RewardReplaced(gym.Wrapper):
    """A Gymnasium environment that pays a learned reward."""

    def __init__(self, env: gym.Env, reward: LearnedReward) -> None:
        """Wrap any environment with the observations and actions that the reward was learned for."""
        if isinstance(reward.spaces, Finite):
            raise InputError("a reward of numbered states cannot be paid by an environment; use reward.table().")
        name = env.spec.id if env.spec else type(env.unwrapped).__name__
        here, learned = described_spaces(name, env), reward.spaces
        if differ := [word for word, value in here.items() if not np.array_equal(value, getattr(learned, word))]:
            told = ", ".join(f"{word} {here[word]} instead of {getattr(learned, word)}" for word in differ)
            raise InputError(f"the reward was learned for {learned.name}, and {name} has {told}; wrap that task.")
        super().__init__(env)
        self.learned_reward = reward

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._obs, info = self.env.reset(**arguments)
        return self._obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and pay what the learned reward says."""
        before = self._obs
        self._obs, true_reward, terminated, truncated, info = self.env.step(action)
        learned = float(self.learned_reward(before, action, self._obs, terminated))
        return self._obs, learned, terminated, truncated, info | {"true_reward": float(true_reward)}


def precision_of(arrays: PyTree) -> AbstractContextManager[None]:
    """The precision of a reward's arrays, in which it is rebuilt and called: float64 of tables, float32 of nets."""
    double = any(getattr(leaf, "dtype", None) == np.float64 for leaf in jax.tree.leaves(arrays))
    return double_precision() if double else nullcontext()


def _observations(given: Any, spaces: Spaces | Finite) -> tuple[Rows, tuple[int, ...]]:
    """Observations as rows, and the shape of their rewards."""
    if isinstance(spaces, Finite):
        states = whole_numbers(given, spaces.states, "state")
        return states.ravel(), states.shape
    rows, batched = observation_rows(given, spaces)
    return rows, (len(rows),) if batched else ()


def _actions(given: Any, spaces: Spaces | Finite, shape: tuple[int, ...]) -> Rows:
    """Actions as rows, one for each observation; of numbered ones, one for all will do."""
    if isinstance(spaces, Finite):
        numbers = whole_numbers(given, spaces.actions, "action")
        try:
            return np.broadcast_to(numbers, shape).ravel()
        except ValueError:
            raise InputError(
                f"a reward needs one action per state, got shapes {numbers.shape} and {shape}."
            ) from None
    array, one = np.asarray(given), spaces.action_shape
    if array.shape[array.ndim - len(one) :] != one:
        raise InputError(f"actions of {spaces.name} have shape {one}, got {array.shape}.")
    actions, _ = from_env_actions(spaces, array.reshape(-1, *one))
    if len(actions) != math.prod(shape):
        raise InputError(f"a reward needs one action per observation, got {len(actions)} and {math.prod(shape)}.")
    return actions if spaces.discrete else actions.astype(np.float32)


def _ended(given: Any, count: int) -> Bool[np.ndarray, " batch"]:
    """Which of the transitions ended; one answer may stand for all."""
    flags = np.asarray(False if given is None else given, bool).ravel()
    if len(flags) not in (1, count):
        raise InputError(f"a reward needs one terminated per observation, got {len(flags)} and {count}.")
    return np.broadcast_to(flags, (count,))
