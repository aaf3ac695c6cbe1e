"""Run folders as rows of a study: the last policy's true returns, all seeds, every evaluation kept.

    trustirl train piro --task Hopper-v4 --demo-episodes 1 --seeds 5 --out runs/hopper
    python benchmarks/study.py results/control runs/hopper "another temperature=runs/hopper-warm" runs/a+runs/b ...

A study is results.json, a list of rows, and curves.csv.gz, every evaluation of every seed; a row's task, algorithm,
variant and seeds find its lines there. Rows of the same question and seeds are replaced, others stay. What stands
before = is the variant, by which tables tell rows of one algorithm and task apart. Folders with + between them hold
seeds of one row, in this order; the first tells its command and device. Folders that differ in more than their seeds,
or share one, are refused.
"""

import argparse
import csv
import gzip
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trustirl.report.rows import result_row

MEASURED = ("iteration", "env_steps", "seconds", "return_mean", "return_std", "gap", "drift", "mu", "ell")
PLACE = ("task", "algorithm", "variant", "seed")
QUESTION = ("algorithm", "task", "demos", "steps", "settings")
Row = dict[str, Any]
Lines = list[dict[str, Any]]


def row_of(folders: Sequence[Path], variant: str) -> tuple[Row, Lines]:
    """Runs as a result row, and their evaluations."""
    row = result_row(folders)
    rounded = {name: [round(value, 3) for value in row[name]] for name in ("returns", "drawdown")}
    metrics: Lines = []
    for folder in folders:
        if names := differing(result_row([folder]), row):
            raise SystemExit(f"{folder} differs from {folders[0]} in {', '.join(names)}; only seeds may differ")
        more = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        if twice := {old["seed"] for old in metrics} & {new["seed"] for new in more}:
            raise SystemExit(f"{folder} holds seeds that the folders before it hold already: {sorted(twice)}")
        metrics += more
    row |= rounded | {"seeds": list(dict.fromkeys(line["seed"] for line in metrics))}
    row["command"] = re.sub(r" --out \S+| --overwrite", "", row["command"])  # a place on the machine that ran it
    row |= {"variant": variant} if variant else {}
    place = {"task": row["task"], "algorithm": row["algorithm"], "variant": variant}
    return row, [place | {name: _short(line.get(name)) for name in ("seed", *MEASURED)} for line in metrics]


def _short(value: Any) -> Any:
    """Seven digits, which no simulator knows better."""
    return f"{value:.7g}" if isinstance(value, float) else value


def differing(one: Row, other: Row) -> list[str]:
    """What tells the questions of two rows apart; nothing where they answer the same."""
    return [name for name in QUESTION if one.get(name) != other.get(name)]


def rows_of(study: Path) -> list[Row]:
    """The rows of a study; none where there is no study yet."""
    file = study / "results.json"
    rows: list[Row] = json.loads(file.read_text()) if file.exists() else []
    return rows


def curves_of(study: Path) -> Lines:
    """Every evaluation of a study."""
    file = study / "curves.csv.gz"
    if not file.exists():
        return []
    with gzip.open(file, "rt", newline="") as text:
        return list(csv.DictReader(text))


def belongs(line: dict[str, Any], row: Row) -> bool:
    """Whether an evaluation is one of a row's."""
    same = (line["task"], line["algorithm"]) == (row["task"], row["algorithm"])
    return same and line["variant"] == row.get("variant", "") and int(line["seed"]) in row["seeds"]


def evaluations(lines: Lines, row: Row) -> tuple[np.ndarray, np.ndarray]:
    """A row's steps [evaluations] and true returns [seeds, evaluations]."""
    mine = [line for line in lines if line["return_mean"] and belongs(line, row)]
    each = [[line for line in mine if int(line["seed"]) == seed] for seed in row["seeds"]]
    returns = [[float(line["return_mean"]) for line in seed] for seed in each]
    return np.asarray([float(line["env_steps"]) for line in each[0]]), np.asarray(returns)


def write(study: Path, rows: list[Row], lines: Lines) -> None:
    """A study in its order, the same bytes for the same content."""
    study.mkdir(parents=True, exist_ok=True)
    rows = sorted(rows, key=_place)
    (study / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
    text = io.StringIO()
    used = [name for name in MEASURED if any(line.get(name) not in (None, "") for line in lines)]
    table = csv.DictWriter(text, (*PLACE, *used), extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(line for row in rows for line in lines if belongs(line, row))
    (study / "curves.csv.gz").write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def _place(row: Row) -> tuple[Any, ...]:
    return row["task"], row["algorithm"] != "piro", row["algorithm"], row.get("variant", ""), row["seeds"]


def main() -> None:
    """Write results.json and curves.csv.gz of a study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="folder below results/")
    parser.add_argument("runs", nargs="+", help="run folders, or VARIANT=FOLDER; + joins folders")
    arguments = parser.parse_args()
    rows, lines = rows_of(arguments.study), curves_of(arguments.study)
    for given in arguments.runs:
        variant, _, path = given.rpartition("=")
        new, more = row_of([Path(part) for part in path.split("+")], variant)
        replaced = [old for old in rows if not differing(old, new) and set(old["seeds"]) & set(new["seeds"])]
        rows = [old for old in rows if old not in replaced]
        lines = [line for line in lines if not any(belongs(line, old) for old in replaced)]
        if any(belongs(line, new) for line in lines):
            raise SystemExit(
                f"{path} asks another question than the row of its name and seeds; name it VARIANT={path}"
            )
        rows, lines = [*rows, new], lines + more
    write(arguments.study, rows, lines)


if __name__ == "__main__":
    main()
