"""Which rewards come back on the 7 x 7 grid: methods, classes of rewards and demonstrations, into results/gridworld.

    python benchmarks/gridworld.py runs/gridworld                # train what is not there yet, then write the study
    python benchmarks/gridworld.py runs/gridworld --train 500    # only train, of variants those that hold this text

Every row also tells how far its rewards are from the true one, as `trustirl reward compare RUN true` does. Networks
are trained with three seeds; rows that hold more seeds of the same question stay, and are told of these three.
"""

import argparse
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trustirl.cli.main import main as trustirl
from trustirl.runs.comparing import compare_rewards

STUDY = Path(__file__).parents[1] / "results" / "gridworld"
MEASURES = ("pearson", "epic", "dard", "starc", "regret")
METHODS = ("ml-irl", "piro", "mce", "trro")
SHOWN = {"": [], "50 episodes": ["--demo-episodes", "50"], "500 episodes": ["--demo-episodes", "500"]}
REWARDS = {"table": "", "mlp": "network", "linear": "linear"}
SLOWER = ["--reward-step", "0.01"]  # PIRO's default is for tables


def questions() -> Iterator[tuple[str, str, list[str]]]:
    """Method, variant and arguments."""
    for reward, word in REWARDS.items():
        for shown, episodes in SHOWN.items():
            for method in METHODS:
                slower = SLOWER if (method, reward) == ("piro", "mlp") else []
                variant = ", ".join(filter(None, (shown, word, "reward step 0.01" if slower else "")))
                given = [*episodes, *(["--reward", reward] if word else []), *slower]
                yield method, variant, ["--seeds", "3" if reward == "mlp" else "5", "--no-compare", *given]


def trained(folder: Path, method: str, variant: str, given: list[str]) -> Path:
    """The run of a question, trained if it is not there."""
    out = folder / f"{method}-{variant.replace(', ', '-').replace(' ', '-') or 'default'}"
    if not (out / "summary.json").exists():
        sys.argv = ["trustirl", "train", method, "--task", "gridworld", *given, "--out", str(out), "--overwrite"]
        trustirl(sys.argv[1:])
    return out


def measured(run: Path) -> dict[str, list[float]]:
    """How far the rewards of all seeds are from the true one."""
    found = compare_rewards(run).measures
    return {name: [round(value, 6) for value in found[name].values] for name in MEASURES}


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the runs are")
    parser.add_argument("--train", help="only train, and of the variants those that hold this text")
    arguments = parser.parse_args()
    asked = [question for question in questions() if (arguments.train or "") in question[1]]
    if arguments.train is not None:
        for question in asked:
            trained(arguments.folder, *question)
        return
    study = runpy.run_path(str(Path(__file__).with_name("study.py")))
    rows: list[dict[str, Any]] = study["rows_of"](STUDY)
    lines: list[dict[str, Any]] = study["curves_of"](STUDY)
    for method, variant, given in asked:
        run = trained(arguments.folder, method, variant, given)
        row, more = study["row_of"]([run], variant)
        old = [each for each in rows if (each["algorithm"], each.get("variant", "")) == (method, variant)]
        if old and len(old[0]["seeds"]) > len(row["seeds"]):
            old[0]["from_truth"] = measured(run)
            continue
        rows = [each for each in rows if each not in old] + [row | {"from_truth": measured(run)}]
        lines = [line for line in lines if not any(study["belongs"](line, each) for each in old)] + more
    study["write"](STUDY, rows, lines)


if __name__ == "__main__":
    main()
