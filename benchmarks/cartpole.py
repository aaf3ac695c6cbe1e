"""What the paper prints for its constants on CartPole beside returns, added to rows that benchmarks/study.py wrote.

    python benchmarks/cartpole.py results/cartpole-c runs/cartpole-c/runs/*

For every seed: `discounted_return`, the mean over 20 new episodes of the sum of g^t at discount 0.9 (the pole pays 1
a step), and `kl`, the sum of -log pi(a|s) over the 500 steps of the demonstration, that is the KL divergence from the
demonstrator, whose actions are certain, to the learner: the mean over all evaluations of the run, as the paper's is a
mean over training, and in `last_kl` the last one. The paper does not say over what its KL divergence is summed.
`largest_drift` is how far the reward moved at most in one update; a method without updates has none.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from study import differing

import trustirl as ti
from trustirl.report.rows import result_row

DISCOUNT = 0.9
EPISODES = 20
STEPS = 500  # of the demonstration


def measured(folder: Path) -> dict[str, Any]:
    """The figures of a finished run, a number for each seed, and its largest drift."""
    lengths = ti.load(folder).evaluate(EPISODES).returns
    discounted = (1 - DISCOUNT**lengths) / (1 - DISCOUNT)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    seeds = list(dict.fromkeys(line["seed"] for line in lines))
    seen = [[-STEPS * line["log_likelihood"] for line in lines if line["seed"] == seed] for seed in seeds]
    drifts = [line["drift"] for line in lines if line.get("drift") is not None]
    figures = {"discounted_return": discounted, "kl": np.asarray(seen), "last_kl": np.asarray(seen)[:, -1:]}
    rounded = {name: np.round(values.mean(axis=1), 2).tolist() for name, values in figures.items()}
    return rounded | {"largest_drift": max(drifts, default=None)}


def main() -> None:
    """Add them to the rows of a study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="folder below results/")
    parser.add_argument("runs", type=Path, nargs="+", help="finished runs of CartPole-v1")
    arguments = parser.parse_args()
    file: Path = arguments.study / "results.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text())
    for folder in arguments.runs:
        mine = [row for row in rows if not differing(row, result_row([folder]))]
        if len(mine) != 1:
            raise SystemExit(f"{folder} belongs to {len(mine)} rows of {file}; benchmarks/study.py writes them")
        mine[0].update(measured(folder))
    file.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
