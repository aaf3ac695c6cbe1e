"""Curves as inline SVG that holds the numbers themselves, so that one drawing fits every screen and can be read back.

Paths are written in the units of the data and a transform maps them into the frame: what the page draws, what it says
under the pointer and what a test reads are the same numbers. Labels are HTML around the drawing, which may stretch.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from matplotlib.ticker import MaxNLocator

from trustirl.report.runs import Numbers
from trustirl.report.words import number

COLOURS, DASHES = 6, ("", "6 4", "2 3", "9 3 2 3")
RESOLUTION = 4  # digits of the range of an axis that a drawn number keeps
NEAR = 0.06  # of the height of a frame: names of levels that are nearer share a line
SIDE = 1000  # of the square that the drawing stretches over the frame


@dataclass(frozen=True, eq=False)
class Series:
    """One curve: its middle, perhaps a band around it, perhaps the seeds it summarises."""

    label: str
    place: int  # among all labels of the page, so that a label keeps its colour
    x: Numbers
    y: Numbers
    band: tuple[Numbers, Numbers] | None = None
    seeds: Mapping[str, Numbers] | None = None

    def heights(self) -> list[Numbers]:
        """Everything that must fit into the frame."""
        return [self.y, *(self.band or ()), *(self.seeds or {}).values()]


@dataclass(frozen=True, eq=False)
class Plot:
    """A frame with axes; with `logarithm` heights are drawn as powers of ten."""

    name: str
    x_name: str
    y_name: str
    series: Sequence[Series]
    levels: Mapping[str, float]
    logarithm: bool = False

    def value(self, height: float) -> float:
        """What a drawn height stands for."""
        return 10.0**height if self.logarithm else height


STYLE = """
.plot { margin-top: 1.5rem; } .plot h3 { margin: 0; color: var(--ink); }
.plot .axis { margin: 0; color: var(--soft); font-size: .82rem; }
.plot .x-axis { text-align: right; margin-top: 1.5rem; }
.frame { position: relative; height: 19rem; margin: .6rem 0 0 3.6rem; touch-action: pan-y; }
.frame svg { position: absolute; width: 100%; height: 100%; overflow: visible; }
.frame path { fill: none; vector-effect: non-scaling-stroke; stroke-width: 2; stroke-linejoin: round;
  stroke-linecap: round; }
.frame .grid { stroke: var(--line); stroke-width: 1; }
.frame .level { stroke: var(--soft); stroke-width: 1.2; stroke-dasharray: 2 3; }
.frame .band { stroke: none; fill: var(--c); opacity: .16; }
.frame .line { stroke: var(--c); } .frame .seed { stroke: var(--c); stroke-width: 1; visibility: hidden; }
.series:hover .seed, .series.on .seed { visibility: visible; }
.series.on .line { stroke-width: 3.2; } .series.on .band { opacity: .28; }
.frame > span { position: absolute; color: var(--soft); font-size: .75rem; line-height: 1; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.frame > .y { right: calc(100% + .5rem); transform: translateY(50%); }
.frame > .x { top: calc(100% + .5rem); transform: translateX(-50%); }
.frame > .name { right: .25rem; transform: translateY(-.25rem); background: var(--surface); padding: 0 .2rem; }
.readout { position: absolute; top: .25rem; z-index: 2; padding: .4rem .6rem; pointer-events: none;
  background: var(--surface); border: 1px solid var(--line); border-radius: 8px; font-size: .78rem; line-height: 1.45;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
.readout[hidden] { display: none; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; margin: 1rem 0 0; padding: 0; list-style: none;
  font-size: .85rem; }
.legend svg { width: 1.6rem; height: .6rem; margin-right: .4rem; }
.legend path { stroke: var(--c); stroke-width: 2.5; }
.c0 { --c: #0072b2; } .c1 { --c: #d55e00; } .c2 { --c: #009e73; } .c3 { --c: #cc79a7; } .c4 { --c: #c98a00; }
.c5 { --c: #6a5acd; }
@media (prefers-color-scheme: dark) { .c0 { --c: #56b4e9; } .c4 { --c: #e6b422; } .c5 { --c: #a99cff; } }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); gap: 0 2rem; }
.pair .plot { min-width: 0; } .pair .frame { height: 13rem; }
@media (max-width: 640px) { .frame { height: 15rem; margin-left: 3rem; } }
"""

# Reads the drawn paths back: the numbers nearest to the pointer, and the seeds of the curve nearest to it.
SCRIPT = """
'use strict';
const short = v => Math.abs(v) >= 1000 ? Math.round(v).toLocaleString('en') : String(+v.toPrecision(4));
for (const plot of document.querySelectorAll('.plot')) {
  const frame = plot.querySelector('.frame'), box = plot.querySelector('.readout');
  const [x0, x1, y0, y1] = frame.dataset.range.split(' ').map(Number);
  const power = 'log' in frame.dataset, shown = v => short(power ? 10 ** v : v);
  let curves = null;
  const read = g => ({ g, label: g.dataset.label, points: g.querySelector('.line').getAttribute('d')
    .match(/[-\\d.]+,[-\\d.]+/g).map(pair => pair.split(',').map(Number)) });
  const light = chosen => plot.querySelectorAll('.series').forEach(g => g.classList.toggle('on', g === chosen));
  frame.addEventListener('pointermove', event => {
    curves ??= [...plot.querySelectorAll('.series')].map(read);
    const area = frame.getBoundingClientRect(), part = (event.clientX - area.left) / area.width;
    const x = x0 + part * (x1 - x0), y = y1 - (event.clientY - area.top) / area.height * (y1 - y0);
    const near = curves.map(c => ({ ...c, at: c.points.reduce((a, b) =>
      Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a) }));
    near.sort((a, b) => Math.abs(a.at[1] - y) - Math.abs(b.at[1] - y));
    if (!near.length) return;
    light(near[0].g);
    const lines = near.slice(0, 8).sort((a, b) => b.at[1] - a.at[1]);
    const texts = [`${frame.dataset.x} ${short(near[0].at[0])}`, ...lines.map(c => `${c.label}: ${shown(c.at[1])}`)];
    box.replaceChildren(...texts.map((text, i) => Object.assign(document.createElement('div'),
      { textContent: text, style: i && lines[i - 1] === near[0] ? 'font-weight:600' : '' })));
    box.hidden = false;
    box.style.left = part < .5 ? `${part * 100 + 3}%` : 'auto';
    box.style.right = part < .5 ? 'auto' : `${103 - part * 100}%`;
  });
  frame.addEventListener('pointerleave', () => { box.hidden = true; light(null); });
  plot.querySelectorAll('.legend [data-label]').forEach(item => {
    const mine = () => [...plot.querySelectorAll('.series')].find(g => g.dataset.label === item.dataset.label);
    item.addEventListener('pointerenter', () => light(mine()));
    item.addEventListener('click', () => light(mine()));
    item.addEventListener('pointerleave', () => light(null));
  });
}
"""


def draw(plot: Plot, heading: str = "") -> str:
    """The plot as HTML; a sentence where there is nothing to draw."""
    drawn = [_on_scale(series, plot.logarithm) for series in plot.series]
    drawn = [series for series in drawn if np.isfinite(series.y).any()]
    title = f"<h3>{escape(heading)}</h3>" if heading else ""
    if not drawn:
        return f'<div class="plot">{title}<p>No run recorded the {escape(plot.y_name)}.</p></div>'
    levels = {name: level for name, level in plot.levels.items() if math.isfinite(level)}
    every = np.concatenate([series.x for series in drawn])
    x0, x1 = _range([np.zeros(1), every if every.any() else np.ones(1)], margin=0.0)
    y0, y1 = _range(
        [*(height for series in drawn for height in series.heights()), np.array([*levels.values()])], margin=0.04
    )
    scale = (SIDE / (x1 - x0), SIDE / (y1 - y0))
    place = f"matrix({scale[0]:.8g} 0 0 {-scale[1]:.8g} {-x0 * scale[0]:.8g} {SIDE + y0 * scale[1]:.8g})"
    digits = (_digits(x1 - x0), _digits(y1 - y0))
    curves = "".join(_curve(plot, series, digits) for series in drawn)
    ticks_x = _ticks(x0, x1, whole=bool((every == every.round()).all()))
    ticks_y = (_powers if plot.logarithm else _ticks)(y0, y1)
    grid = "".join(f"M{x0:g},{tick:g}H{x1:g}" for tick in ticks_y)
    lines = "".join(f'<path class="level" d="M{x0:g},{level:.8g}H{x1:g}"/>' for level in levels.values())
    labels = [
        *(f'<span class="x" style="left:{_share(tick, x0, x1)}">{_tick(tick)}</span>' for tick in ticks_x),
        *(
            f'<span class="y" style="bottom:{_share(tick, y0, y1)}">{_tick(plot.value(tick))}</span>'
            for tick in ticks_y
        ),
        *(
            f'<span class="name" style="bottom:{_share(level, y0, y1)}">{escape(name)}</span>'
            for name, level in _apart(levels, NEAR * (y1 - y0))
        ),
    ]
    return (
        f'<div class="plot" data-plot="{escape(plot.name)}">{title}<p class="axis">{escape(plot.y_name)}</p>'
        f'<div class="frame" data-range="{x0:.10g} {x1:.10g} {y0:.10g} {y1:.10g}" data-x="{escape(plot.x_name)}"'
        f"{' data-log' if plot.logarithm else ''}>"
        f'<svg viewBox="0 0 {SIDE} {SIDE}" preserveAspectRatio="none" role="img" aria-label="{escape(plot.y_name)}">'
        f'<g transform="{place}"><path class="grid" d="{grid}"/>{lines}{curves}</g></svg>'
        f'{"".join(labels)}<div class="readout" hidden></div></div>'
        f'<p class="axis x-axis">{escape(plot.x_name)}</p>{_legend(drawn)}</div>'
    )


def _on_scale(series: Series, logarithm: bool) -> Series:
    if not logarithm:
        return series
    y = np.full_like(series.y, math.nan)
    np.log10(series.y, out=y, where=series.y > 0)
    return Series(series.label, series.place, series.x, y)


def _curve(plot: Plot, series: Series, digits: tuple[int, int]) -> str:
    x = [f"{value:.{digits[0]}f}" for value in series.x]
    last = float(series.y[np.isfinite(series.y)][-1])
    told = f"{series.label}: {number(plot.value(last))} at the end"
    parts = [f"<title>{escape(told)}</title>"]
    if series.band is not None:
        parts.append(f'<path class="band" d="{_area(x, *series.band, digits[1])}"/>')
    for name, y in (series.seeds or {}).items():
        parts.append(f'<path class="seed" data-seed="{escape(name)}" d="{_path(x, y, digits[1])}"/>')
    dash = f' stroke-dasharray="{_dash(series.place)}"' if _dash(series.place) else ""
    parts.append(f'<path class="line"{dash} d="{_path(x, series.y, digits[1])}"/>')
    return f'<g class="series c{series.place % COLOURS}" data-label="{escape(series.label)}">{"".join(parts)}</g>'


def _path(x: Sequence[str], y: Numbers, digits: int) -> str:
    """Every point that has a height; after a gap the line begins anew."""
    pen, parts = "M", []
    for place, height in zip(x, y.tolist(), strict=True):
        there = math.isfinite(height)
        if there:
            parts.append(f"{pen}{place},{height:.{digits}f}")
        pen = " " if there else "M"
    return "".join(parts) + ("z" if len(parts) == 1 else "")  # closing makes a single point a dot


def _area(x: Sequence[str], low: Numbers, high: Numbers, digits: int) -> str:
    there = np.flatnonzero(np.isfinite(low) & np.isfinite(high)).tolist()
    forth = " ".join(f"{x[i]},{low[i]:.{digits}f}" for i in there)
    back = " ".join(f"{x[i]},{high[i]:.{digits}f}" for i in there[::-1])
    return f"M{forth} {back}Z" if there else ""


def _legend(series: Sequence[Series]) -> str:
    items = "".join(
        f'<li class="c{each.place % COLOURS}" data-label="{escape(each.label)}"><svg viewBox="0 0 16 6"><path '
        f'd="M0,3H16" stroke-dasharray="{_dash(each.place)}"/></svg>{escape(each.label)}</li>'
        for each in series
    )
    return f'<ul class="legend">{items}</ul>'


def _dash(place: int) -> str:
    return DASHES[place // COLOURS % len(DASHES)]


def _range(values: Iterable[Numbers], margin: float) -> tuple[float, float]:
    every = np.concatenate([each.ravel() for each in values])
    every = every[np.isfinite(every)]
    low, high = float(every.min()), float(every.max())
    if low == high:
        return low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    return low - margin * (high - low), high + margin * (high - low)


def _apart(levels: Mapping[str, float], near: float) -> list[tuple[str, float]]:
    """Names and heights of levels, from below; levels that lie near each other are named together."""
    named: list[tuple[str, float]] = []
    for name, level in sorted(levels.items(), key=lambda item: item[1]):
        together = f"{named.pop()[0]}, {name}" if named and level - named[-1][1] < near else name
        named.append((together, level))
    return named


def _ticks(low: float, high: float, whole: bool = False) -> list[float]:
    ticks = MaxNLocator(5, steps=(1, 2, 2.5, 5, 10), integer=whole).tick_values(low, high)
    return [float(tick) for tick in ticks if low <= tick <= high]


def _powers(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis, as exponents: round numbers within a decade or two, powers of ten beyond."""
    if high - low < 1:
        return [math.log10(tick) for tick in _ticks(10.0**low, 10.0**high) if tick > 0]
    digits = (1, 2, 5) if high - low < 2 else (1,)
    every = max(1, round((high - low) / 6))
    exponents = range(math.floor(low), math.ceil(high) + 1, every)
    ticks = [exponent + math.log10(digit) for exponent in exponents for digit in digits]
    return [tick for tick in ticks if low <= tick <= high]


def _digits(span: float) -> int:
    """Decimals that keep `RESOLUTION` digits of a range."""
    return max(0, RESOLUTION - 1 - math.floor(math.log10(span)))


def _share(value: float, low: float, high: float) -> str:
    return f"{100 * (value - low) / (high - low):.4g}%"


def _tick(value: float) -> str:
    """`20k` for 20,000: there is little room beside an axis."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return number(value / size, 3) + letter
    return number(round(value, 10), 3)
