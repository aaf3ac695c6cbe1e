"""Observations of Gymnasium's group spaces as rows of one array.

A Dict that tells a position and a goal (`achieved_goal` and `desired_goal`, as in Gymnasium's goal environments) gets
further columns, the last ones: the way that is left, goal less position. A network that has to find it by itself sees
a difference of two large numbers; where a demonstration ends at its goal, that difference is what counts.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Num

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"


class Goal(NamedTuple):
    """Where the columns of position and goal begin, and how many each has; their difference comes last."""

    achieved: int
    desired: int
    size: int

    def on_one_scale(
        self, mean: Float[np.ndarray, " obs"], scale: Float[np.ndarray, " obs"], rows: Float[np.ndarray, "steps obs"]
    ) -> None:
        """Change what standardises the columns so that the difference of goal and position stays their difference.

        The scale is how far both are spread in the rows, in the direction in which that is most: a goal that was
        always the same, or a corridor, would say nothing of how far other goals may be.
        """
        places = [np.arange(first, first + self.size) for first in (self.achieved, self.desired)]
        difference = np.arange(rows.shape[1] - self.size, rows.shape[1])
        both = np.concatenate([rows[:, place] for place in places]).astype(np.float64)
        spread = both.std(axis=0).max()
        for place in places:
            mean[place] = both.mean(axis=0)
        mean[difference] = 0
        scale[np.concatenate([*places, difference])] = spread if spread > 0 else 1


class Seen(NamedTuple):
    """The columns of a goal task's observations that a blind agent sees, and how many there are of all."""

    first: int
    size: int
    whole: int


def goal_in(sizes: Mapping[str, int]) -> Goal | None:
    """Where position and goal are among parts of these sizes, side by side in sorted order; None if they are not."""
    if not has_goal(sizes) or sizes[ACHIEVED] != sizes[DESIRED]:
        return None
    names = sorted(sizes)
    first = {name: sum(sizes[before] for before in names[:place]) for place, name in enumerate(names)}
    return Goal(first[ACHIEVED], first[DESIRED], sizes[ACHIEVED])


def has_goal(parts: Collection[str]) -> bool:
    """Whether parts of these names tell a position and a goal."""
    return ACHIEVED in parts and DESIRED in parts


def flatten(observations: Any, count: int, dtype: type[np.generic] | None = None) -> Num[np.ndarray, "count size"]:
    """A batch of `count` observations as rows, always in fresh memory.

    The entries of a Dict are concatenated in sorted key order, those of a Tuple in their own; what is left to a goal
    comes last.
    """
    if isinstance(observations, np.ndarray):
        return np.array(observations, dtype).reshape(count, -1)
    parts = [np.asarray(part, dtype).reshape(count, -1) for part in leaves(observations)]
    if isinstance(observations, Mapping) and has_goal(observations):
        parts += _way_left(observations, count, parts[0].dtype)
    return np.concatenate(parts, axis=1)


def _way_left(observations: Mapping[str, Any], count: int, dtype: Any) -> list[np.ndarray]:
    """Goal less position in float32, as networks see both, whatever holds it."""
    ends = [observations[name] for name in (DESIRED, ACHIEVED)]
    if any(isinstance(end, Mapping | tuple) for end in ends):  # goals of several kinds
        return []
    desired, achieved = (np.asarray(end, np.float32).reshape(count, -1) for end in ends)
    return [(desired - achieved).astype(dtype)] if desired.shape == achieved.shape else []


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
