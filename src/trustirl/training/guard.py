"""Stops a run at the first number that is not finite, and names it."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from trustirl.core.errors import NumericalError
from trustirl.core.types import IrlState, Metrics


def check_finite(irl: IrlState, metrics: Metrics, iteration: int, first_seed: int = 0) -> None:
    """Check losses, rewards and networks of all seeds; optimiser states remember a bad gradient as NaN.

    An optimiser may begin with an infinity of its own (L-BFGS does), so there only NaN counts.
    """
    optimizer, rest = irl.optimizer, replace(irl, optimizer=None)
    calm = jax.tree.map(lambda x: jnp.where(jnp.isinf(x), 0.0, x), _floats(optimizer))
    tree = (metrics, {"optimizer": calm}, rest)
    flags = np.asarray(_finite(tree))
    if flags.all():
        return
    named, _ = jax.tree_util.tree_flatten_with_path(_floats(tree))
    leaf, seed = np.argwhere(~flags)[0]
    path = jax.tree_util.keystr(named[leaf][0][1:], simple=True, separator=".")
    values = np.asarray(named[leaf][1])[seed]
    bad = values[~np.isfinite(values)].ravel()[0]
    raise NumericalError(
        f"{path} became {bad} at iteration {iteration} of seed {first_seed + seed}; try a smaller step."
    )


@eqx.filter_jit
def _finite(tree: PyTree) -> Bool[Array, "leaves seeds"]:
    """One flag per array and seed, in one reduction on the device."""
    leaves = jax.tree.leaves(_floats(tree))
    return jnp.stack([jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1) for leaf in leaves])


def _floats(tree: PyTree) -> PyTree:
    return eqx.filter(tree, eqx.is_inexact_array)
