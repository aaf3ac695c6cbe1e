"""A batch is a measure: one estimator serves samples and exact occupancies alike."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from trustirl.core.types import RewardData, Transition

Reward = Callable[[Transition], Float[Array, "..."]]
Draw = Callable[[RewardData, int, Array], tuple[Transition, Transition]]
"""Stacked minibatches of the expert's and the learner's measure, one per optimiser step."""


def expect(f: Reward, batch: Transition) -> Float[Array, ""]:
    """E[f] under the batch's own weights; the weights need not sum to one."""
    return jnp.sum(batch.weight * f(batch)) / jnp.sum(batch.weight)


def whole(data: RewardData, times: int, _key: Array) -> tuple[Transition, Transition]:
    """Minibatches of a world where nothing is sampled: the whole measures, once per optimiser step."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (times, *x.shape)), (data.demo, data.learner))


def split_first(batches: PyTree) -> tuple[PyTree, PyTree]:
    """Stacked minibatches as the first one (still stacked) and the rest, of which there may be none."""
    return jax.tree.map(lambda x: x[:1], batches), jax.tree.map(lambda x: x[1:], batches)
