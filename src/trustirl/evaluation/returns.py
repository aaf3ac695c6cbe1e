"""True returns of a policy, computed exactly."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trustirl.core.mdp import MDP
from trustirl.rl.exact import next_value


def episode_return(
    mdp: MDP, log_prob: Float[Array, "states actions"], reward: Float[Array, "states actions"], horizon: int
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean and standard deviation of the undiscounted return over `horizon` steps.

    First and second moments are propagated backwards: E[(r + R')^2] = r^2 + 2 r E[R'] + E[R'^2].
    """
    prob = jnp.exp(log_prob)

    def backward(moments: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        first, second = (next_value(mdp, moment) for moment in moments)
        later = jnp.sum(prob * (reward**2 + 2 * reward * first + second), axis=1)
        return (jnp.sum(prob * (reward + first), axis=1), later), None

    nothing = jnp.zeros(mdp.states)
    (first, second), _ = jax.lax.scan(backward, (nothing, nothing), length=horizon)
    mean = jnp.vdot(mdp.initial, first)
    variance = jnp.vdot(mdp.initial, second) - mean**2
    return mean, jnp.sqrt(jnp.maximum(variance, 0.0))


def mode(log_prob: Float[Array, "states actions"]) -> Float[Array, "states actions"]:
    """The deterministic policy that takes the likeliest action."""
    best = jnp.argmax(log_prob, axis=1)
    return jnp.where(jax.nn.one_hot(best, log_prob.shape[1], dtype=bool), 0.0, -jnp.inf)
