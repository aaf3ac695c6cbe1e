"""Episodes in a known MDP, entirely in JAX."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from trustirl.core.mdp import MDP


def sample_episodes(
    mdp: MDP, log_prob: Float[Array, "states actions"], horizon: int, episodes: int, key: Array
) -> tuple[Int[Array, "episodes horizon"], Int[Array, "episodes horizon"]]:
    """States and actions of episodes that all run to the horizon, aligned as (s_t, a_t)."""
    start_key, walk_key = jax.random.split(key)
    log_initial, log_successor = jnp.log(mdp.initial), jnp.log(mdp.probabilities)
    start = jax.random.categorical(start_key, log_initial, shape=(episodes,))

    def advance(state: Array, step_key: Array) -> tuple[Array, tuple[Array, Array]]:
        action_key, next_key = jax.random.split(step_key)
        action = jax.random.categorical(action_key, log_prob[state])
        slot = jax.random.categorical(next_key, log_successor[state, action])
        return mdp.successors[state, action, slot].astype(state.dtype), (state, action)

    _, (states, actions) = jax.lax.scan(advance, start, jax.random.split(walk_key, horizon))
    return states.T, actions.T
