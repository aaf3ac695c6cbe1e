"""How much memory a run will need, asked before it begins."""

import os
from collections.abc import Callable
from math import prod
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from trustirl.core.errors import InputError
from trustirl.core.types import Transition
from trustirl.core.words import count

MOST = 0.8  # share of the free memory that a replay may take; networks and the system need the rest


def replay_bytes(seeds: int, capacity: int, example: Transition) -> int:
    """Bytes of the replays of all seeds."""
    return seeds * capacity * sum(leaf.nbytes for leaf in jax.tree.leaves(example))


def free_bytes() -> int | None:
    """Free memory where the replay will lie: the accelerator's, or the host's; None if nobody says."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        statistics = device.memory_stats() or {}
        return statistics["bytes_limit"] - statistics["bytes_in_use"] if "bytes_limit" in statistics else None
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + _reclaimable()
    except (ValueError, OSError, AttributeError):
        return None


def _reclaimable() -> int:
    """File caches count as free; Linux says how large they are."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    except (OSError, ValueError, IndexError):
        return 0
    return 1024 * max(0, sizes.get("MemAvailable", 0) - sizes.get("MemFree", 0))


def check_memory(seeds: int, capacity: int, example: Transition, least: int = 1) -> int:
    """Bytes of the replay, or a refusal with advice when they cannot fit; it must hold at least `least` steps."""
    need, free = replay_bytes(seeds, capacity, example), free_bytes()
    fits = need if free is None else int(MOST * free / (need / (seeds * capacity)))  # steps of all seeds together
    cures = [f"--seeds {fits // capacity}"] if fits >= capacity else []
    cures += [f"--replay {fits // seeds}"] if fits // seeds >= least else []
    if not cures and fits >= least:
        cures = [f"--seeds {fits // least} --replay {least}"]
    advice = f"use {' or '.join(cures)}" if cures else "use fewer steps_per_iteration and a smaller replay"
    check_free(f"the replay of {count(seeds, 'seed')} x {count(capacity, 'step')} needs", need, advice)
    return need


def check_networks(seeds: int, init: Callable[[Array], PyTree]) -> None:
    """Refuse networks and optimisers that cannot fit; `init` makes those of one seed and is not called in earnest."""
    shapes = jax.tree.leaves(eqx.filter(eqx.filter_eval_shape(init, jax.random.key(0)), _has_shape))
    need = seeds * sum(prod(leaf.shape) * leaf.dtype.itemsize for leaf in shapes)
    check_free(f"the networks of {count(seeds, 'seed')} need", need, "use a smaller width or fewer seeds")


def check_free(what: str, need: int, advice: str) -> None:
    """Refuse what needs more bytes than are free."""
    free = free_bytes()
    if free is not None and need > MOST * free:
        raise InputError(f"{what} {need / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free; {advice}.")


def _has_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)
