"""How far evaluations fall, in whole runs and in their second halves, beside another method's, and what chance does.

    python benchmarks/falls.py results/{paper-mujoco,more-seeds}/Ant-v4-piro-packaged.csv.gz \
        --against results/{paper-mujoco,more-seeds}/Ant-v4-ml-irl-packaged.csv.gz

Every seed's largest fall below the best evaluation before, the mean, and p of a permutation test.
"""

import argparse
from pathlib import Path

import numpy as np
from curves import evaluations
from tables import chance


def falls(paths: list[Path], since: float) -> list[float]:
    """The largest fall of each seed among the evaluations after a share of the run."""
    found: list[float] = []
    for path in paths:
        steps, returns = evaluations(path)
        below = np.maximum.accumulate(returns, axis=1) - returns
        found += below[:, steps >= since * steps[-1]].max(axis=1).tolist()
    return found


def main() -> None:
    """Print both methods' falls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curves", type=Path, nargs="+", help=".csv.gz files below results/, of whole runs")
    parser.add_argument("--against", type=Path, nargs="+", required=True, help="the same of another method")
    arguments = parser.parse_args()
    for name, since in (("whole run", 0.0), ("second half", 0.5)):
        ours, theirs = falls(arguments.curves, since), falls(arguments.against, since)
        for whose, values in (("", ours), ("against ", theirs)):
            print(f"{name}: {whose}{np.mean(values):,.0f} in the mean:", *(f"{value:,.0f}" for value in values))
        print(f"{name}: p {chance(ours, theirs):.4f}")


if __name__ == "__main__":
    main()
