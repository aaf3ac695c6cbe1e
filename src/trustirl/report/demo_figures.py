"""Draws demonstrations: episodes, ranges, courses in time and a projection of the states."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from trustirl.demos.inspect import Inspection, action_bounds
from trustirl.demos.schema import Demos
from trustirl.report.drawing import BLUE, GREEN, INK, ORANGE, PAPER, PURPLE, VERMILION, WIDE, Layout, name_axes, svg

Bounds = tuple[np.ndarray, np.ndarray]

MOST_BARS, MOST_STRIPS, MOST_COLUMNS, LEAST_PLACES = 30, 40, 1000, 10
MOST_ROWS, MOST_DOTS, MOST_POINTS = 20_000, 4_000, 500  # steps for quantiles, dots of a cloud, points of a curve
SHOWN_EPISODES, SHOWN_OBSERVATIONS, SHOWN_ACTIONS = 3, 3, 2
QUANTILES = (0, 5, 25, 50, 75, 95, 100)


def draw_returns(seen: Inspection, layout: Layout) -> str | None:
    """The return of each episode, or how they are spread; None without rewards."""
    returns = seen.demos.returns()
    return None if returns is None else _episodes("demo-returns", returns, "true return", BLUE, layout)


def draw_lengths(seen: Inspection, layout: Layout) -> str:
    """The length of each episode, or how they are spread."""
    return _episodes("demo-lengths", seen.demos.lengths(), "steps of the episode", GREEN, layout)


def draw_observations(seen: Inspection, layout: Layout) -> str:
    """Where each observation column lies."""
    return _ranges("demo-observations", seen.demos.observations, "observation", BLUE, layout, None)


def draw_actions(seen: Inspection, layout: Layout) -> str:
    """Where each action column lies within its bounds, or how often each action is taken."""
    actions, found = seen.demos.actions, seen.actions
    choices = int(found.high[0] - found.low[0]) + 1
    if actions.dtype.kind == "f" or actions.ndim > 1 or choices > MOST_COLUMNS:
        return _ranges("demo-actions", actions, "action", ORANGE, layout, action_bounds(seen))
    share = np.bincount(actions.astype(np.int64) - int(found.low[0])) / len(actions)

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.bar(found.low[0] + np.arange(choices), 100 * share, color=ORANGE)
        axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        name_axes(axes, "action", "share of steps (%)")

    return svg("demo-actions", layout, 2.8, paint)


def draw_courses(seen: Inspection, layout: Layout) -> str:
    """A few columns of the first episodes over time."""
    shown = seen.demos[:SHOWN_EPISODES]
    rows = [("obs.", column) for column in _varying(shown.observations)[:SHOWN_OBSERVATIONS]]
    rows += [("action", column) for column in _varying(shown.actions)[:SHOWN_ACTIONS]]

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(rows), sharex=True, squeeze=False)[:, 0]
        for axes, (kind, column) in zip(panels, rows, strict=True):
            for episode, colour in zip(shown, (BLUE, VERMILION, GREEN), strict=False):
                array = episode.observations if kind == "obs." else episode.actions
                every = -(-len(array) // MOST_POINTS)
                time, values = episode.time_in_episode()[::every], array.reshape(len(array), -1)[::every, column]
                style = "steps-post" if array.dtype.kind != "f" else "default"
                axes.plot(
                    time, values, color=colour, linewidth=1, drawstyle=style, marker="." if len(time) == 1 else ""
                )
            axes.yaxis.set_major_locator(MaxNLocator(3))
            name_axes(axes, "step of the episode" if axes is panels[-1] else "", f"{kind} {column}")
        for number, colour in zip(range(len(shown)), (BLUE, VERMILION, GREEN), strict=False):
            panels[0].plot([], [], color=colour, label=f"episode {number}")
        figure.legend(loc="outside upper left", ncols=3)
        figure.align_ylabels()

    return svg("demo-courses", layout, 0.8 + 0.95 * len(rows), paint)


def draw_states(seen: Inspection, layout: Layout) -> str | None:
    """Observations in the plane in which they vary most; None where there is no plane."""
    rows, progress = _sampled(seen.demos, MOST_DOTS)
    varying = _varying(rows)
    if len(varying) < 2 or len(rows) < 3 or rows.shape[1] > MOST_COLUMNS:
        return None
    scaled = rows[:, varying] - rows[:, varying].mean(axis=0)
    deviation = scaled.std(axis=0)
    scaled /= np.where(deviation > 0, deviation, 1)
    variance, directions = np.linalg.eigh(scaled.T @ scaled)  # in rising order
    directions = directions[:, :-3:-1] * np.sign(directions[:, :-3:-1].sum(axis=0) + 1e-12)  # one sign of the two
    across, up = (scaled @ directions).T
    share = 100 * variance[:-3:-1] / variance.sum()

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        # The darkest colours would drown on a dark page.
        cloud = axes.scatter(across, up, c=progress, s=5, cmap="viridis", vmin=-0.35, vmax=1.0, lw=0, rasterized=True)
        start = progress == 0
        axes.scatter(across[start], up[start], s=26, facecolor=PAPER, edgecolor=INK, lw=1, label="starts")
        axes.set(axisbelow=True, xlabel=f"first component ({share[0]:.0f} % of the variance)")
        axes.set_ylabel(f"second component ({share[1]:.0f} %)")
        axes.grid()
        bar = figure.colorbar(cloud, ax=axes, location="bottom", aspect=50, shrink=0.6)
        bar.outline.set_visible(False)
        bar.ax.set_xlim(0, 1)
        bar.set_ticks([0, 1], labels=["start", "end of the episode"])
        figure.legend(loc="outside upper left")

    return svg("demo-states", layout, 5.0 if layout is WIDE else 4.2, paint)


def _episodes(name: str, values: np.ndarray, label: str, colour: str, layout: Layout) -> str:
    """A bar for each of a few episodes, a histogram of many."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        if len(values) <= MOST_BARS:
            axes.bar(np.arange(len(values)), values, color=colour, width=0.7)
            axes.set_xlim(-0.6, max(len(values), LEAST_PLACES) - 0.4)  # one bar should not fill the page
            axes.set_xticks(np.arange(0, len(values), 1 if len(values) <= 15 else 5))
            name_axes(axes, "episode", label)
        else:
            axes.hist(values, bins=min(40, len(np.histogram_bin_edges(values, "auto"))), color=colour, rwidth=0.95)
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            name_axes(axes, label, "episodes")

    return svg(name, layout, 2.8, paint)


def _ranges(name: str, array: np.ndarray, noun: str, colour: str, layout: Layout, bounds: Bounds | None) -> str:
    """A strip for each of a few columns, bands over many: all values, nine in ten, and the middle half."""
    flat = array.reshape(len(array), -1)
    spread = np.percentile(flat[:: -(-len(flat) // MOST_ROWS)], QUANTILES, axis=0)
    spread[0], spread[-1] = flat.min(axis=0), flat.max(axis=0)
    count = flat.shape[1]
    strips = count <= MOST_STRIPS

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        (_strips if strips else _bands)(axes, spread, colour)
        _widen(axes, spread, "x" if strips else "y")
        if strips:
            if bounds is not None:
                for side in bounds:
                    axes.plot(side, np.arange(count), "|", color=INK, ms=11, mew=1.4, label="bounds")
            axes.set(ylim=(count - 0.4, -0.6), xlabel="value", ylabel=f"{noun} column", axisbelow=True)
            axes.yaxis.set_major_locator(MaxNLocator(min(count, 20) + 1, integer=True, steps=[1, 2, 5, 10]))
            axes.grid(axis="x")
        else:
            axes.set_xlim(-0.5, count - 0.5)
            name_axes(axes, f"{noun} column", "value")
        handles = dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
        figure.legend(handles.values(), handles.keys(), loc="outside upper left", ncols=5 if layout is WIDE else 2)

    return svg(name, layout, (1.5 if layout is WIDE else 1.8) + 0.21 * count if strips else 3.4, paint)


def _strips(axes: Axes, spread: np.ndarray, colour: str) -> None:
    place = np.arange(spread.shape[1])
    axes.hlines(place, spread[0], spread[6], color=colour, lw=1, label="all")
    axes.hlines(place, spread[1], spread[5], color=colour, lw=6, alpha=0.35, label="nine in ten")
    axes.hlines(place, spread[2], spread[4], color=colour, lw=6, label="middle half")
    axes.plot(spread[3], place, "o", color=PAPER, mec=INK, mew=0.8, ms=4.5, label="median")


def _bands(axes: Axes, spread: np.ndarray, colour: str) -> None:
    place = np.arange(spread.shape[1])
    for low, high, alpha, label in ((0, 6, 0.15, "all"), (1, 5, 0.3, "nine in ten"), (2, 4, 0.8, "middle half")):
        axes.fill_between(place, spread[low], spread[high], step="mid", color=colour, alpha=alpha, lw=0, label=label)
    axes.plot(place, spread[3], color=PURPLE, lw=0.8, drawstyle="steps-mid", label="median")


def _widen(axes: Axes, spread: np.ndarray, axis: str) -> None:
    """Where a few columns reach much farther than most, let the scale become logarithmic away from zero."""
    reach = np.abs(spread).max(axis=0)
    usual = float(np.median(reach[reach > 0])) if reach.any() else 0.0
    if usual > 0 and reach.max() > 30 * usual:
        getattr(axes, f"set_{axis}scale")("symlog", linthresh=usual)
        getattr(axes, f"{axis}axis").set_major_formatter(lambda value, _: f"{value:g}")


def _varying(array: np.ndarray) -> np.ndarray:
    """The columns that are not constant; if all are, the first."""
    flat = array.reshape(len(array), -1)
    found = np.flatnonzero((flat != flat[0]).any(axis=0))
    return found if len(found) else np.array([0])


def _sampled(demos: Demos, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Observations of steps in even distances and of all starts, and how far in its episode each is (0 to 1)."""
    starts = demos.episode_ends - demos.lengths()
    every = -(-len(demos.actions) // most)
    chosen = np.union1d(np.arange(0, len(demos.actions), every), starts[: most // 10])
    episode = np.searchsorted(demos.episode_ends, chosen, side="right")
    progress = (chosen - starts[episode]) / np.maximum(1, demos.lengths()[episode] - 1)
    return demos.observations[chosen].reshape(len(chosen), -1).astype(np.float64), progress
