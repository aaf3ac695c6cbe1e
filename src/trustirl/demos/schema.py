"""Demonstrations: an immutable set of episodes of aligned (s_t, a_t) pairs. Needs no JAX."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from jaxtyping import Bool, Float, Int, Num

from trustirl.core.errors import DemoError, unknown_name
from trustirl.core.weights import rest_weight, step_weight
from trustirl.core.words import count
from trustirl.demos.checks import Fields, checked_fields, pieces
from trustirl.demos.formats.arrays import from_arrays
from trustirl.demos.formats.hdf5 import read_hdf5
from trustirl.demos.formats.lerobot import read_lerobot
from trustirl.demos.formats.minari import read_minari, write_minari
from trustirl.demos.formats.npz import read_npz, write_npz
from trustirl.demos.formats.tables import read_table
from trustirl.demos.record import recorded
from trustirl.demos.sources import packaged_path, read_named, read_source

DemoChoice = Literal["first", "longest", "best"]
Episodes = int | np.integer | slice | Sequence[int] | np.ndarray
"""Which episodes: a number, a slice, numbers in any order, or one truth value per episode."""
PER_STEP = ("observations", "actions", "rewards", "next_observations", "states", "times")


@dataclass(frozen=True, eq=False)
class Demos:
    """Steps of all episodes one after another; `episode_ends` are exclusive, so the last one is the length.

    The arrays are read-only, and parts of a `Demos` share them. An episode that did not terminate was truncated by a
    time limit or cut.
    """

    observations: Num[np.ndarray, "steps ..."]
    actions: Num[np.ndarray, "steps ..."]
    episode_ends: Int[np.ndarray, " episodes"]
    terminated: Bool[np.ndarray, " episodes"]  # the episode ended in a terminal state, not at a time limit
    rewards: Float[np.ndarray, " steps"] | None = None  # for information only: training never reads them
    next_observations: Num[np.ndarray, "steps ..."] | None = None  # also where an episode ended
    states: Float[np.ndarray, "steps ..."] | None = None  # the simulator's, from which a step can be repeated
    times: Int[np.ndarray, " steps"] | None = None  # t within the episode; None: no step is missing
    provenance: Mapping[str, Any] = field(default_factory=dict)  # JSON values: env_id, versions, source, ...

    @classmethod
    def from_numpy(
        cls,
        observations: Any,
        actions: Any,
        episode_ends: Any = None,
        terminated: Any = None,
        rewards: Any = None,
        *,
        lengths: Any = None,
        next_observations: Any = None,
        final_observations: Any = None,
        states: Any = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> "Demos":
        """Check arrays, copy them and make them demonstrations. Three layouts are understood:

        - flat: steps of all episodes one after another, with exclusive `episode_ends`; without, they are one episode;
        - padded: [episodes, time, ...] with `lengths`;
        - a list of arrays, one per episode.

        Observations may be dictionaries of such arrays, as of goal environments: they are flattened like those.

        In the last two layouts, observations may have one row more than actions: the final observation. `terminated`
        says of each episode whether a terminal state ended it (default: none did). `rewards` are kept for
        information: from them comes the expert's return, and training never reads them.
        """
        fields = from_arrays(
            observations,
            actions,
            episode_ends=episode_ends,
            lengths=lengths,
            terminated=terminated,
            rewards=rewards,
            next_observations=next_observations,
            final_observations=final_observations,
            states=states,
            provenance=provenance,
        )
        return _checked(fields)

    @classmethod
    def from_npz(cls, path: str | os.PathLike[str]) -> "Demos":
        """Read a NumPy archive: one of ours, or a flat layout such as D4RL's (docs/demos.md)."""
        return _checked(read_npz(path))

    @classmethod
    def from_hdf5(cls, path: str | os.PathLike[str]) -> "Demos":
        """Read an HDF5 file in D4RL's layout: observations, actions, terminals, timeouts and perhaps more."""
        return _checked(read_hdf5(path))

    @classmethod
    def from_minari(cls, dataset: str | os.PathLike[str], env_id: str | None = None) -> "Demos":
        """Read a Minari dataset by its id, downloading it if need be, or by its folder.

        Group spaces are flattened in sorted key order. With `env_id`, a dataset of another environment is refused.
        The environment is never made: what a dataset says of it is data.
        """
        return _checked(read_minari(dataset, env_id))

    @classmethod
    def from_lerobot(cls, folder: str | os.PathLike[str]) -> "Demos":
        """Read the folder of a LeRobot dataset (versions 2 and 3): vectors of observations, actions, and rewards.

        Observations of several names stand side by side in sorted order; pictures are left out. Such a dataset tells
        when a recording ended and not why, so no episode counts as terminated.
        """
        return _checked(read_lerobot(folder))

    @classmethod
    def from_table(
        cls,
        path: str | os.PathLike[str],
        *,
        observations: str | Sequence[str] | None = None,
        actions: str | Sequence[str] | None = None,
        episode: str | Sequence[str] | None = None,
        time: str | None = None,
        terminated: str | None = None,
        truncated: str | None = None,
        rewards: str | None = None,
        gap: float | None = None,
        kind: Literal["csv", "tsv", "parquet", "npz"] | None = None,
    ) -> "Demos":
        """Read a table with one row per step: .csv, .tsv, .parquet, or an .npz of columns.

        Roles are given columns by name: one, several, or a name whose numbered columns are meant (observation_0,
        observation_1, ...). By default they are observation, action, episode, time, terminated, truncated and reward.
        Rows are ordered by episode and time; where time leaps (by more than `gap`, by default 1.5 times its smallest
        advance) a new episode begins. Without episodes, ends are where `terminated` or `truncated` say so.
        """
        fields = read_table(
            path,
            kind,
            gap,
            observations=observations,
            actions=actions,
            episode=episode,
            time=time,
            terminated=terminated,
            truncated=truncated,
            rewards=rewards,
        )
        return _checked(fields)

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str], **columns: Any) -> "Demos":
        """Read comma-separated values, whatever the file's name ends in (`from_table`)."""
        return cls.from_table(path, kind="csv", **columns)

    @classmethod
    def from_parquet(cls, path: str | os.PathLike[str], **columns: Any) -> "Demos":
        """Read a Parquet file, whatever its name ends in (`from_table`)."""
        return cls.from_table(path, kind="parquet", **columns)

    @classmethod
    def packaged(cls, task: str) -> "Demos":
        """Demonstrations that come with the package; `trustirl demos list` names the tasks."""
        return cls.from_npz(packaged_path(task))

    @classmethod
    def load(cls, source: str | os.PathLike[str]) -> "Demos":
        """Read whatever a user names: .npz, .hdf5, .h5, .csv, .tsv, .parquet, the folder of a Minari or LeRobot
        dataset, or minari:ID.

        `packaged:TASK` are those that come with the package.
        """
        return _checked(read_named(source, None) if isinstance(source, str) else read_source(source))

    @classmethod
    def record(cls, policy: Any, env: gym.Env, episodes: int, seed: int = 0) -> "Demos":
        """Let a policy act for so many episodes; episode i starts from seed + i.

        `policy` is a function from observations to actions, or has Stable-Baselines3's `predict`. Final observations,
        rewards and, of MuJoCo environments, simulator states are kept (`restore_state` goes back to one).
        """
        return _checked(recorded(policy, env, episodes, seed))

    def save(self, path: str | os.PathLike[str], compressed: bool = True) -> None:
        """Write everything to an .npz archive, from which `from_npz` reads it back bit for bit."""
        if Path(path).suffix != ".npz":
            raise DemoError(f"demos are saved as .npz, not as {Path(path).name}; save_minari writes Minari's format.")
        try:
            write_npz(vars(self), Path(path), compressed)
        except OSError as error:
            raise DemoError(f"cannot write the demos to {path}: {error.strerror}; choose another place.") from None

    def save_minari(self, dataset_id: str, env: str | gym.Env | None = None, **description: Any) -> None:
        """Write a Minari dataset, which Minari's own tools read.

        With `env`, the dataset names that environment and has its spaces. `description` are Minari's author,
        author_email, algorithm_name, code_permalink, description and requirements.
        """
        write_minari(vars(self), dataset_id, env, description)

    def with_discrete_actions(self) -> "Demos":
        """The same with whole-number actions as integers, one per step; loaders never guess that floats mean them."""
        actions = self.actions[:, 0] if self.actions.shape[1:] == (1,) else self.actions
        if actions.ndim != 1 or any((rows != np.trunc(rows)).any() for _, rows in pieces(actions)):
            raise DemoError("demo actions are discrete only if there is one whole number per step; these are not.")
        return replace(self, actions=_read_only(actions.astype(np.int64)))

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self.episode_ends)

    def __iter__(self) -> Iterator["Demos"]:
        """The episodes, one at a time."""
        return (self[episode] for episode in range(len(self)))

    def __getitem__(self, episodes: Episodes) -> "Demos":
        """Some of the episodes; those that lie side by side are views of the same memory."""
        numbers = np.arange(len(self))
        try:
            chosen = np.atleast_1d(numbers[np.asarray(episodes) if isinstance(episodes, Sequence) else episodes])
        except IndexError:
            raise DemoError(
                f"there are demo episodes 0 to {len(self) - 1}; choose by numbers, by a slice or by one truth value "
                "each."
            ) from None
        if chosen.ndim != 1 or not len(chosen):
            raise DemoError(f"a choice of demo episodes must name at least one of 0 to {len(self) - 1}.")
        starts = np.where(chosen > 0, self.episode_ends[chosen - 1], 0)
        lengths, terminated = self.episode_ends[chosen] - starts, self.terminated[chosen]
        ends = np.cumsum(lengths)
        if (np.diff(chosen) == 1).all():
            return self._rows(slice(starts[0], starts[0] + ends[-1]), ends, terminated)
        return self._rows(np.arange(ends[-1]) + np.repeat(starts - ends + lengths, lengths), ends, terminated)

    def _rows(
        self, rows: slice | Int[np.ndarray, " rows"], ends: np.ndarray, terminated: np.ndarray, **changed: Any
    ) -> "Demos":
        whole = {name: getattr(self, name) for name in PER_STEP} | changed
        parts: dict[str, Any] = {name: _read_only(array[rows]) for name, array in whole.items() if array is not None}
        return replace(self, episode_ends=_read_only(ends), terminated=_read_only(terminated), **parts)

    def __repr__(self) -> str:
        """In one line."""
        of = f" of {self.provenance['env_id']}" if self.provenance.get("env_id") else ""
        shapes = f"observations {self.observations.shape[1:]}, actions {self.actions.shape[1:]}"
        return f"<Demos: {count(len(self), 'episode')}, {count(len(self.actions), 'step')}{of}; {shapes}>"

    def take(self, episodes: int, choice: DemoChoice = "first") -> "Demos":
        """So many episodes: the first ones, the longest, or those of the highest return, in the order of the data."""
        if not 1 <= episodes <= len(self):
            raise DemoError(
                f"asked for {count(episodes, 'demo episode')} of {len(self)}; choose between 1 and {len(self)}."
            )
        merits = {"first": np.zeros(len(self)), "longest": self.lengths(), "best": self.returns()}
        if choice not in merits:
            raise unknown_name("choice of demo episodes,", choice, merits)
        merit = merits[choice]
        if merit is None:
            raise DemoError("these demos hold no rewards, so nobody knows the best; take the first or the longest.")
        return self[np.sort(np.argsort(-merit, kind="stable")[:episodes])]

    def split(self, first: int | float, seed: int | None = None) -> tuple["Demos", "Demos"]:
        """So many episodes, or such a share of them (a float), and the rest; in order, or shuffled by a seed."""
        count = round(first * len(self)) if isinstance(first, float) else first
        if not 0 < count < len(self):
            raise DemoError(
                f"a split must leave demo episodes on both sides, and {first} of {len(self)} does not; choose "
                f"between 1 and {len(self) - 1}, or a share."
            )
        order = np.arange(len(self)) if seed is None else np.random.default_rng(seed).permutation(len(self))
        return self[np.sort(order[:count])], self[np.sort(order[count:])]

    def subsample(self, every: int, offset: int = 0) -> "Demos":
        """Steps offset, offset + every, ... of each episode; times and successors stay the true ones."""
        if every < 1 or offset < 0:
            raise DemoError(f"subsampling needs every >= 1 and offset >= 0, got {every} and {offset}.")
        lengths = self.lengths()
        if offset >= lengths.min():
            short = int(np.argmin(lengths))
            raise DemoError(
                f"demo episode {short} has {count(lengths[short], 'step')} and an offset of {offset} leaves none; "
                "choose a smaller offset or leave the episode out."
            )
        since = self._place_in_episode() - offset
        rows = np.flatnonzero((since >= 0) & (since % every == 0))
        ends = np.cumsum(-(-(lengths - offset) // every))
        return self._rows(rows, ends, self.terminated, times=self.time_in_episode())

    @staticmethod
    def concatenate(parts: Sequence["Demos"]) -> "Demos":
        """All episodes of several demonstrations of one task; what some of them do not know is left out."""
        if not parts:
            raise DemoError("concatenating demos needs at least one.")
        for name in ("observations", "actions"):
            kinds = {(getattr(part, name).shape[1:], getattr(part, name).dtype.kind) for part in parts}
            if len(kinds) > 1:
                told = " and ".join(sorted(f"{kind}{shape}" for shape, kind in kinds))
                raise DemoError(f"demos to concatenate must have {name} of one shape and kind, got {told}.")
        joined: dict[str, Any] = {"terminated": np.concatenate([part.terminated for part in parts])}
        joined["episode_ends"] = np.cumsum(np.concatenate([part.lengths() for part in parts]))
        for name in PER_STEP:
            arrays = [getattr(part, name) for part in parts]
            if name == "times" and any(array is not None for array in arrays):
                arrays = [part.time_in_episode() for part in parts]
            if all(array is not None for array in arrays):
                joined[name] = np.concatenate(arrays)
        origins = [dict(part.provenance) for part in parts]
        same = all(origin == origins[0] for origin in origins)
        return _checked(joined | {"provenance": origins[0] if same else {"parts": origins}})

    def lengths(self) -> Int[np.ndarray, " episodes"]:
        """Steps of each episode."""
        return np.diff(self.episode_ends, prepend=0)

    def lifetimes(self) -> Int[np.ndarray, " episodes"]:
        """Steps that each episode lasted, also where some were left out since."""
        return self.time_in_episode()[self.episode_ends - 1] + 1

    @np.errstate(over="ignore")  # rewards may be the largest numbers there are
    def returns(self) -> Float[np.ndarray, " episodes"] | None:
        """The true return of each episode, where the rewards are known."""
        if self.rewards is None:
            return None
        return np.add.reduceat(self.rewards, self.episode_ends - self.lengths(), dtype=np.float64)

    def statistics(self) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
        """Mean and standard deviation of the observations, in float64."""
        count = len(self.observations)
        mean = sum(rows.sum(axis=0, dtype=np.float64) for _, rows in pieces(self.observations)) / count
        variance = sum(np.square(rows - mean).sum(axis=0) for _, rows in pieces(self.observations)) / count
        return np.asarray(mean), np.sqrt(variance)

    def time_in_episode(self) -> Int[np.ndarray, " steps"]:
        """t of each step, counted from its own episode's start."""
        return self._place_in_episode() if self.times is None else self.times

    def _place_in_episode(self) -> Int[np.ndarray, " steps"]:
        lengths = self.lengths()
        return np.arange(len(self.observations)) - np.repeat(self.episode_ends - lengths, lengths)

    def successors(self) -> tuple[Int[np.ndarray, " known"], Num[np.ndarray, "known ..."]]:
        """The steps of which it is known what was observed next, and that."""
        if self.next_observations is not None:
            return np.arange(len(self.observations)), self.next_observations
        time = self.time_in_episode()
        follows = np.diff(time) == 1
        follows[self.episode_ends[:-1] - 1] = False
        index = np.flatnonzero(follows)
        return index, self.observations[index + 1]

    def discount_weights(self, discount: float | None) -> Float[np.ndarray, " steps"]:
        """What each step weighs: discount^t, or 1 without a discount."""
        return step_weight(self.time_in_episode(), discount)

    def absorbing_weights(self, horizon: int, discount: float | None = None) -> Float[np.ndarray, " episodes"]:
        """What the absorbing state after each episode weighs beside `discount_weights`.

        It weighs nothing where the episode did not terminate before the horizon: there, the limit ended it. Steps
        that subsampling left out are represented by those that it kept, so the rest shrinks alike.
        """
        lived = self.lifetimes()
        rest = rest_weight(lived - 1, horizon, discount)
        if self.times is not None:
            kept = np.add.reduceat(self.discount_weights(discount), self.episode_ends - self.lengths())
            rest = rest * kept / (lived if discount is None else (1 - discount**lived) / (1 - discount))
        return np.where(self.terminated & (lived < horizon), rest, 0.0)

    def content_hash(self) -> str:
        """SHA-256 of what training may read, with dtypes and shapes; rewards and provenance are left out."""
        digest = hashlib.sha256()
        for entry in fields(self):
            array = getattr(self, entry.name)
            if entry.name in ("rewards", "provenance") or array is None:
                continue
            name = "" if entry.name in ("observations", "actions", "episode_ends", "terminated") else entry.name
            digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


def _read_only(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


def _checked(fields: Fields) -> Demos:
    """Demonstrations of arrays that nobody else writes to: checked and taken over, not copied."""
    return Demos(**checked_fields(**fields))


def find_demos(name: str, task: str | None = None) -> Demos:
    """Read what a user names: `packaged` (of the task at hand), `packaged:TASK`, or what `Demos.load` understands."""
    return _checked(read_named(name, task))
