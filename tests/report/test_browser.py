"""The report looks right in a browser and asks the network for nothing."""

import base64
import gzip
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from synthetic_demos import DEMO_FIGURES, write_synthetic_demo_page
from synthetic_run import CONTROL_FIGURES, FIGURES, hostile_pages, write_bench, write_control_run, write_run

from trustirl.report import write_comparison, write_report

WORLDS = {
    "exact": (lambda folder: write_report(write_run(folder)), FIGURES),
    "control": (lambda folder: write_report(write_control_run(folder)), CONTROL_FIGURES),
    "demos": (write_synthetic_demo_page, DEMO_FIGURES),
}


@pytest.fixture(scope="module", params=WORLDS)
def world(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def page(world: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return WORLDS[world][0](tmp_path_factory.mktemp("runs") / "run")


def open_page(browser: Any, page: Path, width: int, theme: str) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(page.as_uri())


def requested(browser: Any) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


LOOKS = [
    (390, "light"),
    (1280, "dark"),
    *(pytest.param(*look, marks=pytest.mark.slow) for look in ((390, "dark"), (1280, "light"))),
]


def colours_of(png: bytes) -> tuple[int, int, float]:
    """All colours, those that are no grey, and the mean brightness."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).reshape(-1, 3)
    packed = np.unique(pixels.astype(np.int64) @ (1 << 16, 1 << 8, 1))  # rows take ten times as long to sort
    distinct = packed[:, None] >> (16, 8, 0) & 255
    return len(distinct), int((np.ptp(distinct, axis=1) > 40).sum()), float(pixels.mean())


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_page_in_a_browser(browser: Any, world: str, page: Path, width: int, theme: str) -> None:
    open_page(browser, page, width, theme)
    time.sleep(0.3)  # a stray request would be made just after the page has loaded
    urls = requested(browser)
    assert page.as_uri() in urls
    assert [url for url in urls if url != page.as_uri() and not url.startswith("data:")] == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return document.scripts.length") == 0

    drawings = browser.find_elements("css selector", "figure[data-figure] > div")
    shown = [drawing for drawing in drawings if drawing.is_displayed()]
    assert len(shown) == len(WORLDS[world][1])
    for name, drawing in zip(WORLDS[world][1], shown, strict=True):
        assert drawing.size["width"] >= 0.7 * min(width, 900), name
        assert drawing.size["height"] >= 150, name
        colours, chromatic, brightness = colours_of(drawing.screenshot_as_png)
        assert colours > 60, name
        assert chromatic > (8 if world == "demos" else 20), name  # bars have one colour, and its edges
        if name not in ("rewards", "visits", "certificate"):
            assert (brightness > 128) == (theme == "light"), name


def test_ink_follows_the_theme(browser: Any, page: Path) -> None:
    read_ink = "return getComputedStyle(document.querySelector('figure .wide svg text')).fill"
    inks = []
    for theme in ("light", "dark"):
        open_page(browser, page, 1280, theme)
        inks.append(sum(int(part) for part in re.findall(r"\d+", browser.execute_script(read_ink))[:3]))
    assert inks[0] < 200 < 500 < inks[1]


def test_no_label_leaves_its_figure(browser: Any, page: Path) -> None:
    outside = """return [...document.querySelectorAll('figure svg text')].filter(text => {
        const frame = text.closest('svg').getBoundingClientRect(), box = text.getBoundingClientRect();
        return frame.width > 0 && (box.left < frame.left - 1 || box.right > frame.right + 1
            || box.top < frame.top - 1 || box.bottom > frame.bottom + 1);
    }).map(text => text.textContent)"""
    for width in (390, 1280):
        open_page(browser, page, width, "light")
        assert browser.execute_script(outside) == []


@pytest.mark.parametrize("seeds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_every_control_curve_has_its_points(browser: Any, tmp_path: Path, seeds: int) -> None:
    """A panel holds one path per seed, and one for their mean, with a point per evaluation that has a value."""
    points_of = """return [...document.querySelectorAll('figure .wide [id*="-line2d"] > path')]
        .map(path => (path.getAttribute('d').match(/[ML]/g) || []).length).filter(points => points > 30)"""
    open_page(browser, write_report(write_control_run(tmp_path / "run", seeds=seeds, evaluations=40)), 1280, "light")
    curves = seeds + (seeds > 1)
    always, null_at_first = ("return_mean", "gap"), ("drift", "mu", "q", "entropy", "critic_loss")
    expected = curves * (len(always) * [40] + len(null_at_first) * [39])
    assert sorted(browser.execute_script(points_of)) == sorted(expected)


def test_pointing_at_a_curve_tells_its_numbers(browser: Any, tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", seeds=2, evaluations=5)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    open_page(browser, write_report(folder), 1280, "light")
    titles = "return [...document.querySelectorAll('[data-figure=returns] .tip title')].map(t => t.textContent)"
    means = [row["return_mean"] for row in rows if row["env_steps"] == 31_000]
    told = [title for title in browser.execute_script(titles) if title.startswith("31,000 steps: ")]
    assert told == [f"31,000 steps: {np.mean(means):,.0f} ({means[0]:,.0f}, {means[1]:,.0f})"]


def test_no_page_leaves_for_another_site(browser: Any, tmp_path: Path) -> None:
    for page in hostile_pages(tmp_path).values():
        open_page(browser, page, 1280, "light")
        time.sleep(0.3)  # a refresh would come just after the page has loaded
        assert browser.current_url == page.as_uri()
        assert [url for url in requested(browser) if url != page.as_uri() and not url.startswith("data:")] == []


# --- comparisons -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_bench(tmp_path_factory.mktemp("bench"))
    (folder / "runs" / "ml-irl-Hopper-v4-3" / "summary.json").unlink()
    return write_comparison([folder], folder / "report.html")


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_comparison_in_a_browser(browser: Any, comparison: Path, width: int, theme: str) -> None:
    open_page(browser, comparison, width, theme)
    time.sleep(0.3)
    urls = requested(browser)
    assert [url for url in urls if url != comparison.as_uri() and not url.startswith("data:")] == []
    assert browser.get_log("browser") == []  # the page's policy would complain here about a script it does not know
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    plots = browser.find_elements("css selector", ".plot")
    assert len(plots) == 1 + 2 + 4  # profiles, returns of two tasks, drift and mu of both
    for plot in plots:
        name = plot.get_attribute("data-plot")
        curves = plot.find_elements("css selector", ".series .line")
        assert len(curves) == (1 if name.startswith(("drift", "mu")) else 2), name
        points = {"profiles": 101, "drift": 39, "mu": 39}.get(name.split()[0], 40)
        assert [curve.get_attribute("d").count(",") for curve in curves] == [points] * len(curves), name
        colours, chromatic, brightness = colours_of(plot.screenshot_as_png)
        assert colours > 40, name
        assert chromatic > 10, name
        assert (brightness > 128) == (theme == "light"), name


def test_curves_stay_inside_their_frame(browser: Any, comparison: Path) -> None:
    outside = """return [...document.querySelectorAll('.frame')].flatMap(frame => {
        const area = frame.getBoundingClientRect();
        return [...frame.querySelectorAll('path')].map(path => path.getBoundingClientRect()).filter(box =>
            box.left < area.left - 3 || box.right > area.right + 3 || box.top < area.top - 3
            || box.bottom > area.bottom + 3);
    }).length"""
    for width in (390, 1280):
        open_page(browser, comparison, width, "light")
        assert browser.execute_script(outside) == 0


def test_pointing_at_a_comparison_tells_numbers_and_shows_seeds(browser: Any, comparison: Path) -> None:
    open_page(browser, comparison, 1280, "light")
    point = """const frame = document.querySelector('[data-plot="returns Hopper-v4"] .frame');
        frame.scrollIntoView();
        const area = frame.getBoundingClientRect();
        const place = { bubbles: true, clientX: area.right - 1, clientY: area.top };
        frame.dispatchEvent(new PointerEvent('pointermove', place));
        return [frame.querySelector('.readout').innerText,
            [...frame.querySelectorAll('.seed')].filter(s => getComputedStyle(s).visibility === 'visible').length]"""
    said, seeds = browser.execute_script(point)
    table = (
        "return document.querySelector('[data-table=returns] tbody td:nth-child(4) summary').firstChild.textContent"
    )
    assert said.splitlines()[0] == "environment steps of each seed 391,000"
    assert f"piro: {browser.execute_script(table)}" in said.splitlines()[1:]
    assert seeds == 5


def test_numbers_can_be_downloaded_and_seeds_opened(browser: Any, comparison: Path) -> None:
    open_page(browser, comparison, 1280, "light")
    link = browser.find_element("css selector", 'a[download="seeds.csv"]').get_attribute("href")
    lines = base64.b64decode(link.split(",", 1)[1]).decode().splitlines()
    assert len(lines) == 1 + 5 + 5 + 3 + 5
    link = browser.find_element("css selector", 'a[download="curves.csv.gz"]').get_attribute("href")
    lines = gzip.decompress(base64.b64decode(link.split(",", 1)[1])).decode().splitlines()
    assert len(lines) == 1 + 18 * 40
    cell = browser.find_element("css selector", "[data-table=returns] details.cell")
    assert not cell.find_element("css selector", "pre").is_displayed()
    cell.find_element("css selector", "summary").click()
    assert cell.find_element("css selector", "pre").text.count("seed ") == 5
