"""The page of demonstrations says what the data say, whatever their shape."""

import re

import numpy as np
import pytest
from synthetic_demos import DEMO_FIGURES, synthetic_demos, write_synthetic_demo_page

from trustirl.demos import Demos
from trustirl.demos.inspect import inspect
from trustirl.report import demo_figures
from trustirl.report.demos import drawable, render
from trustirl.report.drawing import NARROW


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_synthetic_demo_page(tmp_path_factory.mktemp("page")).read_text(encoding="utf-8")


def test_page_tells_numbers_findings_and_origin(page: str) -> None:
    demos = synthetic_demos()
    returns, findings = demos.returns(), inspect(demos).findings
    assert returns is not None
    assert tuple(re.findall(r'data-figure="([^"]*)"', page)) == DEMO_FIGURES
    cards = re.findall(r'<dt>(.*?)</dt><dd class="value">(.*?)</dd>', page)
    assert cards == [
        ("Episodes", "3"),
        ("Steps", str(len(demos.actions))),
        ("Mean return", f"{returns.mean():.4g}"),
        ("To look at", str(len(findings))),
    ]
    assert [finding.where for finding in findings] == ["action columns 0-1"]
    assert findings[0].sentence in page
    assert demos.content_hash() in page
    assert "not compared" in page


def test_texts_of_a_file_are_no_html(page: str) -> None:
    assert "&lt;b&gt;Walker&lt;/b&gt;-v0" in page
    assert "<b>" not in page
    assert "a test &amp; nothing else" in page


def test_same_demos_give_the_same_page(page: str) -> None:
    assert render(inspect(synthetic_demos()), "synthetic.npz", "not compared") == page


@pytest.mark.parametrize(
    ("demos", "absent"),
    [
        (synthetic_demos(episodes=40, size=60), []),  # a histogram, and bands instead of strips
        (Demos.from_numpy(np.array([0, 3, 3, 1]), np.array([1, 0, 1, 1])), ["returns", "states"]),
        (Demos.from_numpy(np.ones((1, 2)), np.ones((1, 1))), ["returns", "states"]),
        (Demos.from_numpy(np.zeros((9, 3)), np.arange(9) % 4, rewards=np.zeros(9)), ["states"]),
        (Demos.from_numpy(np.random.default_rng(0).normal(size=(9, 2, 3)) * 1e12, np.ones((9, 1))), ["returns"]),
    ],
)
def test_any_shape_can_be_drawn(demos: Demos, absent: list[str]) -> None:
    seen = drawable(inspect(demos))
    drawings = {name: getattr(demo_figures, f"draw_{name}")(seen, NARROW) for name in DEMO_FIGURES}
    assert [name for name, drawing in drawings.items() if drawing is None] == absent
    for drawing in filter(None, drawings.values()):
        assert not re.search(r"[ \"]nan[ \"]", drawing)


@pytest.mark.parametrize("value", [1e-200, 5e-324, 1.7e308])
def test_numbers_at_the_ends_of_their_range_can_be_drawn(value: float) -> None:
    numbers = value * np.random.default_rng(0).uniform(0.5, 1, (60, 2))
    demos = Demos.from_numpy(numbers, -numbers, [30, 60], rewards=numbers[:, 0])
    seen = drawable(inspect(demos))
    for name in DEMO_FIGURES:
        drawing = getattr(demo_figures, f"draw_{name}")(seen, NARROW)
        assert drawing is None or not re.search(r"[ \"](nan|inf)[ \"]", drawing), name


def test_good_data_are_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trustirl.report.demos._sections", lambda _: ())
    good, bad = synthetic_demos(actions=np.random.default_rng(1).uniform(-0.5, 0.5, (390, 2))), synthetic_demos()
    said = "Nothing that we look for is wrong"
    assert [said in render(inspect(demos), "made up") for demos in (good, bad)] == [True, False]
