"""The frame of our pages: one HTML file each, which needs nothing but itself.

Whatever is said in words is given as plain text and becomes HTML here; parts, drawings and styles are HTML already.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from trustirl.core.errors import InputError
from trustirl.core.files import write_bytes
from trustirl.report.drawing import LAYOUTS, Layout

Card = tuple[str, str, str]  # a name, its value, and a note below it

# The policy lets the page style itself and run the one script it was written with, by hash, and nothing more: a page
# can make no request, whatever the data say.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

STYLE = """
:root { color-scheme: light dark; --page: #f6f6f4; --surface: #ffffff; --ink: #1d1f24; --soft: #62666f;
  --line: #e4e4e0; --accent: #0072b2; --problem: #b3261e; --warning: #8a5a00; }
@media (prefers-color-scheme: dark) {
  :root { --page: #121417; --surface: #1a1d21; --ink: #e9eaec; --soft: #9a9fa8; --line: #2c3036;
    --accent: #56b4e9; --problem: #ff8a80; --warning: #f0b429; }
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
.findings { margin: 1rem 0 0; padding: 0; list-style: none; }
.findings li { padding: .85rem 0; border-top: 1px solid var(--line); overflow-wrap: anywhere; }
.findings .tag { display: inline-block; margin-right: .5rem; padding: 0 .5rem; border: 1px solid currentColor;
  border-radius: 99px; font-size: .78rem; font-weight: 600; line-height: 1.5; }
.findings .where { font-weight: 600; }
.findings p { margin: .25rem 0 0; }
.problem { color: var(--problem); } .warning { color: var(--warning); } .note { color: var(--soft); }
.facts td:first-child { color: var(--soft); vertical-align: top; }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.facts td:first-child { white-space: nowrap; }
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
.film { width: 100%; height: auto; border-radius: 8px; }
"""


@dataclass(frozen=True)
class Section:
    """One figure of the page, and the sentence that stands for it where there is nothing to draw."""

    name: str
    heading: str
    caption: str
    draw: Callable[[Layout], str | None]
    absent: str = ""


def write_drawn(draw: Callable[[], str | bytes], target: Path) -> Path:
    """Write a page or picture, making its folder if need be; where it cannot stand is known before it is drawn."""
    if target.is_dir():
        raise InputError(f"{target} is a folder; give the name of the file to write.")
    drawn = draw()
    target.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(target, drawn if isinstance(drawn, bytes) else drawn.encode("utf-8", errors="xmlcharrefreplace"))
    return target


def document(
    brand: str, title: str, lead: str, cards: Iterable[Card], parts: Iterable[str], style: str = "", script: str = ""
) -> str:
    """The whole page: texts at its head, and parts that are HTML already."""
    body = "\n".join(parts)
    policy, code = POLICY, ""
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy, code = f"{POLICY}; script-src 'sha256-{digest}'", f"<script>{script}</script>\n"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)} · TrustIRL</title>
<link rel="icon" href="data:,">
<style>{STYLE}{style}</style>
</head>
<body>
<main>
<header>
<p class="brand">{escape(brand)}</p>
<h1>{escape(title)}</h1>
<p class="lead">{escape(lead)}</p>
</header>
<dl class="cards">{"".join(_card(*card) for card in cards)}</dl>
{body}
</main>
{code}</body>
</html>
"""


def _card(name: str, value: str, note: str) -> str:
    name, value, note = map(escape, (name, value, note))
    return f'<div><dt>{name}</dt><dd class="value">{value}</dd><dd class="note">{note}</dd></div>'


def figure(section: Section) -> str:
    """A drawing in both layouts, under its caption."""
    name, heading, caption, absent = map(escape, (section.name, section.heading, section.caption, section.absent))
    drawings = {layout.name: section.draw(layout) for layout in LAYOUTS}
    if None in drawings.values():
        return f"<section><h2>{heading}</h2><p>{absent}</p></section>"
    body = "".join(
        f'<div class="{layout}" role="img" aria-label="{heading}">{svg}</div>' for layout, svg in drawings.items()
    )
    said = f"<figcaption><h2>{heading}</h2><p>{caption}</p></figcaption>"
    return f'<figure data-figure="{name}">{said}{body}</figure>'


def table(heading: str, caption: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A section that is a table."""
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells in rows)
    content = f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
    return f'<section><h2>{escape(heading)}</h2><p>{escape(caption)}</p><div class="scroll">{content}</div></section>'


def details(summary: str, parts: Iterable[tuple[str, str]]) -> str:
    """A section that opens on demand: headings, each with preformatted text."""
    body = "".join(f"<h3>{escape(name)}</h3><pre>{escape(text)}</pre>" for name, text in parts)
    return f"<section><details><summary>{escape(summary)}</summary>{body}</details></section>"


def shown_json(values: Mapping[str, Any]) -> str:
    """A mapping as indented JSON."""
    return json.dumps(dict(values), indent=2, ensure_ascii=False)
