"""How XLA shall compile the work that takes the time."""

from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

Given = ParamSpec("Given")
Returned = TypeVar("Returned")

# On CPUs XLA may hand matrix products to a library that runs each of them on one core. Its own use them all: a tenth
# more SAC updates per second on two cores (jaxlib 0.10).
OWN_PRODUCTS: dict[str, str | bool] = {"xla_cpu_experimental_ynn_fusion_type": ""}


def compiled(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """`eqx.filter_jit` for functions in which networks are trained."""
    return eqx.filter_jit(function, compiler_options=_options())  # type: ignore[call-overload,no-any-return,unused-ignore]


@cache
def _options() -> dict[str, str | bool] | None:
    """What this version of XLA knows of the options we want."""
    if jax.default_backend() != "cpu":
        return None
    try:
        jax.jit(jnp.negative).lower(jnp.float32(0)).compile(compiler_options=OWN_PRODUCTS)
    except (RuntimeError, ValueError):
        return None
    return OWN_PRODUCTS
