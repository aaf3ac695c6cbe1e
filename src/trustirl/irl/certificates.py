"""How far a reward may move: bounds on what the surrogate ell_old overstates.

g is the discount, a the temperature, eps the largest change of the reward, osc(u) = max u - min u.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

Scalar = float | Float[Array, ""]


def paper_constant(actions: int, largest_reward: Scalar, discount: Scalar) -> Float[Array, ""]:
    """C of Theorem 1: ell >= ell_old - C eps. Valid, and so large that the best step is no step."""
    remaining = 1 - discount
    log_actions = jnp.log(float(actions))
    entropy_part = (discount - discount**2 + 2) * actions * log_actions
    reward_part = (5 - discount) * actions * largest_reward
    return 2 * actions / remaining**2 + (reward_part + entropy_part) / remaining**4


def smoothness(temperature: Scalar, discount: Scalar) -> Float[Array, ""]:
    """K = 1/(a (1-g)^3): f is K-smooth in the sup norm, so ell >= ell_old - (K/2) eps^2."""
    return jnp.asarray(1.0 / (temperature * (1 - discount) ** 3))


def quadratic_error(change: Float[Array, "..."], constant: Scalar, suboptimality: Scalar = 0.0) -> Float[Array, ""]:
    """ell_old - ell <= (sqrt(delta) + (osc/2) sqrt(K/2))^2 for a delta-suboptimal pi_old.

    osc/2 stands for eps: shifting every reward by one constant changes neither side.
    """
    half_oscillation = (jnp.max(change) - jnp.min(change)) / 2
    return (jnp.sqrt(suboptimality) + half_oscillation * jnp.sqrt(constant / 2)) ** 2


def certified_step(
    occupancy_gap: Scalar, constant: Scalar, suboptimality: Float[Array, "..."]
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """The best tabular step eps for G = |rho_E - rho_old|_1, and the increase of ell that it guarantees.

    It maximises G eps - (sqrt(delta) + eps sqrt(K/2))^2, which is positive only while delta < G^2/(8K).
    """
    step = (occupancy_gap - jnp.sqrt(2 * constant * suboptimality)) / constant
    gain = step**2 * constant / 2 - suboptimality
    certified = (step > 0) & (gain > 0)
    return jnp.where(certified, step, 0.0), jnp.where(certified, gain, 0.0)
