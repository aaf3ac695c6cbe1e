"""A ring buffer as a pytree: what was seen, never what it was worth."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from trustirl.core.types import Transition


class Buffer(eqx.Module):
    """Rows of transitions; once full, the oldest are overwritten."""

    rows: Transition
    size: Int[Array, ""]
    next: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """Most rows it can hold."""
        return int(self.rows.weight.shape[0])


def empty_buffer(capacity: int, example: Transition) -> Buffer:
    """Room for `capacity` rows shaped like one row of `example`."""
    rows = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype), example)
    return Buffer(rows, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def add(buffer: Buffer, batch: Transition) -> Buffer:
    """Append the rows of a batch, one index for all fields."""
    count = batch.weight.shape[0]
    slots = (buffer.next + jnp.arange(count, dtype=jnp.int32)) % buffer.capacity
    rows = jax.tree.map(lambda kept, new: kept.at[slots].set(new.astype(kept.dtype)), buffer.rows, batch)
    return Buffer(rows, jnp.minimum(buffer.size + count, buffer.capacity), (buffer.next + count) % buffer.capacity)


def draw(buffer: Buffer, key: Array, count: int) -> Transition:
    """Rows drawn uniformly with replacement, one index for all fields."""
    index = jax.random.randint(key, (count,), 0, buffer.size)
    return jax.tree.map(lambda x: x[index], buffer.rows)
