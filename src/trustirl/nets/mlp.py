"""Multilayer perceptrons in float32, ensembles of them, and the frozen scaling of their inputs."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num
from numpy.typing import ArrayLike

OBS_LIMIT = 10.0  # standardised observations are clipped to +-this
CONSTANT = 1e-6  # an entry that varies less counts as constant, and is not scaled up to noise
LEAST_SCALE = np.float32(1e-2)  # and one that varies less than this is scaled up no further
NOISE = 1e-3  # or, if it varies by less than this share of itself, not at all


class MLP(eqx.Module):
    """ReLU network on the last axis, with LayerNorm before each activation where asked for."""

    layers: tuple[eqx.nn.Linear, ...]
    norms: tuple[eqx.nn.LayerNorm, ...]

    def __init__(self, inputs: int, outputs: int, width: int, depth: int, key: Array, layer_norm: bool = False):
        """`depth` hidden layers of `width` units; float32 whatever JAX's default is."""
        sizes = [inputs, *[width] * depth, outputs]
        keys = jax.random.split(key, depth + 1)
        self.layers = tuple(
            eqx.nn.Linear(fan_in, fan_out, dtype=jnp.float32, key=k)
            for fan_in, fan_out, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )
        self.norms = tuple(eqx.nn.LayerNorm(width, dtype=jnp.float32) for _ in range(depth if layer_norm else 0))

    def __call__(self, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
        """Outputs for any number of leading axes."""
        *hidden, last = self.layers
        for i, layer in enumerate(hidden):
            x = _affine(layer, x)
            x = jax.nn.relu(jnp.vectorize(self.norms[i], signature="(i)->(i)")(x) if self.norms else x)
        return _affine(last, x)


def _affine(layer: eqx.nn.Linear, x: Float[Array, "*batch inputs"]) -> Float[Array, "*batch outputs"]:
    assert layer.bias is not None
    return x @ layer.weight.T + layer.bias  # a tenth faster on a CPU than mapping the layer over the rows


def ensemble(make: Callable[[Array], MLP], members: int, key: Array) -> MLP:
    """Independent networks as one, with a leading axis on every parameter."""
    return eqx.filter_vmap(make)(jax.random.split(key, members))


def apply_ensemble(nets: MLP, x: Float[Array, "*batch inputs"]) -> Float[Array, "members *batch outputs"]:
    """What each member says of the same inputs, by batched matrix products."""
    return eqx.filter_vmap(lambda net: net(x))(nets)


def scales(
    deviation: Float[np.ndarray, " entries"], mean: Float[np.ndarray, " entries"]
) -> Float[np.ndarray, " entries"]:
    """What entries of such moments are divided by; constant and nearly constant ones stay unscaled.

    Where a goal was the same in all demonstrations, every other goal would otherwise lie beyond the limit of the
    inputs, and be one and the same; so would whatever differs in a column that a noisy sensor gave.
    """
    scaled = np.maximum(deviation.astype(np.float32), LEAST_SCALE)
    noise = (deviation < LEAST_SCALE) & (deviation <= NOISE * np.abs(mean))
    return np.where((deviation > CONSTANT) & ~noise, scaled, np.float32(1))


def standardiser(
    mean: ArrayLike | None, std: ArrayLike | None
) -> Callable[[Num[Array, "*batch obs"]], Float[Array, "*batch obs"]]:
    """(obs - mean) / std with frozen statistics, clipped; without statistics observations pass as they are."""
    if mean is None and std is None:
        return lambda obs: obs.astype(jnp.float32)
    shift = jnp.asarray(0.0 if mean is None else mean, jnp.float32)
    scale = jnp.asarray(1.0 if std is None else std, jnp.float32)
    scale = jnp.where(scale > CONSTANT, scale, jnp.float32(1))
    return lambda obs: jnp.clip((obs.astype(jnp.float32) - shift) / scale, -OBS_LIMIT, OBS_LIMIT)
