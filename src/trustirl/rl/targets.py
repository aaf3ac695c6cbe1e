"""What the sampled solvers share: the soft Bellman target, what follows an end, and the critic-loss slot.

Termination modes (an end of the MDP; a time limit always bootstraps):

    T0   nothing follows, worth 0: the reward's sign then decides whether dying is good
    T2   an absorbing state follows, which pays r_abs for ever, worth r_abs/(1-g)

T3 is a wrapper of the environment that never ends; for a solver it is T0.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num

from trustirl.core.errors import InputError
from trustirl.core.measure import Reward
from trustirl.core.types import Transition
from trustirl.rl.config import SolverConfig

CAP_DRAWS = 8  # minibatches of the record in which the best reward is sought

Termination = Literal["T0", "T2"]
ActionValue = Callable[[Num[Array, "..."], Num[Array, "..."]], Float[Array, "members batch"]]
StateValue = Callable[[Num[Array, "..."]], Float[Array, " batch"]]

CriticLoss = Callable[[ActionValue, StateValue, Transition, Float[Array, " batch"]], Float[Array, ""]]
"""`critic_loss(q, v, batch, target)`, a scalar that is differentiated in the critic alone.

`q(obs, action)` gives each member's values; `v(obs)` the soft value of the current policy under the smallest
member (for SAC at one sampled action); `target` is r + g V(s') by the target critic, a constant. A method without
an explicit reward passes a reward of zero, and then `target` is g V(s') alone.
"""


def squared_bellman_error(
    q: ActionValue, _v: StateValue, batch: Transition, target: Float[Array, " batch"]
) -> Float[Array, ""]:
    """The usual critic loss; every drawn row counts alike, whatever its weight."""
    return jnp.mean((q(batch.obs, batch.action) - target) ** 2)


def absorbing_pair(obs_dim: int, action: Num[Array, "1 ..."]) -> Transition:
    """The pair that stands for every step after an end: a batch of one."""
    nowhere, no = jnp.zeros((1, obs_dim), jnp.float32), jnp.zeros(1, bool)
    return Transition(nowhere, action, jnp.ones(1, jnp.float32), nowhere, no, ~no)


def terminal_value(reward: Reward, pair: Transition, discount: float, termination: Termination) -> Float[Array, ""]:
    """The value of the state after an end."""
    if termination == "T0":
        return jnp.zeros((), jnp.float32)
    return reward(pair)[0].astype(jnp.float32) / (1 - discount)


def value_cap(
    config: SolverConfig,
    reward: Reward,
    draw: Callable[[Array], Transition],
    end_value: Float[Array, ""],
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
    return jnp.maximum(best.astype(jnp.float32) / (1 - config.discount), end_value)


def soft_target(
    reward: Float[Array, " batch"],
    terminated: Bool[Array, " batch"],
    next_value: Float[Array, " batch"],
    end_value: Float[Array, ""],
    discount: float,
) -> Float[Array, " batch"]:
    """r + g V(s'), with the value of the end where there was one."""
    return reward.astype(next_value.dtype) + discount * jnp.where(terminated, end_value, next_value)


def successors(batch: Transition) -> tuple[Num[Array, "batch ..."], Bool[Array, " batch"]]:
    """Next observations and end flags of a batch, or an error that says they are missing."""
    if batch.next_obs is None or batch.terminated is None:
        raise InputError("a policy step needs transitions with next_obs and terminated; let `draw` return both.")
    return batch.next_obs, batch.terminated
