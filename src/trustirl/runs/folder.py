"""The one way to write a run: its files, its metrics, its checkpoints."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from msgspec import Meta

from trustirl.core import lock
from trustirl.core.buffer import Buffer
from trustirl.core.errors import InputError
from trustirl.core.files import (
    file_hash,
    open_file,
    parse_json,
    read_arrays,
    read_bytes,
    read_form,
    read_json,
    write_arrays,
    write_bytes,
    write_json,
)
from trustirl.core.trees import tree_from_arrays, tree_to_arrays
from trustirl.core.types import TrainState

FORMAT_VERSION = 3
MOST_METRICS = 2**30  # bytes
OWN = (  # what a run may write into its folder
    "config.json",
    "summary.json",
    "metrics.jsonl",
    "report.html",
    "reward.safetensors",
    "reward.json",
    "reward.md",
    "policy.safetensors",
    "policy.json",
    "maps.safetensors",
    "comparison.json",
    "certificate.json",
    "demos.npz",
    "card.json",
    "table.json",
    "film-expert.png",
    "film-learner.png",
    "checkpoints",
    "programs",
    "tb",
)

FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*\Z", max_length=100)]
Count = Annotated[int, Meta(ge=0, le=2**62)]


@dataclass(frozen=True)
class Saved:
    """A checkpoint as latest.json names it: a state, and what had been done, spent and written until then."""

    file: FileName
    sha256: str
    iteration: Count
    seconds: float
    env_steps: dict[str, Count]
    metrics_bytes: Count
    metrics_sha256: str
    replay_stop: Count  # rows that the replay had seen


@dataclass(frozen=True)
class Shard:
    """Rows of the replay, by number."""

    file: FileName
    sha256: str
    start: Count
    stop: Count


@dataclass(frozen=True)
class Pointer:
    """latest.json: the newest checkpoints, oldest first, and the replay that they share."""

    format_version: int
    config: str
    checkpoints: tuple[Saved, ...]
    replay: tuple[Shard, ...]

    def files(self) -> set[str]:
        """Every file that it names."""
        return {saved.file for saved in self.checkpoints} | {shard.file for shard in self.replay}


class Checkpoint(NamedTuple):
    """Where a run goes on."""

    state: TrainState
    saved: Saved


class RunFolder:
    """A run on disk."""

    def __init__(self, path: Path) -> None:
        """Point at a folder; nothing is read or written yet."""
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.programs = path / "programs"
        self.pointer = self.checkpoints / "latest.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder if it is not there, and let no other process write into it meanwhile."""
        made = not os.path.lexists(self.path)
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.callback(self._remove_if_empty, made)
                stack.enter_context(lock.held(self.path))
            except OSError as error:
                raise InputError(
                    f"{self.path} cannot be written ({error.strerror}); choose another folder."
                ) from None
            yield

    def _remove_if_empty(self, made: bool) -> None:
        if made:  # by us, and nothing was begun
            with suppress(OSError):
                self.path.rmdir()

    def check_free(self, overwrite: bool) -> None:
        """Refuse to write over a run, or over anything else, before any work is done."""
        if os.path.isfile(self.path):
            raise InputError(f"{self.path} is a file; choose another --out folder.")
        if self.holds_run():
            if not overwrite:
                raise InputError(
                    f"{self.path} already holds a run; choose another --out, continue it with "
                    f"`trustirl resume {self.path}`, or add --overwrite."
                )
        elif not self._is_ours() and (others := [name for name in OWN if os.path.lexists(self.path / name)]):
            raise InputError(
                f"{self.path} is no run of trustirl and holds {', '.join(others)}, where a run would write; choose "
                "another --out."
            )

    def holds_run(self) -> bool:
        """Whether a run was started here."""
        return self._is_ours() and (self.path / "config.json").exists()

    def _is_ours(self) -> bool:
        """Whether trustirl began a run here; the manifest is the first file of one and the last to be removed."""
        try:
            return "trustirl" in read_json(self.path / "manifest.json")["versions"]
        except (InputError, KeyError, TypeError):
            return False

    def clear(self, manifest: Mapping[str, Any]) -> None:
        """Remove an old run's own files, and nothing else, and say that a new one begins."""
        for name in OWN:  # config.json first: without it nobody takes the rest for a run
            old = self.path / name
            shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink(missing_ok=True)
        write_json(self.path / "manifest.json", manifest)

    def begin(self, config: Mapping[str, Any]) -> None:
        """Start a run, once all that it needs lies in its folder: from here on it can be resumed."""
        write_bytes(self.path / "metrics.jsonl", b"")
        write_json(self.path / "config.json", config)

    def config(self) -> dict[str, Any]:
        """The fully resolved configuration of the run."""
        return read_json(self.path / "config.json")

    def manifest(self) -> dict[str, Any]:
        """Where and with what the run was made."""
        return read_json(self.path / "manifest.json")

    def metrics(self) -> list[dict[str, Any]]:
        """All rows so far; a last line that a crash cut short is none."""
        file = self.path / "metrics.jsonl"
        *lines, _cut = read_bytes(file, MOST_METRICS).split(b"\n")
        return [parse_json(line, f"{file}, line {n}", dict[str, Any]) for n, line in enumerate(lines, 1)]

    def append_metrics(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add one line per seed."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, allow_nan=False) + "\n" for row in rows)

    def save_checkpoint(
        self, state: TrainState, iteration: int, seconds: float, env_steps: Mapping[str, int], keep: int = 2
    ) -> None:
        """Arrays first, the pointer that names them last; what it no longer names goes once it has moved.

        Of a replay only the rows that no earlier checkpoint holds are written. The metrics until now reach the disk
        before the pointer does, which says how long they were.
        """
        self.checkpoints.mkdir(exist_ok=True)
        last = self._pointer() if self.has_checkpoint() else Pointer(FORMAT_VERSION, "", (), ())
        name = f"{iteration:08d}.safetensors"
        digest = write_arrays(self.checkpoints / name, tree_to_arrays(replace(state, replay=None)))
        rows = 0 if state.replay is None else int(state.replay.added[0])
        length, metrics = self._written_metrics()
        new = Saved(name, digest, iteration, seconds, dict(env_steps), length, metrics, rows)
        kept = (*(saved for saved in last.checkpoints if saved.iteration < iteration), new)[-keep:]
        shards = () if state.replay is None else self._save_replay(state.replay, last.replay, kept[0].replay_stop)
        pointer = Pointer(FORMAT_VERSION, config_hash(self.config()), kept, shards)
        write_json(self.pointer, asdict(pointer))
        for old in self.checkpoints.glob("*.safetensors"):
            if old.name not in pointer.files() and old.is_file():
                old.unlink()

    def _written_metrics(self) -> tuple[int, str]:
        """Length and digest of the metrics, once they are on the disk."""
        with (self.path / "metrics.jsonl").open("rb") as file:
            os.fsync(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return file.tell(), digest

    def _save_replay(self, replay: Buffer, shards: tuple[Shard, ...], oldest: int) -> tuple[Shard, ...]:
        """`oldest` is how many rows the oldest checkpoint that is kept had seen."""
        added = int(replay.added[0])
        start = max(shards[-1].stop if shards else 0, added - replay.capacity)
        if start < added:
            rows = jax.tree.map(lambda x: x[:, np.arange(start, added) % replay.capacity], replay.rows)
            name = f"replay-{start:010d}.safetensors"
            digest = write_arrays(self.checkpoints / name, tree_to_arrays(rows))
            shards = (*shards, Shard(name, digest, start, added))
        return tuple(shard for shard in shards if shard.stop > oldest - replay.capacity)

    def forget_programs(self) -> None:
        """What was compiled, once the run is finished and nobody will resume it."""
        shutil.rmtree(self.programs, ignore_errors=True)

    def has_checkpoint(self) -> bool:
        """Whether there is a state to go on from."""
        return self.pointer.exists()

    def restore(self, blank: TrainState) -> Checkpoint | None:
        """The newest state that is whole, of the same structure as `blank`, and the metrics as they were then.

        None, and no metrics, where a run was stopped before its first checkpoint.
        """
        if not self.has_checkpoint():
            write_bytes(self.path / "metrics.jsonl", b"")
            return None
        pointer = self._pointer()
        if pointer.config != config_hash(self.config()):
            raise InputError(f"the checkpoint in {self.path} belongs to another config.json; restore that file.")
        problems = []
        for saved in reversed(pointer.checkpoints):
            shards = tuple(shard for shard in pointer.replay if shard.stop <= saved.replay_stop)
            if problem := self._problem(saved, shards):
                problems.append(problem)
                continue
            if problems:
                print(f"trustirl: {problems[0]}; going on from iteration {saved.iteration}.", file=sys.stderr)
            state = self._load(saved, shards, blank)
            earlier = tuple(other for other in pointer.checkpoints if other.iteration <= saved.iteration)
            write_json(self.pointer, asdict(replace(pointer, checkpoints=earlier, replay=shards)))
            os.truncate(self.path / "metrics.jsonl", saved.metrics_bytes)
            return Checkpoint(state, saved)
        raise InputError(
            f"{problems[0]}, and no older checkpoint is whole; restore it, or start anew with --overwrite."
        )

    def _pointer(self) -> Pointer:
        version = read_json(self.pointer).get("format_version")
        if version != FORMAT_VERSION:
            raise InputError(
                f"the checkpoint in {self.path} has format {version}, this version reads {FORMAT_VERSION}; use the "
                "trustirl that wrote it."
            )
        pointer: Pointer = read_form(self.pointer, Pointer)
        if not pointer.checkpoints:
            raise InputError(f"{self.pointer} names no checkpoint; restore it, or start anew with --overwrite.")
        return pointer

    def _problem(self, saved: Saved, shards: Iterable[Shard]) -> str | None:
        """What is wrong with a checkpoint, if anything is."""
        try:
            for name, digest in ((saved.file, saved.sha256), *((shard.file, shard.sha256) for shard in shards)):
                if file_hash(self.checkpoints / name) != digest:
                    return f"{self.checkpoints / name} has changed since it was written"
            with open_file(self.path / "metrics.jsonl", MOST_METRICS) as file:
                if hashlib.sha256(file.read(saved.metrics_bytes)).hexdigest() != saved.metrics_sha256:
                    return f"{self.path / 'metrics.jsonl'} has changed since it was written"
        except InputError as error:
            return str(error).rstrip(".")
        return None

    def _load(self, saved: Saved, shards: tuple[Shard, ...], blank: TrainState) -> TrainState:
        file = self.checkpoints / saved.file
        without_replay = eqx.tree_at(lambda state: state.replay, blank, None, is_leaf=lambda leaf: leaf is None)
        state: TrainState = tree_from_arrays(without_replay, read_arrays(file), file)
        if blank.replay is None:
            return state
        return replace(state, replay=self._load_replay(blank.replay, shards, saved.replay_stop))

    def _load_replay(self, blank: Buffer, shards: tuple[Shard, ...], added: int) -> Buffer:
        rows = jax.tree.map(lambda shape: np.zeros(shape.shape, shape.dtype), blank.rows)
        for shard in shards:
            file, count = self.checkpoints / shard.file, shard.stop - shard.start
            if not 0 < count <= blank.capacity:
                raise InputError(f"{self.pointer} names {count} rows of a replay of {blank.capacity}; restore it.")
            like = jax.tree.map(partial(_of_length, count), rows)
            stored = tree_from_arrays(like, read_arrays(file), file)
            places = np.arange(shard.start, shard.stop) % blank.capacity
            for kept, new in zip(jax.tree.leaves(rows), jax.tree.leaves(stored), strict=True):
                kept[:, places] = new
        return Buffer(jax.tree.map(jnp.asarray, rows), jnp.full(blank.added.shape, added, blank.added.dtype))


def _of_length(count: int, rows: np.ndarray) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((rows.shape[0], count, *rows.shape[2:]), rows.dtype)


def config_hash(config: Mapping[str, Any]) -> str:
    """What ties a checkpoint to its configuration."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
