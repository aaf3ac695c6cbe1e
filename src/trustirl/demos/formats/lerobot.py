"""LeRobot datasets: recordings of robots in Parquet files, and a JSON file that says what their columns are.

Versions 2 and 3 of the format spread episodes over files in different ways; the rows tell their episode and frame
themselves. Observations are those that are vectors of numbers: pictures are left out, and named in the provenance.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trustirl.core.errors import DemoError
from trustirl.demos.checks import Fields
from trustirl.demos.formats.outside import existing_file, reading
from trustirl.demos.formats.tables import episodes_of, opened, side_by_side

KIND = "a LeRobot dataset"
INFO = Path("meta") / "info.json"
LARGEST_INFO = 2**24
MOST_FILES = 100_000
NUMBERS = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
EPISODE, FRAME, ACTION, REWARD = "episode_index", "frame_index", "action", "next.reward"
KEPT = ("codebase_version", "robot_type", "fps")


def is_lerobot(path: Path) -> bool:
    """Whether a folder holds a LeRobot dataset."""
    return (path / INFO).is_file()


def read_lerobot(path: str | os.PathLike[str]) -> Fields:
    """See `Demos.from_lerobot`."""
    folder = Path(path)
    info = _info(folder)
    features: Mapping[str, Any] = info["features"]
    seen = sorted(name for name in features if name.startswith("observation"))
    vectors = [name for name in seen if _is_vector(features[name])]
    pictures = [name for name in seen if name not in vectors]
    for what, there in (("observations", bool(vectors)), ("actions", _is_vector(features.get(ACTION)))):
        if not there:
            raise DemoError(
                f"{folder} holds no {what} that are vectors of numbers, but {', '.join(features):.200}; choose a "
                "dataset with states and actions."
            )
    wanted = [*vectors, ACTION, EPISODE, FRAME, *([REWARD] if REWARD in features else [])]
    columns = _columns(folder, wanted)
    by_number = np.lexsort([columns[FRAME], columns[EPISODE]])  # files may hold episodes in any order
    columns = {name: column[by_number] for name, column in columns.items()}
    parts = {"episode": [columns[EPISODE]], "time": [columns[FRAME]]}
    order, ends = episodes_of(parts, len(columns[FRAME]), None)
    arrays: Fields = {
        "observations": side_by_side(vectors, [columns[name] for name in vectors], order),
        "actions": side_by_side([ACTION], [columns[ACTION]], order),
        "episode_ends": ends,
    }
    if REWARD in columns:
        arrays["rewards"] = columns[REWARD].reshape(-1)[order]
    told = {name: info[name] for name in KEPT if isinstance(info.get(name), str | int | float)}
    told |= {"source": folder.resolve().name, "observations": vectors} | ({"left_out": pictures} if pictures else {})
    return arrays | {"provenance": told}


def _is_vector(told: Any) -> bool:
    """Whether a feature is a number or a vector of numbers."""
    if not isinstance(told, Mapping) or told.get("dtype") not in NUMBERS:
        return False
    shape = told.get("shape")
    return isinstance(shape, list) and len(shape) <= 1


def _info(folder: Path) -> dict[str, Any]:
    file = existing_file(folder / INFO, KIND)
    if file.stat().st_size > LARGEST_INFO:
        raise DemoError(f"{file} is larger than any description of a dataset; restore it.")
    with reading(file, KIND):
        info = json.loads(file.read_text(encoding="utf-8"))
    features = info.get("features") if isinstance(info, dict) else None
    if not isinstance(features, dict) or not features:
        raise DemoError(f"{file} says no features, so it is not that of {KIND}; restore it.")
    return dict(info)


def _columns(folder: Path, wanted: list[str]) -> dict[str, np.ndarray]:
    """The columns of all data files, one below the other."""
    files = sorted(folder.glob("data/*/*.parquet"))
    if not files or len(files) > MOST_FILES:
        found = f"{len(files):,} files" if files else "no file"
        raise DemoError(f"{folder} holds {found} data/CHUNK/FILE.parquet; fetch the whole dataset.")
    pieces = []
    for file in files:
        table = opened(file)
        if missing := [name for name in wanted if name not in table.names]:
            raise DemoError(f"{file} lacks the column {missing[0]} that {INFO} tells of; fetch the dataset again.")
        pieces.append(table.read(wanted, {}))
    joined = {}
    for name in wanted:
        shapes = {piece[name].shape[1:] for piece in pieces if len(piece[name])}
        if len(shapes) != 1:
            raise DemoError(f"the column {name} of {folder} has entries of different shapes; fetch it again.")
        joined[name] = np.concatenate([piece[name] for piece in pieces if len(piece[name])])
    return joined
