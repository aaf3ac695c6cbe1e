"""Learning curves of a study as a picture: inter-quartile mean over the seeds, with its 95 % bootstrap band.

    python benchmarks/curves.py results/paper-mujoco docs/images/paper-mujoco.png

Rows that name no variant are drawn; a method that steps no environment is a level.
"""

import argparse
import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from trustirl.evaluation.stats import iqm, iqm_band
from trustirl.report.compare import Panel, curves_figure
from trustirl.report.plots import Series
from trustirl.report.runs import Numbers


def evaluations(path: Path) -> tuple[Numbers, Numbers]:
    """Steps [evaluations] and true returns [seeds, evaluations]."""
    with gzip.open(path, "rt") as text:
        seen = [line for line in csv.DictReader(text) if line["return_mean"]]
    seeds = sorted({line["seed"] for line in seen}, key=int)
    returns = [[float(line["return_mean"]) for line in seen if line["seed"] == seed] for seed in seeds]
    steps = [float(line["env_steps"]) for line in seen if line["seed"] == seeds[0]]
    return np.asarray(steps), np.asarray(returns)


def panel(study: Path, rows: list[dict[str, Any]], algorithms: list[str]) -> Panel:
    """A task's rows; `algorithms` are all that have a colour."""
    curves, levels = [], {}
    for row in rows:
        name, place = row["algorithm"], algorithms.index(row["algorithm"])
        if row["env_steps"]["train"]:
            steps, returns = evaluations(study / f"{row['task']}-{name}-packaged.csv.gz")
            curves.append(Series(name, place, steps, iqm(returns.T), iqm_band(returns)))
        else:
            levels[name] = place, float(iqm(np.asarray(row["returns"])))
    return Panel(rows[0]["task"], "env_steps", curves, rows[0]["expert_return"], levels)


def main() -> None:
    """Draw a panel for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="folder below results/")
    parser.add_argument("out", type=Path, help="picture")
    arguments = parser.parse_args()
    rows = [row for row in json.loads((arguments.study / "results.json").read_text()) if "variant" not in row]
    algorithms = sorted({row["algorithm"] for row in rows}, reverse=True)
    tasks = sorted({row["task"] for row in rows})
    panels = [panel(arguments.study, [row for row in rows if row["task"] == task], algorithms) for task in tasks]
    curves_figure(panels).savefig(arguments.out, dpi=100)


if __name__ == "__main__":
    main()
