"""What the sampled solvers share: the soft Bellman target, what follows an end, and the critic-loss slot.

Termination modes (an end of the MDP; a time limit always bootstraps):

    T0   nothing follows, worth 0: the reward's sign then decides whether dying is good
    T2   an absorbing state follows, which pays r_abs for ever, worth r_abs/(1-g)

T3 is a wrapper of the environment that never ends; for a solver it is T0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num, PyTree

from trustirl.core.errors import InputError
from trustirl.core.measure import Reward
from trustirl.core.types import Metrics, Transition
from trustirl.rl.config import SolverConfig

Agent = TypeVar("Agent")
Prepared = TypeVar("Prepared")

STACK = 50  # updates whose minibatches are drawn at once
CAP_DRAWS = 8  # minibatches of the record in which the best reward is sought

Termination = Literal["T0", "T2"]
ActionValue = Callable[[Num[Array, "..."], Num[Array, "..."]], Float[Array, "members batch"]]
StateValue = Callable[[Num[Array, "..."]], Float[Array, " batch"]]


class Fit(NamedTuple):
    """What a critic loss can ask about one minibatch; only `q`, `v` and `partner` depend on what is fitted."""

    q: ActionValue  # each member's values
    v: StateValue  # the soft value of the current policy under the smallest member; for SAC at one sampled action
    partner: Reward | None  # a function that is fitted together with the critic, where the agent has one
    reward: Float[Array, " batch"]  # zero where a method has no explicit reward
    next_value: Float[Array, " batch"]  # of what follows, by the target critic; after an end, the end's value
    discount: float
    end: Callable[[Reward], Float[Array, ""]] = lambda _: jnp.zeros(())  # what follows an end, for such a reward

    @property
    def target(self) -> Float[Array, " batch"]:
        """r + g V(s')."""
        return self.reward + self.discount * self.next_value


CriticLoss = Callable[[Fit, Transition], Float[Array, ""]]
"""A scalar that is differentiated in the critic and its partner alone."""


def no_reward(batch: Transition) -> Float[Array, "..."]:
    """The reward of methods whose critic loss has its own, or implies one."""
    return jnp.zeros_like(batch.weight)


@dataclass(frozen=True)
class SideReward:
    """One constant for demonstrated rows and another for own ones; each side has its own after an end, too."""

    expert: float
    learner: float
    needs: ClassVar[tuple[str, ...]] = ("expert",)

    def __call__(self, batch: Transition) -> Float[Array, "..."]:
        """By the marks of the rows."""
        assert batch.expert is not None
        return jnp.where(batch.expert, self.expert, self.learner).astype(jnp.float32)


def squared_bellman_error(fit: Fit, batch: Transition) -> Float[Array, ""]:
    """The usual critic loss; every drawn row counts alike, whatever its weight."""
    return jnp.mean((fit.q(batch.obs, batch.action) - fit.target) ** 2)


def absorbing_pair(obs_dim: int, action: Num[Array, "1 ..."], expert: bool = False) -> Transition:
    """The pair that stands for every step after an end, of the learner or of the expert: a batch of one."""
    nowhere, no = jnp.zeros((1, obs_dim), jnp.float32), jnp.zeros(1, bool)
    return Transition(nowhere, action, jnp.ones(1, jnp.float32), nowhere, no, ~no, expert=no | expert)


class EndValue(NamedTuple):
    """The value of the state after an end; rewards that tell expert and learner apart pay each their own there."""

    learner: Float[Array, ""]
    expert: Float[Array, ""] | None

    def of(self, batch: Transition) -> Float[Array, "*#batch"]:
        """For each row."""
        if self.expert is None or batch.expert is None:
            return self.learner
        return jnp.where(batch.expert, self.expert, self.learner)

    @property
    def best(self) -> Float[Array, ""]:
        """The greater of both."""
        return self.learner if self.expert is None else jnp.maximum(self.learner, self.expert)


def terminal_value(
    reward: Reward, obs_dim: int, action: Num[Array, "1 ..."], discount: float, termination: Termination
) -> EndValue:
    """What an end is worth; rewards that tell expert and learner apart say so in `needs`."""
    if termination == "T0":
        return EndValue(jnp.zeros((), jnp.float32), None)
    told_apart = set(getattr(reward, "needs", ())) >= {"expert"}
    pairs = (absorbing_pair(obs_dim, action, expert) for expert in (False, True))
    learner, expert = (reward(pair)[0].astype(jnp.float32) / (1 - discount) for pair in pairs)
    return EndValue(learner, expert if told_apart else None)


def value_cap(
    config: SolverConfig,
    reward: Reward,
    draw: Callable[[Array], Transition],
    end_value: EndValue,
    key: Array,
) -> Float[Array, ""] | float:
    """The value of earning for ever the best reward among drawn steps, or of an end where that is more.

    A critic that learns from its own guesses can believe in more where nobody has been; no policy on record earns it.
    What a policy gets for its entropy comes on top.
    """
    if not config.cap_values:
        return jnp.inf
    keys = jax.random.split(jax.random.fold_in(key, 0), CAP_DRAWS)
    best = jnp.max(jax.vmap(lambda k: reward(draw(k)))(keys))
    return jnp.maximum(best.astype(jnp.float32) / (1 - config.discount), end_value.best)


def successors(batch: Transition) -> tuple[Num[Array, "batch ..."], Bool[Array, " batch"]]:
    """Next observations and end flags of a batch, or an error that says they are missing."""
    if batch.next_obs is None or batch.terminated is None:
        raise InputError("a policy step needs transitions with next_obs and terminated; let `draw` return both.")
    return batch.next_obs, batch.terminated


def updated(
    update: Callable[[Agent, Prepared], tuple[Agent, Metrics]],
    agent: Agent,
    prepare: Callable[[Array], Prepared],
    keys: Array,
) -> tuple[Agent, Metrics]:
    """An update per key, one after the other, and the means of what they tell.

    `prepare` makes what no update changes: while the policy improves its reward rests, so that minibatches are drawn
    and paid for many updates at once, by few large operations instead of many small ones that updates wait for.
    """
    stack = max(size for size in range(1, STACK + 1) if len(keys) % size == 0)

    arrays, static = eqx.partition(agent, eqx.is_array)  # a scan carries arrays only

    def updated_arrays(arrays: PyTree, prepared: Prepared) -> tuple[PyTree, Metrics]:
        agent, metrics = update(eqx.combine(arrays, static), prepared)
        return eqx.filter(agent, eqx.is_array), metrics

    def update_in_turn(arrays: PyTree, keys: Array) -> tuple[PyTree, Metrics]:
        return jax.lax.scan(updated_arrays, arrays, jax.vmap(prepare)(keys))

    arrays, metrics = jax.lax.scan(update_in_turn, arrays, keys.reshape(-1, stack, *keys.shape[1:]))
    return eqx.combine(arrays, static), jax.tree.map(jnp.mean, metrics)
