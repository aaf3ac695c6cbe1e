"""Terms of reward objectives, each written once, on weighted batches."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from trustirl.core.measure import Reward, expect
from trustirl.core.types import Transition


def gap(reward: Reward, demo: Transition, learner: Transition) -> Float[Array, ""]:
    """E_E[r] - E_pi[r], per step: (1-g) times the part of ell_old that depends on r (Equation 5c)."""
    return expect(reward, demo) - expect(reward, learner)


def squared_change(reward: Reward, old: Reward, reference: Transition) -> Float[Array, ""]:
    """sum (r - r_old)^2 over the reference pairs: smooth, with a guarantee (theory, section 3)."""
    return jnp.sum((reward(reference) - old(reference)) ** 2)


def drift(reward: Reward, old: Reward, reference: Transition) -> Float[Array, ""]:
    """eps_bar, Equation 8: the L2 norm of the reward's change.

    The root has a kink at r = r_old, where its plain gradient is NaN; here it is 0.
    """
    squared = squared_change(reward, old, reference)
    return jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1.0)), 0.0)
