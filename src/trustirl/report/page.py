"""Writes the report of a run as one HTML page that needs nothing but itself."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from trustirl.core.errors import InputError
from trustirl.core.files import write_bytes
from trustirl.report import figures
from trustirl.report.figures import LAYOUTS, Layout
from trustirl.report.runs import RunFiles, read_run

TABLE = {
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
    draw: Callable[[RunFiles, Layout], str | None]
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


def render(run: RunFiles) -> str:
    """The whole page; the same run always gives the same text."""
    title = f"{escape(run.algorithm.upper())} on {escape(run.task)}"
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
<p class="lead">{_lead(run)}</p>
</header>
{_cards(run)}
{"".join(_figure(run, section) for section in _sections(run))}
{_table(run)}
{_details(run)}
</main>
</body>
</html>
"""


def _lead(run: RunFiles) -> str:
    parts = [_count(int(run.metrics.iterations[-1]), "iteration"), _count(len(run.seeds), "seed")]
    if run.config.get("demos"):
        parts.append(f"{run.config['demos']} demonstrations")
    if run.manifest.get("device"):
        parts.append(str(run.manifest["device"]))
    return escape(" · ".join(parts))


def _cards(run: RunFiles) -> str:
    summary = run.summary
    cards = (
        ("True return", _number(summary.returns.mean()), f"expert {_number(summary.expert_return)}"),
        (
            "Reward correlation",
            _number(summary.reward_correlation.mean(), 3),
            "1 is perfect up to scale and shift",
        ),
        ("Log-likelihood ℓ", _number(summary.ell.mean()), f"true reward {_number(summary.ell_expert)}"),
        (
            "Wall time",
            f"{_number(summary.wall_seconds, 3)} s",
            f"{_number(summary.updates_per_second, 3)} updates per second, "
            f"{_count(summary.env_steps, 'environment step')}",
        ),
    )
    return '<dl class="cards">' + "".join(_card(*card) for card in cards) + "</dl>"


def _card(name: str, value: str, note: str) -> str:
    return f'<div><dt>{name}</dt><dd class="value">{value}</dd><dd class="note">{note}</dd></div>'


def _sections(run: RunFiles) -> tuple[Section, ...]:
    root_scale = ", on a square-root scale" if run.summary.picture.shape else ""
    return (
        Section("rewards", "What the expert wants", _reward_caption(run), figures.draw_rewards),
        Section(
            "visits",
            "Where they go",
            f"How often each state is visited{root_scale}. A learner that has understood the expert "
            "spends its time in the same places, so the two should look alike.",
            figures.draw_visits,
        ),
        Section(
            "likelihood",
            "How well the demonstrations are explained",
            "The log-likelihood ℓ of the demonstrations under the learned reward; higher is better, "
            "and the dotted line is the true reward's own. With a trust region it should never fall back.",
            figures.draw_likelihood,
        ),
        Section(
            "trust",
            "How carefully the reward moves",
            "The drift is how far one update moves the reward, and μ weighs the penalty that holds it back. "
            "Look for drift that settles instead of running away.",
            figures.draw_trust,
            absent="This run recorded neither drift nor μ: its algorithm has no trust region on the reward.",
        ),
        Section(
            "returns",
            "What the learner achieves",
            "The return under the true reward, which the learner never sees. It should rise to the dashed "
            "line, the expert's own return.",
            figures.draw_returns,
        ),
        Section(
            "certificate",
            "What is guaranteed",
            "How large a first reward step is proven to raise ℓ, and by how much at least, when the policy is "
            "optimal only up to δ. Left of the dashed line improvement is proven; right of it, nothing.",
            figures.draw_certificate,
            absent="This run holds no certificate to draw.",
        ),
    )


def _reward_caption(run: RunFiles) -> str:
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


def _figure(run: RunFiles, section: Section) -> str:
    drawings = {layout.name: section.draw(run, layout) for layout in LAYOUTS}
    if None in drawings.values():
        return f"<section><h2>{section.heading}</h2><p>{section.absent}</p></section>"
    body = "".join(
        f'<div class="{layout}" role="img" aria-label="{section.heading}">{svg}</div>'
        for layout, svg in drawings.items()
    )
    caption = f"<figcaption><h2>{section.heading}</h2><p>{section.caption}</p></figcaption>"
    return f'<figure data-figure="{section.name}">{caption}{body}</figure>'


def _table(run: RunFiles) -> str:
    last = {"iteration": [float(run.metrics.iterations[-1])] * len(run.seeds)}
    last |= {key: list(column[:, -1]) for key, column in run.metrics.columns.items()}
    head = "".join(f"<th>{name}</th>" for name in ("Seed", *TABLE.values()))
    rows = "".join(
        f"<tr><td>{seed}</td>" + "".join(f"<td>{_number(last[key][place])}</td>" for key in TABLE) + "</tr>"
        for place, seed in enumerate(run.seeds)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<section><h2>Last evaluation of each seed</h2><div class="scroll">{table}</div></section>'


def _details(run: RunFiles) -> str:
    command = run.manifest.get("command")
    parts = (
        ("Command", escape(command) if isinstance(command, str) else "not recorded"),
        ("Resolved configuration", _json(run.config)),
        ("Manifest", _json(run.manifest)),
    )
    body = "".join(f"<h3>{name}</h3><pre>{text}</pre>" for name, text in parts)
    return f"<section><details><summary>How to repeat this run</summary>{body}</details></section>"


def _json(values: dict[str, Any]) -> str:
    return escape(json.dumps(values, indent=2, ensure_ascii=False))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _number(value: float, digits: int = 4) -> str:
    if math.isnan(value):
        return "–"
    whole = float(value).is_integer() and abs(value) < 1e9
    return (f"{value:,.0f}" if whole else f"{value:.{digits}g}").replace("-", "−")
