"""A ring buffer as a pytree: what was seen, never what it was worth."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from trustirl.core.types import Transition


class Buffer(eqx.Module):
    """Rows of transitions; once full, the oldest are overwritten."""

    rows: Transition
    added: Int[Array, "..."]  # rows ever added; row number i lies at i % capacity

    @property
    def capacity(self) -> int:
        """Most rows it can hold."""
        return int(self.rows.weight.shape[-1])

    @property
    def size(self) -> Int[Array, "..."]:
        """Rows it holds."""
        return jnp.minimum(self.added, self.capacity)


def empty_buffer(capacity: int, example: Transition) -> Buffer:
    """Room for `capacity` rows shaped like one row of `example`."""
    rows = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype), example)
    return Buffer(rows, jnp.zeros((), jnp.int32))


def add(buffer: Buffer, batch: Transition) -> Buffer:
    """Append the rows of a batch, one index for all fields; of more than fit the last ones stay."""
    count = batch.weight.shape[0]
    skipped = max(0, count - buffer.capacity)  # written too, they would share slots with those that stay
    slots = (buffer.added + jnp.arange(skipped, count, dtype=jnp.int32)) % buffer.capacity
    rows = jax.tree.map(lambda kept, new: kept.at[slots].set(new[skipped:].astype(kept.dtype)), buffer.rows, batch)
    return Buffer(rows, buffer.added + count)


def draw(buffer: Buffer, key: Array, count: int) -> Transition:
    """Rows drawn uniformly with replacement, one index for all fields."""
    index = jax.random.randint(key, (count,), 0, buffer.size)
    return jax.tree.map(lambda x: x[index], buffer.rows)
