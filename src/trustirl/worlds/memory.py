"""How much memory a run will need, asked before it begins."""

import os

import jax

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


def check_memory(seeds: int, capacity: int, example: Transition) -> int:
    """Bytes of the replay, or a refusal with advice when they cannot fit."""
    need, free = replay_bytes(seeds, capacity, example), free_bytes()
    if free is not None and need > MOST * free:
        fits = int(MOST * free / (need / (seeds * capacity)))
        raise InputError(
            f"the replay of {count(seeds, 'seed')} x {count(capacity, 'step')} needs {need / 2**30:.1f} GiB and "
            f"{free / 2**30:.1f} GiB are free; use --seeds {max(1, fits // capacity)} or --replay {fits // seeds}."
        )
    return need
