"""The tables in README, docs and results say what the measured results say."""

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
STUDY = "results/control/results.json"


def tables(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "tables.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def copy(tmp_path):
    """A repository with one table."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("before\n<!-- table:learning control -->\n<!-- /table -->\nafter\n")
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
    (copy / "README.md").write_text("<!-- table:compared control -->\n<!-- /table -->\n")
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
    (copy / "README.md").write_text("<!-- table:changes control -->\n<!-- /table -->\n")
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
    (copy / "README.md").write_text("<!-- table:steadiness control further -->\n<!-- /table -->\n")
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


def test_many_comparisons_are_corrected_for() -> None:
    """The rarest counts for all, the next for all but one, and none is rarer than one before it."""
    holm = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))["holm"]
    assert holm([0.04, 0.01, 0.03, 0.9]) == pytest.approx([0.09, 0.04, 0.09, 0.9])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    noise = np.random.default_rng(0).uniform(size=(4000, 20))
    assert np.mean([min(holm(list(row))) < 0.05 for row in noise]) == pytest.approx(0.05, abs=0.012)


def test_differences_that_are_no_chance_are_the_two_that_the_text_names() -> None:
    tables = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))
    rows = [row | {"study": "paper-mujoco"} for row in tables["rows_of"]("paper-mujoco", ROOT)]
    cells = [line.split(" | ") for line in tables["beside"](rows).splitlines()[2:]]
    clear = {
        (task.strip("| "), method, what)
        for task, method, _, *told in cells
        for what, cell in enumerate(told)
        if _p(cell) < 0.05
    }
    assert clear == {("Ant-v4", "ml-irl", 0), ("Humanoid-v4", "ml-irl", 1)}


def _p(cell: str) -> float:
    return float(cell[cell.index("(") + 1 : cell.index(")")].removeprefix("below "))


def test_shares_stand_beside_the_controls_and_those_of_other_seeds(copy):
    row = {"task": "Here-v1", "expert_return": 100.0, "random_return": 5.0, "steps": 10}
    seen = row | {"algorithm": "piro", "held_out": False, "returns": [90.0, 100.0, 110.0]}
    unseen = seen | {"held_out": True, "returns": [40.0] * 3}
    longer = seen | {"variant": "longer", "returns": [500.0] * 3}
    zero = row | {"algorithm": "piro", "returns": [30.0]}
    for name, rows in (("paper-mujoco", [seen, unseen, longer]), ("zero-reward", [zero])):
        (copy / "results" / name).mkdir()
        (copy / "results" / name / "results.json").write_text(json.dumps(rows))
    (copy / "README.md").write_text("<!-- table:shares paper-mujoco zero-reward -->\n<!-- /table -->\n")
    assert tables("--root", copy).returncode == 0
    assert "| Here-v1 | 10 | 100 | 1.00 | 0.40 | – | – | – | 0.30 | 0.05 |" in (copy / "README.md").read_text()


def test_a_reward_of_zero_stands_beside_the_same_setting_only(copy):
    settings = {"solver": {"temperature": 0.1}, "plan": {}, "control": {"termination": "T2"}}
    zero = {"task": "Here-v1", "algorithm": "piro", "demos": "a", "steps": 9, "settings": settings}
    zero |= {"returns": [1.0, 2.0], "expert_return": 20.0}
    other = zero | {"returns": [7.0], "settings": settings | {"solver": {"temperature": 0.2}}}
    same, cloned = zero | {"returns": [10.0]}, zero | {"algorithm": "bc", "returns": [5.0], "settings": {}}
    others = {"zero-reward": [zero], "other": [other, same, cloned, cloned | {"demos": "b"}]}
    for name, rows in others.items():
        (copy / "results" / name).mkdir()
        (copy / "results" / name / "results.json").write_text(json.dumps(rows))
    (copy / "README.md").write_text("<!-- table:controls zero-reward other -->\n<!-- /table -->\n")
    assert tables("--root", copy).returncode == 0
    assert "| Here-v1 | 1 2 | 10 | 5 | 20 |" in (copy / "README.md").read_text()


@pytest.mark.parametrize("text", ["<!-- table:learning control -->\n", "<!-- table:other x -->\n<!-- /table -->"])
def test_a_broken_marker_is_an_error(copy, text):
    (copy / "README.md").write_text(text)
    assert tables("--root", copy, "--check").returncode != 0


@pytest.mark.parametrize("study", sorted(ROOT.glob("results/*/curves.csv.gz")), ids=lambda file: file.parent.name)
def test_curves_and_rows_tell_the_same(study):
    scripts = runpy.run_path(str(ROOT / "benchmarks" / "study.py"))
    rows, lines = (scripts[name](study.parent) for name in ("rows_of", "curves_of"))
    assert sum(scripts["belongs"](line, row) for line in lines for row in rows) == len(lines)  # each once
    for row in rows:
        _, returns = scripts["evaluations"](lines, row)
        np.testing.assert_allclose(returns[:, -1], row["returns"], atol=0.051)
        falls = (np.maximum.accumulate(returns, axis=1) - returns).max(axis=1)
        np.testing.assert_allclose(falls, row["drawdown"], atol=0.11)


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
