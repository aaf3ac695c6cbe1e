"""Files that are either whole or not there, and that hold data only, never code."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import safetensors.numpy
from jaxtyping import PyTree
from safetensors import SafetensorError

from trustirl.core.errors import InputError


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically: a reader, or a crash, sees the old content or the new, nothing between."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Any) -> None:
    """JSON for people: indented, and refusing NaN, which is no JSON."""
    write_bytes(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON that we wrote, or say in one sentence why it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; is {path.parent} a finished trustirl run?") from None
    except (OSError, ValueError):
        raise InputError(f"{path} is not readable JSON; restore it or repeat the run with --overwrite.") from None


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Named arrays as safetensors."""
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_bytes(path, safetensors.numpy.save(whole))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read named arrays, or say in one sentence why they cannot be read."""
    try:
        return safetensors.numpy.load_file(path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; is {path.parent} a trustirl run?") from None
    except (SafetensorError, OSError, ValueError):
        raise InputError(f"{path} is damaged or not a safetensors file; restore it or repeat the run.") from None


def tree_to_arrays(tree: PyTree) -> dict[str, np.ndarray]:
    """Every array of a pytree under the name of its path; keys of JAX's generators become their data."""
    named, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {jax.tree_util.keystr(path): np.asarray(_key_data(leaf)) for path, leaf in named}


def tree_from_arrays(like: PyTree, arrays: Mapping[str, np.ndarray], where: Path) -> PyTree:
    """Fill a pytree of the same structure; refuses arrays of other names, shapes or types."""
    dynamic, static = eqx.partition(like, eqx.is_array)
    named, structure = jax.tree_util.tree_flatten_with_path(dynamic)
    wanted = {jax.tree_util.keystr(path) for path, _ in named}
    if wanted != arrays.keys():
        odd = sorted(wanted ^ arrays.keys())[0]
        raise InputError(f"{where} does not fit this configuration (first difference: {odd}); was it changed?")

    def fill(path: Any, leaf: jax.Array) -> jax.Array:
        stored, data = arrays[jax.tree_util.keystr(path)], _key_data(leaf)
        if stored.shape != data.shape or stored.dtype != data.dtype:
            raise InputError(
                f"{where} holds {jax.tree_util.keystr(path)} as {stored.dtype}{stored.shape}, but this configuration "
                f"needs {data.dtype}{data.shape}; was it changed?"
            )
        value = jax.numpy.asarray(stored)
        return jax.random.wrap_key_data(value) if data is not leaf else value

    leaves = [fill(path, leaf) for path, leaf in named]
    return eqx.combine(jax.tree_util.tree_unflatten(structure, leaves), static)


def _key_data(leaf: jax.Array) -> jax.Array:
    is_key = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf
