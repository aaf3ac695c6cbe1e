"""LeRobot datasets, in both ways of spreading episodes over files, and what may be wrong with them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import trustirl as ti
from trustirl.demos.formats.lerobot import is_lerobot

LENGTHS = (5, 3, 4)
ROWS = sum(LENGTHS)


def rows() -> dict[str, Any]:
    """Columns as LeRobot writes them: lists, with numbers that say where they belong."""
    episode = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    frame = np.concatenate([np.arange(length) for length in LENGTHS])
    state = np.stack([episode, frame], axis=1).astype(np.float32)
    return {
        "observation.state": state,
        "observation.environment_state": 100 + state[:, :1],
        "action": (10 * state).astype(np.float32),
        "next.reward": np.arange(ROWS, dtype=np.float32),
        "next.done": frame == np.array(LENGTHS)[episode] - 1,
        "timestamp": frame / 10,
        "frame_index": frame,
        "episode_index": episode,
        "index": np.arange(ROWS),
        "task_index": np.zeros(ROWS, int),
    }


def write(folder: Path, version: str = "v3.0", **features: Any) -> Path:
    """A dataset; version 2 has a file per episode."""
    told = {
        name: {"dtype": str(np.asarray(column).dtype), "shape": [np.asarray(column)[0].size]}
        for name, column in rows().items()
    }
    told["observation.images.front"] = {"dtype": "video", "shape": [3, 96, 96]}
    info = {"codebase_version": version, "robot_type": "so100", "fps": 10, "features": told | features}
    (folder / "meta").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    (folder / "data" / "chunk-000").mkdir(parents=True)
    table = pyarrow.table({name: list(column) for name, column in rows().items()})
    ends = np.cumsum(LENGTHS)
    if version == "v3.0":
        parts = {"file-000": table.slice(0, 7), "file-001": table.slice(7)}
    else:
        starts = ends - LENGTHS
        parts = {f"episode_{n:06d}": table.slice(a, b - a) for n, (a, b) in enumerate(zip(starts, ends, strict=True))}
    for name, part in parts.items():
        pyarrow.parquet.write_table(part, folder / "data" / "chunk-000" / f"{name}.parquet")
    return folder


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_rows_become_episodes(tmp_path: Path, version: str) -> None:
    folder = write(tmp_path / "set", version)
    assert is_lerobot(folder)
    demos = ti.Demos.load(folder)
    assert demos.episode_ends.tolist() == np.cumsum(LENGTHS).tolist()
    given = rows()
    np.testing.assert_array_equal(demos.observations[:, 0], given["observation.environment_state"][:, 0])
    np.testing.assert_array_equal(demos.observations[:, 1:], given["observation.state"])
    np.testing.assert_array_equal(demos.actions, given["action"])
    np.testing.assert_array_equal(demos.rewards, given["next.reward"])
    assert not demos.terminated.any()
    assert demos.provenance["left_out"] == ["observation.images.front"]
    assert demos.provenance["robot_type"] == "so100"
    assert ti.Demos.from_lerobot(str(folder)).content_hash() == demos.content_hash()


def test_rows_in_any_order_are_sorted(tmp_path: Path) -> None:
    folder = write(tmp_path / "set")
    file = folder / "data" / "chunk-000" / "file-000.parquet"
    first = pyarrow.parquet.read_table(file)
    pyarrow.parquet.write_table(first.take([6, 0, 3, 5, 1, 2, 4]), file)
    np.testing.assert_array_equal(ti.Demos.load(folder).actions, rows()["action"])


def spoil(folder: Path, how: str) -> Path:
    info, data = folder / "meta" / "info.json", folder / "data" / "chunk-000"
    if how == "cut":
        info.write_text(info.read_text()[:50])
    elif how == "list":
        info.write_text("[1]")
    elif how == "no files":
        shutil.rmtree(data)
    elif how == "damaged":
        (data / "file-001.parquet").write_bytes(b"PAR1" + bytes(100))
    elif how == "lacks":
        file = data / "file-001.parquet"
        pyarrow.parquet.write_table(pyarrow.parquet.read_table(file).drop_columns(["action"]), file)
    elif how == "shapes":
        file = data / "file-001.parquet"
        other = pyarrow.parquet.read_table(file)
        wider = pyarrow.array([[0.0, 1.0, 2.0]] * len(other), pyarrow.list_(pyarrow.float32()))
        place = other.schema.get_field_index("action")
        pyarrow.parquet.write_table(other.set_column(place, "action", wider), file)
    return folder


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("cut", "damaged or not a LeRobot dataset"),
        ("list", "says no features"),
        ("no files", "holds no file data"),
        ("damaged", "damaged or not a Parquet file"),
        ("lacks", "lacks the column action"),
        ("shapes", "entries of different shapes"),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(tmp_path: Path, how: str, says: str) -> None:
    folder = spoil(write(tmp_path / "set"), how)
    with pytest.raises(ti.DemoError, match=says) as told:
        ti.Demos.load(folder)
    assert "\n" not in str(told.value)


def test_pictures_alone_are_no_observations(tmp_path: Path) -> None:
    video = {"dtype": "video", "shape": [3, 96, 96]}
    folder = write(tmp_path / "set", **{"observation.state": video, "observation.environment_state": video})
    with pytest.raises(ti.DemoError, match="no observations that are vectors of numbers"):
        ti.Demos.load(folder)
    folder = write(tmp_path / "other", action={"dtype": "string", "shape": [1]})
    with pytest.raises(ti.DemoError, match="no actions that are vectors of numbers"):
        ti.Demos.load(folder)
