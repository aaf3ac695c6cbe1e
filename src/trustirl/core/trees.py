"""Pytrees as named arrays and back."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from trustirl.core.errors import InputError

Shape = jax.ShapeDtypeStruct


def tree_to_arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """Every array of a pytree under the name of its path; keys of JAX's generators become their data."""
    named, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {
        jax.tree_util.keystr(path): np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        for path, leaf in named
    }


def tree_from_arrays(like: PyTree, arrays: Mapping[str, np.ndarray], where: Path) -> PyTree:
    """Fill a pytree of the same structure, given as arrays or shapes; refuses other names, shapes or types."""
    dynamic, static = eqx.partition(like, lambda leaf: eqx.is_array(leaf) or isinstance(leaf, Shape))
    named, structure = jax.tree_util.tree_flatten_with_path(dynamic)
    wanted = {jax.tree_util.keystr(path) for path, _ in named}
    if wanted != arrays.keys():
        odd = sorted(wanted ^ arrays.keys())[0]
        raise InputError(f"{where} does not fit this configuration (first difference: {odd}); was it changed?")

    def fill(path: Any, leaf: jax.Array | Shape) -> jax.Array:
        stored = arrays[jax.tree_util.keystr(path)]
        data = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
        if stored.shape != data.shape or stored.dtype != data.dtype:
            raise InputError(
                f"{where} holds {jax.tree_util.keystr(path)} as {stored.dtype}{stored.shape}, but this configuration "
                f"needs {data.dtype}{data.shape}; was it changed?"
            )
        # Without a program, which JAX would compile, and keep, for every shape that somebody opens.
        value = jax.device_put(stored, may_alias=False)
        return jax.random.wrap_key_data(value) if _is_key(leaf) else value

    leaves = [fill(path, leaf) for path, leaf in named]
    return eqx.combine(jax.tree_util.tree_unflatten(structure, leaves), static)


def check_sizes(arrays: Mapping[str, np.ndarray], card: Path, seeds: int, depth: int, **sizes: int) -> None:
    """Refuse a card whose numbers its arrays cannot have, before anything of that size is built."""
    axes = [length for array in arrays.values() for length in array.shape]
    if {array.shape[:1] for array in arrays.values()} != {(seeds,)} or depth > len(arrays):
        raise InputError(f"{card} tells of other seeds or layers than are stored beside it; restore it.")
    for name, size in sizes.items():
        if size > max(axes):
            raise InputError(f"{card} says {name} {size}, more than any array beside it has; restore it.")


def stacked_shapes(make: Callable[[Array], PyTree], seeds: int) -> PyTree:
    """The shapes of what `make` makes of keys, for so many seeds at once; takes no memory."""
    keys = jax.vmap(jax.random.key)(jax.numpy.arange(seeds))
    return eqx.filter_eval_shape(eqx.filter_vmap(make), keys)


def _is_key(leaf: jax.Array | Shape) -> bool:
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))
