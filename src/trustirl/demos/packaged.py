"""Demonstrations that can be named: those of the package, and Minari datasets on this machine."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trustirl.core.errors import DemoError, unknown_name
from trustirl.core.files import read_json
from trustirl.demos.formats.minari import local_root

FOLDER = Path(__file__).parent / "packaged"  # TASK.npz, and TASK.json that says where it comes from
PACKAGED = "packaged"


@dataclass(frozen=True)
class Named:
    """What `--demos` may name, and what is known of it without reading the steps."""

    name: str
    task: str | None
    episodes: int | None
    steps: int | None
    mean_return: float | None


def packaged_names() -> list[str]:
    """Tasks whose demonstrations come with the package."""
    return sorted(file.stem for file in FOLDER.glob("*.npz"))


def packaged_path(task: str) -> Path:
    """The file with a task's demonstrations."""
    if task in packaged_names():
        return FOLDER / f"{task}.npz"
    if not packaged_names():
        raise DemoError(
            f"no demonstrations of {task} come with this version, nor of any other task; give a file or minari:ID."
        )
    near = str(unknown_name("task", task, packaged_names())).partition(": ")[2]
    raise DemoError(
        f"no demonstrations of {task} come with this version ({near.rstrip('.')}); give a file or minari:ID."
    )


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
