"""Write the tables of measured results in README.md, docs/*.md and results/*/README.md; none is typed.

A table stands between `<!-- table:KIND STUDY... -->` and `<!-- /table -->`; KIND is a name in KINDS, and a STUDY
a folder of results/, of which results.json is read; `experts packaged` is made of the cards of the packaged
demonstrations, `methods entries` of what the package knows of its algorithms. With --check nothing is written, and a
table that its results would change is an error.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from trustirl.algorithms import ALGORITHMS, MODULES
from trustirl.evaluation.stats import iqm

MARKED = re.compile(r"(<!-- table:(\w+) ([\w -]+) -->\n).*?(<!-- /table -->)", re.DOTALL)
OPENING = "<!-- table:"
NONE = "–"
LOST = 0.9  # of the demonstration: whoever ends below it has not learned the task
MOST_DEALS = 10**6
PEER = "Stable-Baselines3 SAC"
FEWER = "500,000 steps"  # of HalfCheetah-v4, whose default is twice that
MEASURED_LONG = ("piro", "ml-irl", "bc")  # on five tasks, by `shares`
Row = dict[str, Any]
SHOWN: dict[str, Row] = {  # the columns of `shares`, and which rows they tell
    "PIRO": {"algorithm": "piro", "held_out": False},
    "PIRO, other seeds": {"algorithm": "piro", "held_out": True},
    "ML-IRL": {"algorithm": "ml-irl", "held_out": False},
    "ML-IRL, other seeds": {"algorithm": "ml-irl", "held_out": True},
    "BC": {"algorithm": "bc", "held_out": False},
    "a reward of zero": {"study": "zero-reward"},
}


def learning(rows: list[Row]) -> str:
    """True returns of PIRO's last policy, and what they took."""
    return _row_by_row([row for row in rows if row["algorithm"] == "piro"], _learned)


def scores(rows: list[Row]) -> str:
    """Each method from one demonstration with its default settings: every seed, and the mean as a score."""
    ours = [row for row in rows if row["demo_episodes"] == 1 and "variant" not in row]
    tasks = sorted({row["task"] for row in ours})
    cells: dict[str, dict[str, str]] = {name: dict.fromkeys(tasks, NONE) for name in MODULES}
    for row in ours:
        score = (mean(row["returns"]) - row["random_return"]) / (row["expert_return"] - row["random_return"])
        cells[row["algorithm"]][row["task"]] = f"{_each(row['returns'])} ({score:.2f}; {row['steps']:,} steps)"
    known = {name: told for name, told in cells.items() if set(told.values()) != {NONE}}
    return _table(("method", *tasks), ((f"`{name}`", *told.values()) for name, told in known.items()))


def robots(rows: list[Row]) -> str:
    """What each method reaches on MuJoCo's tasks from one demonstration: the share, and each seed's return."""
    ours = [row for row in rows if row.get("variant") in (None, FEWER) and not row.get("held_out")]
    tasks = sorted({row["task"] for row in ours if row["algorithm"] not in MEASURED_LONG})
    cells: dict[str, dict[str, str]] = {name: dict.fromkeys(tasks, NONE) for name in MODULES}
    budgets: dict[str, int] = {}
    for row in sorted(ours, key=lambda row: row.get("variant") is None, reverse=True):  # what has fewer steps is last
        if (task := row["task"]) in tasks and row["seeds"][0] == 0:
            cells[row["algorithm"]][task] = f"{share(row):.2f} ({_each(row['returns'])})"
            if row["algorithm"] not in MEASURED_LONG:
                budgets[task] = row["steps"]
    known = {name: told for name, told in cells.items() if set(told.values()) != {NONE}}
    header = [f"{task}, {budgets[task]:,} steps" for task in tasks]
    return _table(("method", *header), ((f"`{name}`", *told.values()) for name, told in known.items()))


def _learned(row: Row) -> dict[str, Any]:
    returns, typical = row["returns"], mean(row["returns"])
    expert, random = row["expert_return"], row["random_return"]
    return {
        "task": row["task"],
        "method": _method(row),
        "demos": row["demo_episodes"],
        "steps": f"{row['steps']:,}",
        "seeds": len(returns),
        "mean return": f"{typical:,.0f}",
        "worst to best": f"{min(returns):,.0f} to {max(returns):,.0f}",
        "expert": NONE if expert is None else f"{expert:,.0f}",
        "score": NONE if expert is None else f"{(typical - random) / (expert - random):.2f}",
        "minutes": f"{row['wall_seconds'] / 60:.1f}",
    }


def compared(rows: list[Row]) -> str:
    """How far, how steadily and how soon: every seed's last policy."""
    return _row_by_row(rows, _compared)


def _compared(row: Row) -> dict[str, Any]:
    typical, shown = middle(row["returns"]), row["expert_return"]
    fallen = [fall for fall in row["drawdown"] if fall is not None]  # a method of one evaluation has none
    reached = [step for step in row["steps_to_90"] if step is not None]
    never = len(row["steps_to_90"]) - len(reached)
    soon = [f"{mean(reached):,.0f}"] if reached else []
    return {
        "task": row["task"],
        "method": _method(row),
        "steps": f"{row['steps']:,}",
        "seeds": seeds_of(row),
        "each seed": _each(row["returns"]),
        "inter-quartile mean": f"{typical:,.0f}",
        "demonstration": NONE if shown is None else f"{shown:,.0f}",
        "share of it": NONE if shown is None else f"{typical / shown:.2f}",
        "mean largest drawdown": f"{mean(fallen):,.0f}" if fallen else NONE,
        "steps to 90 %, mean": ", ".join(soon + [f"{never} never"] * (never > 0)),
        "minutes": f"{row['wall_seconds'] / 60:.1f}",
    }


def _row_by_row(rows: list[Row], told: Callable[[Row], dict[str, Any]]) -> str:
    """What is told of every row, by column, and where the rows come from."""
    lines = [told(row) for row in rows]
    return _table(lines[0], (line.values() for line in lines)) + _devices(rows)


def steadiness(rows: list[Row]) -> str:
    """Each seed's largest drawdown, PIRO's beside ML-IRL's, and how likely chance alone makes means so different."""
    lines = []
    for task in sorted({row["task"] for row in rows}):
        ours, theirs = (falls(rows, task, method) for method in ("piro", "ml-irl"))
        ratio = mean(ours) / mean(theirs)
        lines.append((task, _each(ours), _each(theirs), f"{ratio:.2f}", _p(ours, theirs)))
    return _table(("task", "piro, each seed", "ml-irl, each seed", "ratio of the means", "p"), lines)


def beside(rows: list[Row]) -> str:
    """PIRO's largest drawdown and steps to 90 % beside each other method's, and which differences are not chance.

    Seeds that never get to 90 % count as if they did with their last step. Holm's correction is over all comparisons.
    """
    ours, others = ([row for row in rows if (row["algorithm"] == "piro") == piro] for piro in (True, False))
    measured = [row for row in others if None not in row["drawdown"] and row["env_steps"]["train"]]
    pairs = sorted({(row["task"], row.get("variant"), row["algorithm"]) for row in measured}, key=str)
    found = []
    for task, variant, method in (pair for pair in pairs if pair[1] in (None, FEWER)):
        alike = [[r for r in some if (r["task"], r.get("variant")) == (task, variant)] for some in (ours, others)]
        alike[1] = [row for row in alike[1] if row["algorithm"] == method]
        values = [
            [[read(row, seed) for row in side for seed in range(len(row["returns"]))] for side in alike]
            for read in (_fall, _arrival)
        ]
        found.append((_joined(task, variant), method, values))
    chances = iter(holm([chance(*sides) for *_, values in found for sides in values]))
    lines = []
    for task, method, values in found:
        counts = " and ".join(str(len(side)) for side in values[0])
        cells = [f"{mean(one):,.0f} / {mean(other):,.0f} ({_rare(next(chances))})" for one, other in values]
        lines.append((task, method, counts, *cells))
    header = ("task", "method", "seeds", "largest fall, PIRO / method (p)", "steps to 90 %, PIRO / method (p)")
    return _table(header, lines)


def _fall(row: Row, seed: int) -> float:
    return float(row["drawdown"][seed])


def _arrival(row: Row, seed: int) -> float:
    return float(row["steps_to_90"][seed] or row["steps"])


def falls(rows: list[Row], task: str, method: str) -> list[float]:
    """The largest drawdown of every seed with the default, in whichever row it stands."""
    default = [row for row in rows if (row["task"], row["algorithm"]) == (task, method) and "variant" not in row]
    return [fall for row in default for fall in row["drawdown"]]


def shares(rows: list[Row]) -> str:
    """How much of its demonstration's return each method reaches on each task, beside the controls."""
    columns: dict[str, list[str]] = {
        name: [] for name in ("task", "steps", "demonstration", *SHOWN, "random actions")
    }
    for task in sorted({row["task"] for row in rows if row["study"] == "paper-mujoco"}):
        default = [row for row in rows if row["task"] == task and "variant" not in row]
        columns["task"].append(task)
        columns["steps"].append(f"{max(row['steps'] for row in default):,}")
        columns["demonstration"].append(f"{default[0]['expert_return']:,.0f}")
        for name, wanted in SHOWN.items():
            found = [row for row in default if all(row.get(key) == value for key, value in wanted.items())]
            columns[name].append(f"{share(found[0]):.2f}" if found else NONE)
        columns["random actions"].append(f"{default[0]['random_return'] / default[0]['expert_return']:.2f}")
    return _table(columns, zip(*columns.values(), strict=True))


def front(rows: list[Row]) -> str:
    """PIRO beside ML-IRL, the best of the others, BC and a reward of zero: shares of the demonstration's return."""
    lines = []
    paper = [row for row in rows if row["study"] == "paper-mujoco"]
    for task in sorted({row["task"] for row in paper}):
        there = [row for row in paper if row["task"] == task and "variant" not in row]
        fewer = [row for row in paper if row["task"] == task and row.get("variant") == FEWER]
        first = {row["algorithm"]: row for row in reversed(there + fewer) if not row.get("held_out")}
        others = {name: share(row) for name, row in first.items() if name not in ("piro", "ml-irl", "bc")}
        best = max(others, key=others.__getitem__, default=NONE)
        zero = [row for row in rows if row["study"] == "zero-reward" and row["task"] == task]
        seeds = [value for row in there if row["algorithm"] == "piro" for value in row["returns"]]
        lost = sum(value < LOST * there[0]["expert_return"] for value in seeds)
        cells = [f"{share(first[name]):.2f}" if name in first else NONE for name in ("piro", "ml-irl", "bc")]
        cells.insert(2, f"{others[best]:.2f} ({best})" if others else NONE)
        cells += [f"{share(zero[0]):.2f}" if zero else NONE, f"{lost} of {len(seeds)}"]
        lines.append((task, f"{there[0]['expert_return']:,.0f}", *cells))
    header = ("task", "demonstration", "PIRO", "ML-IRL", "best other", "BC", "a reward of zero", "PIRO's seeds lost")
    return _table(header, lines)


def share(row: Row) -> float:
    """The inter-quartile mean of the last policies as a share of the demonstration's return."""
    return middle(row["returns"]) / float(row["expert_return"])


def controls(rows: list[Row]) -> str:
    """What a reward of zero gets, beside PIRO in the same setting, BC and the demonstration."""
    lines = []
    for row in (row for row in rows if row["study"] == "zero-reward"):
        beside = [_alike(rows, row, method) for method in ("piro", "bc")]
        cells = [NONE if other is None else f"{middle(other['returns']):,.0f}" for other in beside]
        lines.append((_joined(row["task"], row.get("variant")), _each(row["returns"]), *cells, _shown(row)))
    return _table(("task", "a reward of zero, each seed", "PIRO", "BC", "demonstration"), lines)


def _alike(rows: list[Row], zero: Row, method: str) -> Row | None:
    """The first row of a method in the setting of a reward of zero; BC has no other settings."""
    for row in rows:
        same = row["study"] != "zero-reward" and (row["task"], row["algorithm"]) == (zero["task"], method)
        if same and row["demos"] == zero["demos"] and (method == "bc" or _setting(row) == _setting(zero)):
            return row
    return None


def _setting(row: Row) -> dict[str, Any]:
    """What a reward of zero and a learned one have in common, as far as all rows tell it."""
    asked = (
        row["settings"]["solver"]
        | row["settings"]["plan"]
        | {"termination": row["settings"]["control"]["termination"]}
    )
    return {name: value for name, value in asked.items() if name != "past_share"} | {"steps": row["steps"]}


def constants(rows: list[Row]) -> str:
    """CartPole with the theoretical constant and with the adaptive one: what the paper prints, and every seed."""
    lines = []
    for row in rows:
        told = [f"{mean(row[name]):,.1f}" if name in row else NONE for name in ("discounted_return", "kl", "last_kl")]
        moved = f"{row['largest_drift']:.2g}" if row.get("largest_drift") is not None else NONE
        lines.append((_method(row), _each(row["returns"]), f"{mean(row['returns']):.1f}", *told, moved))
    header = (
        "",
        "return, each seed",
        "mean return",
        "discounted return",
        "KL",
        "last KL",
        "largest drift of an update",
    )
    return _table(header, lines) + _devices(rows)


def recovered(rows: list[Row]) -> str:
    """How well rewards of the exact world agree with the true one, from exact occupancies and from episodes."""
    lines = []
    for row in rows:
        shown = "exact occupancy" if row["demo_episodes"] is None else f"{row['demo_episodes']} episodes"
        asked, found = row["settings"], row["reward_correlation"]
        step = asked["algorithm_config"].get("reward_step", NONE)
        reward = {"mlp": "network"}.get(asked["exact"]["reward"], asked["exact"]["reward"])
        agreement = f"{mean(found):.3f}", f"{min(found):.3f} to {max(found):.3f}"
        likelihood = f"{mean(row['ell']):.2f} ({row['ell_expert']:.2f})"
        returned = f"{mean(row['returns']):.2f} ({row['expert_return']:.2f})"
        lines.append((row["algorithm"], shown, reward, step, *agreement, likelihood, returned))
    header = ("method", "demonstrations", "reward", "reward step", "correlation, mean", "lowest to highest seed")
    return _table((*header, "objective ℓ (true reward's)", "return (expert's)"), lines)


def distances(rows: list[Row]) -> str:
    """How far rewards of the exact world are from the true one: means of the seeds that were measured."""
    lines = []
    order = {"table": 0, "linear": 1, "mlp": 2}
    told = [row for row in rows if "from_truth" in row]
    for row in sorted(told, key=lambda row: (row["demo_episodes"] or 0, order[row["settings"]["exact"]["reward"]])):
        found, asked = row["from_truth"], row["settings"]
        shown = "exact occupancy" if row["demo_episodes"] is None else f"{row['demo_episodes']} episodes"
        reward = {"mlp": "network"}.get(asked["exact"]["reward"], asked["exact"]["reward"])
        step = asked["algorithm_config"].get("reward_step", 0.1)
        name = row["algorithm"] + (f", reward step {step}" if step != 0.1 else "")
        far = [f"{mean(found[key]):.3f}" for key in ("pearson", "epic", "dard", "starc")]
        seeds = str(len(found["epic"]))
        lines.append((shown, reward, name, seeds, *far, f"{100 * mean(found['regret']):.1f} %"))
    header = ("demonstrations", "reward", "method", "seeds", "Pearson", "EPIC", "DARD", "STARC", "regret")
    return _table(header, lines)


def _p(one: list[float], other: list[float]) -> str:
    return _rare(chance(one, other))


def _rare(p: float) -> str:
    return "below 0.01" if p < 0.01 else f"{p:.2f}"


def holm(chances: Sequence[float]) -> list[float]:
    """As rare as each is among so many comparisons (Holm 1979): below 0.05 errs in all at most 1 time in 20."""
    order = np.argsort(chances)
    factors = len(chances) - np.arange(len(chances))
    corrected = np.maximum.accumulate(np.minimum(np.asarray(chances)[order] * factors, 1.0))
    return [float(value) for value in corrected[np.argsort(order)]]


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
    return float((apart > abs(mean(one) - seeds.mean()) * (1 - 1e-9)).mean())


def changes(rows: list[Row]) -> str:
    """What one change does: every seed's last policy and the mean largest drawdown, a column for each task."""
    tasks = {row["task"]: row["expert_return"] for row in rows}
    cells = {(change(row), row["task"]): f"{_each(row['returns'])} ({mean(row['drawdown']):,.0f})" for row in rows}
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


def middle(values: Sequence[float]) -> float:
    """The inter-quartile mean."""
    return float(iqm(np.asarray(values)))


def seeds_of(row: Row) -> str:
    """First and last of a row's seeds, which follow each other."""
    return f"{min(row['seeds'])} to {max(row['seeds'])}"


def _shown(row: Row) -> str:
    return NONE if row["expert_return"] is None else f"{row['expert_return']:,.0f}"


def _each(values: list[float]) -> str:
    return " ".join(f"{value:,.0f}" for value in values)


def mean(values: Sequence[float]) -> float:
    """Of the values."""
    return sum(values) / len(values)


def _method(row: Row) -> str:
    return _joined(row["algorithm"], row.get("variant"))


def _joined(*names: str | None) -> str:
    """Those that there are."""
    return ", ".join(filter(None, names))


def updates(rows: list[Row]) -> str:
    """Gradient updates per second, all seeds together, a column for each number of seeds."""
    rows = [row for row in rows if "device_share" not in row]
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
    """Environment steps (and as many updates) per second of whole training, beside its limits."""
    lines = [
        (
            row["device"],
            row["sizes"],
            row["seeds"],
            _rounded(row["updates_per_second"]),
            _rounded(row["updates_alone_per_second"]),
            _rounded(row["stepping_alone_per_second"]),
            f"{row['slower_over_loop']:.2f}",
            f"{row['device_share']:.0%}",
            f"{row['stepping_share']:.0%}",
            _rounded(row["arithmetic_limit_per_second"]),
            f"{row['seconds_to_first_update']:.0f} s",
        )
        for row in rows
        if "device_share" in row
    ]
    header = (
        "device",
        "task",
        "seeds",
        "steps and updates/s",
        "updates alone",
        "stepping alone",
        "the slower / the loop",
        "device at work",
        "simulator at work",
        "arithmetic alone",
        "first update after",
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


def methods(entries: list[Row]) -> str:
    """What each algorithm can be trained on."""
    header = ("algorithm", "worlds", "actions", "rewards of", "what else it needs", "`--preset paper`", "paper")
    lines = [
        (
            f"[`{entry['name']}`](#{entry['name']})",
            ", ".join(entry["worlds"]),
            ", ".join(entry["actions"]),
            entry["reward_inputs"],
            "; ".join(entry["needs"]) or NONE,
            "yes" if entry["paper"] else NONE,
            entry["reference"],
        )
        for entry in entries
    ]
    return _table(header, lines)


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


def animals(rows: list[Row]) -> str:
    """Who predicts what animals do: controls first, with and without what was done before in the state."""
    head = ["in the state", "method", "reward", "in-sample: visits, %", "moves, %", "NLL"]
    head += ["official: visits, %", "NLL", "5 folds: visits, %", "moves, %", "NLL"]
    head += ["25 folds: visits, %", "moves, %", "NLL"]
    every = ("visits", "flows", "nll")
    wanted = [("in-sample", 1, every), ("official", 1, ("visits", "nll")), ("folds", 5, every), ("folds", 25, every)]
    lines = []
    for key, parts in _by_method(rows).items():
        cells = [_average(parts.get(split, {}), name, of) for split, of, names in wanted for name in names]
        if set(cells) != {NONE}:
            lines.append(("place, neighbours" + ", last action" * key[0], key[1], key[2], *cells))
    return _table(head, lines)


def carried(rows: list[Row]) -> str:
    """What is learned, elsewhere: policies as they are, rewards solved for in the world there."""
    head = ["method", "reward", "what is carried", "other camera: visits, %", "moves, %", "NLL"]
    head += ["places closed: visits, %", "moves, %", "NLL"]
    lines = []
    for (previous, name, reward), parts in _by_method(rows).items():
        for what, suffixes in (("the policy", ("", "")), ("the reward", (", solved there", ", solved again"))):
            splits = [split + end for split, end in zip(("other camera", "places closed"), suffixes, strict=True)]
            if not previous and any(split in parts for split in splits):
                found = (parts.get(split, {}) for split in splits)
                cells = [_average(row, measure) for row in found for measure in ("visits", "flows", "nll")]
                lines.append((name, reward, what, *cells))
    return _table(head, lines)


def _by_method(rows: list[Row]) -> dict[tuple[bool, str, str], dict[str, Row]]:
    """The splits of each method, controls first."""
    found: dict[tuple[bool, str, str], dict[str, Row]] = {}
    for row in sorted(rows, key=lambda row: (row["previous"], row["reward"] != "none")):
        found.setdefault((row["previous"], row["algorithm"], row["reward"]), {})[row["split"]] = row
    return found


def _average(row: Row, measure: str, of: int = 0) -> str:
    """The mean of the first so many parts, or of all."""
    values = row.get(measure, [None])
    if len(values) < of or None in values:
        return NONE
    return f"{mean(values[: of or None]):.{2 if measure == 'nll' else 1}f}"


KINDS: dict[str, Callable[[list[Row]], str]] = {
    "learning": learning,
    "beside": beside,
    "robots": robots,
    "scores": scores,
    "compared": compared,
    "steadiness": steadiness,
    "shares": shares,
    "front": front,
    "controls": controls,
    "constants": constants,
    "recovered": recovered,
    "distances": distances,
    "changes": changes,
    "updates": updates,
    "loop": loop,
    "animals": animals,
    "carried": carried,
    "experts": experts,
    "methods": methods,
}


def rows_of(study: str, root: Path) -> list[Row]:
    """The rows of a study, the cards of the packaged demonstrations, or the algorithms that come with the package."""
    if study == "entries":
        return [_entry(name) for name in MODULES]
    if study == "packaged":
        return [json.loads(card.read_text()) for card in sorted(root.glob("src/trustirl/demos/packaged/*.json"))]
    rows: list[Row] = json.loads((root / "results" / study / "results.json").read_text())
    return [row | {"study": study} for row in rows]


def _entry(name: str) -> Row:
    entry = ALGORITHMS[name]
    default = "state-action" if "simulator" in entry.worlds else NONE
    return {
        "name": name,
        "worlds": entry.worlds,
        "actions": entry.actions,
        "reward_inputs": entry.defaults.ours.get("reward_inputs", default),
        "needs": sorted(entry.needs),
        "paper": entry.defaults.paper is not None,
        "reference": entry.reference,
    }


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
    root: Path = arguments.root
    for path in (root / "README.md", *sorted(root.glob("docs/*.md")), *sorted(root.glob("results/*/README.md"))):
        old = path.read_text()
        new = regenerate(old, root)
        if new == old:
            continue
        stale.append(str(path.relative_to(root)))
        if not arguments.check:
            path.write_text(new)
    if stale:
        print("stale:" if arguments.check else "written:", *stale)
    if stale and arguments.check:
        raise SystemExit("run `make tables`.")


if __name__ == "__main__":
    main()
