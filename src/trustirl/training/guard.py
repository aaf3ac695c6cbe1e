"""Stops a run at the first number that is not finite, and names it."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from trustirl.core.compiling import compiled_in_haste
from trustirl.core.errors import NumericalError
from trustirl.core.types import IrlState, Metrics


def check_finite(irl: IrlState, metrics: Metrics, iteration: int, first_seed: int = 0) -> None:
    """Check losses, rewards and networks of all seeds; optimiser states remember a bad gradient as NaN.

    An optimiser may begin with an infinity of its own (L-BFGS does), so there only NaN counts.
    """
    flags = np.asarray(_finite()(irl, metrics))
    if flags.all():
        return
    named, _ = jax.tree_util.tree_flatten_with_path(_watched(irl, metrics))
    leaf, seed = np.argwhere(~flags)[0]
    path = jax.tree_util.keystr(named[leaf][0][1:], simple=True, separator=".")
    values = np.asarray(named[leaf][1])[seed]
    bad = values[~np.isfinite(values)].ravel()[0]
    raise NumericalError(
        f"{path} became {bad} at iteration {iteration} of seed {first_seed + seed}; try a smaller step."
    )


@cache
def _finite() -> Callable[[IrlState, Metrics], Bool[Array, "leaves seeds"]]:
    """One flag per array and seed, in one reduction on the device."""

    def finite(irl: IrlState, metrics: Metrics) -> Bool[Array, "leaves seeds"]:
        leaves = jax.tree.leaves(_watched(irl, metrics))
        return jnp.stack([jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1) for leaf in leaves])

    return compiled_in_haste(finite)


def _watched(irl: IrlState, metrics: Metrics) -> PyTree:
    """The numbers that must be finite."""
    calm = jax.tree.map(lambda x: jnp.where(jnp.isinf(x), 0.0, x), _floats(irl.optimizer))
    return _floats((metrics, {"optimizer": calm}, replace(irl, optimizer=None)))


def _floats(tree: PyTree) -> PyTree:
    return eqx.filter(tree, eqx.is_inexact_array)
