"""The report shows a run truthfully and trusts none of its text."""

import ast
import json
import re
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from synthetic_run import FIGURES, HOSTILE, hostile_pages, write_json, write_run

import trustirl.report as report
from trustirl.core.errors import InputError
from trustirl.report import read_run, write_report
from trustirl.report.drawing import NARROW, WIDE
from trustirl.report.figures import (
    align,
    correlation,
    draw_certificate,
    draw_likelihood,
    draw_returns,
    draw_trust,
)

SLOW = pytest.mark.slow  # other ends of the same range


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def page(run_folder: Path) -> Path:
    return write_report(run_folder)


def tags_of(html: str) -> list[tuple[str, dict[str, str | None]]]:
    found: list[tuple[str, dict[str, str | None]]] = []

    class Collector(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, dict(attrs)))

    Collector().feed(html)
    return found


# --- what is drawn ---------------------------------------------------------------------------------------


def test_aligned_reward_is_the_best_affine_fit() -> None:
    noise = np.random.default_rng(0)
    true, recovered = noise.normal(size=40), noise.normal(size=40)
    slope, shift = np.polyfit(recovered, true, 1)
    np.testing.assert_allclose(align(true, recovered), slope * recovered + shift, atol=1e-12)
    np.testing.assert_allclose(align(true, 7 - 3 * true), true, atol=1e-12)
    assert correlation(true, 7 - 3 * true) == pytest.approx(-1)


def test_a_constant_reward_has_no_correlation() -> None:
    true = np.linspace(0, 1, 9)
    assert np.isnan(correlation(true, np.full(9, 0.1)))
    np.testing.assert_allclose(align(true, np.full(9, 0.1)), 0.5)


def test_page_shows_every_figure_once_and_the_numbers_of_the_summary(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert [attrs["data-figure"] for tag, attrs in tags_of(html) if tag == "figure"] == FIGURES
    assert "<h1>PIRO on gridworld</h1>" in html
    for shown in (
        "−9.06",
        "expert\u00a0−9.01",
        "true reward −1.2",
        "12.4 s",
        "From 50 episodes",
        "TRRO curvature",
    ):
        assert shown in html, shown


@pytest.mark.parametrize(
    ("key", "draw"),
    [("ell", draw_likelihood), ("drift", draw_trust), ("mu", draw_trust), ("return_mean", draw_returns)],
)
def test_a_changed_metric_changes_its_figure(tmp_path: Path, key: str, draw: Any) -> None:
    folder = write_run(tmp_path / "run", seeds=1, iterations=10)
    before = draw(read_run(folder), WIDE)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows[5][key] *= 1.1
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    assert draw(read_run(folder), WIDE) != before


def test_a_changed_comparison_changes_its_figure(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", seeds=1, iterations=10)
    before = draw_likelihood(read_run(folder), WIDE)
    values = json.loads((folder / "comparison.json").read_text())
    values["curves"][0]["ell"][5] += 0.1
    write_json(folder / "comparison.json", values)
    assert draw_likelihood(read_run(folder), WIDE) != before


def test_given_demonstrations_stand_apart_from_the_tasks_own_expert(tmp_path: Path, page: Path) -> None:
    folder = write_run(tmp_path / "run", seeds=1, iterations=2)
    arrays = load_file(folder / "maps.safetensors")
    elsewhere = np.roll(arrays["expert_visits"], 1)
    save_file(arrays | {"demo_visits": elsewhere, "learner_visits": elsewhere[None]}, folder / "maps.safetensors")
    summary = json.loads((folder / "summary.json").read_text())
    write_json(folder / "summary.json", summary | {"demo_return": -12.5})
    html = write_report(folder).read_text(encoding="utf-8")
    visits = html[html.index('data-figure="visits"') :]
    wide = visits[: visits.index("</svg>")]
    panels = [text for text in re.findall(r">([^<>]+)</text>", wide) if text[0].isupper() or "in common" in text]
    common = 100 * np.minimum(arrays["expert_visits"], elsewhere).sum()
    assert sorted(panels) == sorted(
        [
            "Demonstrations",
            "100.0 % in common with the learner",
            "Learner",
            "Expert",
            f"{common:.1f} % in common with the learner",
        ]
    )
    assert "demonstrations\u00a0−12.5" in html
    assert "who demonstrated need not act like it" in html
    assert "Demonstrations<" not in page.read_text(encoding="utf-8")  # where the expert's own visits demonstrate


def test_what_the_page_calls_by_a_letter_or_a_number_it_explains(page: Path) -> None:
    html = unescape(page.read_text(encoding="utf-8"))
    assert "recovered in the same way from 50 episodes sampled from the task's expert" in html
    for letter in ("δ is how far the policy is", "G how far in total the visits", "K how sharply ℓ can bend"):
        assert letter in html


def test_ids_are_unique_and_every_reference_resolves(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) > 100
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', html)) <= set(ids)


def test_svg_takes_its_ink_from_the_page(run_folder: Path) -> None:
    svg = draw_likelihood(read_run(run_folder), NARROW)
    assert "currentColor" in svg
    assert "#010203" not in svg
    assert "<style" not in svg


def test_same_run_gives_the_same_bytes(run_folder: Path, page: Path, tmp_path: Path) -> None:
    assert write_report(run_folder, tmp_path / "again.html").read_bytes() == page.read_bytes()


@pytest.mark.usefixtures("words_only")
def test_absent_parts_are_said_in_a_sentence(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", trust_region=False, compared=False, seeds=1)
    run = read_run(folder)
    assert draw_trust(run, WIDE) is None
    assert run.known is not None
    assert draw_certificate(run.known, WIDE) is None
    html = write_report(folder).read_text(encoding="utf-8")
    assert [attrs["data-figure"] for tag, attrs in tags_of(html) if tag == "figure"] == [
        name for name in FIGURES if name not in ("trust", "certificate")
    ]
    assert "recorded neither drift nor μ" in html
    assert "no certificate" in html


@pytest.mark.usefixtures("words_only")
def test_caption_warns_where_the_drawing_and_the_headline_differ(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", seeds=1)
    assert "counts every action" not in write_report(folder).read_text(encoding="utf-8")
    arrays = load_file(folder / "maps.safetensors")
    save_file(arrays | {"recovered_reward": -arrays["recovered_reward"]}, folder / "maps.safetensors")
    html = write_report(folder).read_text(encoding="utf-8")
    assert "counts every action" in html
    assert "upside down" in html


@pytest.mark.parametrize("value", [1.7e308, pytest.param(-1e308, marks=SLOW), 1e99, pytest.param(5e-324, marks=SLOW)])
def test_a_page_leaves_out_what_is_too_large_to_be_drawn(tmp_path: Path, value: float) -> None:
    folder = write_run(tmp_path / "run", seeds=1, iterations=3)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    extreme = dict.fromkeys(("return_mean", "return_std", "ell", "gap", "drift", "mu"), value)
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(row | extreme) for row in rows))
    summary = json.loads((folder / "summary.json").read_text())
    write_json(folder / "summary.json", summary | {"returns": [value], "ell": [value], "wall_seconds": abs(value)})
    html = write_report(folder).read_text(encoding="utf-8")
    assert ("left out where beyond ±1e+100" in html) == (abs(value) > 1e100)


@pytest.mark.parametrize("states", [2, pytest.param(12, marks=SLOW), 500])
def test_states_without_a_grid_are_drawn_too(tmp_path: Path, states: int) -> None:
    html = write_report(
        write_run(tmp_path / "run", picture={"kind": "list"}, states=states, iterations=1)
    ).read_text()
    assert ("one of every 3 shown" in html) == (states == 500)
    assert "square-root" not in html


def test_a_run_that_learned_nothing_is_still_drawn(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", seeds=1, iterations=1)
    arrays = load_file(folder / "maps.safetensors")
    arrays |= {"true_reward": np.ones(49), "recovered_reward": np.zeros((1, 49))}
    save_file(arrays, folder / "maps.safetensors")
    summary = json.loads((folder / "summary.json").read_text())
    write_json(folder / "summary.json", summary | {"reward_correlation": [None]})
    nothing = {"delta": [0.0, 1e-3], "step": [0.0, 0.0], "gain": [0.0, 0.0]}
    write_json(folder / "certificate.json", nothing | {"largest_delta": 0.0, "constant": 9.0, "occupancy_gap": 0.0})
    html = write_report(folder).read_text(encoding="utf-8")
    assert "correlation undefined" in html
    assert "upside down" not in html
    assert "no step can be certified" in html
    assert "nan" not in re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL).lower()


# --- what a run may not do to the page -------------------------------------------------------------------


def test_text_of_a_run_stays_text(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", task="<script>alert(1)</script>")
    values = json.loads((folder / "comparison.json").read_text())
    values["curves"][0]["label"] = "<img src=x onerror=alert(1)> $x$ & $"
    write_json(folder / "comparison.json", values)
    html = write_report(folder).read_text(encoding="utf-8")
    assert not {"script", "img"} & {tag for tag, _ in tags_of(html)}
    assert "<h1>PIRO on &lt;script&gt;alert(1)&lt;/script&gt;</h1>" in html
    assert "&lt;img src=x onerror=alert(1)&gt; $x$ &amp; $" in html


@pytest.mark.usefixtures("words_only")
def test_no_page_leaves_for_another_site(tmp_path: Path) -> None:
    for kind, page in hostile_pages(tmp_path).items():
        tags = tags_of(page.read_text(encoding="utf-8"))
        assert [attrs["http-equiv"] for tag, attrs in tags if tag == "meta" and "http-equiv" in attrs] == [
            "Content-Security-Policy"
        ], kind
        assert sum(tag == "meta" for tag, _ in tags) == 3, kind
        assert escape(HOSTILE) in page.read_text(encoding="utf-8"), kind


@pytest.mark.usefixtures("words_only")
def test_a_failed_report_leaves_the_old_one_and_no_litter(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    before = write_report(folder).read_bytes()
    (folder / "summary.json").write_text("{")
    with pytest.raises(InputError):
        write_report(folder)
    assert (folder / "report.html").read_bytes() == before
    assert not list(folder.glob("*.tmp")) + list(folder.glob(".*"))


def test_a_target_that_is_a_folder_is_refused_before_anything_is_drawn(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trustirl.report.page.render", lambda _run: pytest.fail("drawn in vain"))
    with pytest.raises(InputError, match="is a folder"):
        write_report(run_folder, tmp_path)


def test_report_imports_nothing_it_should_not() -> None:
    for file in Path(report.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        imports = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
        imports |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {"jax", "equinox", "optax", "pickle", "matplotlib.pyplot"} & imports
        ours = {name for name in imports if name.startswith("trustirl") and not name.startswith("trustirl.report")}
        allowed = {"trustirl.core.errors", "trustirl.core.files", "trustirl.evaluation.stats"}  # none needs JAX
        allowed |= {"trustirl.core.worlds"}
        if file.name in ("demos.py", "demo_figures.py"):  # only the page of demonstrations reads them
            allowed |= {"trustirl.demos.inspect", "trustirl.demos.schema", "trustirl.demos.inspect.seen"}
        assert ours <= allowed
