"""Between an environment's spaces and the vectors that networks see, and how a file tells of them.

Observations: the entries of a Dict are concatenated in sorted key order, then the way that is left to a goal, all in
float32.
Actions: networks act in [-1, 1]; the environment receives low + (a + 1) / 2 * (high - low), where low and high are
the bounds of the action space, or of the part of it in which networks act.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float, Integer, Num
from msgspec import Meta

from trustirl.core.errors import InputError, NumericalError
from trustirl.core.files import Size
from trustirl.core.observations import flatten, leaves
from trustirl.core.spaces import Spaces

ROUNDING = 1e-6


@dataclass(frozen=True)
class SpacesCard:
    """`Spaces` in JSON."""

    name: str
    obs_dim: Size
    action_dim: Size
    discrete: bool
    action_low: list[float] | None
    action_high: list[float] | None
    action_start: Annotated[int, Meta(ge=-(2**31), le=2**31)]
    range_low: list[float] | None = None
    range_high: list[float] | None = None

    @classmethod
    def of(cls, spaces: Spaces) -> "SpacesCard":
        """What a file tells of these spaces."""
        told = {field.name: getattr(spaces, field.name) for field in fields(cls)}
        return cls(**told | {name: bound.tolist() for name, bound in told.items() if isinstance(bound, np.ndarray)})

    @property
    def spaces(self) -> Spaces:
        """The spaces that it tells of."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays = {name: np.asarray(value, np.float32) for name, value in told.items() if isinstance(value, list)}
        return Spaces(**told | arrays)

    def check(self, where: Path) -> None:
        """Refuse parts that do not fit together."""
        shapes = {None if bound is None else len(bound) for bound in (self.action_low, self.action_high)}
        if shapes != {None if self.discrete else self.action_dim}:
            raise InputError(f"{where} gives other bounds of actions than {self.action_dim} each; restore it.")
        within = [None if bound is None else len(bound) for bound in (self.range_low, self.range_high)]
        if within not in ([None, None], [None if self.discrete else self.action_dim] * 2):
            raise InputError(f"{where} gives a range of actions that does not fit their bounds; restore it.")


def flatten_observations(observations: Any, count: int) -> Float[np.ndarray, "count obs_dim"]:
    """A batch of `count` observations as rows of float32, always in fresh memory."""
    return flatten(observations, count, np.float32)


def to_env_actions(task: Spaces, actions: Num[np.ndarray, "..."]) -> Num[np.ndarray, "..."]:
    """What the environment receives for a network's actions."""
    if task.bounds is None:
        _require_choices(task, actions)
        return actions + task.action_start
    if not np.abs(actions).max(initial=0) <= 1 + ROUNDING:
        raise NumericalError(f"{task.name}: an action of the policy is NaN or outside [-1, 1].")
    low, high = task.bounds
    scaled = low + (actions + 1) * ((high - low) / 2)
    return np.minimum(np.maximum(scaled, low), high).astype(low.dtype, copy=False)  # np.clip takes twice the time


def from_env_actions(task: Spaces, actions: Num[np.ndarray, "..."]) -> tuple[Num[np.ndarray, "..."], int]:
    """Demonstrated actions as a network would give them, and how many entries had to be clipped."""
    if task.bounds is None:
        _require_choices(task, actions - task.action_start)
        return actions - task.action_start, 0
    low, high = task.bounds
    outside = np.count_nonzero((actions < low) | (actions > high))
    scaled = 2 * (np.clip(actions, low, high) - low) / (high - low) - 1
    return scaled.astype(np.float32), int(outside)


def observation_rows(observation: Any, spaces: Spaces) -> tuple[Float[np.ndarray, "batch obs"], bool]:
    """Observations that a user gives as rows, and whether they were a batch, be it of one."""
    try:
        given = observation if isinstance(observation, Mapping) else np.asarray(observation)
        with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused below
            parts = [np.asarray(part, np.float32) for part in leaves(given)]
            axes = max((part.ndim for part in parts), default=0)
            # An entry is a vector or a number: two axes are a batch, and so is one if the entries are numbers.
            single = axes < 2 and flatten_observations(given, 1).shape[1] == spaces.obs_dim
            rows = flatten_observations(given, 1 if single else len(parts[0]))
    except (ValueError, TypeError, IndexError, ZeroDivisionError):
        raise InputError(
            f"observations of {spaces.name} are {spaces.obs_dim} numbers each, got {observation!r:.60}."
        ) from None
    if rows.shape[1] != spaces.obs_dim:
        told = ", ".join(str(part.shape) for part in parts)
        raise InputError(f"observations of {spaces.name} have {spaces.obs_dim} dimensions, got shape {told}.")
    if not np.isfinite(rows).all():
        place, entry = np.argwhere(~np.isfinite(rows))[0]
        raise InputError(
            f"observation {place} has {rows[place, entry]} at entry {entry}; there is no answer to what is no number."
        )
    return rows, not single


def whole_numbers(values: Any, count: int, what: str) -> Integer[np.ndarray, "..."]:
    """States or actions of the exact world, which are numbered from 0."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or (array.size and (array.min() < 0 or array.max() >= count)):
        raise InputError(f"a {what} must be a whole number in 0..{count - 1}, got {values!r}.")
    return array


def _require_choices(task: Spaces, actions: Num[np.ndarray, "..."]) -> None:
    if not np.issubdtype(actions.dtype, np.integer) or np.any((actions < 0) | (actions >= task.action_dim)):
        first, last = task.action_start, task.action_start + task.action_dim - 1
        raise InputError(f"actions of {task.name} must be whole numbers from {first} to {last}.")
