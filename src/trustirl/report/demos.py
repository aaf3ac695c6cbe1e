"""Writes a page that shows demonstrations, like the page of a run."""

from collections import Counter
from dataclasses import replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from trustirl.demos.inspect import Inspection, facts
from trustirl.demos.inspect.seen import look
from trustirl.report import demo_figures
from trustirl.report.html import Card, Section, document, figure, table, write_drawn
from trustirl.report.words import count, number

FARTHEST = 1e100  # matplotlib squares and multiplies what it draws


def write_demo_page(seen: Inspection, out: Path, source: str, about_task: str = "") -> Path:
    """Write the page of inspected demonstrations to `out`."""
    return write_drawn(lambda: render(seen, source, about_task), out)


@np.errstate(over="ignore", invalid="ignore")
def render(seen: Inspection, source: str, about_task: str = "") -> str:
    """The whole page; the same demonstrations always give the same text."""
    task = seen.task.name if seen.task else seen.demos.provenance.get("env_id")
    title = f"Demonstrations of {task}" if task else "Demonstrations"
    glance = table("At a glance", "", (), facts(seen, source, about_task)).replace("<table>", '<table class="facts">')
    drawn = "".join(map(figure, _sections(drawable(seen))))
    return document("TrustIRL demonstrations", title, source, _cards(seen), (_findings(seen), drawn, glance))


def _cards(seen: Inspection) -> tuple[Card, ...]:
    demos, lengths, returns = seen.demos, seen.demos.lengths(), seen.demos.returns()
    kinds = Counter(finding.severity for finding in seen.findings)
    spread = "the rewards are not known"
    if returns is not None:
        spread = f"{number(returns.min())} to {number(returns.max())}, deviation {number(returns.std(), 3)}"
    ends = f"{demos.terminated.sum():,} in a terminal state"
    return (
        ("Episodes", f"{len(demos):,}", ends),
        ("Steps", f"{len(demos.actions):,}", f"{lengths.min():,} to {lengths.max():,} each"),
        ("Mean return", "–" if returns is None else number(returns.mean()), spread),
        (
            "To look at",
            str(len(seen.findings)),
            ", ".join(count(kinds[kind], kind) for kind in ("problem", "warning", "note") if kinds[kind])
            or "nothing",
        ),
    )


def _findings(seen: Inspection) -> str:
    items = "".join(
        f'<li><span class="tag {finding.severity}">{finding.severity}</span>'
        f'<span class="where">{escape(finding.where)}</span><p>{escape(finding.sentence)}</p></li>'
        for finding in seen.findings
    )
    body = (
        f'<ul class="findings">{items}</ul>' if items else "<p>Nothing that we look for is wrong with these data.</p>"
    )
    return f"<section><h2>What looks wrong</h2>{body}</section>"


def drawable(seen: Inspection) -> Inspection:
    """What lies beyond any scale is drawn at its end, and what is nearer to zero than all else at zero."""
    demos = seen.demos
    wide = {
        name: array
        for name in ("observations", "actions", "rewards")
        if (array := getattr(demos, name)) is not None and array.dtype == np.float64
    }
    tamed: dict[str, Any] = {
        name: np.where(np.abs(array) < 1 / FARTHEST, 0, np.clip(array, -FARTHEST, FARTHEST))
        for name, array in wide.items()
    }
    return look(replace(demos, **tamed), seen.task)


def _sections(seen: Inspection) -> tuple[Section, ...]:
    discrete = seen.demos.actions.dtype.kind != "f"
    return (
        Section(
            "returns",
            "How good they are",
            "What the episodes returned under the true reward. Training never reads it; an episode far below the "
            "others may be a failure that should not be imitated.",
            partial(demo_figures.draw_returns, seen),
            absent="The rewards are not known, so nobody can tell how good the episodes are.",
        ),
        Section(
            "lengths",
            "How long they are",
            "Episodes that all have one length usually end at a time limit, which is not a terminal state.",
            partial(demo_figures.draw_lengths, seen),
        ),
        Section(
            "observations",
            "What is observed",
            "The values of each observation column: all of them, nine in ten, the middle half and the median. Look "
            "for columns that never move, and for values that no sensor can give.",
            partial(demo_figures.draw_observations, seen),
        ),
        Section(
            "actions",
            "What is done",
            "How often each action is taken."
            if discrete and np.ndim(seen.demos.actions) == 1
            else "The values of each action column, in the same way. Values beyond the bounds were not clipped when "
            "they were recorded; many at a bound may have been.",
            partial(demo_figures.draw_actions, seen),
        ),
        Section(
            "courses",
            "The first episodes",
            "The first columns that move, over time. Look for jumps where an episode should have ended, and for "
            "lines that stand still.",
            partial(demo_figures.draw_courses, seen),
        ),
        Section(
            "states",
            "Where they go",
            "Standardised observations in the plane in which they vary most. Every dot is a step, its colour the "
            "time in the episode.",
            partial(demo_figures.draw_states, seen),
            absent="Observations that vary in fewer than two columns have no plane to be drawn in.",
        ),
    )
