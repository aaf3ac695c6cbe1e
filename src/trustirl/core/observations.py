"""Observations of Gymnasium's group spaces as rows of one array."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Num


def flatten(observations: Any, count: int, dtype: type[np.generic] | None = None) -> Num[np.ndarray, "count size"]:
    """A batch of `count` observations as rows, always in fresh memory.

    The entries of a Dict are concatenated in sorted key order, those of a Tuple in their own.
    """
    if isinstance(observations, np.ndarray):
        return np.array(observations, dtype).reshape(count, -1)
    parts = [np.asarray(part, dtype).reshape(count, -1) for part in leaves(observations)]
    return np.concatenate(parts, axis=1)


def leaves(observations: Any) -> Iterator[Any]:
    """The entries of nested Dicts and Tuples, in the order in which they are concatenated."""
    if isinstance(observations, Mapping):
        for key in sorted(observations):
            yield from leaves(observations[key])
    elif isinstance(observations, tuple):
        for part in observations:
            yield from leaves(part)
    else:
        yield observations
