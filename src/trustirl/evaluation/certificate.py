"""The certified step of theory section 4, as a curve over how well the policy was solved."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trustirl.core.mdp import MDP
from trustirl.irl.certificates import certified_step, smoothness


def certificate_curve(
    mdp: MDP,
    expert: Float[Array, "states actions"],
    learner: Float[Array, "states actions"],
    points: int = 60,
) -> dict[str, float | list[float]]:
    """How large a reward step is proven to raise ell when the policy is only delta-optimal."""
    constant = smoothness(mdp.temperature, mdp.discount)
    occupancy_gap = jnp.sum(jnp.abs(expert - learner))
    largest = float(occupancy_gap**2 / (8 * constant))
    delta = jnp.asarray(np.geomspace(max(largest, 1e-12) * 1e-6, max(largest, 1e-12) * 10, points))
    step, gain = certified_step(occupancy_gap, constant, delta)
    return {
        "delta": delta.tolist(),
        "step": step.tolist(),
        "gain": gain.tolist(),
        "largest_delta": largest,
        "constant": float(constant),
        "occupancy_gap": float(occupancy_gap),
    }
