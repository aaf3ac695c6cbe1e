"""What every algorithm owes in every world: the part of the contract that looks at its loop alone."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from trustirl.core.trees import tree_from_arrays, tree_to_arrays
from trustirl.irl.loop import Loop, iterate, seed_keys

SEEDS = 2
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"  # of every program, also of those on disk
OWN = ("start", "step", "made", "updated", "measured", "update_reward")  # programs of a loop

Arrays = dict[str, np.ndarray]


@contextmanager
def programs() -> Iterator[Counter[str]]:
    """Counts, by name, the programs that JAX makes meanwhile."""
    made: Counter[str] = Counter()

    def listen(event: str, _seconds: float, **told: Any) -> None:
        if event == LOWERED:
            made[str(told.get("fun_name"))] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield made
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def check_loop(loop: Loop) -> tuple[list[Arrays], list[Arrays]]:
    """Two updates: finite, of known shapes, repeatable and resumable to the bit, and compiled once.

    Returns the states, as a checkpoint has them, and their metrics.
    """
    keys, states, told = seed_keys(SEEDS), [], []
    with programs() as made:
        for state, metrics in iterate(loop, keys, 2):
            states.append({name: array.copy() for name, array in tree_to_arrays(state).items()})
            told.append({name: np.asarray(values) for name, values in metrics.items()})
    own = {name: made[f"jit({name})"] for name in OWN if made[f"jit({name})"]}
    assert {"updated", "step"} & own.keys()  # of simulators, and of worlds that are one program
    assert set(own.values()) == {1}, f"compiled more than once: {own}"
    for column in told:
        for name, values in column.items():
            assert values.shape == (SEEDS,), name
            assert np.isfinite(values).all(), name
    for arrays in states:
        for name, array in arrays.items():
            if array.dtype.kind == "f" and ".optimizer" not in name:  # a line search begins with an infinite loss
                assert np.isfinite(array).all(), name

    kept = tree_from_arrays(loop.blank(keys), states[1], Path("kept"))  # refuses other names, shapes and types
    with programs() as more:
        again = [(tree_to_arrays(state), metrics) for state, metrics in iterate(loop, keys, 1)]
        *_, (resumed, last) = iterate(loop, keys, 2, kept)
    assert not more, f"compiled again: {dict(more)}"
    for place, (arrays, metrics) in enumerate(again):
        same(arrays, states[place])
        same(metrics, told[place])
    same(tree_to_arrays(resumed), states[2])
    same(last, told[2])
    return states, told
