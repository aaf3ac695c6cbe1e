"""The tables in README and docs say what the measured results say."""

import gzip
import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parent.parent
STUDY = "results/control-first/results.json"


def tables(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "tables.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path):
    """A repository with one table."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("before\n<!-- table:learning control-first -->\n<!-- /table -->\nafter\n")
    (tmp_path / STUDY).parent.mkdir(parents=True)
    shutil.copy(ROOT / STUDY, tmp_path / STUDY)
    return tmp_path


def test_committed_tables_are_current():
    checked = tables("--check")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_changed_number_is_noticed_and_written(copy):
    assert tables("--root", copy).returncode == 0
    assert tables("--root", copy, "--check").returncode == 0
    rows = json.loads((copy / STUDY).read_text())
    rows[0]["returns"] = [1234.0] * 5
    (copy / STUDY).write_text(json.dumps(rows))
    checked = tables("--root", copy, "--check")
    assert checked.returncode != 0
    assert "README.md" in checked.stdout
    assert "1,234" not in (copy / "README.md").read_text()
    assert tables("--root", copy).returncode == 0
    text = (copy / "README.md").read_text()
    assert "1,234" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")


def test_a_comparison_shows_every_seed_and_who_never_came_near(copy):
    rows = json.loads((copy / STUDY).read_text())[:1]
    told = {"returns": [0.0, 90.0, 100.0, 110.0, 900.0], "drawdown": [10.0, 20.0, 30.0, 40.0, 50.0]}
    rows[0] |= told | {"steps_to_90": [None, 1000, 3000, 2000, 2000], "expert_return": 200.0, "variant": "odd"}
    (copy / STUDY).write_text(json.dumps(rows))
    (copy / "README.md").write_text("<!-- table:compared control-first -->\n<!-- /table -->\n")
    assert tables("--root", copy).returncode == 0
    text = (copy / "README.md").read_text()
    assert ", odd | " in text
    assert "| 0 90 100 110 900 | 100 | 200 | 0.50 | 30 | 2,000, 1 never |" in text


def test_changes_stand_beside_the_default_in_the_order_of_their_values(copy):
    row = json.loads((copy / STUDY).read_text())[0] | {"task": "Here-v1", "expert_return": 200.0}
    told = {"default": [1, 2], "target 16.0": [3, 4], "target 4.0": [5, 6], "a pull": [7, 8]}
    rows = [row | {"variant": name, "returns": seen, "drawdown": seen} for name, seen in told.items()]
    rows.append({key: value for key, value in rows[0].items() if key != "variant"} | {"task": "There-v1"})
    (copy / STUDY).write_text(json.dumps(rows))
    (copy / "README.md").write_text("<!-- table:changes control-first -->\n<!-- /table -->\n")
    assert tables("--root", copy).returncode == 0
    lines = (copy / "README.md").read_text().splitlines()
    assert lines[1] == "|  | Here-v1 (200) | There-v1 (200) |"
    assert lines[3] == "| default | 1 2 (2) | – |"
    assert [line.split(" | ")[0] for line in lines[4:8]] == [
        "| a pull",
        f"| {row['algorithm']}",
        "| target 4.0",
        "| target 16.0",
    ]
    assert lines[5] == f"| {row['algorithm']} | – | 1 2 (2) |"


def test_drawdowns_stand_beside_those_of_ml_irl_with_what_chance_would_do(copy):
    row = {"task": "Here-v1", "algorithm": "piro", "drawdown": [1.0, 2.0, 3.0]}
    other = {"task": "Here-v1", "algorithm": "ml-irl", "drawdown": [10.0, 20.0, 30.0]}
    ignored = row | {"variant": "strong", "drawdown": [99.0] * 3}
    further = copy / "results" / "further" / "results.json"
    further.parent.mkdir()
    (copy / STUDY).write_text(json.dumps([row | {"drawdown": [1.0, 2.0]}, ignored, other]))
    further.write_text(json.dumps([row | {"drawdown": [3.0]}]))  # more seeds of the same
    (copy / "README.md").write_text("<!-- table:steadiness control-first further -->\n<!-- /table -->\n")
    assert tables("--root", copy).returncode == 0
    # Two of the 20 ways to deal six seeds into two groups of three lie as far apart: this one and its mirror image.
    assert "| Here-v1 | 1 2 3 | 10 20 30 | 0.10 | 0.10 |" in (copy / "README.md").read_text()


def test_chance_of_many_seeds_is_sampled_and_agrees_with_all_deals(monkeypatch):
    chance = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))["chance"]
    random = np.random.default_rng(0)
    one, other = random.normal(0.0, 1.0, 7).tolist(), random.normal(0.7, 1.0, 9).tolist()
    exact = chance(one, other)
    assert 0.05 < exact < 0.9
    monkeypatch.setitem(chance.__globals__, "MOST_DEALS", 0)
    assert chance(one, other) != exact
    assert chance(one, other) == pytest.approx(exact, abs=0.005)
    assert chance([0.0] * 30, [1.0] * 30) < 1e-4


def test_variants_with_parts_less_stand_beside_the_default_of_another_study(copy):
    row = {"task": "Here-v1", "expert_return": 100.0, "returns": [90.0, 100.0, 110.0]}
    default = row | {"algorithm": "piro", "drawdown": [1.0, 2.0, 3.0]}
    other = row | {"algorithm": "ml-irl", "drawdown": [4.0, 4.0, 4.0]}
    variant = default | {"variant": "mu to 10", "drawdown": [10.0, 20.0, 30.0], "returns": [-5.0, 90.0, 95.0]}
    elsewhere = default | {"task": "There-v1"}
    study = copy / "results" / "variants" / "results.json"
    study.parent.mkdir()
    (copy / STUDY).write_text(json.dumps([default, other, elsewhere]))
    recorded = [row | {"variant": name} for row, name in ((default, "recorded"), (variant, "mu to 10, recorded"))]
    alone = variant | {"task": "Alone-v1"}  # without a row of ML-IRL
    study.write_text(json.dumps([variant, default | {"drawdown": [99.0] * 3}, *recorded, alone]))  # an older default
    (copy / "README.md").write_text("<!-- table:without control-first variants -->\n<!-- /table -->\n")
    assert tables("--root", copy).returncode == 0
    lines = (copy / "README.md").read_text().splitlines()
    assert lines[3] == "| Here-v1 | 2 (1.00) | – | – | 20 (0.60), p 0.10, 1 lost | – | – | 2 |"
    assert lines[4] == "| Here-v1, recorded | 2 (1.00) | – | – | 20 (0.60), p 0.10, 1 lost | – | – | – |"
    assert len(lines) == 6  # nobody tried a variant there


@pytest.mark.parametrize(
    "text", ["<!-- table:learning control-first -->\n", "<!-- table:other x -->\n<!-- /table -->"]
)
def test_a_broken_marker_is_an_error(copy, text):
    (copy / "README.md").write_text(text)
    assert tables("--root", copy, "--check").returncode != 0


@pytest.mark.parametrize("name", ["paper-mujoco", "half-the-steps", "more-seeds", "held-out"])
def test_curves_and_rows_tell_the_same(name):
    study = ROOT / "results" / name
    evaluations = runpy.run_path(str(ROOT / "benchmarks" / "curves.py"))["evaluations"]
    rows = [row for row in json.loads((study / "results.json").read_text()) if "variant" not in row]
    for row in rows:
        _, returns = evaluations(study / f"{row['task']}-{row['algorithm']}-packaged.csv.gz")
        np.testing.assert_allclose(returns[:, -1], row["returns"], atol=0.051)
        falls = (np.maximum.accumulate(returns, axis=1) - returns).max(axis=1)
        np.testing.assert_allclose(falls, row["drawdown"], atol=0.11)
    assert {row["task"] for row in rows if row["algorithm"] == "piro"} == {row["task"] for row in rows}


def test_falls_of_a_second_half_are_measured_from_the_best_evaluation_of_the_whole_run(tmp_path):
    def curves(name, *seeds):
        lines = [f"{seed},{step},{value}" for seed, run in enumerate(seeds) for step, value in enumerate(run)]
        with gzip.open(tmp_path / name, "wt") as file:
            file.write("\n".join(["seed,env_steps,return_mean", *lines]))
        return tmp_path / name

    ours = curves("ours.csv.gz", [5, 1, 3, 5, 6], [1, 2, 3, 4, 5])  # an early fall of 4, of which 2 are left at half
    theirs = curves("theirs.csv.gz", [1, 2, 9, 0, 9], [1, 2, 9, 1, 9])
    command = [sys.executable, ROOT / "benchmarks" / "falls.py", ours, "--against", theirs]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert lines[0] == "whole run: 2 in the mean: 4 0"
    assert lines[1] == "whole run: against 8 in the mean: 9 8"
    assert lines[2] == "whole run: p 0.3333"  # two of the six ways to deal four seeds: this one and its mirror image
    assert lines[3] == "second half: 1 in the mean: 2 0"


@pytest.mark.parametrize(
    ("script", "study"), [("curves", "paper-mujoco"), ("changes", "ablation"), ("changes", "sensitivity")]
)
def test_the_pictures_can_be_drawn_again(tmp_path, script, study):
    command = [sys.executable, ROOT / "benchmarks" / f"{script}.py", ROOT / "results" / study, tmp_path / "a.png"]
    subprocess.run(command, check=True)
    new, committed = (Image.open(file) for file in (tmp_path / "a.png", ROOT / "docs/images" / f"{study}.png"))
    assert new.size == committed.size
    drawn = [np.ptp(np.asarray(image.convert("RGB"), int), axis=2) > 30 for image in (new, committed)]  # not the text
    assert (drawn[0] & drawn[1]).sum() > 0.95 * (drawn[0] | drawn[1]).sum()
