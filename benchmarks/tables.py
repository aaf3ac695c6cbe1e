"""Write the tables of measured results in README.md and docs/*.md from results/*/results.json; none is typed.

A table stands between `<!-- table:KIND STUDY... -->` and `<!-- /table -->`; KIND is `learning`, `compared`,
`steadiness`, `without`, `without_layer_norm`, `changes`, `updates` or `loop`, and a STUDY a folder of results/;
`experts packaged` is made of the cards of the packaged demonstrations. With --check nothing is written, and a table
that its results would change is an error.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterable
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from trustirl.evaluation.stats import iqm

MARKED = re.compile(r"(<!-- table:(\w+) ([\w -]+) -->\n).*?(<!-- /table -->)", re.DOTALL)
OPENING = "<!-- table:"
NONE = "–"
MOST_DEALS = 10**6
PEER = "Stable-Baselines3 SAC"
# Headings, and what the rows are called. Names are of their time: "mu to 10" came before past steps, and rows of past
# steps alone had mu at most 0.075.
PARTS_LESS = {
    "default": "piro",
    "mu at most 0.075 (`--mu-max 0.075`)": "mu at most 0.075",
    "the same, no past steps": "no past steps",
    "no past steps (`--past-share 0`)": "mu to 10",
    "nor backtracking (`--trust adaptive`)": "mu to 10, no backtracking",
    "nor narrowing (`--narrowing 0`): Equation 11 alone": "Equation 11 alone",
}
NO_LAYER_NORM = {
    "default": "piro",
    "no LayerNorm (`--no-layer-norm`)": "past steps, mu to 10, no LayerNorm",
    "the same, mu at most 0.075 (`--mu-max 0.075`)": "past steps, no LayerNorm",
}
OTHERS = ("recorded", "strong")  # demonstrations that are not the package's
Row = dict[str, Any]


def learning(rows: list[Row]) -> str:
    """True returns of the last policy."""
    return _row_by_row(rows, _learned)


def _learned(row: Row) -> dict[str, Any]:
    returns = row["returns"]
    mean = _mean(returns)
    expert, random = row["expert_return"], row["random_return"]
    return {
        "task": row["task"],
        "method": _method(row),
        "demos": row["demo_episodes"],
        "steps": f"{row.get('trained_steps', row['steps']):,}",  # a run may have been cut
        "seeds": len(returns),
        "mean return": f"{mean:,.0f}",
        "worst to best": f"{min(returns):,.0f} to {max(returns):,.0f}",
        "expert": NONE if expert is None else f"{expert:,.0f}",
        "score": NONE if expert is None else f"{(mean - random) / (expert - random):.2f}",
        "minutes": f"{row['wall_seconds'] / 60:.1f}",
    }


def compared(rows: list[Row]) -> str:
    """How far, how steadily and how soon: every seed's last policy."""
    return _row_by_row(rows, _compared)


def _compared(row: Row) -> dict[str, Any]:
    middle, shown = float(iqm(np.asarray(row["returns"]))), row["expert_return"]
    falls = [fall for fall in row["drawdown"] if fall is not None]  # a method of one evaluation has none
    reached = [step for step in row["steps_to_90"] if step is not None]
    never = len(row["steps_to_90"]) - len(reached)
    soon = [f"{_mean(reached):,.0f}"] if reached else []
    return {
        "task": row["task"],
        "method": _method(row),
        "steps": f"{row['steps']:,}",
        "each seed": _each(row["returns"]),
        "inter-quartile mean": f"{middle:,.0f}",
        "demonstration": NONE if shown is None else f"{shown:,.0f}",
        "share of it": NONE if shown is None else f"{middle / shown:.2f}",
        "mean largest drawdown": f"{_mean(falls):,.0f}" if falls else NONE,
        "steps to 90 %, mean": ", ".join(soon + [f"{never} never"] * (never > 0)),
        "minutes": f"{row['wall_seconds'] / 60:.1f}",
    }


def _row_by_row(rows: list[Row], told: Callable[[Row], dict[str, Any]]) -> str:
    """What is told of every row, by column, and where the rows come from."""
    lines = [told(row) for row in rows]
    return _table(lines[0], (line.values() for line in lines)) + _devices(rows)


def steadiness(rows: list[Row]) -> str:
    """Each seed's largest drawdown, PIRO's beside ML-IRL's, and how likely chance alone makes means so different.

    Rows of the same task and method are one: further seeds may be a study of their own.
    """
    falls: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if "variant" not in row:
            falls.setdefault((row["task"], row["algorithm"]), []).extend(row["drawdown"])
    lines = []
    for task in sorted({row["task"] for row in rows}):
        ours, theirs = falls[task, "piro"], falls[task, "ml-irl"]
        ratio = _mean(ours) / _mean(theirs)
        lines.append((task, _each(ours), _each(theirs), f"{ratio:.2f}", _p(ours, theirs)))
    return _table(("task", "piro, each seed", "ml-irl, each seed", "ratio of the means", "p"), lines)


def without(rows: list[Row]) -> str:
    """PIRO with a ceiling for mu, and with ever less of what we added to its reward step."""
    return _beside_default(rows, PARTS_LESS)


def without_layer_norm(rows: list[Row]) -> str:
    """PIRO with critics that do not normalise their layers."""
    return _beside_default(rows, NO_LAYER_NORM)


def _beside_default(rows: list[Row], columns: dict[str, str]) -> str:
    """Rows of the default beside those with less: drawdown, share, what chance would do, lost seeds.

    Of rows with the same name the first counts: name the study of the default before that of the variants. Tasks on
    which ML-IRL did not run are left out. Rows from demonstrations of others are called like the rest with those
    added, the default's by them alone.
    """
    known: dict[tuple[str, str], Row] = {}
    for row in rows:
        known.setdefault((row["task"], change(row)), row)
    default_name, *variants = columns.values()
    lines = []
    for demos in ("", *OTHERS):
        names = [demos or default_name, *(_joined(name, demos) for name in variants)]
        varied = {task for task, name in known if name in names[1:] and (task, "ml-irl") in known}
        for task in sorted(varied):
            half = NONE if demos else f"{_mean(known[task, 'ml-irl']['drawdown']) / 2:,.0f}"
            cells = [_held(known.get((task, name)), known[task, names[0]]) for name in names]
            lines.append((_joined(task, demos), *cells, half))
    return _table(("", *columns, "half of ML-IRL's"), lines)


def _held(row: Row | None, default: Row) -> str:
    if row is None:
        return NONE
    told = [f"{_mean(row['drawdown']):,.0f} ({float(iqm(np.asarray(row['returns']))) / row['expert_return']:.2f})"]
    if row is not default:
        told.append(f"p {_p(row['drawdown'], default['drawdown'])}")
    lost = sum(value < row["expert_return"] / 2 for value in row["returns"])
    return ", ".join(told + [f"{lost} lost"] * (lost > 0))


def _p(one: list[float], other: list[float]) -> str:
    p = chance(one, other)
    return "below 0.01" if p < 0.01 else f"{p:.2f}"


def chance(one: list[float], other: list[float]) -> float:
    """How likely seeds dealt to two groups at random make their means so different: a permutation test.

    It is exact where all deals can be listed, and counts 200,000 of them elsewhere.
    """
    seeds = np.array(one + other)
    if comb(len(seeds), len(one)) <= MOST_DEALS:
        dealt = seeds[np.array(list(combinations(range(len(seeds)), len(one))))].mean(axis=1)
    else:
        shuffled = np.random.default_rng(0).permuted(np.tile(seeds, (200_000, 1)), axis=1)
        dealt = shuffled[:, : len(one)].mean(axis=1)
    apart = np.abs(dealt - seeds.mean())  # the other group's mean lies as far on the other side, times a constant
    return float((apart > abs(_mean(one) - seeds.mean()) * (1 - 1e-9)).mean())


def changes(rows: list[Row]) -> str:
    """What one change does: every seed's last policy and the mean largest drawdown, a column for each task."""
    tasks = {row["task"]: row["expert_return"] for row in rows}
    cells = {(change(row), row["task"]): f"{_each(row['returns'])} ({_mean(row['drawdown']):,.0f})" for row in rows}
    lines = [
        [name, *(cells.get((name, task), NONE) for task in tasks)] for name in in_order(name for name, _ in cells)
    ]
    return _table(("", *(f"{task} ({shown:,.0f})" for task, shown in tasks.items())), lines) + _devices(rows)


def change(row: Row) -> str:
    """What a row has that the default has not."""
    return str(row.get("variant") or row["algorithm"])


def in_order(changes: Iterable[str]) -> list[str]:
    """Each once, the default first, and 4 before 16."""

    def place(name: str) -> tuple[bool, str, float]:
        words, number = re.fullmatch(r"(.*?)([\d.]*)", name).groups()  # type: ignore[union-attr]
        return name != "default", words, float(number or 0)

    return sorted(set(changes), key=place)


def _each(values: list[float]) -> str:
    return " ".join(f"{value:,.0f}" for value in values)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _method(row: Row) -> str:
    return _joined(row["algorithm"], row.get("variant"))


def _joined(*names: str | None) -> str:
    """Those that there are."""
    return ", ".join(filter(None, names))


def updates(rows: list[Row]) -> str:
    """Gradient updates per second, all seeds together, a column for each number of seeds."""
    rows = [row for row in rows if "envs" not in row]
    counts = sorted({row["seeds"] for row in rows})
    speed = {(row["device"], row["sizes"], row["what"], row["seeds"]): row["updates_per_second"] for row in rows}
    peak = {(row["device"], row["sizes"], row["what"]): row["peak_memory_mib"] for row in _by_seeds(rows)}
    lines = []
    for device, sizes, what in peak:
        peer = speed.get((device, sizes, PEER, 1))
        ours = speed.get((device, sizes, what, 1))
        cells = [_rounded(speed.get((device, sizes, what, count))) for count in counts]
        factor = f"{ours / peer:.1f}" if peer and ours else NONE
        lines.append((device, sizes, what, *cells, factor, f"{peak[device, sizes, what]:,}"))
    seeds = [f"{count} seed{'s' * (count > 1)}" for count in counts]
    return _table(("device", "sizes", "", *seeds, f"1 seed / {PEER}", "peak MiB, most seeds"), lines)


def loop(rows: list[Row]) -> str:
    """Environment steps (and as many updates) per second of whole training."""
    lines = [
        (
            row["device"],
            row["sizes"],
            row["seeds"],
            row["envs"],
            _rounded(row["env_steps_per_second"]),
            row["seconds_per_iteration"],
            f"{row['steps_per_iteration']:,}",
        )
        for row in rows
        if "envs" in row
    ]
    header = (
        "device",
        "task",
        "seeds",
        "envs per seed",
        "steps and updates/s, total",
        "s per iteration",
        "its steps",
    )
    return _table(header, lines)


def experts(cards: list[Row]) -> str:
    """Who made the packaged demonstrations."""
    lines = [
        (
            card["task"],
            f"{card['evaluation']['mean']:,.0f} ± {card['evaluation']['std']:,.0f}",
            " ".join(f"{value:,.0f}" for value in card["seed_returns"]),
            f"{card['steps_per_seed']:,}",
        )
        for card in cards
    ]
    return _table(("task", "return, 20 episodes", "each seed", "steps per seed"), lines)


def _by_seeds(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["device"], row["sizes"], row["what"] == PEER, row["seeds"]))


def _rounded(number: float | None) -> str:
    if number is None:
        return NONE
    return f"{number:,.0f}" if number >= 20 else f"{number:.1f}"


def _devices(rows: list[Row]) -> str:
    """Where the rows come from, as a line below the table."""
    return f"\nMeasured on: {'; '.join(sorted({row['device'] for row in rows}))}.\n"


def _table(header: Iterable[str], lines: Iterable[Iterable[Any]]) -> str:
    header = list(header)
    cells = [header, ["---"] * len(header), *lines]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in cells)


KINDS: dict[str, Callable[[list[Row]], str]] = {
    "learning": learning,
    "compared": compared,
    "steadiness": steadiness,
    "without": without,
    "without_layer_norm": without_layer_norm,
    "changes": changes,
    "updates": updates,
    "loop": loop,
    "experts": experts,
}


def rows_of(study: str, root: Path) -> list[Row]:
    """The rows of a study, or the cards of the packaged demonstrations."""
    if study == "packaged":
        return [json.loads(card.read_text()) for card in sorted(root.glob("src/trustirl/demos/packaged/*.json"))]
    rows: list[Row] = json.loads((root / "results" / study / "results.json").read_text())
    return rows


def regenerate(text: str, root: Path) -> str:
    """The text with every table as its results say."""

    def fill(found: re.Match[str]) -> str:
        opening, kind, studies, closing = found.groups()
        if kind not in KINDS:
            raise SystemExit(f"table:{kind} {studies}: choose from {', '.join(KINDS)}.")
        return opening + KINDS[kind]([row for study in studies.split() for row in rows_of(study, root)]) + closing

    new, count = MARKED.subn(fill, text)
    if count != text.count(OPENING):
        raise SystemExit(f"{text.count(OPENING)} tables are opened and {count} closed by <!-- /table -->.")
    return new


def main() -> None:
    """Write, or with --check only compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a table is stale")
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent, help="of the repository")
    arguments = parser.parse_args()
    stale = []
    for path in (arguments.root / "README.md", *sorted((arguments.root / "docs").glob("*.md"))):
        old = path.read_text()
        new = regenerate(old, arguments.root)
        if new == old:
            continue
        stale.append(str(path.relative_to(arguments.root)))
        if not arguments.check:
            path.write_text(new)
    if stale:
        print("stale:" if arguments.check else "written:", *stale)
    if stale and arguments.check:
        raise SystemExit("run `make tables`.")


if __name__ == "__main__":
    main()
