"""Writes the report of a run as one HTML page that needs nothing but itself."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from trustirl.core.errors import InputError
from trustirl.core.files import write_bytes
from trustirl.report import figures
from trustirl.report.figures import LAYOUTS, Layout
from trustirl.report.runs import ControlRun, ExactRun, RunFiles, read_run
from trustirl.report.stability import Stability, share_of_expert, stability
from trustirl.report.words import count, duration, number, percent

Card = tuple[str, str, str]  # a name, its value, and a note below it

LAST_EVALUATION = {
    "iteration": "Iteration",
    "return_mean": "True return",
    "ell": "ℓ",
    "gap": "Gap",
    "drift": "Drift",
    "mu": "μ",
    "env_steps": "Env steps",
    "seconds": "Seconds",
}

# The policy lets the page style itself and nothing more: a report can make no request, whatever a run says.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

STYLE = """
:root { color-scheme: light dark; --page: #f6f6f4; --surface: #ffffff; --ink: #1d1f24; --soft: #62666f;
  --line: #e4e4e0; --accent: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --page: #121417; --surface: #1a1d21; --ink: #e9eaec; --soft: #9a9fa8; --line: #2c3036;
    --accent: #56b4e9; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.55; font-size: 16px;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 4.5rem 2rem 6rem; }
.brand { margin: 0 0 .75rem; color: var(--accent); font-size: .8rem; font-weight: 600; letter-spacing: .08em;
  text-transform: uppercase; }
h1 { margin: 0; font-size: clamp(1.9rem, 5vw, 2.9rem); line-height: 1.12; letter-spacing: -.025em;
  overflow-wrap: anywhere; }
h2 { margin: 0 0 .35rem; font-size: 1.2rem; letter-spacing: -.01em; }
.lead { margin: .9rem 0 0; color: var(--soft); font-size: 1.05rem; overflow-wrap: anywhere; }
.cards { display: grid; grid-template-columns: repeat(4, 1fr); margin: 2.75rem 0 3rem; padding: 0;
  background: var(--surface); border: 1px solid var(--line); border-radius: 14px; }
.cards div { padding: 1.4rem 1.5rem; border-left: 1px solid var(--line); min-width: 0; }
.cards div:first-child { border-left: 0; }
.cards dt { color: var(--soft); font-size: .85rem; }
.cards dd { margin: .2rem 0 0; }
.cards .value { font-size: 1.85rem; font-weight: 600; letter-spacing: -.02em; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.cards .note { color: var(--soft); font-size: .85rem; line-height: 1.4; }
figure, section { margin: 0 0 1.5rem; padding: 1.75rem; background: var(--surface);
  border: 1px solid var(--line); border-radius: 14px; }
figcaption { max-width: 44rem; margin-bottom: 1.25rem; }
figcaption p, section p { margin: 0; color: var(--soft); font-size: .95rem; }
figure svg { display: block; width: 100%; height: auto; }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
.tip:hover path { opacity: .1 !important; }
.narrow { display: none; }
.scroll { overflow-x: auto; margin-top: 1rem; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .55rem .75rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; }
th:first-child, td:first-child { padding-left: 0; text-align: left; }
tr:last-child td { border-bottom: 0; }
summary { cursor: pointer; font-weight: 600; }
h3 { margin: 1.5rem 0 .5rem; font-size: .9rem; color: var(--soft); font-weight: 600; }
pre { margin: 0; padding: 1rem; overflow-x: auto; background: var(--page); border-radius: 8px;
  font-size: .82rem; line-height: 1.5; font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
@media (max-width: 640px) {
  main { padding: 2.5rem 1rem 3rem; }
  .cards { grid-template-columns: 1fr 1fr; margin: 2rem 0; }
  .cards div { padding: 1rem; }
  .cards div:nth-child(odd) { border-left: 0; }
  .cards div:nth-child(n + 3) { border-top: 1px solid var(--line); }
  .cards .value { font-size: 1.5rem; }
  figure, section { padding: 1.25rem 1rem; margin-bottom: 1rem; }
  .wide { display: none; }
  .narrow { display: block; }
}
@media print { body { background: none; } figure, section { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Section:
    """One figure of the page, and the sentence that stands for it where the run has nothing to draw."""

    name: str
    heading: str
    caption: str
    draw: Callable[[Layout], str | None]
    absent: str = ""


def write_report(run_dir: Path, out: Path | None = None) -> Path:
    """Write the report of the run in `run_dir` to `out`, by default `report.html` beside its files."""
    page = render(read_run(run_dir))
    target = Path(run_dir) / "report.html" if out is None else Path(out)
    if target.is_dir():
        raise InputError(f"{target} is a folder; give the name of the HTML file to write.")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(target, page.encode("utf-8", errors="xmlcharrefreplace"))
    return target


def render(run: ExactRun | ControlRun) -> str:
    """The whole page; the same run always gives the same text."""
    title = f"{escape(run.algorithm.upper())} on {escape(run.task)}"
    if isinstance(run, ExactRun):
        lead, cards, sections, steadiness = _exact_lead(run), _exact_cards(run), _exact_sections(run), ""
    else:
        lead, cards, sections = _control_lead(run), _control_cards(run), _control_sections(run)
        steadiness = _stability(run)
    evaluated = run.metrics.recorded("iteration")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{title} · TrustIRL</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<main>
<header>
<p class="brand">TrustIRL report</p>
<h1>{title}</h1>
<p class="lead">{escape(" · ".join((lead, *_circumstances(run))))}</p>
</header>
<dl class="cards">{"".join(_card(*card) for card in cards)}</dl>
{"".join(_figure(section) for section in sections)}
{steadiness + _last_evaluation(run) if evaluated else ""}
{_details(run)}
</main>
</body>
</html>
"""


def _exact_lead(run: ExactRun) -> str:
    return count(int(run.metrics.last("iteration")[0]), "iteration")


def _control_lead(run: ControlRun) -> str:
    if run.finished:
        return f"{run.steps:,} steps per seed"
    done = int(np.nan_to_num(run.metrics.last("env_steps")).min())
    return f"running, {min(done, run.steps):,} of {run.steps:,} steps"


def _circumstances(run: RunFiles) -> list[str]:
    parts = [count(len(run.seeds), "seed")]
    if run.config.get("demos"):
        parts.append(f"{Path(str(run.config['demos'])).name} demonstrations")
    if run.manifest.get("clipped_actions"):
        parts.append(f"{run.manifest['clipped_actions']} demonstrated actions clipped")
    if run.manifest.get("device"):
        parts.append(str(run.manifest["device"]))
    return parts


def _exact_cards(run: ExactRun) -> tuple[Card, ...]:
    summary = run.summary
    name, value, note = _wall_time(run)
    return (
        ("True return", number(summary.returns.mean()), f"expert {number(summary.expert_return)}"),
        ("Reward correlation", number(summary.reward_correlation.mean(), 3), "1 is perfect up to scale and shift"),
        ("Log-likelihood ℓ", number(summary.ell.mean()), f"true reward {number(summary.ell_expert)}"),
        (name, value, f"{note}, {count(sum(summary.env_steps.values()), 'environment step')}"),
    )


def _control_cards(run: ControlRun) -> tuple[Card, ...]:
    summary = run.summary
    levels = {
        "expert": summary.expert_return,
        "random": summary.random_return,
        "demonstrations": summary.demo_return,
    }
    known = ", ".join(f"{name}\u00a0{number(level)}" for name, level in levels.items() if math.isfinite(level))
    each = f"seeds {', '.join(map(number, summary.returns))}" if len(run.seeds) > 1 else "one seed"
    purposes = ", ".join(f"{purpose}\u00a0{steps:,}" for purpose, steps in summary.env_steps.items())
    unknown = "expert's return not recorded" if run.finished else "known when the run has ended"
    return (
        ("True return", number(summary.returns.mean()), each),
        ("Share of the expert", percent(share_of_expert(summary)), known or unknown),
        ("Environment steps", f"{sum(summary.env_steps.values()):,}", purposes),
        _wall_time(run),
    )


def _wall_time(run: RunFiles) -> Card:
    rate = run.summary.updates_per_second
    note = f"{number(rate, 3)} updates per second" if math.isfinite(rate) else "so far"
    return "Wall time", duration(run.summary.wall_seconds), note


def _card(name: str, value: str, note: str) -> str:
    return f'<div><dt>{name}</dt><dd class="value">{value}</dd><dd class="note">{note}</dd></div>'


def _exact_sections(run: ExactRun) -> tuple[Section, ...]:
    root_scale = ", on a square-root scale" if run.summary.picture.shape else ""
    return (
        Section("rewards", "What the expert wants", _reward_caption(run), partial(figures.draw_rewards, run)),
        Section(
            "visits",
            "Where they go",
            f"How often each state is visited{root_scale}. A learner that has understood the expert "
            "spends its time in the same places, so the two should look alike.",
            partial(figures.draw_visits, run),
        ),
        Section(
            "likelihood",
            "How well the demonstrations are explained",
            "The log-likelihood ℓ of the demonstrations under the learned reward; higher is better, "
            "and the dotted line is the true reward's own. With a trust region it should never fall back.",
            partial(figures.draw_likelihood, run),
        ),
        _trust(run),
        _returns(run),
        Section(
            "certificate",
            "What is guaranteed",
            "How large a first reward step is proven to raise ℓ, and by how much at least, when the policy is "
            "optimal only up to δ. Left of the dashed line improvement is proven; right of it, nothing.",
            partial(figures.draw_certificate, run),
            absent="This run holds no certificate to draw.",
        ),
    )


def _control_sections(run: ControlRun) -> tuple[Section, ...]:
    return (_returns(run), *(() if run.trains_expert else (_gap(run), _trust(run))), _solver(run))


def _gap(run: ControlRun) -> Section:
    return Section(
        "gap",
        "How far apart expert and learner are",
        "How much more of the learned reward the demonstrations earn than the learner does. "
        "Near zero, the reward can no longer tell the two apart.",
        partial(figures.draw_gap, run),
        absent="This run recorded no gap.",
    )


def _solver(run: ControlRun) -> Section:
    return Section(
        "solver",
        "How the policy learns",
        "What the solver saw of itself at the end of each iteration. Values that run away, or an entropy "
        "that collapses early, can explain a return that falls.",
        partial(figures.draw_solver, run),
        absent="This run recorded nothing about its policy solver.",
    )


def _returns(run: RunFiles) -> Section:
    band = "between seeds" if len(run.seeds) > 1 else "between the episodes of one evaluation"
    known = math.isfinite(run.summary.expert_return)
    seen = "from which an expert learns" if run.trains_expert else "which the learner never sees"
    whose = "a published expert's return" if run.trains_expert else "the expert's own return"
    goal = f" It should rise to the dashed line, {whose}." if known else ""
    return Section(
        "returns",
        "What the learner achieves",
        f"The return under the true reward, {seen}.{goal} The band is one standard deviation {band}.",
        partial(figures.draw_returns, run),
        absent="This run has no evaluation yet.",
    )


def _trust(run: RunFiles) -> Section:
    return Section(
        "trust",
        "How carefully the reward moves",
        "The drift is how far one update moves the reward, and μ weighs the penalty that holds it back. "
        "Look for drift that settles instead of running away.",
        partial(figures.draw_trust, run),
        absent="This run recorded neither drift nor μ; an algorithm without a trust region on the reward has none.",
    )


def _reward_caption(run: ExactRun) -> str:
    summary, maps = run.summary, run.maps
    mean = f" (mean of {len(run.seeds)} seeds)" if len(run.seeds) > 1 else ""
    star = "; the star marks the target" if summary.picture.target is not None else ""
    drawn = [figures.correlation(maps.true_reward, seed) for seed in maps.recovered_reward]
    notes = ""
    if np.abs(drawn - summary.reward_correlation).max() > 0.01:
        notes += " Averages over actions are drawn, while the correlation at the top counts every action."
    if min(drawn) < 0:
        notes += " A negative correlation means that the fit had to turn the reward upside down."
    return (
        f"The reward behind the demonstrations beside the one recovered from them{mean}, drawn with the "
        "scale and shift that fit best because only its shape can be recovered. "
        f"The pictures should look alike{star}.{notes}"
    )


def _figure(section: Section) -> str:
    drawings = {layout.name: section.draw(layout) for layout in LAYOUTS}
    if None in drawings.values():
        return f"<section><h2>{section.heading}</h2><p>{section.absent}</p></section>"
    body = "".join(
        f'<div class="{layout}" role="img" aria-label="{section.heading}">{svg}</div>'
        for layout, svg in drawings.items()
    )
    caption = f"<figcaption><h2>{section.heading}</h2><p>{section.caption}</p></figcaption>"
    return f'<figure data-figure="{section.name}">{caption}{body}</figure>'


def _stability(run: ControlRun) -> str:
    columns = run.metrics.columns
    seeds = [
        stability(*curve, run.summary) for curve in zip(columns["env_steps"], columns["return_mean"], strict=True)
    ]
    head = ("Last return", "Best return", "Largest drawdown", "Evaluations below 90 %", "Steps to 90 % of the expert")
    rows = zip(run.seeds, map(_stability_cells, seeds), strict=True)
    caption = (
        "The drawdown is how far the return fell below the highest one before it; evaluations count as below 90 % "
        "when they lie more than a tenth under that highest return. The last policy is the result, not the best."
    )
    return _table("How steadily each seed learned", caption, head, rows)


def _stability_cells(seed: Stability) -> list[str]:
    steps = "never" if seed.steps_to_90 == math.inf else number(seed.steps_to_90)
    return [*map(number, (seed.last, seed.best, seed.drawdown)), percent(seed.below_90), steps]


def _last_evaluation(run: RunFiles) -> str:
    shown = {key: name for key, name in LAST_EVALUATION.items() if run.metrics.recorded(key)}
    values = np.stack([run.metrics.last(key) for key in shown], axis=1)
    rows = zip(run.seeds, (map(number, row) for row in values), strict=True)
    return _table("Last evaluation of each seed", "", shown.values(), rows)


def _table(heading: str, caption: str, head: Iterable[str], rows: Iterable[tuple[int, Iterable[str]]]) -> str:
    """One row of cells per seed."""
    names = "".join(f"<th>{name}</th>" for name in ("Seed", *head))
    body = "".join(
        f"<tr><td>{seed}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for seed, cells in rows
    )
    table = f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
    return f'<section><h2>{heading}</h2><p>{caption}</p><div class="scroll">{table}</div></section>'


def _details(run: RunFiles) -> str:
    command = run.manifest.get("command")
    parts = (
        ("Command", escape(command) if isinstance(command, str) else "not recorded"),
        ("Versions", escape(_versions(run.manifest)) or "not recorded"),
        ("Resolved configuration", _json(run.config)),
        ("Manifest", _json(run.manifest)),
    )
    body = "".join(f"<h3>{name}</h3><pre>{text}</pre>" for name, text in parts)
    return f"<section><details><summary>How to repeat this run</summary>{body}</details></section>"


def _versions(manifest: dict[str, Any]) -> str:
    found: dict[str, Any] = {}
    for part in map(manifest.get, ("versions", "task_versions")):
        found |= part if isinstance(part, dict) else {}
    return "\n".join(f"{name} {version}" for name, version in found.items())


def _json(values: dict[str, Any]) -> str:
    return escape(json.dumps(values, indent=2, ensure_ascii=False))
