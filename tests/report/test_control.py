"""The report of a run on a Gymnasium task: its numbers, its gaps, and runs that are not finished."""

import json
import math
import re
from collections import defaultdict
from html import unescape
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from synthetic_run import CONTROL_FIGURES, write_control_run, write_json

from trustirl.core.errors import InputError
from trustirl.core.measure import concat
from trustirl.core.types import Transition
from trustirl.irl.measures import weighted
from trustirl.irl.terms import drift, gap
from trustirl.report import read_run, write_report
from trustirl.report.drawing import WIDE
from trustirl.report.figures import draw_trust


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def write_rows(folder: Path, rows: list[dict[str, Any]]) -> None:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def change(folder: Path, name: str, **values: Any) -> None:
    write_json(folder / name, json.loads((folder / name).read_text()) | values)


def html_of(folder: Path) -> str:
    return write_report(folder).read_text(encoding="utf-8").replace("\u00a0", " ")


def figures_of(html: str) -> list[str]:
    return re.findall(r'data-figure="(\w+)"', html)


@pytest.mark.usefixtures("words_only")
def test_an_experts_return_that_cannot_be_compared_is_left_out_with_a_sentence(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run")
    change(folder, "summary.json", expert_return=None)
    assert "cannot be compared" not in html_of(folder)
    change(folder, "manifest.json", expert_incomparable="episodes of <b>300</b> steps")
    assert "expert's return cannot be compared: episodes of &lt;b&gt;300" in unescape_quotes(html_of(folder))


def unescape_quotes(html: str) -> str:
    return html.replace("&#x27;", "'")


def table_of(html: str, heading: str) -> list[list[str]]:
    section = html[html.index(heading) :]
    rows = re.findall(r"<tr>(<td>.*?)</tr>", section[: section.index("</table>")])
    return [re.findall(r"<td>(.*?)</td>", row) for row in rows]


def shown(value: float) -> str:
    """A number of the stability table, written independently of the page."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def expected_stability(rows: list[dict[str, Any]], expert: float) -> list[list[str]]:
    """The stability table by plain loops over the rows as they were written."""
    curves: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        if row["return_mean"] is not None:
            curves[row["seed"]].append((row["env_steps"], row["return_mean"]))
    table = []
    for seed, curve in sorted(curves.items()):
        best, drawdown, below, reached = -math.inf, 0.0, 0, None
        for steps, value in sorted(curve):
            best = max(best, value)
            drawdown = max(drawdown, best - value)
            below += value < best - 0.1 * abs(best)
            if reached is None and value >= 0.9 * expert:
                reached = steps
        share = f"{100 * below / len(curve):.3g} %"
        cells = [shown(max(curve)[1]), shown(best), shown(drawdown), share, f"{reached:,}" if reached else "never"]
        table.append([str(seed), *(cell.replace("-", "−") for cell in cells)])
    return table


# --- a finished run --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("words_only")
def test_a_finished_run_shows_every_part(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run")
    html = html_of(folder)
    returns = json.loads((folder / "summary.json").read_text())["returns"]
    assert figures_of(html) == CONTROL_FIGURES
    mean = sum(returns) / len(returns)
    for text in (
        "<h1>PIRO on Hopper-v4</h1>",
        "400,000 steps per seed",
        "12 demonstrated actions clipped",
        f'<dd class="value">{mean:,.0f}</dd>',
        f"seeds {', '.join(f'{value:,.0f}' for value in returns)}",
        f"{100 * mean / 3234.5:.3g} %",
        "expert 3,234, random 18.25, demonstrations 3,230",
        "2,123,456",
        "train 2,000,000, reward 0, evaluation 123,456",
        "3 h 20 min",
        "812 updates per second; simulator-bound: updates 40 %, stepping 90 % of practice",
        "trustirl train piro --task Hopper-v4 --demos data/hopper.npz",
        "gymnasium 1.2.2\nmujoco 3.3.7",
    ):
        assert text in html, text
    assert "running, " not in html


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize("seeds", [1, 5])
@pytest.mark.parametrize("expert", [3234.5, 9000.0])
def test_stability_table_equals_an_independent_calculation(tmp_path: Path, seeds: int, expert: float) -> None:
    folder = write_control_run(tmp_path / "run", seeds=seeds, expert_return=expert)
    rows = rows_of(folder)
    rows[0]["return_mean"] = rows[3 * seeds]["return_mean"] = None
    write_rows(folder, rows)
    table = table_of(html_of(folder), "How steadily each seed learned")
    assert table == expected_stability(rows, expert)
    assert all((row[-1] == "never") == (expert == 9000) for row in table)
    assert seeds == 1 or table[1][4] == "5 %"  # seed 1 falls for two of its forty evaluations


@pytest.mark.usefixtures("words_only")
def test_negative_returns_are_measured_from_random_actions(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", seeds=1, evaluations=4)
    rows = rows_of(folder)
    for row, value in zip(rows, (-1200.0, -300.0, -200.0, -390.0), strict=True):
        row["return_mean"] = value
    write_rows(folder, rows)
    change(folder, "summary.json", returns=[-390.0], expert_return=-200.0, random_return=-1200.0)
    html = html_of(folder)
    assert '<dd class="value">81 %</dd>' in html
    # 90 % of the way from -1200 to -200 is -300; only the last evaluation lies below it.
    assert table_of(html, "How steadily")[0] == ["0", "−390", "−200", "190", "25 %", "11,000"]
    change(folder, "summary.json", random_return=None)
    assert '<dd class="value">–</dd>' in html_of(folder)


@pytest.mark.usefixtures("words_only")
def test_returns_without_a_known_expert(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", expert_return=None)
    html = html_of(folder)
    assert figures_of(html) == CONTROL_FIGURES
    assert "dashed line" not in html
    assert [row[-1] for row in table_of(html, "How steadily")] == ["–"] * 5
    change(folder, "summary.json", random_return=None, demo_return=None)
    assert "expert's return not recorded" in unescape(html_of(folder))


@pytest.mark.usefixtures("words_only")
def test_an_algorithm_without_trust_region_or_solver_columns(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", trust_region=False)
    write_rows(
        folder,
        [{k: v for k, v in row.items() if k not in ("q", "entropy", "critic_loss")} for row in rows_of(folder)],
    )
    html = html_of(folder)
    assert figures_of(html) == ["returns", "gap"]
    assert "recorded neither drift nor μ" in html
    assert "<th>μ</th>" not in html
    assert "<th>ℓ</th>" not in html


@pytest.mark.usefixtures("words_only")
def test_an_algorithm_that_learns_no_reward(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run")
    assert "drift" in html_of(folder)
    change(folder, "summary.json", learns_reward=False)
    reward = ("gap", "drift", "mu")
    write_rows(folder, [{k: None if k in reward else v for k, v in row.items()} for row in rows_of(folder)])
    html = html_of(folder)
    assert figures_of(html) == ["returns", "solver"]
    assert not re.search(
        r"drift|μ|\bgap\b", re.sub(r"<style.*?</style>|<details.*?</details>", "", html, flags=re.DOTALL)
    )


@pytest.mark.usefixtures("words_only")
def test_drift_alone_is_told_without_a_penalty(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run")
    assert "μ weighs the penalty" in html_of(folder)
    write_rows(folder, [row | {"mu": None} for row in rows_of(folder)])
    html = html_of(folder)
    assert figures_of(html) == CONTROL_FIGURES
    assert "The drift is how far one update moves the reward. Look for drift that settles" in html


@pytest.mark.usefixtures("words_only")
@pytest.mark.parametrize("offline", [False, True])
def test_every_metric_has_a_panel_under_its_own_name(offline: bool, tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", offline=offline)
    write_rows(folder, [row | {"reward_size": 1.0 + row["iteration"], "odd name": 3} for row in rows_of(folder)])
    html = html_of(folder)
    assert "others" in figures_of(html)
    drawn = html[html.index('data-figure="others"') :]
    assert "reward_size" in drawn
    assert "odd name" not in html
    # Where no steps of a policy's own learning are drawn, what is recorded of it is drawn plainly.
    assert ("solver" in figures_of(html)) != offline
    assert ("critic_loss" in drawn) == offline


def test_one_evaluation_is_still_drawn(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", seeds=1, evaluations=1)
    html = html_of(folder)
    assert figures_of(html) == ["returns", "gap"]
    assert "nan" not in re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL).lower()


def test_both_ways_of_counting_steps_are_read(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run")
    change(folder, "summary.json", env_steps=2_000_000)
    assert read_run(folder).summary.env_steps == {"train": 2_000_000}


# --- a run that is not finished --------------------------------------------------------------------------


def test_an_interrupted_run_shows_what_there_is(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", finished=False)
    whole = rows_of(folder)[:62]  # twelve evaluations of all five seeds, and two of the next
    write_rows(folder, whole)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"seed": 2, "iteration": 24, "env_st')
    html = html_of(folder)
    assert figures_of(html) == CONTROL_FIGURES
    assert "running, 111,000 of 400,000 steps" in html
    assert "known when the run has ended" in html
    assert "575,000" in html  # three seeds at 111,000 steps and two at 121,000: what the metrics know
    assert table_of(html, "How steadily") == [[*row[:-1], "–"] for row in expected_stability(whole, math.inf)]
    assert [row[1] for row in table_of(html, "Last evaluation")] == ["24", "24", "22", "22", "22"]
    assert "nan" not in re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL).lower()


@pytest.mark.usefixtures("words_only")
def test_a_run_without_an_evaluation_says_so(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", finished=False)
    write_rows(folder, [])
    html = html_of(folder)
    assert "running, 0 of 400,000 steps" in html
    assert "no evaluation yet" in html
    assert figures_of(html) == []


@pytest.mark.usefixtures("words_only")
def test_a_seed_that_has_not_begun(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", seeds=2, finished=False)
    write_rows(folder, [row for row in rows_of(folder) if row["seed"] == 0])
    html = html_of(folder)
    assert "running, 0 of 400,000 steps" in html
    assert table_of(html, "How steadily")[1] == ["1", *["–"] * 5]


def test_an_unfinished_run_of_the_exact_world_is_refused(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", finished=False)
    write_json(folder / "config.json", {"algorithm": "piro", "task": "gridworld", "steps": 200})
    with pytest.raises(InputError, match="finished run in the exact world"):
        read_run(folder)


# --- files that are wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("summary.json", "{", "summary.json is not valid JSON or was cut short"),
        ("summary.json", "[]", "summary.json must hold a JSON object"),
        ("summary.json", "{}", "summary.json: 'returns'"),
        ("metrics.jsonl", '{"seed": 0, "iter', "metrics.jsonl, line 1 is not valid JSON"),
        ("metrics.jsonl", "", "metrics.jsonl must hold the same iterations"),
    ],
)
def test_a_corrupt_file_is_refused_by_name(tmp_path: Path, name: str, content: str, message: str) -> None:
    folder = write_control_run(tmp_path / "run")
    assert read_run(folder).world.name == "simulator"
    (folder / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_run(folder)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("summary.json", {"returns": [1.0]}, "summary.json: 'returns' must be a list of 5 numbers"),
        ("summary.json", {"expert_return": "high"}, "summary.json: 'expert_return'"),
        ("summary.json", {"env_steps": {"train": -1}}, "summary.json, 'env_steps': 'train'"),
        ("summary.json", {"env_steps": "many"}, "summary.json: 'env_steps'"),
        ("config.json", {"steps": "many"}, "config.json: 'steps'"),
    ],
)
def test_a_wrong_value_is_refused_by_name(tmp_path: Path, name: str, values: dict[str, Any], message: str) -> None:
    folder = write_control_run(tmp_path / "run")
    change(folder, name, **values)
    with pytest.raises(InputError, match=message):
        read_run(folder)


@pytest.mark.parametrize(("key", "value"), [("env_steps", None), ("return_mean", "1"), ("q", True)])
def test_a_wrong_metric_is_refused_with_its_line(tmp_path: Path, key: str, value: Any) -> None:
    folder = write_control_run(tmp_path / "run", finished=False)
    rows = rows_of(folder)
    rows[6][key] = value
    write_rows(folder, rows)
    with pytest.raises(InputError, match=f"metrics.jsonl, line 7: '{key}'"):
        read_run(folder)


@pytest.mark.usefixtures("words_only")
def test_the_price_at_which_a_reward_rests_is_told_where_there_is_one(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", seeds=1)
    told = "above the dashed line, 0.08839, no step pays"
    assert told not in html_of(folder)
    change(folder, "config.json", plan={"reference": 256}, algorithm_config={"penalty": "l2"})
    assert told in html_of(folder)
    change(folder, "config.json", algorithm_config={"penalty": "squared"})
    assert told not in html_of(folder)


def test_the_price_at_which_a_reward_rests_is_drawn_where_there_is_one(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", seeds=1)
    drawn = draw_trust(read_run(folder), WIDE)
    change(folder, "config.json", plan={"reference": 256}, algorithm_config={"penalty": "l2"})
    assert draw_trust(read_run(folder), WIDE) != drawn
    change(folder, "config.json", algorithm_config={"penalty": "squared"})
    assert draw_trust(read_run(folder), WIDE) == drawn


@given(arrays(float, 12, elements=st.floats(-3, 3)))
def test_no_change_of_a_reward_is_worth_more_than_the_resting_price(change_of_reward: np.ndarray) -> None:
    def pairs(values: np.ndarray) -> Transition:
        return weighted(Transition(jnp.asarray(values)[:, None], jnp.zeros((len(values), 1)), jnp.ones(len(values))))

    def gain_and_price(values: np.ndarray) -> tuple[float, float]:
        demo, learner = pairs(values[:6]), pairs(values[6:])
        moved, old = (lambda pairs: pairs.obs[:, 0]), (lambda pairs: 0.0 * pairs.obs[:, 0])
        gained = gap(moved, demo, learner) - gap(old, demo, learner)
        return float(gained), math.sqrt(2 / 6) * float(drift(moved, old, concat(demo, learner)))

    gained, price = gain_and_price(change_of_reward)
    assert gained <= price + 1e-6
    assert gain_and_price(np.repeat([1.0, -1.0], 6)) == pytest.approx((2.0, 2.0))  # the bound is reached
