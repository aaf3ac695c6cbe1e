"""Demonstrations to test with, and what every `Demos` must be."""

import json
from typing import Any

import numpy as np

from trustirl.demos.schema import PER_STEP, Demos


def make(lengths: tuple[int, ...] = (4, 1, 6), dtype: str = "float32", **fields: Any) -> Demos:
    """Episodes whose numbers tell their place; all optional fields are known."""
    rng = np.random.default_rng(sum(lengths))
    steps, ends = sum(lengths), np.cumsum(lengths)
    given: dict[str, Any] = {
        "observations": rng.normal(size=(steps, 3)).astype(dtype),
        "actions": rng.uniform(-1, 1, (steps, 2)).astype(np.float32),
        "episode_ends": ends,
        "terminated": np.arange(len(lengths)) % 2 == 0,
        "rewards": rng.normal(size=steps),
        "final_observations": rng.normal(size=(len(lengths), 3)).astype(dtype),
        "states": rng.normal(size=(steps, 5)),
        "provenance": {"env_id": "Toy-v0", "versions": {"toy": "1.0"}},
    }
    return Demos.from_numpy(**(given | fields))


def assert_same(one: Demos, other: Demos) -> None:
    """Every field equal bit for bit, dtypes and shapes included."""
    assert one.content_hash() == other.content_hash()
    for name in (*PER_STEP, "episode_ends", "terminated"):
        left, right = getattr(one, name), getattr(other, name)
        assert (left is None) == (right is None), name
        if left is not None:
            assert left.dtype == right.dtype, name
            assert left.shape == right.shape, name
            assert left.tobytes() == right.tobytes(), name
    assert one.provenance == other.provenance


def assert_sound(demos: Demos) -> None:
    """What holds for whatever a loader returns."""
    steps = len(demos.observations)
    assert demos.episode_ends.dtype == np.int64
    assert demos.episode_ends[-1] == steps
    assert (np.diff(demos.episode_ends, prepend=0) > 0).all()
    assert demos.terminated.shape == demos.episode_ends.shape
    for name in PER_STEP:
        array = getattr(demos, name)
        if array is not None:
            assert len(array) == steps
            assert array.dtype.kind in "iuf"
            assert array.dtype.isnative
            assert np.isfinite(array).all()
            assert not array.flags.writeable
    if demos.next_observations is not None:
        assert demos.next_observations.shape == demos.observations.shape
    json.dumps(dict(demos.provenance), allow_nan=False)
    demos.content_hash()
    assert len(demos[-1].actions) == demos.lengths()[-1]
