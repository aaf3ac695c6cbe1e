"""How XLA compiles the work that takes the time, and where its programs are kept."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental.compilation_cache import compilation_cache

Given = ParamSpec("Given")
Returned = TypeVar("Returned")

# On CPUs XLA may hand matrix products to a library that runs each of them on one core; its own use them all. With one
# seed two x86 cores make half as many SAC updates again, two ARM cores a tenth; with several, whose products are
# batches, small networks lose up to two fifths on x86.
OWN_PRODUCTS = {"xla_cpu_experimental_ynn_fusion_type": ""}
# A GPU takes the kernels of an update from a graph, in which those that do not wait for each other may run together:
# a sixth less time with five seeds, and the same numbers.
TOGETHER = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}

# What computes next to nothing is not worth XLA's best.
IN_HASTE: dict[str, Any] = {"xla_backend_optimization_level": 0}

MAPS = Path("/proc/self/maps")
MANY_MAPPINGS = 5_000

PLACE = "jax_compilation_cache_dir"
# Programs of any size and however quickly they were compiled; XLA's own cache would make their names depend on where
# the folder lies.
KEEP_ALL = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    "jax_persistent_cache_enable_xla_caches": "none",
}


def compiled_training(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """`eqx.filter_jit` for functions in which networks are trained; all arrays have a leading axis of seeds."""
    on_cpu = jax.default_backend() == "cpu"
    options = OWN_PRODUCTS if on_cpu else TOGETHER
    several: Any = eqx.filter_jit(function)
    if not _knows(**options):
        return several
    one: Any = eqx.filter_jit(function, compiler_options=options)  # type: ignore[call-overload,unused-ignore]
    if not on_cpu:
        return one

    def trained(*given: Given.args, **named: Given.kwargs) -> Returned:
        seeds = len(jax.tree.leaves(eqx.filter((given, named), eqx.is_array))[0])
        return (one if seeds == 1 else several)(*given, **named)

    return trained


def compiled_in_haste(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
    """`eqx.filter_jit` for what takes longer to compile than to run, and rounds nothing; on a GPU as ever."""
    quick = jax.default_backend() == "cpu" and _knows(**IN_HASTE)
    return cast(Any, eqx.filter_jit)(function, **({"compiler_options": IN_HASTE} if quick else {}))


@cache
def _knows(**options: Any) -> bool:
    """Whether this version of XLA does."""
    try:
        jax.jit(jnp.negative).lower(jnp.float32(0)).compile(compiler_options=options)
    except (RuntimeError, ValueError):
        return False
    return True


@contextmanager
def kept_programs(folder: Path) -> Iterator[None]:
    """Where a second compilation would give another program: keep all in the folder, and take what is there.

    For a GPU XLA times kernels whenever it compiles and takes the fastest, so that a resumed run would add up its
    sums in another order and go its own way. To have it choose without a look at the clock
    (`xla_gpu_deterministic_ops`) costs almost half the speed. A folder that was chosen for all programs
    (JAX_COMPILATION_CACHE_DIR) stays the one.
    """
    if not _compiles_by_the_clock():
        yield
        return
    before = {name: getattr(jax.config, name) for name in (PLACE, *KEEP_ALL)}
    _configure({PLACE: before[PLACE] or str(folder)} | KEEP_ALL)
    try:
        yield
    finally:
        _configure(before)


def forget_old_programs() -> None:
    """Drop what JAX has compiled in this process, once earlier runs have left much of it.

    Every run compiles programs of its own, which JAX keeps for the life of the process: some 2,000 memory mappings
    and 90 MB each. Linux allows a process 65,530 mappings, and XLA crashes on the next. Whatever is still needed
    compiles again.
    """
    try:
        mapped = MAPS.read_bytes().count(b"\n")
    except OSError:  # another system: better compile again than crash
        mapped = MANY_MAPPINGS
    if mapped >= MANY_MAPPINGS:
        jax.clear_caches()
        gc.collect()


def _compiles_by_the_clock() -> bool:
    return jax.default_backend() != "cpu"


def _configure(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
