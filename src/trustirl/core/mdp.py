"""A finite MDP as successor lists, so that its size grows with what can happen and not with states squared."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from trustirl.core.errors import InputError
from trustirl.core.types import Transition

FARTHEST = 0.99999  # discount: where ends are apart for good, a solution takes up to 28/(1-g) sweeps
COLDEST, HOTTEST = 1e-9, 1e9  # temperatures; beyond these, rounding decides


class Shared(eqx.Module):
    """Successor lists that many pairs have in common, and `which` of them each pair has: sweeps read each once."""

    which: Int[Array, "states actions"]
    successors: Int[Array, "lists successors"]
    probabilities: Float[Array, "lists successors"]


class MDP(eqx.Module):
    """States x actions x K successors with their probabilities; no reward inside.

    `temperature` weighs the policy's entropy (the paper sets it to 1). Where some actions are not `allowed`, policies
    never take them. `shared` says the same as `successors` and `probabilities`, more briefly.
    """

    successors: Int[Array, "states actions successors"]
    probabilities: Float[Array, "states actions successors"]
    initial: Float[Array, " states"]
    discount: Float[Array, ""]
    temperature: Float[Array, ""]
    allowed: Bool[Array, "states actions"] | None = None
    shared: Shared | None = None

    @property
    def states(self) -> int:
        """Number of states."""
        return int(self.successors.shape[0])

    @property
    def actions(self) -> int:
        """Number of actions."""
        return int(self.successors.shape[1])

    @property
    def mass(self) -> Float[Array, ""]:
        """Total mass of a discounted occupancy, 1/(1-discount)."""
        return 1.0 / (1.0 - self.discount)

    def pairs(self, weight: Float[Array, "states actions"] | None = None) -> Transition:
        """Every state-action pair, weighted (by default uniformly): the exact world's batch."""
        state, action = jnp.divmod(jnp.arange(self.states * self.actions, dtype=jnp.int32), self.actions)
        if weight is None:
            weight = jnp.ones((self.states, self.actions)) if self.allowed is None else self.allowed.astype(float)
        return Transition(state, action, weight.reshape(-1))

    def table(self, values: Float[Array, " pairs"]) -> Float[Array, "states actions"]:
        """What a reward function says of `pairs()`, as a table."""
        return values.reshape(self.states, self.actions)


def make_mdp(
    successors: ArrayLike,
    probabilities: ArrayLike,
    initial: ArrayLike,
    discount: float,
    temperature: float = 1.0,
) -> MDP:
    """Check the parts of an MDP and put them together; refuses what is not one, saying where."""
    succ, prob, start = np.asarray(successors), np.asarray(probabilities, float), np.asarray(initial, float)
    if succ.ndim != 3 or succ.shape != prob.shape or succ.size == 0:
        raise InputError(
            "successors and probabilities must be non-empty arrays of one shape (states, actions, successors), "
            f"got {succ.shape} and {prob.shape}."
        )
    if not np.issubdtype(succ.dtype, np.integer):
        raise InputError(f"successors must be integers, got {succ.dtype}; cast them with .astype(int).")
    if succ.min() < 0 or succ.max() >= len(succ):
        raise InputError(f"successors must lie in 0..{len(succ) - 1}, got {succ.min()}..{succ.max()}.")
    if start.shape != (len(succ),):
        raise InputError(f"initial must hold one probability per state ({len(succ)}), got shape {start.shape}.")
    _check_distribution(prob, "the successor probabilities of state {} and action {}")
    _check_distribution(start[None], "the initial probabilities")
    if not 0.0 < discount < 1.0:
        raise InputError(f"the discount must lie strictly between 0 and 1, got {discount}.")
    if discount > FARTHEST:
        raise InputError(
            f"the discount must be at most {FARTHEST}, got {discount}: beyond it, a single policy may take minutes."
        )
    if not COLDEST <= temperature <= HOTTEST:
        raise InputError(f"the temperature must lie between {COLDEST:g} and {HOTTEST:g}, got {temperature}.")
    return MDP(
        jnp.asarray(succ, jnp.int32),
        jnp.asarray(prob / prob.sum(-1, keepdims=True)),
        jnp.asarray(start / start.sum()),
        jnp.asarray(discount, dtype=float),
        jnp.asarray(temperature, dtype=float),
    )


def check_reward_table(reward: ArrayLike, mdp: MDP) -> Float[Array, "states actions"]:
    """A reward table of the right shape with finite entries, or an error that says which entry is not."""
    table = np.asarray(reward, float)
    if table.shape != (mdp.states, mdp.actions):
        raise InputError(
            f"the reward must be a table of {mdp.states} states x {mdp.actions} actions, got shape {table.shape}."
        )
    if not np.isfinite(table).all():
        state, action = np.argwhere(~np.isfinite(table))[0]
        raise InputError(
            f"the reward of state {state} and action {action} is {table[state, action]}; rewards must be finite."
        )
    return jnp.asarray(table)


def _check_distribution(probabilities: np.ndarray, what: str) -> None:
    bad = ~np.isfinite(probabilities).all(-1) | (probabilities < 0).any(-1)
    bad |= np.abs(probabilities.sum(-1) - 1.0) > 1e-8
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        total = probabilities[where].sum()
        raise InputError(
            f"{what.format(*where)} must be non-negative and sum to one, they sum to {total:.6g}; divide them by "
            "their sum if they are counts."
        )
