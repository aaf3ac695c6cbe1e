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
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trustirl.evaluation.stats import iqm, iqm_band
from trustirl.report.drawing import clock_axis
from trustirl.report.runs import Numbers

COLUMNS = 3


def evaluations(file: Path) -> tuple[Numbers, Numbers]:
    """Steps [evaluations] and true returns [seeds, evaluations]."""
    with gzip.open(file, "rt") as text:
        seen = [line for line in csv.DictReader(text) if line["return_mean"]]
    seeds = sorted({line["seed"] for line in seen})
    returns = [[float(line["return_mean"]) for line in seen if line["seed"] == seed] for seed in seeds]
    steps = [float(line["env_steps"]) for line in seen if line["seed"] == seeds[0]]
    return np.asarray(steps), np.asarray(returns)


def draw(axes: Axes, study: Path, rows: list[dict[str, Any]]) -> None:
    """A task's methods."""
    for place, row in enumerate(sorted(rows, key=lambda row: row["algorithm"], reverse=True)):
        colour, label = f"C{place}", row["algorithm"]
        if not row["env_steps"]["train"]:
            axes.axhline(float(iqm(np.asarray(row["returns"]))), color=colour, linestyle="--", label=label)
            continue
        steps, returns = evaluations(study / f"{row['task']}-{row['algorithm']}-packaged.csv.gz")
        axes.plot(steps, iqm(returns.T), color=colour, label=label)
        axes.fill_between(steps, *iqm_band(returns), color=colour, alpha=0.2, linewidth=0)
    axes.axhline(rows[0]["expert_return"], color="black", linestyle=":", linewidth=1, label="demonstration")
    axes.set(title=rows[0]["task"], xlabel="environment steps of each seed", ylabel="true return")
    clock_axis(axes)


def main() -> None:
    """Draw a panel for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="folder below results/")
    parser.add_argument("out", type=Path, help="picture")
    arguments = parser.parse_args()
    rows = [row for row in json.loads((arguments.study / "results.json").read_text()) if "variant" not in row]
    tasks = sorted({row["task"] for row in rows})
    lines = -(-len(tasks) // COLUMNS)
    figure = Figure(figsize=(3.6 * COLUMNS, 2.7 * lines), layout="constrained")
    panels = figure.subplots(lines, COLUMNS, squeeze=False).ravel()
    for axes, task in zip(panels, tasks, strict=False):
        draw(axes, arguments.study, [row for row in rows if row["task"] == task])
    for axes in panels[len(tasks) :]:
        axes.set_axis_off()
    panels[-1].legend(*panels[0].get_legend_handles_labels(), loc="center", frameon=False)
    figure.savefig(arguments.out, dpi=110)


if __name__ == "__main__":
    main()
