"""The one way in which the programs of a run are compiled."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

Given = ParamSpec("Given")
Returned = TypeVar("Returned")
Options = Mapping[str, str | bool]

# On GPUs XLA would time kernels whenever it compiles, and take the fastest: a run that is resumed, and compiled anew,
# would add up its sums in another order and go its own way.
REPEATABLE: Options = {"xla_gpu_deterministic_ops": True}
# On CPUs XLA may hand matrix products to a library that runs each of them on one core; its own use them all. With one
# seed two x86 cores make half as many SAC updates again, two ARM cores a tenth; with several, whose products are
# batches, small networks lose up to two fifths on x86.
OWN_PRODUCTS: Options = {"xla_cpu_experimental_ynn_fusion_type": ""}


def compiled(
    function: Callable[Given, Returned], donate: Literal["all", "none"] = "none"
) -> Callable[Given, Returned]:
    """`eqx.filter_jit`, such that what is computed is the same whenever it is compiled."""
    return _compiled(function, _known(REPEATABLE), donate)


def compiled_training(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """`compiled`, for what takes the time: networks are trained, and all arrays have a leading axis of seeds."""
    if jax.default_backend() != "cpu":
        return compiled(function)
    several, one = compiled(function), _compiled(function, _known(OWN_PRODUCTS))

    def trained(*given: Given.args, **named: Given.kwargs) -> Returned:
        seeds = len(jax.tree.leaves(eqx.filter((given, named), eqx.is_array))[0])
        return (one if seeds == 1 else several)(*given, **named)

    return trained


def _compiled(function: Any, options: Options, donate: Literal["all", "none"] = "none") -> Any:
    jit: Any = eqx.filter_jit  # noqa: TID251
    return jit(function, donate=donate, compiler_options=dict(options))


def _known(options: Options) -> dict[str, str | bool]:
    """Those of the options that this version of XLA knows."""
    return {name: value for name, value in options.items() if _knows(name, value)}


@cache
def _knows(name: str, value: str | bool) -> bool:
    try:
        jax.jit(jnp.negative).lower(jnp.float32(0)).compile(compiler_options={name: value})  # noqa: TID251
    except (RuntimeError, ValueError):
        return False
    return True
