"""A batch is a measure: one estimator serves samples and exact occupancies alike."""

from collections.abc import Callable
from dataclasses import replace

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


def sample(batch: Transition, count: int, key: Array) -> Transition:
    """Rows drawn with probability proportional to their weights, each then of weight one."""
    total = jnp.cumsum(batch.weight)
    points = jax.random.uniform(key, (count,), total.dtype) * total[-1]
    index = jnp.searchsorted(total, points, side="right").clip(0, total.size - 1)
    rows = jax.tree.map(lambda x: x[index], batch)
    return replace(rows, weight=jnp.ones_like(rows.weight))


def minibatches(size: int) -> Draw:
    """Fresh minibatches of `size` expert and `size` learner pairs for every optimiser step."""

    def draw(data: RewardData, times: int, key: Array) -> tuple[Transition, Transition]:
        demo_keys, learner_keys = jax.random.split(key, (2, times))
        demo = jax.vmap(lambda k: sample(data.demo, size, k))(demo_keys)
        return demo, jax.vmap(lambda k: sample(data.learner, size, k))(learner_keys)

    return draw


def concat(*batches: Transition) -> Transition:
    """One measure of several, rows after rows."""
    return jax.tree.map(lambda *rows: jnp.concatenate(rows), *batches)


def split_first(batches: PyTree) -> tuple[PyTree, PyTree]:
    """Stacked minibatches as the first one (still stacked) and the rest, of which there may be none."""
    return jax.tree.map(lambda x: x[:1], batches), jax.tree.map(lambda x: x[1:], batches)
