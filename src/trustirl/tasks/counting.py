"""From a table of who did what, where and when to a finite world: states, actions, and how often what followed.

A row of the table is what an animal did at a time. State columns hold categories, or numbers that `bins` make into
categories. Rows are ordered by episode and time and split where time leaps; a step is a row with the row after it.

With `moves`, a column such as the place: a step in which it changes is the action "move to" its next value, and
every other action leaves it as it is; what the other columns become is counted for each next place and what they are,
    P(o' | place', o) = (N(place', o, o') + prior * P(o' | place')) / (N(place', o) + prior).
Without, what follows is counted for each state and action,
    P(s' | s, a) = (N(s, a, s') + prior * P(s' | s)) / (N(s, a) + prior),
and a state that was never left is taken to stay.

Needs no JAX: processes that step environments count as well.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from trustirl.core.errors import DemoError, InputError
from trustirl.core.files import file_hash
from trustirl.core.words import count
from trustirl.demos.formats.columns import Column, Source, read_columns
from trustirl.demos.formats.tables import episodes_of

MOST_CATEGORIES = 1000  # of a column
MOST_NUMBERS = 2**26  # in a list of successors: half a gibibyte
MOVE = "move to "
PRIOR = 2.0  # pseudo-counts of what follows
ACTION_PRIOR = 10.0  # and of what is done


@dataclass(frozen=True)
class Reading:
    """How a table is read."""

    states: tuple[str, ...]
    """Columns of the state."""
    actions: str
    """The column of what was done."""
    episode: tuple[str, ...] = ()
    """Columns that together tell tracks apart, such as the film and the animal."""
    time: str = ""
    """The column of the time; without it, rows follow each other as they stand."""
    group: str = ""
    """The column of what is independent, such as the film; by default the first of `episode`."""
    bins: Mapping[str, Any] | None = None
    """Of a column of numbers, its edges, as in {"speed": [0.5, 2]}; or a whole number n for 0, 1, ..., n or more,
    where a text such as "{3, 17}" counts as its members."""
    drop: Mapping[str, Any] | None = None
    """Values of columns whose rows are left out."""
    moves: str = ""
    """The state column that actions change; a change is the action "move to" its next value."""
    previous: bool = False
    """Whether the state also holds what was done before."""
    window: int = 0
    """Steps of an episode; tracks are cut into such pieces, and what remains is left out. 0: whole tracks."""
    gap: float = 0.0
    """A longer time between two rows splits a track; 0: one and a half times the shortest."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Reading":
        """Of those among the given arguments that are its fields, with lists for tuples."""
        known: dict[str, Any] = {name: value for name, value in given.items() if name in cls.__dataclass_fields__}
        listed: dict[str, Any] = {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
        return cls(**(known | listed))


class Steps(NamedTuple):
    """What a table says, in numbers with names: steps of all windows one after another."""

    columns: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]  # names of the values of each state column
    actions: tuple[str, ...]
    moving: int | None  # the place of the column that actions change
    behaviours: int  # the first so many actions are no moves
    state: Int[np.ndarray, " steps"]  # numbers of combinations of levels
    action: Int[np.ndarray, " steps"]
    after: Int[np.ndarray, " steps"]
    before: Int[np.ndarray, " steps"] | None  # what was done before, where states hold that
    ends: Int[np.ndarray, " windows"]
    group: Int[np.ndarray, " windows"]
    groups: tuple[str, ...]
    told: tuple[str, ...]  # what was split, dropped and left out

    @property
    def shape(self) -> tuple[int, ...]:
        """Levels of each column."""
        return tuple(map(len, self.levels))

    @property
    def combinations(self) -> int:
        """States, but for what was done before."""
        return int(np.prod(self.shape))

    @property
    def states(self) -> int:
        """How many states there are."""
        return self.combinations * (1 if self.before is None else len(self.actions))

    @property
    def obs(self) -> Int[np.ndarray, " steps"]:
        """The state of each step."""
        return self.state if self.before is None else self.state * len(self.actions) + self.before

    @property
    def starts(self) -> Int[np.ndarray, " windows"]:
        """The first step of each window."""
        return np.concatenate([[0], self.ends[:-1]])

    def window_of_steps(self) -> Int[np.ndarray, " steps"]:
        """The window to which each step belongs."""
        return np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))

    def part(self, windows: np.ndarray) -> "Steps":
        """Some of the windows, in any order, and again if they are named twice."""
        lengths, starts = np.diff(self.ends, prepend=0)[windows], self.starts[windows]
        ends = np.cumsum(lengths)
        rows = np.arange(ends[-1]) + np.repeat(starts - ends + lengths, lengths)
        return self._replace(
            state=self.state[rows],
            action=self.action[rows],
            after=self.after[rows],
            before=None if self.before is None else self.before[rows],
            ends=ends,
            group=self.group[windows],
        )

    def state_names(self) -> list[str]:
        """Of every state, its values."""
        columns = self.levels if self.before is None else (*self.levels, self.actions)
        places = np.unravel_index(np.arange(self.states), [len(names) for names in columns])
        rows = zip(*places, strict=True)
        return [" · ".join(names[at] for names, at in zip(columns, row, strict=True)) for row in rows]

    def features(self) -> Float[np.ndarray, "states features"]:
        """Of every state, which value each column has."""
        sizes = [*self.shape] if self.before is None else [*self.shape, len(self.actions)]
        places = np.unravel_index(np.arange(self.states), sizes)
        return np.concatenate([np.eye(size)[place] for size, place in zip(sizes, places, strict=True)], axis=1)


class Kernel(NamedTuple):
    """What follows: lists of successors that many pairs of state and action share, where nothing else decides."""

    which: Int[np.ndarray, "states actions"]
    successors: Int[np.ndarray, "lists successors"]
    probabilities: Float[np.ndarray, "lists successors"]
    allowed: Bool[np.ndarray, "states actions"]
    initial: Float[np.ndarray, " states"]


def steps_and_kernel(
    file: str, prior: float = PRIOR, mask: bool = True, sha256: str = "", **how: Any
) -> tuple[Steps, Kernel]:
    """What a file tells and the world counted from it; `how` are fields of `Reading`, lists for its tuples."""
    steps = read_steps(asked(file, sha256), Reading.of(how))
    kernel = counted(steps, prior)
    return steps, kernel if mask else kernel._replace(allowed=np.ones_like(kernel.allowed))


def asked(file: str, sha256: str = "") -> Path:
    """The file of a table, if it is there and what it was."""
    if not file:
        raise InputError("a table is needed: give --table FILE, or use ti.World.from_table.")
    if not Path(file).exists():
        raise InputError(f"the table {file} does not exist; give the path of a .csv, .tsv, .parquet or .npz file.")
    if sha256 and file_hash(Path(file)) != sha256:
        raise InputError(f"the table {file} changed since the run began; restore it as it was.")
    return Path(file)


def read_steps(source: Source, how: Reading) -> Steps:
    """Read a table, and number what it names."""
    _require_names(how)
    drop, bins = dict(how.drop or {}), dict(how.bins or {})
    group = how.group or (how.episode[0] if how.episode else "")
    columns = read_columns(source, columns_of(how))
    columns, told = _dropped(columns, drop)
    rows = len(columns[how.actions].values)
    parts = {"episode": [columns[name].values for name in how.episode], "terminated": [], "truncated": []}
    parts["time"] = [columns[how.time].values] if how.time else []
    if how.time and columns[how.time].names is not None:
        raise DemoError(f"the column {how.time} of times holds texts; give seconds, frames or another number.")
    if how.time and not how.episode and (np.diff(columns[how.time].values) < 0).any():
        row = 1 + int((np.diff(columns[how.time].values) < 0).argmax())
        raise DemoError(f"the time goes back at row {row}; name the columns that tell tracks apart (episode).")
    order, ends = episodes_of(parts, rows, how.gap or None)
    if (moved := int((np.diff(order) < 0).sum())) and not how.episode:
        told.append(f"{count(moved, 'row')} stood before earlier ones and were put in order")
    labels = [_levels(name, columns[name].kept(order), bins.get(name)) for name in how.states]
    done, names = _levels(how.actions, columns[how.actions].kept(order), bins.get(how.actions))
    if unused := bins.keys() - {*how.states, how.actions}:
        raise InputError(f"bins are of columns of the state or of actions, and {min(unused)} is none.")
    for name, (_, known) in zip((*how.states, how.actions), (*labels, (done, names)), strict=True):
        if len(known) < 2 and (name == how.actions or len(how.states) == 1):
            raise DemoError(f"the column {name} holds nothing but {known[0]!r}; there is nothing to choose between.")
    tracks = 0 if not how.episode else int(1 + (np.diff(_track(parts["episode"], order)) != 0).sum())
    if tracks:
        told.append(f"{count(tracks, 'track')} split at gaps into {count(len(ends), 'segment')}")
    which = _groups(group, columns, order, ends)
    return _cut(how, labels, (done, names), ends, which, told)


def columns_of(how: Reading) -> list[str]:
    """All columns that are read."""
    wanted = (*how.states, how.actions, *how.episode, how.time, how.group, *(how.drop or {}))
    return list(dict.fromkeys(filter(None, wanted)))


def _require_names(how: Reading) -> None:
    if not how.states or not how.actions:
        raise InputError("a world from a table needs columns of the state and one of actions: name them.")
    if how.moves and how.moves not in how.states:
        raise InputError(f"moves must name a column of the state ({', '.join(how.states)}), got {how.moves!r}.")
    if how.window < 0 or not 0 <= how.gap < np.inf:
        raise InputError("window and gap must not be negative.")


def _dropped(columns: Mapping[str, Column], drop: Mapping[str, Any]) -> tuple[dict[str, Column], list[str]]:
    """Without the rows that have one of the values, and how many those were."""
    keep = np.ones(len(next(iter(columns.values())).values), bool)
    for name, given in drop.items():
        column, unwanted = columns[name], {str(value) for value in (given if isinstance(given, list) else [given])}
        known = column.names or tuple(str(value) for value in np.unique(column.values).tolist())
        for value in sorted(unwanted - set(known)):
            raise DemoError(f"no row has {name} = {value!r}, which is to be dropped; it holds {_some(known)}.")
        numbers = [place for place, text in enumerate(known) if text in unwanted]
        values = column.values if column.names else np.unique(column.values, return_inverse=True)[1].reshape(-1)
        keep &= ~np.isin(values, numbers)
    if not keep.any():
        raise DemoError("no row is left after dropping; name fewer values.")
    gone = int((~keep).sum())
    told = [f"{count(gone, 'row')} dropped, {keep.sum():,} kept"] if gone else []
    return {name: column.kept(keep) for name, column in columns.items()}, told


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (" and others" if len(names) > 10 else "")


def _levels(name: str, column: Column, bins: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """Values as numbers from 0, and the names of these."""
    if bins is not None:
        return _binned(name, column, bins)
    if column.names is not None:
        used, values = np.unique(column.values, return_inverse=True)
        names = tuple(column.names[place] for place in used)
    else:
        if column.values.dtype.kind == "f" and (column.values != np.trunc(column.values)).any():
            raise DemoError(f"the column {name} holds numbers with fractions; give it edges: bins {name}=LOW/HIGH.")
        used, values = np.unique(column.values, return_inverse=True)
        names = tuple(f"{value:g}" if column.values.dtype.kind == "f" else str(value) for value in used.tolist())
    if len(names) > MOST_CATEGORIES:
        raise DemoError(
            f"the column {name} holds {len(names):,} different values, and at most {MOST_CATEGORIES:,} are "
            "categories; give it bins."
        )
    if "" in names:
        raise DemoError(f"the column {name} has empty cells; leave such rows out with drop {name}=.")
    return values.reshape(-1), names


def _binned(name: str, column: Column, bins: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    if isinstance(bins, int) and not isinstance(bins, bool):
        if not 1 <= bins < MOST_CATEGORIES:
            raise InputError(f"bins of {name} must be a whole number from 1 to {MOST_CATEGORIES - 1}, got {bins}.")
        values = column.values
        if column.names is not None:
            values = np.array([_members(text) for text in column.names])[values]
        if (values < 0).any() or (values != np.trunc(values)).any():
            raise DemoError(f"the column {name} must hold counts to be binned by {bins}; give edges instead.")
        return np.minimum(values, bins).astype(int), (*map(str, range(bins)), f"{bins}+")
    edges = np.asarray(bins if isinstance(bins, list | tuple) else [bins])
    if edges.dtype.kind not in "iuf" or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any() or not edges.size:
        raise InputError(f"bins of {name} must be edges that rise, such as 0.5/2, or a whole number, got {bins!r}.")
    if column.names is not None:
        raise DemoError(f"the column {name} holds texts such as {column.names[0]!r}, which edges cannot bin.")
    if not np.isfinite(column.values).all():
        raise DemoError(f"the column {name} holds numbers that are not finite; leave such rows out.")
    between = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
    names = (f"below {edges[0]:g}", *between, f"from {edges[-1]:g}")
    return np.searchsorted(edges, column.values, side="right"), names


def _members(text: str) -> int:
    """How many things a cell such as "{3, 17}" or "a;b" names; a number is itself."""
    return sum(bool(part.strip()) for part in re.split(r"[,;|]", text.strip().strip("{}[]()")))


def _track(parts: Sequence[np.ndarray], order: np.ndarray) -> np.ndarray:
    _, numbers = np.unique(np.stack([column[order] for column in parts]), axis=1, return_inverse=True)
    return numbers.reshape(-1)


def _groups(
    name: str, columns: Mapping[str, Column], order: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The group of each segment; without a column, each segment is one."""
    if not name:
        return np.arange(len(ends)), tuple(f"segment {number}" for number in range(len(ends)))
    column = columns[name]
    used, values = np.unique(column.values[order], return_inverse=True)
    names = tuple(column.names[place] if column.names else f"{place:g}" for place in used.tolist())
    return values.reshape(-1)[ends - 1], names


def _cut(
    how: Reading,
    labels: Sequence[tuple[np.ndarray, tuple[str, ...]]],
    acted: tuple[np.ndarray, tuple[str, ...]],
    ends: np.ndarray,
    groups: tuple[np.ndarray, tuple[str, ...]],
    told: list[str],
) -> Steps:
    """Rows with the rows after them, in windows."""
    levels = tuple(names for _, names in labels)
    shape = [len(names) for names in levels]
    if np.prod([float(size) for size in shape]) > MOST_NUMBERS:
        raise DemoError(f"the columns {', '.join(how.states)} have too many combinations; give them fewer bins.")
    done, names = acted
    state = np.ravel_multi_index([values for values, _ in labels], shape)
    moving = how.states.index(how.moves) if how.moves else None
    behaviours = len(names)
    if moving is not None:
        place, _ = labels[moving]
        changed = np.append(place[1:] != place[:-1], False)
        done = np.where(changed, behaviours + np.append(place[1:], 0), done)
        names = (*names, *(f"{MOVE}{value}" for value in levels[moving]))
    first = int(how.previous)
    lengths = np.maximum(
        np.diff(ends, prepend=0) - 1 - first, 0
    )  # steps: a row without one after it, or before it, is none
    whole = lengths // how.window if how.window else (lengths > 0).astype(int)
    each = np.full(len(ends), how.window) if how.window else lengths
    if not whole.any():
        longest = int(np.diff(ends, prepend=0).max())
        long = "" if not how.window else f" of {count(how.window, 'step')}"
        raise DemoError(
            f"no track has a window{long}: the longest piece without a gap has {count(longest, 'row')}; "
            "name the columns of tracks and time, a larger gap, or a shorter window."
        )
    segment = np.repeat(np.arange(len(ends)), whole)
    number = np.arange(len(segment)) - np.repeat(np.cumsum(whole) - whole, whole)
    sizes = each[segment]
    begin = (ends - np.diff(ends, prepend=0))[segment] + first + number * sizes
    stops = np.cumsum(sizes)
    rows = np.arange(stops[-1]) + np.repeat(begin - stops + sizes, sizes)
    possible = int(np.maximum(np.diff(ends, prepend=0) - 1, 0).sum())
    pieces = count(len(stops), "window" if how.window else "track")
    pieces += f" of {count(how.window, 'step')}" if how.window else ""
    told.append(f"{count(possible, 'step')} to a next row, {len(rows):,} of them used in {pieces}")
    return Steps(
        how.states,
        levels,
        names,
        moving,
        behaviours,
        state[rows],
        done[rows],
        state[rows + 1],
        done[rows - 1] if how.previous else None,
        stops,
        groups[0][segment],
        groups[1],
        tuple(told),
    )


def counted(steps: Steps, prior: float = PRIOR, seen: Steps | None = None) -> Kernel:
    """The world that steps show. Which moves can happen, and what can follow at all, is told by `seen`, if given."""
    if not 0 <= prior < np.inf:
        raise InputError(f"prior must be a number of pseudo-counts, 0 or more, got {prior}.")
    seen = steps if seen is None else seen
    which, successors, probabilities = (_moved if steps.moving is not None else _followed)(steps, prior, seen)
    allowed = np.ones((steps.combinations, len(steps.actions)), bool)
    if steps.moving is not None:
        place = np.unravel_index(np.arange(steps.combinations), steps.shape)[steps.moving]
        known = np.zeros((steps.shape[steps.moving],) * 2, bool)
        known[place[seen.state], place[seen.after]] = True
        np.fill_diagonal(known, False)
        allowed[:, steps.behaviours :] = known[place]
    if steps.before is not None:  # what was done becomes part of the state
        actions, lists = len(steps.actions), len(successors)
        which = np.repeat(which * actions + np.arange(actions), actions, axis=0)
        successors = np.repeat(successors * actions, actions, axis=0) + np.tile(np.arange(actions), lists)[:, None]
        probabilities, allowed = np.repeat(probabilities, actions, axis=0), np.repeat(allowed, actions, axis=0)
    initial = np.bincount(steps.obs[steps.starts], minlength=steps.states).astype(float)
    return Kernel(which, successors, probabilities, allowed, initial / initial.sum())


def counted_policy(steps: Steps, kernel: Kernel, prior: float = ACTION_PRIOR) -> Float[np.ndarray, "states actions"]:
    """What was done in each state, with pseudo-counts of what is usual.

    All steps count alike, since windows begin anywhere. Were step t to weigh discount^t, as in the visits of a
    measure, the late ones of every window would be wasted.

    Usual is what was done at the same place (of the column that moves) and, where states hold it, after the same
    action; that too has pseudo-counts, of what was done after the same action, and that of what was done at all.
    """
    actions, states = len(steps.actions), np.arange(steps.states)
    before = np.zeros_like(states) if steps.before is None else states % actions
    state = states if steps.before is None else states // actions
    place = np.zeros_like(states) if steps.moving is None else np.unravel_index(state, steps.shape)[steps.moving]
    usual = np.ones((steps.states, actions)) / actions
    for alike in (np.zeros_like(states), before, place * actions + before, states):
        times = np.zeros((int(alike.max()) + 1, actions))
        np.add.at(times, (alike[steps.obs], steps.action), 1.0)
        given = np.where(kernel.allowed, times[alike] + prior * usual, 0.0)
        usual = _share(given, _share(1.0 * kernel.allowed, usual))
    return usual


def _moved(steps: Steps, prior: float, _seen: Steps) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where actions change one column for certain, what the others become."""
    assert steps.moving is not None
    places = np.array(np.unravel_index(np.arange(steps.combinations), steps.shape))
    here, sizes = places[steps.moving], list(steps.shape)
    rest = [size for column, size in enumerate(sizes) if column != steps.moving] or [1]
    others = np.ravel_multi_index([*np.delete(places, steps.moving, axis=0)] or [here * 0], rest)
    size, kinds = sizes[steps.moving], int(np.prod(rest))
    number = np.empty((size, kinds), int)  # of the state with this place and these others
    number[here, others] = np.arange(steps.combinations)
    seen = np.zeros((size, kinds, kinds))
    np.add.at(seen, (here[steps.after], others[steps.state], others[steps.after]), 1.0)
    overall = _share(seen.sum(axis=(0, 1)), np.full(kinds, 1 / kinds))
    usual = _share(seen.sum(axis=1), overall)  # P(others' | place')
    probabilities = _share(seen + prior * usual[:, None], usual[:, None])
    target = np.repeat(here[:, None], len(steps.actions), axis=1)
    target[:, steps.behaviours :] = np.arange(size)
    which = target * kinds + others[:, None]
    return which, np.repeat(number, kinds, axis=0), probabilities.reshape(size * kinds, kinds)


def _followed(steps: Steps, prior: float, seen: Steps) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What followed each state and action, among what ever followed the state."""
    actions = len(steps.actions)
    pairs = np.unique(np.stack([seen.state, seen.after]), axis=1)
    kinds = np.bincount(pairs[0], minlength=steps.combinations)
    width = max(1, int(kinds.max()))
    if steps.combinations * actions * width > MOST_NUMBERS:
        raise DemoError(f"the {steps.combinations:,} states are followed by too many others; give fewer states.")
    slot = np.arange(pairs.shape[1]) - np.repeat(np.cumsum(kinds) - kinds, kinds)
    successors = np.repeat(np.arange(steps.combinations)[:, None], width, axis=1)
    successors[pairs[0], slot] = pairs[1]
    numbered = pairs[0] * steps.combinations + pairs[1]
    found = slot[np.searchsorted(numbered, steps.state * steps.combinations + steps.after)]
    times = np.zeros((steps.combinations, actions, width))
    np.add.at(times, (steps.state, steps.action, found), 1.0)
    staying = np.eye(1, width)
    possible = _share(1.0 * (np.arange(width) < kinds[:, None]), staying)
    usual = _share(times.sum(axis=1), possible)  # P(s' | s)
    probabilities = _share(times + prior * usual[:, None], usual[:, None])
    which = np.arange(steps.combinations * actions).reshape(-1, actions)
    return which, np.repeat(successors, actions, axis=0), probabilities.reshape(-1, width)


def _share(times: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Counts as shares of the last axis; what was never counted is `otherwise`."""
    total = times.sum(axis=-1, keepdims=True)
    return np.where(total > 0, times / np.where(total > 0, total, 1.0), otherwise)
