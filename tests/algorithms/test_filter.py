"""FILTER: MM, but for where practice begins."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trustirl as ti
from tests.control.small import SETTINGS
from trustirl.algorithms import ALGORITHMS
from trustirl.demos.schema import find_demos


def rows(algorithm: str, folder: Path, **settings: Any) -> list[dict[str, Any]]:
    demos = find_demos("packaged", "Pendulum-v1").take(1, "first")
    run = ti.train(algorithm, "Pendulum-v1", demos, steps=260, out=folder / algorithm, **SETTINGS | settings)
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name != "seconds"} for line in lines]


@pytest.mark.slow
def test_without_resets_it_is_mm_and_with_them_it_is_not(tmp_path: Path) -> None:
    mm = rows("mm", tmp_path)
    assert rows("filter", tmp_path / "none", resets=0.0) == mm
    filtered = rows("filter", tmp_path / "half", resets=0.5)
    assert [row["env_steps"] for row in filtered] == [row["env_steps"] for row in mm]
    assert not np.allclose([row["gap"] for row in filtered], [row["gap"] for row in mm])


def test_what_it_has_beside_mm_are_resets() -> None:
    ours, theirs = (ALGORITHMS[name].defaults for name in ("filter", "mm"))
    for task in ("Hopper-v4", "CartPole-v1", "Pendulum-v1"):
        assert dict(ours.of(task)) == dict(theirs.of(task)) | {"resets": 0.4}
