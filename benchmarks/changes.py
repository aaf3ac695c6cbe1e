"""What one change at a time does, as a picture: a dot for each seed's last policy, a panel for each task.

python benchmarks/changes.py results/ablation docs/images/ablation.png
"""

import argparse
import json
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from tables import Row, change, in_order

from trustirl.report.drawing import BLUE, INK, PAPER, STYLE, VERMILION


def figure(rows: list[Row]) -> Figure:
    """Shares of the demonstration's return, the default on top."""
    names = in_order(map(change, rows))
    tasks = sorted({row["task"] for row in rows})
    drawn = Figure(figsize=(9, 0.9 + 0.24 * len(names)), layout="constrained", facecolor=PAPER)
    every = drawn.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    for axes, task in zip(every, tasks, strict=True):
        for row in (row for row in rows if row["task"] == task):
            place, shares = names.index(change(row)), [value / row["expert_return"] for value in row["returns"]]
            colour = INK if change(row) == "default" else BLUE
            axes.plot(shares, [place] * len(shares), "o", color=colour, alpha=0.7, clip_on=False)
        axes.axvline(1, color=VERMILION, linestyle="--", linewidth=1)
        axes.set(title=task, xlabel="share of the demonstration's return", xlim=(min(0, axes.get_xlim()[0]), 1.1))
        axes.set(yticks=range(len(names)), yticklabels=names, facecolor=PAPER, axisbelow=True)
        axes.grid(axis="both")
    every[0].invert_yaxis()
    return drawn


def main() -> None:
    """Draw a study of changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="folder below results/")
    parser.add_argument("out", type=Path, help="picture")
    arguments = parser.parse_args()
    with matplotlib.rc_context(STYLE):
        figure(json.loads((arguments.study / "results.json").read_text())).savefig(arguments.out, dpi=100)


if __name__ == "__main__":
    main()
