"""Learning curves of a study as a picture: inter-quartile mean over the seeds, with its 95 % bootstrap band.

    python benchmarks/curves.py results/paper-mujoco docs/images/paper-mujoco.png

Rows that name no variant are drawn, of each task and method the first seeds; a method that steps no environment is a
level. Without --methods, those that were run on every task of the study.
"""

import argparse
from pathlib import Path

import numpy as np
from study import Lines, Row, curves_of, evaluations, rows_of

from trustirl.evaluation.stats import iqm, iqm_band
from trustirl.report.compare import Panel, curves_figure
from trustirl.report.plots import Series


def panel(lines: Lines, rows: list[Row], algorithms: list[str]) -> Panel:
    """A task's rows; `algorithms` are all that have a colour."""
    curves, levels = [], {}
    for row in rows:
        name, place = row["algorithm"], algorithms.index(row["algorithm"])
        if row["env_steps"]["train"]:
            steps, returns = evaluations(lines, row)
            curves.append(Series(name, place, steps, iqm(returns.T), iqm_band(returns)))
        else:
            levels[name] = place, float(iqm(np.asarray(row["returns"])))
    return Panel(rows[0]["task"], "env_steps", curves, rows[0]["expert_return"], levels)


def main() -> None:
    """Draw a panel for each task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="folder below results/")
    parser.add_argument("out", type=Path, help="picture")
    parser.add_argument("--methods", nargs="+", help="which to draw")
    arguments = parser.parse_args()
    rows = [row for row in rows_of(arguments.study) if "variant" not in row and 0 in row["seeds"]]
    places = {
        name: {row["task"] for row in rows if row["algorithm"] == name} for name in {r["algorithm"] for r in rows}
    }
    everywhere = [name for name, tasks in places.items() if len(tasks) == max(map(len, places.values()))]
    rows = [row for row in rows if row["algorithm"] in (arguments.methods or everywhere)]
    lines = curves_of(arguments.study)
    algorithms = sorted({row["algorithm"] for row in rows}, reverse=True)
    tasks = sorted({row["task"] for row in rows})
    panels = [panel(lines, [row for row in rows if row["task"] == task], algorithms) for task in tasks]
    curves_figure(panels).savefig(arguments.out, dpi=100)


if __name__ == "__main__":
    main()
