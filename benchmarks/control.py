"""Run folders as rows of a study: the last policy's true returns, all seeds, every evaluation kept.

    trustirl train piro --task Hopper-v4 --demos demos.npz --demo-episodes 1 --seeds 5 --out runs/hopper
    python benchmarks/control.py results/control runs/hopper ...

Rows of the same algorithm, task, demonstrations and settings are replaced, others stay.
"""

import argparse
import csv
import gzip
import io
import json
import math
from pathlib import Path
from typing import Any

from trustirl.evaluation.stats import stability
from trustirl.report.runs import read_run

CURVE = ("iteration", "env_steps", "seconds", "return_mean", "return_std", "gap", "drift", "mu")


def row_of(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A run as a result row, and its evaluations."""
    config, manifest, summary = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("config", "manifest", "summary")
    )
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    run = read_run(folder)
    columns = run.metrics.columns
    seeds = [
        stability(steps, returns, run.summary.expert_return, run.summary.random_return)
        for steps, returns in zip(columns["env_steps"], columns["return_mean"], strict=True)
    ]
    row = {
        "algorithm": config["algorithm"],
        "task": config["task"],
        "demos": f"sha256 {manifest['demo_hash']}",
        "demo_episodes": config["demo_episodes"],
        "steps": config["steps"],
        "returns": [round(value, 1) for value in summary["returns"]],
        "expert_return": summary["expert_return"],
        "random_return": summary["random_return"],
        "drawdown": [round(seed.drawdown, 1) for seed in seeds],
        "steps_to_90": [int(seed.steps_to_90) if math.isfinite(seed.steps_to_90) else None for seed in seeds],
        "env_steps": summary["env_steps"],
        "wall_seconds": summary["wall_seconds"],
        "updates_per_second": summary["updates_per_second"],
        "device": manifest["device"],
        "versions": manifest["versions"] | manifest["task_versions"],
        "command": manifest["command"],
        "settings": {name: config[name] for name in ("algorithm_config", "solver", "plan", "control")},
    }
    return row, metrics


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two rows answer the same question."""
    return all(one.get(name) == other.get(name) for name in ("algorithm", "task", "demos", "steps", "settings"))


def main() -> None:
    """Write results.json and curves.csv.gz of a study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="folder below results/")
    parser.add_argument("runs", type=Path, nargs="+")
    arguments = parser.parse_args()
    study: Path = arguments.study
    study.mkdir(parents=True, exist_ok=True)
    file = study / "results.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    for folder in arguments.runs:
        row, metrics = row_of(folder)
        rows = [old for old in rows if not same(old, row)] + [row]
        write_curves(study / f"{row['task']}-{row['algorithm']}-{folder.name}.csv.gz", metrics)
    rows.sort(key=lambda row: (row["task"], row["algorithm"] != "piro", row["algorithm"]))
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
