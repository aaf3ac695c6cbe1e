"""Writes the comparison of several runs: one HTML page that needs nothing but itself, its tables or its curves."""

import base64
import gzip
import io
import math
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from trustirl.core.errors import InputError
from trustirl.evaluation.stats import bootstrap, iqm, iqm_band, performance_profile, several
from trustirl.report import plots, tables
from trustirl.report.drawing import clock_axis
from trustirl.report.figures import CLOCKS, draw_recovered
from trustirl.report.films import strips
from trustirl.report.html import Card, Section, details, document, figure, shown_json, write_drawn
from trustirl.report.page import write_report
from trustirl.report.plots import Plot, Series
from trustirl.report.runs import Numbers
from trustirl.report.study import Row, Study, is_run, read_study
from trustirl.report.words import count, duration

FORMATS = {"html": ".html", "md": ".md", "csv": ".csv", "latex": ".tex", "png": ".png"}
THRESHOLDS = 101  # where performance profiles are evaluated
MOST_MAPS = 11  # beside the true reward
MEASURED = {"return_mean": "true return", "ell": "objective ℓ"}
BAND_RESAMPLES = 500  # a band is drawn, not read off to the last digit

STYLE = """
main { max-width: 76rem; }
section > .scroll { max-height: none; } section p.after { margin-top: 1rem; }
[data-table] td, [data-table] th { vertical-align: top; }
[data-table] th:first-child, [data-table] td:first-child { position: sticky; left: 0; background: var(--surface);
  padding-right: 1rem; z-index: 1; }
[data-table] .note { display: block; font-size: .8rem; }
[data-table] td:first-child .note { white-space: normal; width: max-content; max-width: 13rem; }
[data-table=stability] td:nth-child(2), [data-table=effort] td:nth-child(2), [data-table=stability] th:nth-child(2),
[data-table=effort] th:nth-child(2) { text-align: left; }
.cell summary { font-weight: inherit; list-style: none; } .cell summary::-webkit-details-marker { display: none; }
.cell summary .note::after { content: " +"; color: var(--accent); }
.cell[open] summary .note::after { content: " −"; }
.cell pre { margin-top: .4rem; padding: .5rem .6rem; text-align: left; }
@media (max-width: 640px) { [data-table] td:first-child .note { max-width: 7rem; } }
.links a { display: inline-block; margin: 1rem 1.25rem 0 0; color: var(--accent); }
"""


def write_comparison(paths: Sequence[Path], out: Path, format: str = "html") -> Path:
    """Compare the runs and benches in `paths`, and write the page, the tables or the curves to `out`."""
    _known(format)
    study, out = read_study(paths), Path(out)
    if format != "html" and not study.rows:
        raise InputError(f"no run of {', '.join(map(str, paths))} is finished; first: {study.failures[0].reason}")
    return write_drawn(lambda: _drawn(study, format), out)


def _drawn(study: Study, format: str) -> str | bytes:
    if format == "html":
        return render(study)
    if format == "png":
        return curves_png(study)
    return tables.numbers_csv(study) if format == "csv" else tables.WRITERS[format](tables.tables_of(study))


def report(runs: Sequence[str | Path], out: str | Path | None = None, format: str | None = None) -> Path:
    """A single run's own page, or else a comparison; without a `format`, the ending of `out` says which."""
    if isinstance(runs, str | Path):
        raise InputError(f"give the folders as a list: [{str(runs)!r}].")
    if not runs:
        raise InputError("give at least one folder of `trustirl train` or `trustirl bench`.")
    paths, out = [Path(run) for run in runs], None if out is None else Path(out)
    endings = {ending: name for name, ending in FORMATS.items()}
    chosen = _known(format) if format else endings.get(out.suffix.lower() if out else "", "html")
    if out is None and chosen == "html" and len(paths) == 1:
        out = paths[0] / "report.html"
    if out is None:
        raise InputError("say where to write with -o FILE.")
    if len(paths) == 1 and chosen == "html" and is_run(paths[0]):
        return write_report(paths[0], out)
    return write_comparison(paths, out, chosen)


def _known(format: str) -> str:
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}: choose from {', '.join(FORMATS)}.")
    return format


def render(study: Study) -> str:
    """The whole page; the same runs always give the same text."""
    made = {table.name: tables.html(table) for table in tables.tables_of(study)}
    parts = (
        made.get("returns", ""),
        made.get("explained", ""),
        _failures(study),
        made.get("overall") or _no_overall(study),
        _profiles(study),
        made.get("improvement", ""),
        _curves(study),
        made.get("stability", ""),
        _trust(study),
        _rewards(study),
        _films(study),
        made.get("effort", ""),
        _downloads(study) if study.rows else "",
        *map(_repeat, study.rows),
    )
    title = f"The {study.title} bench" if study.title else "Comparison of runs"
    names = ", ".join(study.labels[:6]) + (", …" if len(study.labels) > 6 else "")
    lead = f"{names} on {', '.join(study.tasks)}" if study.rows else "No run is finished."
    return document(
        "TrustIRL comparison",
        title,
        lead,
        _cards(study),
        parts,
        plots.STYLE + STYLE,
        plots.SCRIPT if study.rows else "",
    )


def _cards(study: Study) -> tuple[Card, ...]:
    algorithms = {row.runs[0].algorithm for row in study.rows}
    variants = f"{len(study.labels)} variants" if len(study.labels) > len(algorithms) else ""
    seeds = [len(row.seeds) for row in study.rows]
    steps: dict[str, int] = {}
    for row in study.rows:
        for purpose, number in row.env_steps.items():
            steps[purpose] = steps.get(purpose, 0) + number
    each = (
        f"{min(seeds)} to {max(seeds)} seeds each"
        if len(set(seeds)) > 1
        else f"{count(max(seeds, default=0), 'seed')} each"
    )
    total = sum(steps.values())
    failed = f"{len(study.failures)} failed or unfinished" if study.failures else "all finished"
    purposes = ", ".join(f"{name}\u00a0{number:,}" for name, number in steps.items())
    return (
        ("Algorithms", str(len(algorithms)), f"{variants} on {count(len(study.tasks), 'task')}".strip()),
        ("Runs", str(sum(seeds)), f"{each}, {failed}"),
        ("Environment steps", f"{total:,}" if total < 1e8 else f"{total / 1e6:,.0f} M", purposes),
        (
            "Wall time",
            duration(math.fsum(row.wall_seconds for row in study.rows)),
            "of all rows, one after the other",
        ),
    )


def _failures(study: Study) -> str:
    if not study.failures:
        return ""
    items = "".join(
        f'<li><span class="tag problem">failed</span><span class="where">{escape(failure.name)}</span>'
        f"<p>{escape(failure.reason)}</p></li>"
        for failure in study.failures
    )
    return (
        f'<section data-failures="{len(study.failures)}"><h2>What is missing</h2><p>These folders are not counted '
        f'anywhere on this page.</p><ul class="findings">{items}</ul></section>'
    )


def _no_overall(study: Study) -> str:
    if not study.rows:
        return ""
    return (
        "<section><h2>All tasks together</h2><p>There is no task that every algorithm finished and whose expert and "
        "random returns are known, so nothing can be said over all tasks.</p></section>"
    )


def _profiles(study: Study) -> str:
    scores = {label: [row.scores for row in rows] for label, rows in study.common().items() if rows}
    if not scores:
        return ""
    every = np.concatenate([np.concatenate(strata) for strata in scores.values()])
    thresholds = np.linspace(min(0.0, float(every.min())), max(1.0, float(every.max())), THRESHOLDS)

    def profile(values: Numbers) -> Numbers:
        return performance_profile(values, thresholds).T

    series = [
        Series(
            label,
            study.labels.index(label),
            thresholds,
            profile(np.concatenate(strata)),
            bootstrap(strata, profile) if several(strata) else None,
        )
        for label, strata in scores.items()
    ]
    plot = Plot("profiles", "normalised score τ", "share of runs that score more than τ", series, {})
    text = "A curve further up and to the right is better; bands are 95 % intervals. The expert scores 1."
    return f"<section><h2>Performance profiles</h2><p>{text}</p>{plots.draw(plot)}</section>"


def _curves(study: Study) -> str:
    drawn = []
    for task in study.tasks:
        rows = study.of_task(task)
        clock, timed, others = _timed(rows)
        levels = {"expert": rows[0].expert, "random": rows[0].random}
        measured = _measured(rows)
        curves = [_course(study, row, measured) for row in timed]
        end = max(float(np.nanmax(curve.x)) for curve in curves)
        curves += [_level(study, row, end) for row in others]
        plot = Plot(f"returns {task}", CLOCKS[clock], MEASURED[measured], curves, levels)
        drawn.append(plots.draw(plot, task))
    if not drawn:
        return ""
    text = (
        "Inter-quartile mean over seeds at every evaluation, with its 95 % bootstrap band; point at a curve, or tap "
        "its name, to see each seed."
    )
    if any(_timed(study.of_task(task))[2] for task in study.tasks):
        text += " A flat line is the last policy of a method that steps no environment."
    if not all(row.paid for row in study.rows):
        text += " Where no true reward is known, the objective ℓ tells how well the demonstrations are explained."
    return f"<section><h2>Learning curves</h2><p>{text}</p>{''.join(drawn)}</section>"


def _timed(rows: Sequence[Row]) -> tuple[str, list[Row], list[Row]]:
    """What a task's curves are drawn over, the rows that have such curves, and the others.

    Beside learners that step an environment, one that steps none is a level: where it ended.
    """
    clock = max((row.clock for row in rows), key=lambda name: name == "env_steps")
    return clock, [row for row in rows if row.clock == clock], [row for row in rows if row.clock != clock]


def _measured(rows: Sequence[Row]) -> str:
    """The metric that can be drawn of all rows of a task."""
    return "return_mean" if all(row.paid for row in rows) else "ell"


def _course(study: Study, row: Row, measured: str) -> Series:
    returns = row.column(measured)
    seeds = dict(zip(map(str, row.seeds), returns, strict=True)) if len(returns) > 1 else None
    return Series(
        row.label,
        study.labels.index(row.label),
        _clock(row),
        iqm(returns.T),
        iqm_band(returns, BAND_RESAMPLES) if len(returns) > 1 else None,
        seeds,
    )


def _level(study: Study, row: Row, end: float) -> Series:
    """A row's last returns, all along the axis."""

    def flat(height: Numbers | float) -> Numbers:
        return np.full(2, height)

    many = row.returns.size > 1
    low, high = bootstrap([row.returns])
    return Series(
        row.label,
        study.labels.index(row.label),
        np.array([0.0, end]),
        flat(iqm(row.returns)),
        (flat(low), flat(high)) if many else None,
        {str(seed): flat(value) for seed, value in zip(row.seeds, row.returns, strict=True)} if many else None,
    )


def _clock(row: Row) -> Numbers:
    """Steps of every evaluation; folders of one row evaluate at the same ones, or leave out some."""
    steps = row.column(row.clock)
    return np.where(np.isfinite(steps), steps, 0.0).sum(axis=0) / np.isfinite(steps).sum(axis=0)


def _trust(study: Study) -> str:
    parts = []
    for task in study.tasks:
        clock, rows, _ = _timed(study.of_task(task))
        for key, name in (("drift", "drift of the reward"), ("mu", "penalty weight μ")):
            series = [
                Series(row.label, study.labels.index(row.label), _clock(row), row.column(key).mean(axis=0))
                for row in rows
            ]
            if any(np.isfinite(each.y).any() for each in series):
                plot = Plot(f"{key} {task}", CLOCKS[clock], name, series, {}, logarithm=True)
                parts.append(plots.draw(plot, task))
    if not parts:
        return ""
    text = "How far one update moves the reward, and the weight of the penalty that holds it back: means over seeds."
    return f'<section><h2>Drift and μ</h2><p>{text}</p><div class="pair">{"".join(parts)}</div></section>'


def _rewards(study: Study) -> str:
    """What each row recovered of a reward that is known, mean of its seeds, on tasks whose states make a picture."""
    parts = []
    for place, task in enumerate(study.tasks):
        known = [(row.label, [run.known for run in row.runs if run.known]) for row in study.of_task(task)]
        drawn = [(label, runs) for label, runs in known if runs]
        if not drawn:
            continue
        _, (first, *_) = drawn[0]
        true = first.maps.true_reward
        if first.picture.shape is None:
            continue
        recovered = [(label, np.concatenate([run.maps.recovered_reward for run in runs])) for label, runs in drawn]
        states = first.maps.recovered_reward.shape[1]
        alike = [each for each in recovered if each[1].shape[1] == states][:MOST_MAPS]
        draw = partial(draw_recovered, f"rewards-{place}", true, alike, first.picture)
        left = f" The first {MOST_MAPS} of {len(drawn)} rows." if len(drawn) > MOST_MAPS else ""
        caption = (
            "The reward behind the demonstrations beside those recovered from them, means over seeds, drawn with "
            "the scale and shift that fit best."
            if true is not None
            else "The rewards recovered from the demonstrations, means over seeds, of which only the shapes count."
        ) + left
        parts.append(figure(Section(f"rewards-{place}", f"Rewards on {task}", caption, draw)))
    return "".join(parts)


def _films(study: Study) -> str:
    """Strips where runs have them, in a section of their own; a sentence where they could have."""
    films: dict[tuple[str, str, bytes], None] = {}  # a task's own together, and an expert of several rows once
    for task in study.tasks:
        for row in study.of_task(task):
            films |= {(task, row.label if whose == "learner" else whose, film): None for whose, film in row.films}
    drawn = strips((f"{task}: {whose}", film) for task, whose, film in films)
    text = (
        "Frames of one episode from its start to its end, evenly spaced: the first seed, and what was demonstrated."
    )
    if not drawn:
        text = "No films: <code>trustirl report --films</code> draws them where a task can be rendered."
    return f"<section><h2>How they move</h2><p>{text}</p>{drawn}</section>" if study.rows else ""


def _downloads(study: Study) -> str:
    seeds = base64.b64encode(tables.numbers_csv(study).encode()).decode()
    curves = base64.b64encode(gzip.compress(tables.curves_csv(study).encode(), mtime=0)).decode()
    return (
        '<section class="links"><h2>The numbers</h2><p>Out of this very file: seeds at full precision, '
        "evaluations with six digits.</p>"
        f'<a download="seeds.csv" href="data:text/csv;base64,{seeds}">Every seed (CSV)</a>'
        f'<a download="curves.csv.gz" href="data:application/gzip;base64,{curves}">Every evaluation (CSV, gzip)</a>'
        "</section>"
    )


def _repeat(row: Row) -> str:
    parts = [("Command", row.command or "not recorded")]
    for run in row.runs:
        which = f" of seeds {', '.join(map(str, run.seeds))}" if len(row.runs) > 1 else ""
        parts += [(f"Configuration{which}", shown_json(run.config)), (f"Manifest{which}", shown_json(run.manifest))]
    return details(f"How to repeat {row.label} on {row.task}", parts)


class Panel(NamedTuple):
    """A task's learning curves."""

    task: str
    clock: str
    curves: Sequence[Series]
    expert: float
    levels: Mapping[str, tuple[int, float]]  # of methods without a curve: the colour's place, and where they ended
    measured: str = "true return"


def curves_png(study: Study) -> bytes:
    """The learning curves of all tasks, side by side, for papers and slides."""

    def panel(task: str) -> Panel:
        rows = study.of_task(task)
        clock, timed, others = _timed(rows)
        levels = {row.label: (study.labels.index(row.label), float(iqm(row.returns))) for row in others}
        measured = _measured(rows)
        courses = [_course(study, row, measured) for row in timed]
        return Panel(task, clock, courses, rows[0].expert, levels, MEASURED[measured])

    file = io.BytesIO()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        curves_figure([panel(task) for task in study.tasks]).savefig(file, format="png", dpi=200)
    return file.getvalue()


def curves_figure(panels: Sequence[Panel]) -> Figure:
    """Panels side by side, with one legend."""
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.1 * lines + 0.6), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes, panel in zip(grid, panels, strict=False):
        for series in panel.curves:
            colour, dash = f"C{series.place % 10}", ("-", "--", ":", "-.")[series.place // 10 % 4]
            dot = "o" if series.x.size == 1 else ""
            axes.plot(series.x, series.y, label=series.label, marker=dot, color=colour, linestyle=dash)
            if series.band:
                axes.fill_between(series.x, *series.band, color=colour, alpha=0.2, linewidth=0)
        if np.isfinite(panel.expert):
            axes.axhline(panel.expert, color="black", linestyle=":", linewidth=1, label="expert")
        for label, (place, level) in panel.levels.items():
            axes.axhline(level, color=f"C{place % 10}", linestyle="--", linewidth=1, label=label)
        axes.set(title=panel.task.replace("$", r"\$"), xlabel=CLOCKS[panel.clock], ylabel=panel.measured)
        clock_axis(axes)
    handles = {
        label: handle for axes in grid for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    named = [label.replace("$", r"\$") for label in handles]
    figure.legend(
        list(handles.values()), named, loc="outside lower center", ncols=min(4, len(handles)), frameon=False
    )
    return figure
