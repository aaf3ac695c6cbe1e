"""The one way to write a run: its files, its metrics, its checkpoints."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from trustirl.core.buffer import Buffer
from trustirl.core.errors import InputError
from trustirl.core.files import read_arrays, read_json, write_arrays, write_bytes, write_json
from trustirl.core.trees import tree_from_arrays, tree_to_arrays
from trustirl.core.types import TrainState

FORMAT_VERSION = 2
RUN_FILES = (
    "config.json",
    "manifest.json",
    "metrics.jsonl",
    "summary.json",
    "report.html",
    "checkpoints",
    "programs",
    "tb",
)
EXTRA_FILES = (
    "reward.safetensors",
    "reward.json",
    "policy.safetensors",
    "policy.json",
    "maps.safetensors",
    "comparison.json",
    "certificate.json",
    "demos.npz",
    "card.json",
)


class Checkpoint(NamedTuple):
    """A state, and what had been done and spent until then."""

    state: TrainState
    iteration: int
    seconds: float
    env_steps: dict[str, int]


class RunFolder:
    """A run on disk. Creating one refuses a folder that already holds a run."""

    def __init__(self, path: Path) -> None:
        """Point at a folder; nothing is read or written yet."""
        self.path = path
        self.checkpoints = path / "checkpoints"
        self.programs = path / "programs"

    def check_free(self, overwrite: bool) -> None:
        """Refuse to write over a run, or over a file, before any work is done."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; choose another --out folder.")
        if self.holds_run() and not overwrite:
            raise InputError(
                f"{self.path} already holds a run; choose another --out, continue it with "
                f"`trustirl resume {self.path}`, or add --overwrite."
            )

    def holds_run(self) -> bool:
        """Whether a run was started here."""
        return any((self.path / name).exists() for name in ("config.json", "metrics.jsonl", "summary.json"))

    def begin(self, config: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
        """Start a run: remove an old run's own files (and nothing else), then write what is known at the start."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name in (*RUN_FILES, *EXTRA_FILES):
            old = self.path / name
            shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
        write_json(self.path / "config.json", config)
        write_json(self.path / "manifest.json", manifest)
        (self.path / "metrics.jsonl").touch()

    def config(self) -> dict[str, Any]:
        """The fully resolved configuration of the run."""
        return dict(read_json(self.path / "config.json"))

    def manifest(self) -> dict[str, Any]:
        """Where and with what the run was made."""
        return dict(read_json(self.path / "manifest.json"))

    def metrics(self) -> list[dict[str, Any]]:
        """All whole rows so far; a line that a crash cut short is not one."""
        rows = []
        for line in (self.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
        return rows

    def append_metrics(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add one line per seed."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, allow_nan=False) + "\n" for row in rows)

    def forget_metrics_after(self, iteration: int) -> None:
        """Drop rows that a resumed run will write again, a half-written last line included."""
        kept = [json.dumps(row) + "\n" for row in self.metrics() if row["iteration"] <= iteration]
        write_bytes(self.path / "metrics.jsonl", "".join(kept).encode())

    def save_checkpoint(
        self, state: TrainState, iteration: int, seconds: float, env_steps: Mapping[str, int], keep: int = 2
    ) -> None:
        """Arrays first, the pointer that names them last; what it no longer names goes once it has moved.

        Of a replay only the rows that no earlier checkpoint holds are written.
        """
        self.checkpoints.mkdir(exist_ok=True)
        last = read_json(self.checkpoints / "latest.json") if self.has_checkpoint() else {"files": [], "replay": []}
        name = f"{iteration:08d}.safetensors"
        write_arrays(self.checkpoints / name, tree_to_arrays(replace(state, replay=None)))
        files = [*(file for file in last["files"] if file != name), name][-keep:]
        shards = self._save_replay(state.replay, last["replay"]) if state.replay is not None else []
        pointer = {"format_version": FORMAT_VERSION, "files": files, "replay": shards, "iteration": iteration}
        facts = {"seconds": seconds, "env_steps": dict(env_steps), "config": config_hash(self.config())}
        write_json(self.checkpoints / "latest.json", pointer | facts)
        kept = {"latest.json", *files, *(shard["file"] for shard in shards)}
        for old in self.checkpoints.iterdir():
            if old.name not in kept:
                old.unlink()

    def _save_replay(self, replay: Buffer, shards: list[dict[str, Any]]) -> list[dict[str, Any]]:
        added = int(replay.added[0])
        start = max(shards[-1]["stop"] if shards else 0, added - replay.capacity)
        if start < added:
            rows = jax.tree.map(lambda x: x[:, np.arange(start, added) % replay.capacity], replay.rows)
            name = f"replay-{start:010d}.safetensors"
            write_arrays(self.checkpoints / name, tree_to_arrays(rows))
            shards = [*shards, {"file": name, "start": start, "stop": added}]
        return [shard for shard in shards if shard["stop"] > added - replay.capacity]

    def forget_programs(self) -> None:
        """What was compiled, once the run is finished and nobody will resume it."""
        shutil.rmtree(self.programs, ignore_errors=True)

    def has_checkpoint(self) -> bool:
        """Whether there is a state to go on from."""
        return (self.checkpoints / "latest.json").exists()

    def load_checkpoint(self, blank: TrainState) -> Checkpoint:
        """The newest state, of the same structure as `blank`."""
        pointer = read_json(self.checkpoints / "latest.json")
        if pointer.get("format_version") != FORMAT_VERSION:
            raise InputError(
                f"the checkpoint in {self.path} has format {pointer.get('format_version')}, this version reads "
                f"{FORMAT_VERSION}; use the trustirl that wrote it."
            )
        if pointer["config"] != config_hash(self.config()):
            raise InputError(f"the checkpoint in {self.path} belongs to another config.json; restore that file.")
        file = self.checkpoints / Path(pointer["files"][-1]).name
        without_replay = eqx.tree_at(lambda state: state.replay, blank, None, is_leaf=lambda leaf: leaf is None)
        state = tree_from_arrays(without_replay, read_arrays(file), file)
        if blank.replay is not None:
            state = replace(state, replay=self._load_replay(blank.replay, pointer["replay"]))
        return Checkpoint(state, pointer["iteration"], pointer["seconds"], pointer["env_steps"])

    def _load_replay(self, blank: Buffer, shards: list[dict[str, Any]]) -> Buffer:
        rows = jax.tree.map(lambda shape: np.zeros(shape.shape, shape.dtype), blank.rows)
        for shard in shards:
            file = self.checkpoints / Path(shard["file"]).name
            numbers = np.arange(shard["start"], shard["stop"])
            like = jax.tree.map(partial(_of_length, len(numbers)), rows)
            stored = tree_from_arrays(like, read_arrays(file), file)
            for kept, new in zip(jax.tree.leaves(rows), jax.tree.leaves(stored), strict=True):
                kept[:, numbers % blank.capacity] = new
        added = jnp.full(blank.added.shape, shards[-1]["stop"], blank.added.dtype)
        return Buffer(jax.tree.map(jnp.asarray, rows), added)


def _of_length(count: int, rows: np.ndarray) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((rows.shape[0], count, *rows.shape[2:]), rows.dtype)


def config_hash(config: Mapping[str, Any]) -> str:
    """What ties a checkpoint to its configuration."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
