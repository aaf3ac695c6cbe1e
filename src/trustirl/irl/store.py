"""The one way to write a run: its files, its metrics, its checkpoints."""

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from trustirl.core.errors import InputError
from trustirl.core.files import read_arrays, read_json, write_arrays, write_bytes, write_json
from trustirl.core.trees import tree_from_arrays, tree_to_arrays

FORMAT_VERSION = 1
RUN_FILES = (
    "config.json",
    "manifest.json",
    "metrics.jsonl",
    "summary.json",
    "report.html",
    "checkpoints",
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
)


class RunFolder:
    """A run on disk. Creating one refuses a folder that already holds a run."""

    def __init__(self, path: Path) -> None:
        """Point at a folder; nothing is read or written yet."""
        self.path = path

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

    def save_checkpoint(self, state: PyTree, iteration: int, seconds: float, keep: int = 2) -> None:
        """Arrays first, the pointer that names them last; older checkpoints go once the pointer has moved."""
        folder = self.path / "checkpoints"
        folder.mkdir(exist_ok=True)
        name = f"{iteration:08d}.safetensors"
        write_arrays(folder / name, tree_to_arrays(state))
        pointer = {"format_version": FORMAT_VERSION, "file": name, "iteration": iteration, "seconds": seconds}
        write_json(folder / "latest.json", pointer | {"config": config_hash(self.config())})
        for old in sorted(folder.glob("*.safetensors"))[:-keep]:
            old.unlink()

    def load_checkpoint(self, like: PyTree) -> tuple[PyTree | None, int, float]:
        """The newest state (None before the first), its iteration and the seconds spent so far."""
        if not (self.path / "checkpoints" / "latest.json").exists():
            return None, -1, 0.0
        pointer = read_json(self.path / "checkpoints" / "latest.json")
        if pointer.get("format_version") != FORMAT_VERSION:
            raise InputError(
                f"the checkpoint in {self.path} has format {pointer.get('format_version')}, this version reads "
                f"{FORMAT_VERSION}; use the trustirl that wrote it."
            )
        if pointer["config"] != config_hash(self.config()):
            raise InputError(f"the checkpoint in {self.path} belongs to another config.json; restore that file.")
        file = self.path / "checkpoints" / Path(pointer["file"]).name
        return tree_from_arrays(like, read_arrays(file), file), pointer["iteration"], pointer["seconds"]


def config_hash(config: Mapping[str, Any]) -> str:
    """What ties a checkpoint to its configuration."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
