"""Ink, layouts and SVG: what all figures of our pages share."""

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine, LayoutEngine
from matplotlib.ticker import EngFormatter, MaxNLocator

Paint = Callable[[Figure], None]

# Two colours that no palette uses: the page replaces them with those of its light or dark theme.
INK, PAPER = "#010203", "#fdfcfb"
ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7"
CURVES = ((VERMILION, "--"), (ORANGE, "-."), (GREEN, ":"), (SKY, "--"), (PURPLE, "-."), (BLUE, ":"))
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))

STYLE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon", "text.parse_math"), False),
    "grid.color": INK,
    "grid.alpha": 0.12,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 9.5,
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "trustirl",
}


@dataclass(frozen=True)
class Layout:
    """One arrangement of a figure; the page shows the one that fits the screen."""

    name: str
    width: float
    map_columns: int
    legend: Literal["outside right upper", "outside lower left"]


WIDE = Layout("wide", 9.0, map_columns=3, legend="outside right upper")
NARROW = Layout("narrow", 3.9, map_columns=2, legend="outside lower left")
LAYOUTS = (WIDE, NARROW)


def curve(axes: Axes, x: np.ndarray, y: np.ndarray, **style: Any) -> None:
    """A curve; a single point becomes a dot."""
    axes.plot(x, y, marker="o" if np.isfinite(y).sum() == 1 else "", markersize=4, **style)


def name_axes(axes: Axes, x: str, y: str) -> None:
    """Name the axes, and rule lines to read values by."""
    axes.set(xlabel=x, ylabel=y, axisbelow=True)
    axes.grid(axis="y")


def clock_axis(axes: Axes) -> None:
    """Few and short numbers on the axis of iterations or steps, which soon has millions of them."""
    axes.set_xlim(0, max(1, axes.get_xlim()[1]))  # nothing is between the first whole number and the next
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def svg(name: str, layout: Layout, height: float, paint: Paint, engine: LayoutEngine | None = None) -> str:
    """Paint in our style, whatever the user's matplotlibrc says, and return SVG ready for an HTML page."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser's fonts have it
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = Figure(figsize=(layout.width, height), layout=engine or ConstrainedLayoutEngine())
        paint(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, dpi=144, metadata=NO_METADATA)
    return _inline(file.getvalue(), f"{name}-{layout.name}")


def _inline(svg: str, prefix: str) -> str:
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<defs>\s*<style.*?</defs>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'(<svg [^>]*?) width="[^"]*" height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'<g id="tip:([^"]*)">', r'<g class="tip"><title>\1</title>', svg)
    svg = re.sub(r'(\sid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    return svg.replace(INK, "currentColor").replace(PAPER, "var(--surface)")
