"""A learned reward as people use it, NumPy in and NumPy out, whatever the world and the method.

Nothing here imports Gymnasium: a reward can be called where no environment is installed.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Num, PyTree

from trustirl.core.errors import RewardError, told_as
from trustirl.core.precision import double_precision
from trustirl.core.spaces import Finite, Spaces
from trustirl.core.types import Transition
from trustirl.rewards.origin import Origin
from trustirl.rollouts.spaces import from_env_actions, observation_rows, whole_numbers

if TYPE_CHECKING:
    import gymnasium as gym

    from trustirl.rewards.wrap import RewardReplaced, VectorRewardReplaced

Rows = Num[np.ndarray, "batch ..."]
Triple = tuple[Rows, Rows, Rows | None]  # observations, actions and, where they count, the observations that follow
LETTERS = {"action": "a", "next_obs": "s'"}


class Reward(ABC):
    """What pays: one learned reward, or the mean of several."""

    spaces: Spaces | Finite
    """What it was learned for."""
    needs: tuple[str, ...]
    """What it must be given beside the observation: of action, next_obs and terminated, those that it depends on."""

    @abstractmethod
    def __call__(
        self, obs: Any, action: Any = None, next_obs: Any = None, terminated: Any = None
    ) -> Float[np.ndarray, "..."] | np.floating:
        """Rewards of a batch of transitions, or of one."""

    @property
    def form(self) -> str:
        """What it depends on, as people write it: r(s), r(s, a), r(s, s') or r(s, a, s')."""
        return f"r({', '.join(['s', *(LETTERS[name] for name in self.needs if name in LETTERS)])})"

    def table(self) -> Float[np.ndarray, "states actions"]:
        """The reward of every state and action, where they are finitely many."""
        if not isinstance(self.spaces, Finite):
            raise RewardError(
                f"a reward of {self.spaces.name} has no table of its states; call it with observations."
            )
        return np.asarray(self(*np.indices((self.spaces.states, self.spaces.actions))))

    def wrap(self, env: "gym.Env", mix: float = 0.0) -> "RewardReplaced":
        """The environment with this reward in place of its own, which stays in info["true_reward"].

        `mix` is the share of the environment's own reward: (1 - mix) * learned + mix * own is paid.
        """
        from trustirl.rewards.wrap import RewardReplaced  # whoever wraps has Gymnasium, whoever calls need not

        return RewardReplaced(env, self, mix)

    def wrap_vec(self, envs: "gym.vector.VectorEnv", mix: float = 0.0) -> "VectorRewardReplaced":
        """The same for Gymnasium's vector environments, whatever their autoreset mode."""
        from trustirl.rewards.wrap import VectorRewardReplaced

        return VectorRewardReplaced(envs, self, mix)


class LearnedReward(Reward):
    """A recovered reward."""

    origin: Origin | None = None
    """Where it comes from: the run, the task, the demonstrations; None of runs from before that was written."""
    seed: int | None = None
    """The seed that learned it."""

    def __init__(
        self, function: Callable[[Transition], Any], spaces: Spaces | Finite, end_share: float = 0.0
    ) -> None:
        """`end_share` is how often an end counts its absorbing reward: g/(1-g) in mode T2, else 0.

        A function names in `needs` what it depends on beside the observation; one that does not is given the action.
        """
        self.function, self.spaces, self.end_share = function, spaces, end_share
        self.needs = tuple(getattr(function, "needs", ("action",)))
        self._precision = partial(precision_of, function)

    def __repr__(self) -> str:
        learned = f", learned by {self.origin.algorithm}" if self.origin else ""
        name = self.spaces.name if isinstance(self.spaces, Spaces) else f"{self.spaces.states} states"
        return f"<{self.form} of {name}{learned}{'' if self.seed is None else f', seed {self.seed}'}>"

    @property
    def bound(self) -> float | None:
        """Rewards stay within plus and minus this, if there is such a bound."""
        return getattr(self.function, "bound", None)

    @property
    def normalisation(self) -> tuple[Float[np.ndarray, " inputs"], Float[np.ndarray, " inputs"]] | None:
        """Mean and deviation by which its inputs are standardised, if they are."""
        moments = [getattr(self.function, name, None) for name in ("mean", "std")]
        return None if moments[0] is None else (np.asarray(moments[0]), np.asarray(moments[1]))

    @property
    def absorbing(self) -> float | None:
        """What each step after an end pays, for ever (mode T2); None where an end is paid nothing."""
        if not self.end_share:
            return None
        assert isinstance(self.spaces, Spaces)
        obs = np.zeros((1, self.spaces.obs_dim), np.float32)
        after = obs if "next_obs" in self.needs else None
        return float(self._values((obs, _no_actions(self.spaces, 1), after), np.zeros(1, bool), absorbing=True)[0])

    @property
    def end(self) -> float:
        """What a step that ends is paid on top: all that the absorbing state pays, discounted."""
        absorbing = self.absorbing
        return 0.0 if absorbing is None else self.end_share * absorbing

    @told_as(RewardError)
    def __call__(
        self, obs: Any, action: Any = None, next_obs: Any = None, terminated: Any = None
    ) -> Float[np.ndarray, "..."] | np.floating:
        """Rewards of a batch of transitions, or of one; what it does not depend on need not be given.

        A step that `terminated` also earns what the absorbing state pays for ever after (mode T2), so that any
        learner, for which nothing follows an end, sees the return that this reward was trained with.
        """
        given = {"action": action, "next_obs": next_obs, "terminated": terminated}
        if missing := [name for name in self.needs if given[name] is None]:
            raise RewardError(
                f"this reward depends on {' and '.join(missing)}: call reward(obs, action, next_obs, terminated)."
            )
        rows, shape = _observations(obs, self.spaces)
        acted = "action" in self.needs
        actions = _actions(action, self.spaces, shape) if acted else _no_actions(self.spaces, len(rows))
        after = _observations(next_obs, self.spaces)[0] if "next_obs" in self.needs else None
        if after is not None and len(after) != len(rows):
            raise RewardError(f"a reward needs one next_obs per observation, got {len(after)} and {len(rows)}.")
        triple, ended = (rows, actions, after), _ended(terminated, len(rows))
        values = self._values(triple, ended, absorbing=False)
        if self.end_share and ended.any():
            nothing = jax.tree.map(np.zeros_like, triple)
            values = values + np.where(ended, self.end_share * self._values(nothing, ended, absorbing=True), 0.0)
        return values.reshape(shape)[()]

    def _values(
        self, triple: Triple, ended: Bool[np.ndarray, " batch"], absorbing: bool
    ) -> Float[np.ndarray, " batch"]:
        with self._precision():
            flags = ended if "terminated" in self.needs else None
            return np.asarray(_paid(self.function, *triple, flags, np.full(len(ended), absorbing)))


class Rewards(Reward, Sequence[LearnedReward]):
    """The rewards of all seeds of a run; called, their mean."""

    def __init__(self, members: Iterable[LearnedReward]) -> None:
        """Rewards of the same spaces and inputs."""
        self._members = list(members)

    def __repr__(self) -> str:
        return f"Rewards({self._members})"

    @overload
    def __getitem__(self, place: int) -> LearnedReward: ...

    @overload
    def __getitem__(self, place: slice) -> "Rewards": ...

    def __getitem__(self, place: int | slice) -> "LearnedReward | Rewards":
        """One seed's reward, or those of several."""
        return Rewards(self._members[place]) if isinstance(place, slice) else self._members[place]

    def __len__(self) -> int:
        return len(self._members)

    @property
    def spaces(self) -> Spaces | Finite:  # type: ignore[override]
        """What they were learned for."""
        return self._first.spaces

    @property
    def needs(self) -> tuple[str, ...]:  # type: ignore[override]
        """What they must be given beside the observation."""
        return self._first.needs

    def each(
        self, obs: Any, action: Any = None, next_obs: Any = None, terminated: Any = None
    ) -> Float[np.ndarray, "seeds ..."]:
        """What the reward of each seed pays."""
        self._first  # noqa: B018  or say that there is none
        return np.stack([reward(obs, action, next_obs, terminated) for reward in self])

    def __call__(
        self, obs: Any, action: Any = None, next_obs: Any = None, terminated: Any = None
    ) -> Float[np.ndarray, "..."] | np.floating:
        """The mean over seeds."""
        return self.each(obs, action, next_obs, terminated).mean(axis=0)

    def spread(
        self, obs: Any, action: Any = None, next_obs: Any = None, terminated: Any = None
    ) -> Float[np.ndarray, "..."] | np.floating:
        """The standard deviation over seeds: where they disagree, demonstrations did not decide."""
        return self.each(obs, action, next_obs, terminated).std(axis=0)

    @property
    def _first(self) -> LearnedReward:
        if not self._members:
            raise RewardError("there is no reward here to call: this run learned none.")
        return self._members[0]


def precision_of(arrays: PyTree) -> AbstractContextManager[None]:
    """The precision of a reward's arrays, in which it is rebuilt and called: float64 of tables, float32 of nets."""
    double = any(getattr(leaf, "dtype", None) == np.float64 for leaf in jax.tree.leaves(arrays))
    return double_precision() if double else nullcontext()


@eqx.filter_jit
def _paid(
    function: Callable[[Transition], Any], obs: Any, action: Any, next_obs: Any, terminated: Any, absorbing: Any
) -> Array:
    """One program for the rewards of all seeds, which takes NumPy's arrays: steps come one at a time."""
    return function(Transition(obs, action, jnp.ones(len(obs)), next_obs, terminated, absorbing))


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
            raise RewardError(
                f"a reward needs one action per state, got shapes {numbers.shape} and {shape}."
            ) from None
    array, one = np.asarray(given), spaces.action_shape
    if array.shape[array.ndim - len(one) :] != one:
        raise RewardError(f"actions of {spaces.name} have shape {one}, got {array.shape}.")
    actions, _ = from_env_actions(spaces, array.reshape(-1, *one))
    if len(actions) != math.prod(shape):
        raise RewardError(f"a reward needs one action per observation, got {len(actions)} and {math.prod(shape)}.")
    return actions if spaces.discrete else actions.astype(np.float32)


def _no_actions(spaces: Spaces | Finite, count: int) -> Rows:
    """For a reward that sees none."""
    if isinstance(spaces, Finite) or spaces.discrete:
        return np.zeros(count, np.int32)
    return np.zeros((count, spaces.action_dim), np.float32)


def _ended(given: Any, count: int) -> Bool[np.ndarray, " batch"]:
    """Which of the transitions ended; one answer may stand for all."""
    flags = np.asarray(False if given is None else given, bool).ravel()
    if len(flags) not in (1, count):
        raise RewardError(f"a reward needs one terminated per observation, got {len(flags)} and {count}.")
    return np.broadcast_to(flags, (count,))
