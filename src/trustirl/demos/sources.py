"""What users name as demonstrations: files, Minari datasets, and those of the package."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from trustirl.core.errors import DemoError, unknown_name
from trustirl.core.files import read_json
from trustirl.core.machine import install_command
from trustirl.demos.checks import Fields
from trustirl.demos.formats.hdf5 import read_hdf5
from trustirl.demos.formats.lerobot import is_lerobot, read_lerobot
from trustirl.demos.formats.minari import is_minari, local_root, read_minari
from trustirl.demos.formats.npz import read_npz
from trustirl.demos.formats.tables import read_table

# TASK.npz, and TASK.json that says where it comes from. The wheel holds every .json, but only small .npz; the others
# are in a wheel of their own, which holds nothing else (packages/demos).
FOLDER = Path(__file__).parent / "packaged"
LARGE = "trustirl_demos"
PACKAGED = "packaged"
READERS: dict[str, Callable[[Path], Fields]] = {
    ".npz": read_npz,
    ".hdf5": read_hdf5,
    ".h5": read_hdf5,
    ".csv": read_table,
    ".tsv": read_table,
    ".parquet": read_table,
}


@dataclass(frozen=True)
class Named:
    """What `--demos` may name, and what is known of it without reading the steps."""

    name: str
    task: str | None
    episodes: int | None
    steps: int | None
    mean_return: float | None


def packaged_names() -> list[str]:
    """Tasks whose demonstrations are on this machine, with this package or with trustirl-demos."""
    return sorted(_packaged_files())


def elsewhere_names() -> list[str]:
    """Tasks whose demonstrations come with trustirl-demos, which is not installed."""
    return sorted({card.stem for card in FOLDER.glob("*.json")} - _packaged_files().keys())


def packaged_path(task: str) -> Path:
    """The file with a task's demonstrations."""
    files = _packaged_files()
    if task in files:
        return files[task]
    if task in elsewhere_names():
        raise DemoError(
            f"demonstrations of {task} come in a package of their own: {install_command('demos')}, or give a file "
            "or minari:ID."
        )
    if not files:
        raise DemoError(
            f"no demonstrations of {task} come with this version, nor of any other task; give a file or minari:ID."
        )
    near = str(unknown_name("task", task, [*files, *elsewhere_names()])).partition(": ")[2]
    raise DemoError(
        f"no demonstrations of {task} come with this version ({near.rstrip('.')}); give a file or minari:ID."
    )


def _packaged_files() -> dict[str, Path]:
    spec = find_spec(LARGE)  # found, not imported
    folders = [*map(Path, (spec and spec.submodule_search_locations) or ()), FOLDER]
    return {file.stem: file for folder in folders for file in folder.glob("*.npz")}


def read_source(source: str | os.PathLike[str]) -> Fields:
    """See `Demos.load`."""
    if isinstance(source, str) and source.startswith("minari:"):
        return read_minari(source.removeprefix("minari:"))
    path = Path(source)
    if path.is_dir() and is_minari(path):
        return read_minari(path)
    if path.is_dir() and is_lerobot(path):
        return read_lerobot(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DemoError(
            f"{source} is nothing that demos can be read from; give a file that ends in {', '.join(READERS)}, "
            "the folder of a Minari or LeRobot dataset, or minari:ID."
        )
    return reader(path)


def read_named(name: str, task: str | None) -> Fields:
    """See `find_demos`."""
    kind, _, of = name.partition(":")
    if kind != PACKAGED:
        return read_source(name)
    if not of and task is None:
        raise DemoError(
            "packaged demonstrations are those of a task: say packaged:TASK, as `trustirl demos list` does."
        )
    return read_npz(packaged_path(of or str(task)))


def named_demos() -> list[Named]:
    """Everything that can be loaded by name on this machine."""
    return [*map(_packaged, packaged_names()), *_local_minari()]


def _packaged(task: str) -> Named:
    card = FOLDER / f"{task}.json"
    told = read_json(card).get("demonstrations", {}) if card.exists() else {}
    return Named(f"{PACKAGED}:{task}", task, told.get("episodes"), told.get("steps"), told.get("mean"))


def _local_minari() -> Iterator[Named]:
    """Datasets as their folders tell; Minari itself need not be installed to see them."""
    root = local_root()
    for file in sorted(root.rglob("data/metadata.json")):
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            task = json.loads(told.get("env_spec") or "{}").get("id")
            counts = [told.get(f"total_{name}") for name in ("episodes", "steps")]
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            continue  # what cannot be read cannot be loaded
        episodes, steps = (number if isinstance(number, int) else None for number in counts)
        name = file.parent.parent.relative_to(root).as_posix()
        yield Named(f"minari:{name}", task if isinstance(task, str) else None, episodes, steps, None)
