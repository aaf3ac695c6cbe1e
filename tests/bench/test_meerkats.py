"""The study of real animals, on a few that are made up."""

import csv
from pathlib import Path

import numpy as np
import pytest

from trustirl.bench import meerkats
from trustirl.bench.meerkats import OFFICIAL, Method, run_meerkats
from trustirl.core.errors import InputError

FILMS = (*OFFICIAL, *(f"22-10-2{day}_C{camera}_01.csv" for day in range(4) for camera in (2, 3)))


def made_up(path: Path, seed: int = 0) -> str:
    random = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(
            ["file_idx", "animal_id", "time", "zone", "close_neighbours", "distant_neighbours", "behaviour"]
        )
        for film in FILMS:
            zones = ("Background", "Mound") if "C2" in film else ("Background", "Door")
            zone = zones[0]
            for time in range(100):
                behaviour = "None" if time == 99 else random.choice(["digs", "guards"])
                rows.writerow([film, 1, time, zone, random.choice(["{}", "{2}"]), "{2, 3}", behaviour])
                zone = zones[random.integers(2)] if random.random() < 0.2 else zone
    return str(path)


@pytest.mark.slow  # two compiled loops
def test_a_study_writes_a_row_for_each_method_and_split_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out, told = made_up(tmp_path / "table.csv"), tmp_path / "rows.json", []
    monkeypatch.setattr(meerkats, "METHODS", (Method("piro", updates=2, deals=1, carried=True),))
    rows = run_meerkats(file, out, told=told.append)
    found = {row["split"]: row for row in rows if row["algorithm"] == "piro"}
    parts = {"in-sample": 1, "official": 1, "folds": 5, "other camera": 2, "other camera, solved there": 2}
    parts |= {"places closed": len(FILMS), "places closed, solved again": len(FILMS)}
    assert {split: len(row["visits"]) for split, row in found.items()} == parts
    assert len(told) == len(rows)
    controls = {row["algorithm"] for row in rows if row["previous"]}
    assert controls >= {"uniform", "tabular cloning", "never leaves", "counted by the last action"}
    assert run_meerkats(file, out) == rows  # nothing is left to do
    with pytest.raises(InputError, match="rows of another table"):
        run_meerkats(made_up(tmp_path / "other.csv", 1), out)
