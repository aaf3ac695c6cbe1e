"""Run folders as rows of a study: the last policy's true returns, all seeds, every evaluation kept.

    trustirl train piro --task Hopper-v4 --demos demos.npz --demo-episodes 1 --seeds 5 --out runs/hopper
    python benchmarks/study.py results/control runs/hopper "another temperature=runs/hopper-warm" runs/a+runs/b ...

Rows of the same algorithm, task, demonstrations and settings are replaced, others stay. What stands before = is how
tables tell rows of one algorithm and task apart. Folders with + between them hold seeds of one row, in this order;
the first tells its command and device. Folders that differ in more than their seeds, or share one, are refused.
"""

import argparse
import csv
import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trustirl.report.rows import result_row

CURVE = ("iteration", "env_steps", "seconds", "return_mean", "return_std", "gap", "drift", "mu")
QUESTION = ("algorithm", "task", "demos", "steps", "settings")


def row_of(folders: Sequence[Path]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Runs as a result row, and their evaluations."""
    row = result_row(folders)
    rounded = {name: [round(value, 1) for value in row[name]] for name in ("returns", "drawdown")}
    metrics: list[dict[str, Any]] = []
    for folder in folders:
        if names := differing(result_row([folder]), row):
            raise SystemExit(f"{folder} differs from {folders[0]} in {', '.join(names)}; only seeds may differ")
        more = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        if twice := {old["seed"] for old in metrics} & {new["seed"] for new in more}:
            raise SystemExit(f"{folder} holds seeds that the folders before it hold already: {sorted(twice)}")
        metrics += more
    return row | rounded, metrics


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What tells the questions of two rows apart; nothing where they answer the same."""
    return [name for name in QUESTION if one.get(name) != other.get(name)]


def main() -> None:
    """Write results.json and curves.csv.gz of a study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="folder below results/")
    parser.add_argument("runs", nargs="+", help="run folders, or VARIANT=FOLDER; + joins folders")
    arguments = parser.parse_args()
    study: Path = arguments.study
    study.mkdir(parents=True, exist_ok=True)
    file = study / "results.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    for given in arguments.runs:
        variant, _, path = given.rpartition("=")
        folders = [Path(part) for part in path.split("+")]
        row, metrics = row_of(folders)
        row |= {"variant": variant} if variant else {}
        rows = [old for old in rows if differing(old, row)] + [row]
        write_curves(study / f"{row['task']}-{row['algorithm']}-{folders[0].name}.csv.gz", metrics)
    rows.sort(key=lambda row: (row["task"], row["algorithm"] != "piro", row["algorithm"], row.get("variant", "")))
    file.write_text(json.dumps(rows, indent=1) + "\n")


def write_curves(path: Path, metrics: list[dict[str, Any]]) -> None:
    """Every evaluation of every seed."""
    text = io.StringIO()
    table = csv.DictWriter(text, ("seed", *CURVE), extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(metrics)
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


if __name__ == "__main__":
    main()
