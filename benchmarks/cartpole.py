"""Two figures that the paper prints for its constants on CartPole, beside the rows that benchmarks/study.py wrote.

    python benchmarks/cartpole.py results/cartpole-c runs/cartpole-c/runs/*

For every seed's last policy, in rows of the same question: `discounted_return`, the mean over 20 new episodes of the
sum of g^t at discount 0.9 (the pole pays 1 a step), and `kl`, the sum of -log pi(a|s) over the 500 steps of the
packaged demonstration: the KL divergence from the demonstrator, whose actions are certain, to the learner. The
paper prints the mean of a KL divergence over training, and does not say over what it is summed.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from study import differing

import trustirl as ti
from trustirl.learned import read_policies
from trustirl.report.rows import result_row

DISCOUNT = 0.9
EPISODES = 20


def measured(folder: Path) -> dict[str, list[float]]:
    """Both figures of a finished run, a number for each seed."""
    lengths = ti.load(folder).evaluate(EPISODES).returns
    discounted = (1 - DISCOUNT**lengths) / (1 - DISCOUNT)
    demos = ti.Demos.packaged("CartPole-v1").take(1)
    taken = np.asarray(demos.actions, int).reshape(-1, 1)
    policies, _ = read_policies(folder)
    divergence = []
    for seed in range(len(policies.weights)):
        logits = policies.of(seed).logits(np.asarray(demos.observations, np.float32)).astype(float)
        log_prob = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        divergence.append(-float(np.take_along_axis(log_prob, taken, axis=1).sum()))
    return {
        "discounted_return": np.round(discounted.mean(axis=1), 2).tolist(),
        "kl": np.round(divergence, 1).tolist(),
    }


def main() -> None:
    """Add both to the rows of a study."""
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
