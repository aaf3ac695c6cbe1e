"""A comparison tells the numbers of its runs truthfully, whatever has become of some of them."""

import csv
import io
import itertools
import json
import math
import re
import subprocess
import sys
from collections import defaultdict
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.stats import trim_mean
from synthetic_run import write_bench, write_control_run, write_json, write_run

from trustirl.core.errors import InputError
from trustirl.evaluation.stats import bootstrap
from trustirl.report import report, write_comparison, write_report
from trustirl.report.compare import Panel, curves_figure
from trustirl.report.plots import Plot, Series, draw
from trustirl.report.study import read_study, run_folders
from trustirl.report.words import number


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bench(tmp_path_factory.mktemp("bench"))


def page_of(*paths: Path, out: Path) -> str:
    return write_comparison(paths, out / "page.html").read_text(encoding="utf-8")


def table_of(html: str, name: str) -> list[list[str]]:
    """Head and rows; notes stand in parentheses, and what a cell can open after a colon."""
    section = html[html.index(f'data-table="{name}"') :]
    rows = re.findall(r"<tr>(.*?)</tr>", section[: section.index("</table>")], flags=re.DOTALL)
    cells = [re.findall(r"<t[dh]>(.*?)</t[dh]>", row, flags=re.DOTALL) for row in rows]
    marked = [
        [cell.replace('<span class="note">', " (").replace("</span>", ")").replace("<pre>", ": ") for cell in row]
        for row in cells
    ]
    return [[unescape(re.sub(r"<[^>]*>", "", cell)) for cell in row] for row in marked]


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def curves_of(*folders: Path) -> dict[int, list[tuple[int, float]]]:
    curves: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for folder in folders:
        for row in rows_of(folder):
            curves[row["seed"]].append((row["env_steps"], row["return_mean"]))
    return curves


# --- the numbers -----------------------------------------------------------------------------------------


def test_the_tables_equal_what_metrics_say(bench: Path, tmp_path: Path) -> None:
    html = page_of(bench, out=tmp_path)
    table = table_of(html, "returns")
    assert table[0] == ["Task", "Random", "Expert", "piro", "ml-irl"]
    for line, task in enumerate(("Hopper-v4", "Walker2d-v4"), start=1):
        assert table[line][:3] == [f"{task} (gymnasium 1.2.2, mujoco 3.3.7)", "18.25", "3,234"]
        for column, label in ((3, "piro"), (4, "ml-irl")):
            curves = curves_of(*sorted((bench / "runs").glob(f"{label}-{task}-*")))
            last = np.array([max(curves[seed])[1] for seed in sorted(curves)])
            low, high = bootstrap([last])
            seeds = "\n".join(f"seed {seed}: {number(value)}" for seed, value in enumerate(last))
            middle = number(float(trim_mean(last, 0.25)))
            assert table[line][column] == f"{middle} ({number(float(low))} to {number(float(high))}): {seeds}"
            assert last.min() <= low < trim_mean(last, 0.25) < high <= last.max()


def test_seeds_split_over_folders_are_one_row(bench: Path, tmp_path: Path) -> None:
    study = read_study([bench])
    assert [(row.label, row.task, row.seeds) for row in study.rows if row.label == "piro"] == [
        ("piro", "Hopper-v4", (0, 1, 2, 3, 4)),
        ("piro", "Walker2d-v4", (0, 1, 2, 3, 4)),
    ]
    row = study.rows[0]
    curves = curves_of(*sorted((bench / "runs").glob("piro-Hopper-v4-*")))
    np.testing.assert_array_equal(row.column("return_mean"), [[v for _, v in curves[seed]] for seed in range(5)])
    assert row.env_steps == {"train": 5 * 400_000, "reward": 0, "evaluation": 2 * 123_456}
    assert (row.wall_seconds, row.updates_per_second) == (24_000, 812)
    table = table_of(page_of(bench, out=tmp_path), "effort")
    assert table[1] == [
        "Hopper-v4",
        "piro",
        "5",
        "2,000,000",
        "0",
        "246,912",
        "2,246,912",
        "6 h 40 min",
        "812",
        "NVIDIA H200",
    ]


def test_a_line_for_each_seed_at_full_precision(bench: Path, tmp_path: Path) -> None:
    text = write_comparison([bench], tmp_path / "seeds.csv", "csv").read_text()
    lines = list(csv.DictReader(io.StringIO(text)))
    assert len(lines) == 20
    for line in lines:
        curves = curves_of(*sorted((bench / "runs").glob(f"{line['label']}-{line['task']}-*")))
        curve = sorted(curves[int(line["seed"])])
        best, drawdown, below, reached = -math.inf, 0.0, 0, ""
        for steps, value in curve:
            best = max(best, value)
            drawdown = max(drawdown, best - value)
            below += value < best - 0.1 * abs(best)
            reached = reached or (str(float(steps)) if value >= 0.9 * 3234.5 else "")
        assert float(line["return"]) == curve[-1][1]
        assert float(line["score"]) == pytest.approx((curve[-1][1] - 18.25) / (3234.5 - 18.25))
        assert float(line["drawdown"]) == pytest.approx(drawdown)
        assert float(line["share_below_90"]) == pytest.approx(below / len(curve))
        assert line["steps_to_90"] == reached
        assert line["share_ell_fell"] == ""


def test_overall_scores_and_improvement(bench: Path, tmp_path: Path) -> None:
    html = page_of(bench, out=tmp_path)
    scores = {}
    for label in ("piro", "ml-irl"):
        curves = [
            curves_of(*sorted((bench / "runs").glob(f"{label}-{task}-*"))) for task in ("Hopper-v4", "Walker2d-v4")
        ]
        scores[label] = [(max(curve)[1] - 18.25) / (3234.5 - 18.25) for task in curves for curve in task.values()]
    table = table_of(html, "overall")
    for line, values in zip(table[1:], scores.values(), strict=True):
        assert line[1].startswith(f"{trim_mean(values, 0.25):.3g} (")
        assert line[2] == f"{np.mean(values):.3g}"
        assert line[-1] == "10"
    wins = np.mean([a > b for t in (0, 5) for a in scores["piro"][t : t + 5] for b in scores["ml-irl"][t : t + 5]])
    table = table_of(html, "improvement")
    assert table[1][2].startswith(f"{100 * wins:.3g} % (")
    assert table[2][1].startswith(f"{100 * (1 - wins):.3g} % (")


def test_the_exact_world_tells_how_often_the_likelihood_fell(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", seeds=2, iterations=11)
    rows = rows_of(folder)
    for row in rows:
        row["ell"] = -1.0 - (0.5 if row["iteration"] == 5 and row["seed"] == 0 else 0.0) + 0.001 * row["iteration"]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = table_of(page_of(folder, out=tmp_path), "stability")
    assert table[1][table[0].index("ℓ fell")] == "5 %"  # one of ten iterations of one of two seeds


def test_on_simulators_an_estimate_of_the_likelihood_serves(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", seeds=2, evaluations=11)
    rows = rows_of(folder)
    places = {number: place for place, number in enumerate(sorted({row["iteration"] for row in rows}))}
    for row in rows:
        row["log_likelihood"] = places[row["iteration"]] - (5.0 if places[row["iteration"]] > 5 else 0.0)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = table_of(page_of(folder, out=tmp_path), "stability")
    assert table[1][table[0].index("ℓ fell")] == "10 %"  # one of ten evaluations after the first


def test_rewards_are_drawn_where_states_make_a_picture(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, iterations=4) for name in ("one", "other")]
    edited = json.loads((runs[1] / "config.json").read_text()) | {"algorithm": "ml-irl"}
    write_json(runs[1] / "config.json", edited)
    chain = write_run(tmp_path / "chain", task="chain", iterations=4, picture={}, states=5)
    html = page_of(*runs, chain, out=tmp_path)
    assert re.findall(r'data-figure="(rewards-\d)"', html) == ["rewards-0"]  # not of a chain
    figure = html[html.index('data-figure="rewards-0"') :]
    wide = figure[: figure.index("</svg>")]
    assert all(f">{heading}<" in wide for heading in ("True reward", "piro", "ml-irl"))
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))


def test_every_drawn_curve_holds_its_numbers(bench: Path, tmp_path: Path) -> None:
    html = page_of(bench, out=tmp_path)
    plot = html[html.index('data-plot="returns Hopper-v4"') :]
    series = plot[plot.index('data-label="piro"') :]
    curves = curves_of(*sorted((bench / "runs").glob("piro-Hopper-v4-*")))
    for seed in range(5):
        path = re.search(rf'data-seed="{seed}" d="([^"]*)"', series)
        assert path is not None
        points = [tuple(map(float, pair.split(","))) for pair in re.findall(r"[^M ]+", path[1])]
        np.testing.assert_allclose(points, curves[seed], atol=0.5)


def test_a_method_without_curves_is_a_line_with_a_name_in_the_legend(tmp_path: Path) -> None:
    runs = [
        write_control_run(tmp_path / str(target), settings={"target": target}, evaluations=3) for target in (2, 4)
    ]
    runs.append(write_control_run(tmp_path / "bc", algorithm="bc", evaluations=3, skill=0.9, offline=True))
    html = page_of(*runs, out=tmp_path)
    plot = html[html.index('data-plot="returns Hopper-v4"') :]
    plot = plot[: plot.index("</ul>")]
    end = np.sort(read_study(runs).rows[2].returns)[1:-1].mean()
    drawn = re.search(r'data-label="bc">.*?<path class="line"[^>]* d="M0,([\d.]+) 21000,([\d.]+)"', plot)
    assert drawn is not None
    assert [float(height) for height in drawn.groups()] == pytest.approx([end, end], abs=0.5)
    assert re.findall(r'<li class="c\d" data-label="([^"]*)"', plot) == ["piro (target 2)", "piro (target 4)", "bc"]
    assert re.findall(r'<span class="name"[^>]*>([^<]*)<', plot) == ["random", "expert"]
    assert '<dt>Algorithms</dt><dd class="value">2</dd><dd class="note">3 variants on 1 task</dd>' in html


def test_names_of_levels_do_not_lie_on_each_other() -> None:
    curve = Series("piro", 0, np.array([0.0, 1.0]), np.array([0.0, 100.0]))
    html = draw(Plot("returns", "steps", "true return", [curve], {"expert": 99.0, "random": 97.0, "nobody": 3.0}))
    assert re.findall(r'<span class="name"[^>]*>([^<]*)<', html) == ["nobody", "random, expert"]


def test_a_single_evaluation_has_an_axis_of_whole_numbers() -> None:
    alone = Series("bc", 0, np.zeros(1), np.array([500.0]))
    html = draw(Plot("returns", "iteration", "true return", [alone], {}))
    assert re.findall(r'<span class="x"[^>]*>([^<]*)<', html) == ["0", "1"]
    axes = curves_figure([Panel("CartPole-v1", "iteration", [alone], 500.0, {})]).axes[0]
    assert axes.get_xlim() == (0, 1)
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [0, 1]


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    runs = [write_control_run(tmp_path / name, algorithm=name, seeds=1, evaluations=3) for name in ("piro", "bc")]
    html = page_of(*runs, out=tmp_path)
    assert table_of(html, "overall")[1][1].endswith(" (one seed)")
    assert table_of(html, "improvement")[1][2].endswith(" (one seed)")
    profiles = html[html.index('data-plot="profiles"') :]
    assert 'class="band"' not in profiles[: profiles.index("</ul>")]


# --- which runs make a row -------------------------------------------------------------------------------


def test_settings_that_differ_are_named(tmp_path: Path) -> None:
    for name, task, settings in (
        ("a", "Hopper-v4", {"target": 2.0, "width": 256}),
        ("b", "Hopper-v4", {"target": 4.0, "width": 256}),
        ("c", "Walker2d-v4", {"target": 2.0, "width": 256}),
    ):
        write_control_run(tmp_path / name, task=task, seeds=2, evaluations=3, settings=settings)
    write_control_run(tmp_path / "d", algorithm="bc", seeds=2, evaluations=3)
    write_control_run(tmp_path / "e", task="Ant-v4", seeds=2, evaluations=3, settings={"target": 8.0})
    rows = read_study([tmp_path / name for name in "abcde"]).rows
    assert [(row.label, row.task) for row in rows] == [
        ("piro (target 2.0)", "Hopper-v4"),
        ("piro (target 4.0)", "Hopper-v4"),
        ("piro (target 2.0)", "Walker2d-v4"),
        ("bc", "Hopper-v4"),
        ("piro", "Ant-v4"),  # nothing to tell it from
    ]


def test_other_seeds_join_and_the_same_seeds_do_not(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 2), ("c", 0)):
        write_control_run(tmp_path / name, seeds=2, first_seed=first, evaluations=3)
    rows = read_study([tmp_path / name for name in "abac"]).rows
    assert [(row.label, row.seeds) for row in rows] == [("piro", (0, 1, 2, 3)), ("piro (c)", (0, 1))]


def test_nobody_gains_by_failing_on_a_task(tmp_path: Path) -> None:
    """Scores over all tasks count only those that every algorithm finished."""
    for algorithm, task in (("piro", "Hopper-v4"), ("piro", "Ant-v4"), ("bc", "Hopper-v4")):
        write_control_run(tmp_path / f"{algorithm}-{task}", algorithm=algorithm, task=task, evaluations=3)
    html = page_of(*sorted(tmp_path.iterdir()), out=tmp_path / "out")
    assert [line[-1] for line in table_of(html, "overall")[1:]] == ["5", "5"]
    (tmp_path / "bc-Hopper-v4" / "summary.json").unlink()
    write_control_run(tmp_path / "bc-Reacher-v4", algorithm="bc", task="Reacher-v4", evaluations=3)
    html = page_of(*[path for path in sorted(tmp_path.iterdir()) if path.name != "out"], out=tmp_path / "out")
    assert 'data-table="overall"' not in html
    assert "nothing can be said over all tasks" in html


# --- what is damaged -------------------------------------------------------------------------------------


def test_damaged_runs_are_listed_and_the_others_drawn(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench")
    runs = folder / "runs"
    (runs / "piro-Hopper-v4-3" / "summary.json").unlink()
    (runs / "piro-Walker2d-v4-3" / "metrics.jsonl").write_text('{"seed": 3, "iter')
    (runs / "ml-irl-Hopper-v4-0" / "config.json").write_bytes(b"\xff")
    for file in (runs / "ml-irl-Hopper-v4-3").iterdir():
        file.unlink()
    bench = json.loads((folder / "bench.json").read_text())
    bench["jobs"].append({"name": "dac-Hopper-v4", "label": "dac", "task": "Hopper-v4", "runs": ["runs/nowhere"]})
    write_json(folder / "bench.json", bench)
    (folder / "failures").mkdir()
    write_json(folder / "failures" / "dac-Hopper-v4.json", {"error": "the <critic> is not finite."})
    html = page_of(folder, out=tmp_path)
    for reason in ("is not finished; continue it with", "line 1 is not valid JSON", "is not a text in UTF-8",
                   "holds no run", "the &lt;critic&gt; is not finite."):  # fmt: skip
        assert reason in html, reason
    assert html.count('class="tag problem"') == 5
    table = table_of(html, "returns")
    assert table[0] == ["Task", "Random", "Expert", "piro", "ml-irl"]
    assert table[1][4] == "–"
    assert table[1][3].count("seed ") == table[2][3].count("seed ") == 3
    assert table[2][4].count("seed ") == 5


@pytest.mark.parametrize("value", [1e308, -1e308])
@pytest.mark.parametrize("name", ["return_mean", "drift"])
def test_a_run_beyond_all_bounds_is_left_out_by_name(tmp_path: Path, name: str, value: float) -> None:
    sound, wild = (write_control_run(tmp_path / run, seeds=2, evaluations=3) for run in ("sound", "wild"))
    rows = rows_of(wild)
    rows[3][name] = value
    (wild / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    html = page_of(sound, wild, out=tmp_path)
    assert f"{wild} recorded {name} beyond ±1e+100, which cannot be compared" in html
    assert [row.runs[0].seeds for row in read_study([sound, wild]).rows] == [(0, 1)]


def test_what_no_screen_can_tell_apart_and_no_font_can_write_is_compared(tmp_path: Path) -> None:
    runs = [write_control_run(tmp_path / name, algorithm=name, evaluations=3) for name in ("piro", "wild")]
    rows = [row | {"drift": 5e-324, "return_mean": 1e99} for row in rows_of(runs[1])]
    (runs[1] / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for run in runs:
        write_json(run / "config.json", json.loads((run / "config.json").read_text()) | {"task": "a\ud800b"})
    for name in ("html", "md", "csv", "latex", "png"):
        write_comparison(runs, tmp_path / f"page.{name}", name)
    assert "a?b" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("run", ["../victim", "runs/..", "runs/.", "runs/../../victim", "/victim", "runs/a/..", ""])
def test_a_bench_reads_no_run_outside_its_folder(tmp_path: Path, run: str) -> None:
    bench = write_bench(tmp_path / "bench")
    write_control_run(tmp_path / "victim", evaluations=3)
    described = json.loads((bench / "bench.json").read_text())
    described["jobs"][0]["runs"][0] = run
    write_json(bench / "bench.json", described)
    for read in (lambda: read_study([bench]), lambda: run_folders(bench)):
        with pytest.raises(InputError, match=r"bench\.json names the run .*, which is not in .*runs; restore"):
            read()


def test_a_page_of_failures_alone(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", finished=False)
    html = page_of(folder, out=tmp_path)
    assert "No run is finished." in html
    assert "is not finished; continue it" in html
    with pytest.raises(InputError, match="is not finished"):
        write_comparison([folder], tmp_path / "table.md", "md")
    assert not (tmp_path / "table.md").exists()


def test_text_of_a_bench_stays_text(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", labels={"piro": '<img src=x onerror=alert(1)> "&', "ml-irl": "a|b_c"})
    html = page_of(folder, out=tmp_path)
    assert "<img" not in html
    assert html.count("<script>") == 1
    assert "| a\\|b_c |" in write_comparison([folder], tmp_path / "t.md", "md").read_text()
    assert r"a|b\_c" in write_comparison([folder], tmp_path / "t.tex", "latex").read_text()


@pytest.mark.parametrize("content", ["{", "[]", '{"jobs": [{"name": "x"}]}', '{"jobs": [3]}'])
def test_a_bench_that_cannot_be_read_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "bench.json").write_text(content)
    with pytest.raises(InputError, match=r"bench\.json"):
        write_comparison([tmp_path], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


# --- what is written -------------------------------------------------------------------------------------


def test_every_format(bench: Path, tmp_path: Path) -> None:
    markdown = report([bench], tmp_path / "a.md").read_text()
    assert markdown.count("\n## ") == 4
    piro = table_of(page_of(bench, out=tmp_path), "returns")[1][2].split(":")[0]
    assert f"| Hopper-v4 (gymnasium 1.2.2, mujoco 3.3.7) | 18.25 | {piro} |" in markdown
    latex = report([bench], tmp_path / "a.tex").read_text()
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 5
    assert re.findall(r"(?<!\\)[%&]", latex.split("\n", 1)[1].replace(" & ", "")) == []
    image = Image.open(report([bench], tmp_path / "a.png"))
    assert image.size[0] > 1000
    assert len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)) > 50
    assert report([bench], tmp_path / "any.name", "csv").read_text().startswith("task,label,algorithm,seed,return,")


def test_numbers_of_steps_stand_apart() -> None:
    steps = np.linspace(6_000.0, 296_000.0, 16)
    curve = Series("piro", 0, steps, np.full(16, 3_400.0))
    figure = curves_figure([Panel("Hopper-v4", "env_steps", [curve], 3_352.0, {})] * 3)
    figure.draw_without_rendering()
    for axes in figure.axes:
        low, high = axes.get_xlim()
        labels = [label for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high]
        shown = [label.get_window_extent() for label in labels]
        assert len(shown) > 3
        assert all(right.x0 - left.x1 > left.height / 2 for left, right in itertools.pairwise(shown))


def test_the_same_runs_give_the_same_bytes(bench: Path, tmp_path: Path) -> None:
    first, second = (write_comparison([bench], tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second


def test_one_run_keeps_its_own_page_and_a_bench_has_one_too(tmp_path: Path) -> None:
    run = write_control_run(tmp_path / "run", evaluations=3)
    assert report([run]) == run / "report.html"
    assert "TrustIRL report" in (run / "report.html").read_text()
    bench = write_bench(tmp_path / "bench")
    assert "<h1>The smoke bench</h1>" in report([bench]).read_text()
    with pytest.raises(InputError, match="-o FILE"):
        report([run, bench])
    with pytest.raises(InputError, match="-o FILE"):
        report([run], format="md")


@pytest.mark.parametrize("paths", [["nowhere"], ["empty"], ["run", "nowhere"]])
def test_a_path_that_is_neither_run_nor_bench(tmp_path: Path, paths: list[str]) -> None:
    write_control_run(tmp_path / "run", evaluations=3)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds neither a run nor a bench; give folders of `trustirl train`"):
        report([tmp_path / path for path in paths], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_an_unknown_format_lists_the_known_ones(bench: Path, tmp_path: Path) -> None:
    for call in (
        lambda: report([bench], tmp_path / "x", "pdf"),
        lambda: write_comparison([bench], tmp_path / "x", "pdf"),
    ):
        with pytest.raises(InputError, match="unknown format 'pdf': choose from html, md, csv, latex, png"):
            call()


def test_two_hundred_runs_are_quick_and_small(tmp_path: Path, tell: Any) -> None:
    paths = [
        write_control_run(
            tmp_path / f"{task}-{algorithm}",
            algorithm=f"algorithm-{algorithm}",
            task=f"Task{task}-v1",
            seeds=1,
            evaluations=200,
            skill=0.5 + 0.02 * algorithm,
        )
        for task in range(10)
        for algorithm in range(20)
    ]
    code = (
        "import sys, time; from pathlib import Path; from trustirl.report import write_comparison; "
        "began = time.process_time(); write_comparison([*map(Path, sys.argv[2:])], Path(sys.argv[1])); "
        "print(time.process_time() - began)"
    )
    page = tmp_path / "page.html"
    # In a process of its own, where nothing checks types, and in its own time, which other tests do not take from.
    done = subprocess.run([sys.executable, "-c", code, page, *paths], capture_output=True, text=True, check=True)
    seconds, size = float(done.stdout), page.stat().st_size / 1e6
    tell(f"a comparison of 200 runs of 200 evaluations: {seconds:.1f} s, {size:.1f} MB")
    assert seconds < 20
    assert size < 15
    html = page.read_text()
    lines = re.findall(
        r'<path class="line"[^>]* d="([^"]*)"', html[html.index("Learning curves") : html.index("How steadily")]
    )
    assert [line.count(",") for line in lines] == [200] * 200  # nothing was left out


def test_learning_that_takes_no_step_of_an_environment_costs_none(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", algorithm="bc", seeds=2)
    config, metrics = folder / "config.json", folder / "metrics.jsonl"
    config.write_text(config.read_text().replace('"plan"', '"offline"'))
    metrics.write_text(re.sub(r'"env_steps": \d+', '"env_steps": 0', metrics.read_text()))
    (row,) = read_study([folder]).rows
    assert row.clock == "iteration"
    assert [course.steps_to_90 for course in row.courses()] == [0, 0]
    assert "400,000 updates per seed" in write_report(folder).read_text()
    (folder / "summary.json").unlink()
    assert re.search(r"running, iteration [1-9]\d*[^\d,]", write_report(folder).read_text())
