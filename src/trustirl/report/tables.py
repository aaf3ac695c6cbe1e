"""The tables of a comparison, as plain texts, and the ways to write them."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from trustirl.evaluation.stats import (
    bootstrap,
    improvement_interval,
    iqm,
    probability_of_improvement,
    several,
    spread,
)
from trustirl.report.runs import Numbers
from trustirl.report.study import Row, Study
from trustirl.report.words import count, duration, number, percent

NONE, ONE_SEED = "–", "one seed"
PAIR_RESAMPLES = 500  # there are many pairs of algorithms


@dataclass(frozen=True)
class Cell:
    """A text, a remark on it, and what a reader may want to open."""

    text: str
    note: str = ""
    more: str = ""


@dataclass(frozen=True)
class Table:
    """A heading, a caption, and cells."""

    name: str
    heading: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]


def tables_of(study: Study) -> list[Table]:
    """All tables that the study can fill."""
    return [
        table
        for make in (headline, explained, overall, improvement, steadiness, effort)
        if (table := make(study)).rows
    ]


def headline(study: Study) -> Table:
    """True returns, tasks by algorithms."""
    rows = [
        [
            Cell(task, _joined(row.versions for row in study.of_task(task))),
            Cell(_level(row.random for row in study.of_task(task))),
            Cell(_level(row.expert for row in study.of_task(task))),
            *(_returns(study.row(label, task)) for label in study.labels),
        ]
        for task in study.tasks
        if any(row.paid for row in study.of_task(task))
    ]
    caption = (
        "True return of the last policy, never the best seen: the inter-quartile mean over seeds and its 95 % "
        "bootstrap interval. Fewer than ten seeds make an interval somewhat too narrow."
    )
    return Table("returns", "True returns", caption, ("Task", "Random", "Expert", *study.labels), rows)


def explained(study: Study) -> Table:
    """What can be told where no true reward is known."""
    keys = {"ell": "ℓ", "log_likelihood": "Log-likelihood", "gap": "Gap"}
    rows: list[list[Cell | str]] = [
        [row.task, row.label, *(_last(row, key) for key in keys)] for row in study.rows if not row.paid
    ]
    caption = (
        "No true reward of these tasks is known, so it cannot be told what returns the policies bring. At the last "
        "evaluation: the objective ℓ, the mean log-likelihood of a demonstrated action, and how much more of the "
        "learned reward the demonstrations earn than the learner does; each is the inter-quartile mean over seeds "
        "with its 95 % bootstrap interval."
    )
    head = ("Task", "Algorithm", *keys.values())
    return Table("explained", "How well the demonstrations are explained", caption, head, rows)


def overall(study: Study) -> Table:
    """Normalised scores over all tasks that every algorithm finished."""
    rows = []
    tasks = 0
    for label, shared in study.common().items():
        if shared:
            scores, tasks = [row.scores for row in shared], len(shared)
            low, high = bootstrap(scores)
            pooled = np.concatenate(scores)
            rows.append(
                (
                    label,
                    Cell(number(float(iqm(pooled)), 3), _interval(low, high, 3) if several(scores) else ONE_SEED),
                    number(float(pooled.mean()), 3),
                    number(float(np.median(pooled)), 3),
                    percent(float((pooled > 0.9).mean())),
                    str(pooled.size),
                )
            )
    caption = (
        f"Scores on the scale where random actions are 0 and the expert is 1, over {count(tasks, 'task')} that every "
        "algorithm finished. Intervals come from a bootstrap that draws seeds anew within each task."
    )
    head = ("Algorithm", "Inter-quartile mean", "Mean", "Median", "Runs above 0.9", "Runs")
    return Table("overall", "All tasks together", caption, head, rows)


def improvement(study: Study) -> Table:
    """How likely one algorithm beats another."""
    scores = {label: [row.scores for row in rows] for label, rows in study.common().items() if rows}
    caption = (
        "The chance that a run of the row's algorithm scores more than one of the column's on the same task, "
        "averaged over tasks, with its 95 % interval. Where the interval holds 50 %, neither is shown to be better."
    )
    rows: list[list[Cell | str]] = []
    if len(scores) > 1:
        rows = [[ours, *(_improvement(scores[ours], strata) for strata in scores.values())] for ours in scores]
    return Table("improvement", "Probability of improvement", caption, ("Row beats column", *scores), rows)


def steadiness(study: Study) -> Table:
    """How steadily each row learned."""
    caption = (
        "Drawdown: how far the return fell below the highest before it, mean and worst seed. Below 90 %: the share "
        "of evaluations that lie more than a tenth under that highest return. Spread: the standard deviation of the "
        "last return between seeds. ℓ fell: the share of evaluations at which the objective ℓ had decreased "
        "(on simulators the log-likelihood of the demonstrated actions). Steps to 90 %: of the expert, the median of "
        "the seeds that got there. Mean height: the area under the curve over its length."
    )
    head = (
        "Task",
        "Algorithm",
        "Drawdown",
        "Below 90 %",
        "Spread",
        "ℓ fell",
        "Steps to 90 %",
        "Mean height",
    )
    return Table("stability", "How steadily they learned", caption, head, [_steadiness(row) for row in study.rows])


def effort(study: Study) -> Table:
    """Steps by purpose, time and speed."""
    purposes = list(dict.fromkeys(purpose for row in study.rows for purpose in row.env_steps))
    rows = [
        (
            row.task,
            row.label,
            str(len(row.seeds)),
            *(f"{row.env_steps.get(purpose, 0):,}" for purpose in purposes),
            f"{sum(row.env_steps.values()):,}",
            duration(row.wall_seconds),
            number(row.updates_per_second, 3),
            str(row.runs[0].manifest.get("device", NONE)),
        )
        for row in study.rows
    ]
    caption = (
        "Every step that an environment took, by purpose and over all seeds; time and updates of all seeds together."
    )
    named = [purpose.capitalize() for purpose in purposes]
    head = ("Task", "Algorithm", "Seeds", *named, "All steps", "Wall time", "Updates/s", "Device")
    return Table("effort", "What it took", caption, head, rows)


def numbers_csv(study: Study) -> str:
    """One line for each seed, at full precision."""
    head = (
        "task", "label", "algorithm", "seed", "return", "score", "expert_return", "random_return", "drawdown",
        "share_below_90", "steps_to_90", "mean_height", "share_ell_fell",
    )  # fmt: skip
    lines = [
        (row.task, row.label, row.runs[0].algorithm, seed, value, score, row.expert, row.random, course.drawdown,
         course.below_90, course.steps_to_90, course.area, fell)
        for row in study.rows
        for seed, value, score, course, fell in zip(
            row.seeds, row.returns, row.scores, row.courses(), row.falls(), strict=True
        )
    ]  # fmt: skip
    return _csv(head, lines)


def curves_csv(study: Study) -> str:
    """One line for each evaluation of each seed, numbers with six digits."""
    keys = ("iteration", "env_steps", "return_mean", "ell", "log_likelihood", "drift", "mu")
    lines = [_csv(("task", "label", "seed", *keys), ())]
    for row in study.rows:
        columns = np.stack([row.column(key) for key in keys], axis=2)
        for seed, evaluations in zip(row.seeds, columns.tolist(), strict=True):
            whose = _csv((row.task, row.label, str(seed)), ()).rstrip("\n")
            lines += [f"{whose},{','.join([f'{v:.6g}' for v in values])}\n" for values in evaluations]
    return "".join(lines).replace(",nan", ",")


def markdown(tables: Iterable[Table]) -> str:
    """For READMEs."""

    def line(cells: Iterable[Cell | str]) -> str:
        texts = (_plain(cell, " ({})").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ") for cell in cells)
        return f"| {' | '.join(texts)} |"

    parts = []
    for table in tables:
        rule = "|" + "---|" * len(table.head)
        parts.append(
            "\n".join([f"## {table.heading}", "", table.caption, "", line(table.head), rule, *map(line, table.rows)])
        )
    return "\n\n".join(parts) + "\n"


def latex(tables: Iterable[Table]) -> str:
    """For papers; needs the package booktabs."""

    def line(cells: Iterable[Cell | str]) -> str:
        return " & ".join(_tex(_plain(cell, " [{}]")) for cell in cells) + r" \\"

    parts = ["% needs \\usepackage{booktabs}"]
    for table in tables:
        columns = "l" + "r" * (len(table.head) - 1)
        body = "\n".join(map(line, table.rows))
        parts.append(
            f"\\begin{{table}}\n\\caption{{{_tex(table.heading)}. {_tex(table.caption)}}}\n"
            f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{line(table.head)}\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n\\end{{table}}"
        )
    return "\n\n".join(parts) + "\n"


def html(table: Table) -> str:
    """A section; cells that hold more open on a click."""

    def cell(content: Cell | str) -> str:
        if isinstance(content, str):
            return f"<td>{escape(content)}</td>"
        note = f'<span class="note">{escape(content.note)}</span>' if content.note else ""
        shown = f"{escape(content.text)}{note}"
        if content.more:
            shown = f'<details class="cell"><summary>{shown}</summary><pre>{escape(content.more)}</pre></details>'
        return f"<td>{shown}</td>"

    head = "".join(f"<th>{escape(name)}</th>" for name in table.head)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in table.rows)
    return (
        f'<section data-table="{escape(table.name)}"><h2>{escape(table.heading)}</h2><p>{escape(table.caption)}</p>'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>'
    )


def _returns(row: Row | None) -> Cell:
    if row is None:
        return Cell(NONE)
    returns = row.returns
    each = "\n".join(f"seed {seed}: {number(value)}" for seed, value in zip(row.seeds, returns, strict=True))
    note = _interval(*bootstrap([returns])) if returns.size > 1 else ONE_SEED
    return Cell(number(float(iqm(returns))), note, each)


def _last(row: Row, key: str) -> Cell:
    values = np.concatenate([run.metrics.last(key) for run in row.runs])
    note = _interval(*bootstrap([values])) if values.size > 1 else ONE_SEED
    return Cell(number(float(iqm(values))), note)


def _improvement(ours: list[Numbers], theirs: list[Numbers]) -> Cell:
    if ours is theirs:
        return Cell(NONE)
    low, high = (percent(float(end)) for end in improvement_interval(ours, theirs, resamples=PAIR_RESAMPLES))
    note = f"{low} to {high}" if several(ours) or several(theirs) else ONE_SEED
    return Cell(percent(probability_of_improvement(ours, theirs)), note)


def _steadiness(row: Row) -> tuple[Cell | str, ...]:
    courses, falls = row.courses(), row.falls()
    drops = np.array([course.drawdown for course in courses])
    worst = float(drops.max())
    reached = np.array([course.steps_to_90 for course in courses])
    steps = reached[np.isfinite(reached)]
    share = f"{steps.size} of {reached.size} seeds"
    return (
        row.task,
        row.label,
        Cell(
            number(float(drops.mean())), f"worst {number(worst)}" if drops.size > 1 and math.isfinite(worst) else ""
        ),
        percent(float(np.mean([course.below_90 for course in courses]))),
        number(spread(row.returns)),
        percent(float(falls.mean())),
        Cell(number(float(np.median(steps))) if steps.size else NONE, "" if np.isnan(reached).all() else share),
        number(float(np.mean([course.area for course in courses]))),
    )


def _interval(low: Numbers, high: Numbers, digits: int = 4) -> str:
    return f"{number(float(low), digits)} to {number(float(high), digits)}"


def _level(levels: Iterable[float]) -> str:
    """One number where all rows agree, else the range."""
    known = sorted({level for level in levels if math.isfinite(level)})
    if not known:
        return NONE
    low, high = number(known[0]), number(known[-1])
    return low if low == high else f"{low} to {high}"


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _csv(head: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    """What is unknown or never happened stays empty."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(head)
    table.writerows(["" if isinstance(v, float) and not math.isfinite(v) else v for v in line] for line in lines)
    return text.getvalue()


def _plain(cell: Cell | str, around: str) -> str:
    if isinstance(cell, str):
        return cell
    return cell.text + (around.format(cell.note) if cell.note else "")


def _tex(text: str) -> str:
    special = {c: f"\\{c}" for c in "&%$#_{}"} | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
    special |= {"−": "$-$", "–": "--", "ℓ": r"$\ell$", "μ": r"$\mu$", "\n": " "}
    return "".join(special.get(character, character) for character in text)


WRITERS: dict[str, Callable[[Iterable[Table]], str]] = {"md": markdown, "latex": latex}
