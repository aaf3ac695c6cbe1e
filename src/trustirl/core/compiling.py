"""How XLA shall compile the work that takes the time."""

from functools import cache

import jax
import jax.numpy as jnp

# On CPUs XLA may hand matrix products to a library that runs each of them on one core. Its own use them all: a tenth
# more SAC updates per second on two cores (jaxlib 0.10).
OWN_PRODUCTS = {"xla_cpu_experimental_ynn_fusion_type": ""}


@cache
def compiler_options() -> dict[str, str] | None:
    """What to give to `jit`, as far as this version of XLA knows it."""
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(jnp.negative).lower(jnp.float32(0)).compile(compiler_options=OWN_PRODUCTS)
    except (RuntimeError, ValueError):
        return None
    return OWN_PRODUCTS
