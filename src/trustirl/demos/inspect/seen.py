"""What demonstrations hold, in numbers and in words.

Arrays are looked at in pieces, so that 10 million steps take seconds and no memory worth mentioning.
"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from trustirl.core.words import count
from trustirl.demos.checks import LARGEST, pieces
from trustirl.demos.schema import Demos

Severity = Literal["problem", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """A suspected problem: one sentence that says what it is and what to do."""

    severity: Severity
    where: str
    sentence: str


@runtime_checkable
class TaskSpaces(Protocol):
    """What is asked of a `ControlTask`; tasks stand beside demonstrations, not below them."""

    @property
    def name(self) -> str: ...
    @property
    def obs_dim(self) -> int: ...
    @property
    def action_dim(self) -> int: ...
    @property
    def action_shape(self) -> tuple[int, ...]: ...
    @property
    def discrete(self) -> bool: ...
    @property
    def action_low(self) -> np.ndarray | None: ...
    @property
    def action_high(self) -> np.ndarray | None: ...
    @property
    def action_start(self) -> int: ...
    @property
    def horizon(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Columns:
    """An array of steps in numbers: one entry for each column of its rows."""

    shape: tuple[int, ...]  # of one step
    dtype: str
    low: Float[np.ndarray, " columns"]
    high: Float[np.ndarray, " columns"]
    mean: Float[np.ndarray, " columns"]
    std: Float[np.ndarray, " columns"]


class Outside(NamedTuple):
    """Entries of actions that lie outside the action space, and how far, by column."""

    entries: Int[np.ndarray, " columns"]
    beyond: Float[np.ndarray, " columns"]


@dataclass(frozen=True, eq=False)
class Inspection:
    """Demonstrations, the task that they are compared with, and what was found."""

    demos: Demos
    task: TaskSpaces | None
    observations: Columns
    actions: Columns
    outside: Outside | None  # None: nobody knows the action space
    findings: tuple[Finding, ...] = ()


@np.errstate(over="ignore", invalid="ignore")  # sums of the largest numbers there are
def look(demos: Demos, task: TaskSpaces | None = None) -> Inspection:
    """What is seen; nothing is suspected yet."""
    return Inspection(demos, task, columns(demos.observations), columns(demos.actions), _outside(demos.actions, task))


@np.errstate(over="ignore", invalid="ignore")
def described(seen: Inspection) -> dict[str, Any]:
    """Everything in JSON's own types; a number that is not finite, such as a sum of too large ones, is null."""
    demos, lengths, returns = seen.demos, seen.demos.lengths(), seen.demos.returns()
    terminated = int(demos.terminated.sum())
    told = {
        "episodes": len(demos),
        "steps": len(demos.actions),
        "lengths": {"min": int(lengths.min()), "median": float(np.median(lengths)), "max": int(lengths.max())},
        "returns": None if returns is None else _spread(returns),
        "terminated": terminated,
        "not_terminated": len(demos) - terminated,
        "observations": _plain(seen.observations),
        "actions": _plain(seen.actions)
        | {"outside": None if seen.outside is None else int(seen.outside.entries.sum())},
        "task": None if seen.task is None else seen.task.name,
        "content_hash": demos.content_hash(),
        "provenance": dict(demos.provenance),
        "findings": [asdict(finding) for finding in seen.findings],
    }
    return {name: _finite(value) for name, value in told.items()}


def _finite(value: Any) -> Any:
    """JSON has no word for infinity."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def amount(value: float) -> str:
    """A return as people read it: with separators, or by its digits where it has too many."""
    return f"{value:,.2f}" if abs(value) < LARGEST else f"{value:.4g}"


@np.errstate(over="ignore", invalid="ignore")
def facts(seen: Inspection, source: str, about_task: str = "") -> list[tuple[str, str]]:
    """The same for people: names and texts; `about_task` is said where there is no task to compare with."""
    demos, task, lengths, returns = seen.demos, seen.task, seen.demos.lengths(), seen.demos.returns()
    told = [
        ("Source", source),
        ("Task", about_task if task is None else task.name),
        ("Episodes", f"{len(demos):,}, with {count(len(demos.actions), 'step')} in all"),
        ("Lengths", f"{lengths.min():,} to {count(lengths.max(), 'step')}, median {np.median(lengths):,.6g}"),
        ("Returns", "unknown, for there are no rewards"),
        ("Ends", _ends(seen)),
        ("Observations", _kind(seen.observations)),
        ("Actions", _kind(seen.actions)),
        ("Content hash", demos.content_hash()),
    ]
    if returns is not None:
        mean, deviation, low, high = map(amount, (returns.mean(), returns.std(), returns.min(), returns.max()))
        told[4] = ("Returns", f"mean {mean}, deviation {deviation}, from {low} to {high}")
    if seen.outside is not None:
        entries = count(demos.actions.size, "action entry", "action entries")
        told.insert(8, ("Outside", f"{seen.outside.entries.sum():,} of {entries}"))
    return told + [(f"From: {name}", _text(value)) for name, value in demos.provenance.items()]


def columns(array: np.ndarray) -> Columns:
    """Range, mean and deviation of each column, in float64."""
    flat = array.reshape(len(array), -1)
    low = np.min([rows.min(axis=0) for _, rows in pieces(flat)], axis=0)
    high = np.max([rows.max(axis=0) for _, rows in pieces(flat)], axis=0)
    mean = np.sum([rows.sum(axis=0, dtype=np.float64) for _, rows in pieces(flat)], axis=0) / len(flat)
    variance = np.sum([np.square(rows - mean).sum(axis=0) for _, rows in pieces(flat)], axis=0) / len(flat)
    return Columns(
        array.shape[1:], str(array.dtype), low.astype(np.float64), high.astype(np.float64), mean, np.sqrt(variance)
    )


def action_bounds(seen: Inspection) -> tuple[np.ndarray, np.ndarray] | None:
    """The bounds of continuous actions: the task's or, if none is known, -1 and 1 where actions touch them."""
    actions, task = seen.actions, seen.task
    if seen.demos.actions.dtype.kind != "f":
        return None
    if task is not None:
        fits = not task.discrete and task.action_shape == actions.shape
        return (np.asarray(task.action_low), np.asarray(task.action_high)) if fits else None
    unit = np.ones(len(actions.low))
    return (-unit, unit) if max(-actions.low.min(), actions.high.max()) == 1 else None


def _outside(actions: np.ndarray, task: TaskSpaces | None) -> Outside | None:
    if task is None or actions.shape[1:] != task.action_shape or (task.discrete and actions.dtype.kind == "f"):
        return None
    if task.discrete:
        low, high = np.array([task.action_start]), np.array([task.action_start + task.action_dim - 1])
    else:
        low, high = np.asarray(task.action_low), np.asarray(task.action_high)
    entries, beyond = np.zeros(low.size, np.int64), np.zeros(low.size)
    for _, rows in pieces(actions.reshape(len(actions), -1)):
        entries += ((rows < low) | (rows > high)).sum(axis=0)
        beyond = np.maximum(beyond, np.maximum(low - rows, rows - high).max(axis=0))
    return Outside(entries, beyond)


def _ends(seen: Inspection) -> str:
    demos, task = seen.demos, seen.task
    terminated = f"{demos.terminated.sum():,} in a terminal state"
    if task is None or demos.times is not None:
        return f"{terminated}, {(~demos.terminated).sum():,} at a time limit or cut"
    full = (demos.lifetimes() >= task.horizon)[~demos.terminated]
    return (
        f"{terminated}, {full.sum():,} at the limit of {count(task.horizon, 'step')}, {(~full).sum():,} cut before it"
    )


def _kind(found: Columns) -> str:
    shape = " x ".join(map(str, found.shape))
    size = "one number" if not found.shape else f"{shape} column{'s' if found.shape != (1,) else ''}"
    return f"{size}, {found.dtype}, from {found.low.min():.4g} to {found.high.max():.4g}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _spread(values: np.ndarray) -> dict[str, float]:
    return {name: float(getattr(values, name)()) for name in ("mean", "std", "min", "max")}


def _plain(found: Columns) -> dict[str, Any]:
    plain = {name: list(value) if name == "shape" else value for name, value in vars(found).items()}
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in plain.items()}
