"""Runs become rows of a study (benchmarks/study.py): seeds in order, joined only where they belong together."""

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_run import write_control_run

from trustirl.report import read_run

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "study.py"


def add(study: Path, *runs: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), str(study), *runs], capture_output=True, text=True)


def test_joined_folders_are_one_row_with_all_seeds_in_order(tmp_path: Path) -> None:
    folders = [write_control_run(tmp_path / f"from-{first}", seeds=2, first_seed=first) for first in (3, 0)]
    added = add(tmp_path / "study", "+".join(map(str, folders)), f"another={folders[0]}")
    assert added.returncode == 0, added.stderr
    (alone,) = json.loads((tmp_path / "study/results.json").read_text())  # the same question again replaces its row
    assert alone["variant"] == "another"

    assert add(tmp_path / "study", "+".join(map(str, folders))).returncode == 0
    (row,) = json.loads((tmp_path / "study/results.json").read_text())
    ends = [value for folder in folders for value in read_run(folder).summary.returns]
    assert row["returns"] == pytest.approx(ends, abs=0.05)
    with gzip.open(tmp_path / "study/curves.csv.gz", "rt") as file:
        seeds = [int(line["seed"]) for line in csv.DictReader(file)]
    assert list(dict.fromkeys(seeds)) == row["seeds"] == [3, 4, 0, 1]


def test_another_setting_needs_a_name_and_other_seeds_are_another_row(tmp_path: Path) -> None:
    study, one = tmp_path / "study", write_control_run(tmp_path / "one", seeds=2)
    later = write_control_run(tmp_path / "later", seeds=2, first_seed=5)
    changed = write_control_run(tmp_path / "changed", seeds=2, settings={"lr": 1e-3})
    assert add(study, str(one), str(later), f"quick={changed}").returncode == 0
    rows = json.loads((study / "results.json").read_text())
    assert [(row.get("variant"), row["seeds"]) for row in rows] == [(None, [0, 1]), (None, [5, 6]), ("quick", [0, 1])]
    before = (study / "curves.csv.gz").read_bytes()
    assert add(study, str(one)).returncode == 0  # in the place of the same row
    assert (study / "curves.csv.gz").read_bytes() == before

    refused = add(tmp_path / "new", str(one), str(changed))
    assert refused.returncode != 0
    assert "asks another question than the row of its name and seeds" in refused.stderr


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({"first_seed": 2, "settings": {"lr": 1e-3}}, " in settings;"),
        ({"first_seed": 2, "task": "Ant-v4"}, " in task;"),
        ({"first_seed": 2, "evaluations": 20}, " in steps;"),
        ({"first_seed": 1}, "hold already: [1]"),
    ],
    ids=["settings", "task", "steps", "seed"],
)
def test_folders_that_do_not_belong_together_are_refused(tmp_path: Path, other: dict, complaint: str) -> None:
    one = write_control_run(tmp_path / "one", seeds=2)
    two = write_control_run(tmp_path / "two", seeds=2, **other)
    added = add(tmp_path / "study", f"{one}+{two}")
    assert added.returncode != 0
    assert len(added.stderr.splitlines()) == 1
    assert complaint in added.stderr
    assert not (tmp_path / "study/results.json").exists()
