"""Draws the figures of a report as SVG that takes its ink from the page around it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator, NullLocator

from trustirl.report.drawing import (
    BLUE,
    CURVES,
    GREEN,
    INK,
    ORANGE,
    PAPER,
    PURPLE,
    VERMILION,
    WIDE,
    Layout,
    clock_axis,
    curve,
    name_axes,
    svg,
)
from trustirl.report.runs import Known, Numbers, Picture, RunFiles
from trustirl.report.words import number

MOST_BARS, MOST_POINTS, MOST_VECTOR_CELLS, MOST_TIPS = 24, 200, 400, 100
POSITIVE = ("drift", "mu", "critic_loss", "temperature", "reward_scale")
CLOCKS = {"iteration": "iteration", "env_steps": "environment steps of each seed"}


@dataclass(frozen=True, eq=False)
class Panel:
    """One value per state, with a heading and a remark."""

    heading: str
    remark: str
    values: Numbers


def align(true: Numbers, recovered: Numbers) -> Numbers:
    """`a * recovered + b` with the `a` and `b` that bring it nearest to `true` in least squares."""
    design = np.stack([recovered, np.ones_like(recovered)], axis=-1)
    return np.asarray(design @ np.linalg.lstsq(design, true, rcond=None)[0], dtype=np.float64)


def correlation(true: Numbers, recovered: Numbers) -> float:
    """Pearson's correlation, NaN when either side does not vary."""
    varies = np.ptp(true) > 0 and np.ptp(recovered) > 0
    return float(np.corrcoef(true, recovered)[0, 1]) if varies else float("nan")


def draw_rewards(known: Known, layout: Layout) -> str:
    """The true reward beside the recovered ones."""
    maps = known.maps
    recovered = [("Recovered", maps.recovered_reward)]
    if maps.sampled_recovered_reward is not None:
        episodes = known.comparison.sampled_episodes if known.comparison else None
        source = f"From {episodes} episodes" if episodes else "From episodes"
        recovered.append((source, maps.sampled_recovered_reward[np.newaxis]))
    return draw_recovered("rewards", maps.true_reward, recovered, known.picture, layout)


def draw_recovered(
    name: str,
    true: Numbers | None,
    recovered: Sequence[tuple[str, Numbers]],
    picture: Picture,
    layout: Layout,
    label: str = "reward",
) -> str:
    """The true reward, if there is one, beside recovered ones, each [seeds, states] and brought onto its scale."""
    panels = [] if true is None else [Panel("True reward", "", true)]
    for heading, rewards in recovered:
        if true is None:
            panels.append(Panel(heading, "", rewards.mean(axis=0)))
            continue
        agreement = float(np.mean([correlation(true, seed) for seed in rewards]))
        panels.append(Panel(heading, _agreement(agreement), np.mean([align(true, seed) for seed in rewards], axis=0)))
    values = np.concatenate([panel.values for panel in panels])
    colours = ScalarMappable(Normalize(values.min(), values.max()), "cividis")
    return _states(name, panels, label, colours, picture, layout)


def draw_visits(known: Known, layout: Layout) -> str:
    """Where who demonstrated and the learner spend their time, and the task's own expert if that is another."""
    maps = known.maps
    learner = (maps.learner_visits / maps.learner_visits.sum(axis=1, keepdims=True)).mean(axis=0)
    seen = {"Demonstrations": maps.demo_visits, "Expert": maps.expert_visits}
    shares = {name: visits / visits.sum() for name, visits in seen.items() if visits is not None}
    overlaps = {name: f"{100 * np.minimum(visits, learner).sum():.1f} %" for name, visits in shares.items()}
    panels = [Panel(name, f"{overlaps[name]} in common with the learner", visits) for name, visits in shares.items()]
    panels.insert(1, Panel("Learner", "", learner))
    # Visits span decades; the square root keeps rarely visited states apart from never visited ones.
    colours = ScalarMappable(PowerNorm(0.5, 0.0, max(panel.values.max() for panel in panels)), "viridis")
    return _states("visits", panels, "share of visits", colours, known.picture, layout)


def draw_likelihood(run: RunFiles, layout: Layout) -> str:
    """The objective, iteration by iteration, for this run and its rivals."""
    curves = run.known.comparison.curves if run.known and run.known.comparison else ()
    first = run.metrics.columns["iteration"][0, 0]

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        _seed_lines(axes, run, "ell", INK, layout, "this run")
        for (label, ell), (colour, dash) in zip(curves, cycle(CURVES), strict=False):
            curve(axes, first + np.arange(ell.size), ell, color=colour, ls=dash, lw=1.8, label=label)
        if np.isfinite(run.summary.ell_expert):
            axes.axhline(run.summary.ell_expert, color=INK, ls=(0, (2, 3)), lw=1, label="true reward")
        name_axes(axes, "iteration", "objective ℓ")
        figure.legend(loc=layout.legend)

    return svg("likelihood", layout, 3.4 if layout is WIDE else 4.4, paint)


def draw_gap(run: RunFiles, layout: Layout) -> str | None:
    """How much better the learned reward finds the expert than the learner."""
    return _panels("gap", run, layout, {"gap": ("gap", GREEN)})


def draw_trust(run: RunFiles, layout: Layout) -> str | None:
    """Drift of the reward and the weight μ of its penalty; None when the run recorded neither."""
    panels = {"drift": ("drift of the reward", VERMILION), "mu": ("penalty weight μ", BLUE)}
    return _panels("trust", run, layout, panels, levels={"mu": resting_price(run)})


def resting_price(run: RunFiles) -> float | None:
    """The μ from which on no step of the reward pays, by Cauchy and Schwarz.

    The gap of n + n pairs changes by at most sqrt(2 / n) times the drift. None where the penalty is another one, or
    nothing is sampled.
    """
    settings, plan = (run.config.get(name) for name in ("algorithm_config", "plan"))
    if not isinstance(settings, dict) or not isinstance(plan, dict) or settings.get("penalty") != "l2":
        return None
    pairs = plan.get("reference")
    return math.sqrt(2 / pairs) if isinstance(pairs, int) and pairs > 0 else None


def draw_solver(run: RunFiles, layout: Layout) -> str | None:
    """How the policy's own learning goes; None when the run recorded nothing of it."""
    panels = {
        "q": ("value Q", BLUE),
        "entropy": ("entropy", GREEN),
        "critic_loss": ("critic loss", VERMILION),
        "temperature": ("temperature", ORANGE),
        "reward_scale": ("reward scale", PURPLE),
    }
    return _panels("solver", run, layout, panels)


def draw_others(run: RunFiles, layout: Layout) -> str | None:
    """What an algorithm recorded of its own; None when it recorded nothing."""
    colours = cycle((BLUE, GREEN, VERMILION, ORANGE, PURPLE))
    return _panels("others", run, layout, {name: (name, next(colours)) for name in run.others})


def draw_returns(run: RunFiles, layout: Layout) -> str | None:
    """The true return, which the learner never sees, beside the expert's; None before the first evaluation."""
    returns, deviations = run.metrics.columns["return_mean"], run.metrics.columns["return_std"]
    if not run.metrics.recorded("return_mean"):
        return None
    spread = returns.std(axis=0, ddof=1) if len(returns) > 1 else np.nan_to_num(deviations[0])
    known = {"expert": (run.summary.expert_return, "--"), "random actions": (run.summary.random_return, ":")}
    if run.known:
        known["demonstrations"] = (run.summary.demo_return, "-.")

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        x, mean = run.metrics.columns[run.clock].mean(axis=0), returns.mean(axis=0)
        axes.fill_between(x, mean - spread, mean + spread, color=BLUE, alpha=0.2, linewidth=0)
        _seed_lines(axes, run, "return_mean", BLUE, layout, "this run")
        for name, (level, dash) in known.items():
            if np.isfinite(level):
                axes.axhline(level, color=INK, linestyle=dash, linewidth=1, label=name)
        name_axes(axes, CLOCKS[run.clock], "true return")
        figure.legend(loc="outside upper left", ncols=4 if layout is WIDE else 1)

    return svg("returns", layout, 3.6, paint)


def draw_certificate(known: Known, layout: Layout) -> str | None:
    """Certified step and guaranteed gain against the error δ; None when there is nothing to draw."""
    certificate = known.certificate
    if certificate is None or not (certificate.delta > 0).any():
        return None
    order = [i for i in np.argsort(certificate.delta) if certificate.delta[i] > 0]
    delta, largest = certificate.delta[order], certificate.largest_delta
    constants = f"G = {certificate.occupancy_gap:.3g}, K = {certificate.constant:.6g}"
    start, end = delta[0] / 1.2, max(delta[-1], largest) * 1.2
    columns = {"certified step": certificate.step[order], "guaranteed gain in ℓ": certificate.gain[order]}

    def paint(figure: Figure) -> None:
        rows = figure.subplots(2, sharex=True)
        for axes, (name, column), colour in zip(rows, columns.items(), (GREEN, PURPLE), strict=True):
            curve(axes, delta, np.where(certificate.step[order] > 0, column, np.nan), color=colour, lw=2)
            axes.set(xscale="log", xlim=(start, end), ylim=(0, None))
            _powers_of_ten(axes.xaxis)
            name_axes(axes, f"error δ of the policy ({constants})" if axes is rows[-1] else "", name)
            if largest > 0:
                axes.axvline(largest, color=INK, ls="--", lw=1)
                axes.axvspan(start, largest, color=colour, alpha=0.07, lw=0)
        note = f"largest certifiable δ = {largest:.2g}" if largest > 0 else "no step can be certified"
        rows[0].set_title(note, fontsize=9, weight="normal")

    return svg("certificate", layout, 4.2, paint)


def _states(
    name: str, panels: Sequence[Panel], label: str, colours: ScalarMappable, picture: Picture, layout: Layout
) -> str:
    """Values per state: heat maps where the states form a grid, else bars or lines."""
    if picture.shape is None:
        return svg(name, layout, 3.2, lambda figure: _profiles(figure, panels, label, layout))
    rows, columns = picture.shape
    map_columns = min(len(panels), layout.map_columns)
    map_rows = -(-len(panels) // map_columns)
    map_height = min(((layout.width - 0.2) / map_columns - 0.15) * rows / columns, 2.7)

    def paint(figure: Figure) -> None:
        grid = figure.subplots(map_rows, map_columns, squeeze=False).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            _heat_map(axes, panel.values.reshape(picture.shape), picture.target, colours)
            axes.set_title(panel.heading)
            axes.set_xlabel(panel.remark, loc="left")
        if len(grid) == len(panels):
            bar = figure.colorbar(colours, ax=list(grid), location="bottom", aspect=50, shrink=0.6)
        else:  # an empty place is just right for the scale
            for axes in grid[len(panels) :]:
                axes.set_axis_off()
            place = grid[-1].inset_axes((0.1, 0.5, 0.8, 0.05))
            bar = figure.colorbar(colours, cax=place, orientation="horizontal")
        bar.outline.set_visible(False)
        bar.set_label(label)
        bar.ax.xaxis.set_major_locator(MaxNLocator(5 if layout is WIDE else 3))
        bar.ax.minorticks_off()

    return svg(
        name,
        layout,
        map_rows * (map_height + 0.5) + 0.6,
        paint,
        ConstrainedLayoutEngine(compress=True, wspace=0.05),
    )


def _heat_map(axes: Axes, values: Numbers, target: int | None, colours: ScalarMappable) -> None:
    many = values.size > MOST_VECTOR_CELLS
    mesh = axes.pcolormesh(values, rasterized=many)
    mesh.set(norm=colours.norm, cmap=colours.cmap, edgecolor="none" if many else PAPER, linewidth=1)
    axes.set(aspect="equal", xticks=[], yticks=[], ylim=(len(values), 0), frame_on=False)
    if target is not None:
        row, column = divmod(target, values.shape[1])
        axes.plot(column + 0.5, row + 0.5, "*", ms=13, mfc="white", mec="black", mew=0.8, clip_on=False)


def _profiles(figure: Figure, panels: Sequence[Panel], label: str, layout: Layout) -> None:
    axes = figure.subplots()
    states = panels[0].values.size
    every = -(-states // MOST_POINTS)
    shown = np.arange(0, states, every)
    for place, (panel, (colour, dash)) in enumerate(zip(panels, ((INK, "-"), *CURVES), strict=False)):
        legend = ", ".join(filter(None, (panel.heading, panel.remark)))
        if states <= MOST_BARS:
            width = 0.8 / len(panels)
            axes.bar(shown + (place + 0.5) * width - 0.4, panel.values, width, color=colour, label=legend)
        else:
            axes.plot(shown, panel.values[shown], color=colour, linestyle=dash, linewidth=1.5, label=legend)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    name_axes(axes, "state" if every == 1 else f"state (one of every {every} shown)", label)
    figure.legend(loc="outside upper left", ncols=len(panels) if layout is WIDE else 1)


def _panels(
    name: str,
    run: RunFiles,
    layout: Layout,
    panels: dict[str, tuple[str, str]],
    levels: Mapping[str, float | None] | None = None,
) -> str | None:
    """Metrics one below the other, each with its label and colour, some with a level to compare them with.

    None when the run recorded none of them.
    """
    shown = [key for key in panels if run.metrics.recorded(key)]

    def paint(figure: Figure) -> None:
        rows = figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
        for axes, key in zip(rows, shown, strict=True):
            label, colour = panels[key]
            _seed_lines(axes, run, key, colour, layout)
            if key in POSITIVE:
                _log_if_wide(axes, run.metrics.columns[key], always=key == "mu")
            level = (levels or {}).get(key)
            if level is not None:
                axes.axhline(level, color=INK, ls=(0, (5, 3)), lw=1)
            name_axes(axes, CLOCKS[run.clock] if axes is rows[-1] else "", label)
        figure.align_ylabels()

    return svg(name, layout, 0.8 + 1.7 * len(shown), paint) if shown else None


def _seed_lines(axes: Axes, run: RunFiles, key: str, colour: str, layout: Layout, label: str = "") -> None:
    """Each seed thin, and their mean as far as all seeds have come."""
    x, columns = run.metrics.columns[run.clock], run.metrics.columns[key]
    if len(columns) > 1:
        for steps, seed in zip(x, columns, strict=True):
            curve(axes, steps, seed, color=colour, lw=0.7, alpha=0.6)
        label += f" (mean of {len(columns)} seeds)" if label else ""
    curve(axes, x.mean(axis=0), columns.mean(axis=0), color=colour, lw=2, label=label or None)
    clock_axis(axes)
    if layout is WIDE:  # phones have nothing to point with
        _tips(axes, run, key)


def _tips(axes: Axes, run: RunFiles, key: str) -> None:
    """Invisible strips that tell the numbers under the pointer; `_inline` turns their names into titles."""
    x = run.metrics.columns[run.clock]
    every = -(-x.shape[1] // MOST_TIPS)
    complete = np.flatnonzero(np.isfinite(x).all(axis=0))[::every]
    if complete.size < 2:
        return
    x, columns = x[:, complete].mean(axis=0), run.metrics.columns[key][:, complete]
    edges = np.concatenate([x[:1], (x[1:] + x[:-1]) / 2, x[-1:]])
    unit = "iteration {}" if run.clock == "iteration" else "{} steps"
    for left, right, now, values in zip(edges[:-1], edges[1:], x, columns.T, strict=True):
        each = f" ({', '.join(map(number, values))})" if len(values) > 1 else ""
        text = f"{unit.format(number(now))}: {number(values.mean())}{each}"
        axes.axvspan(left, right, color=INK, lw=0, alpha=0.001, gid=f"tip:{text}")


def _log_if_wide(axes: Axes, values: Numbers, always: bool = False) -> None:
    positive = values[values > 0]
    wide = positive.size > 0 and positive.max() > 100 * positive.min()
    if not positive.size or (values < 0).any() or not (wide or always):
        return
    axes.set_yscale("log", nonpositive="mask")
    if wide:
        _powers_of_ten(axes.yaxis)
    else:  # too narrow for powers of ten
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_locator(NullLocator())


def _powers_of_ten(axis: Axis) -> None:
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    axis.set_major_formatter(lambda value, _: "10" + str(round(np.log10(value))).translate(raised))
    axis.set_minor_locator(NullLocator())  # eight ticks a decade are a fifth of a page's time


def _agreement(value: float) -> str:
    return "correlation undefined" if np.isnan(value) else f"correlation {value:.3f}".replace("-", "−")
