"""What learned rewards teach fresh policies: LunarLander in wind, MuJoCo's robots again and in changed dynamics.

    python benchmarks/transfer.py runs/transfer                      # train runs, transfer their rewards, tell all
    python benchmarks/transfer.py runs/transfer --only HalfCheetah   # of the settings, those that hold this text
    python benchmarks/transfer.py runs/trial --steps 5000 --seeds 1 --episodes 2 --bc-steps 1000  # a trial

Everything that is there already is kept, and what was stopped goes on. FOLDER/transfers.json has a row for every
transfer: who was retrained on what, in which dynamics, and every seed's mean return beside all alternatives.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import trustirl as ti

METHODS = ("piro", "ml-irl", "airl", "iq-learn")
WINDS = {
    f"wind {power}": {"enable_wind": True, "turbulence_power": 1.5, "wind_power": power} for power in (15, 5, 10, 20)
}
# Normalised returns that TRIRL's authors print for policies retrained on its frozen rewards (arXiv 2605.11020): from
# scratch in the same task, and in changed dynamics; theirs learned from many demonstrations in 30 million steps.
PUBLISHED = {
    ("Hopper-v4", "same"): 0.36,
    ("HalfCheetah-v4", "same"): 0.70,
    ("Ant-v4", "same"): 0.63,
    ("HalfCheetah-v4", "wind"): 0.63,
    ("HalfCheetah-v4", "mars"): 0.30,
    ("Ant-v4", "disabled leg"): 0.89,
}


class Setting(NamedTuple):
    """A task, how long to learn the reward and to learn from it, and in which dynamics."""

    task: str
    steps: int
    fresh_steps: int
    worlds: Mapping[str, Mapping[str, Any]]
    variants: Mapping[str, Mapping[str, Any]]


INPUTS = {  # how LunarLander's reward sees a step, and what it makes of an end
    f"{inputs}, {mode}": {"reward_inputs": inputs, "termination": mode}
    for inputs in ("state", "state-action", "transition")
    for mode in ("T0", "T2")
}
SETTINGS = (
    Setting("LunarLander-v3", 300_000, 250_000, WINDS, INPUTS),
    Setting("Hopper-v4", 300_000, 500_000, {"same": {}}, {"": {}}),
    Setting(
        "HalfCheetah-v4",
        500_000,
        500_000,
        {"same": {}, "wind": {"change": {"wind": -10}}, "mars": {"change": {"gravity": 3.71}}},
        {"": {}},
    ),
    Setting("Ant-v4", 400_000, 500_000, {"same": {}, "disabled leg": {"change": {"disabled_leg": 1}}}, {"": {}}),
)


def transfers(folder: Path, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for every setting, method and world."""
    for setting in SETTINGS:
        if given.only not in setting.task:
            continue
        for method in METHODS:
            implicit = method == "iq-learn"  # its reward is read off its values, and has no inputs to choose
            for variant, settings in ({"": {}} if implicit else setting.variants).items():
                name = "-".join(filter(None, (setting.task, method, *variant.split(", "))))
                run = trained(folder / name, method, setting, settings, given)
                for world, arguments in setting.worlds.items():
                    out = folder / f"{name}-{world.replace(' ', '-')}"
                    found = ti.transfer(
                        run,
                        setting.task,
                        task_args=dict(arguments),
                        steps=given.steps or setting.fresh_steps,
                        episodes=given.episodes,
                        bc_steps=given.bc_steps,
                        out=out,
                    )
                    told: dict[str, Any] = {
                        "algorithm": method,
                        "variant": variant,
                        "task": setting.task,
                        "world": world,
                    }
                    told |= {"task_args": dict(arguments), "steps": found.steps, "episodes": found.episodes}
                    told["returns"] = {
                        arm: np.mean(played.returns, axis=1).round(3).tolist() for arm, played in found.arms.items()
                    }
                    told["share_of_own"] = round(found.mean("learned").mean / found.mean("carried").mean, 3)
                    share = found.share("learned")
                    told["share_of_true"] = None if share is None else round(share, 3)
                    told["trirl_published"] = PUBLISHED.get((setting.task, world))
                    yield told | {
                        name: found.plain()["summary"][name]["lead"] for name in ("carried", "clone", "zero")
                    }


def trained(
    out: Path, method: str, setting: Setting, settings: Mapping[str, Any], given: argparse.Namespace
) -> ti.Run:
    """The run whose reward is transferred, trained if it is not there; the demonstrations are the package's first."""
    if (out / "summary.json").exists():
        return ti.load(out)
    if (out / "config.json").exists():
        return ti.resume(out)
    steps = given.steps or setting.steps
    return ti.train(
        method, setting.task, demo_episodes=1, seeds=given.seeds, steps=steps, out=out, **settings, **given.settings
    )


def main() -> None:
    """Train, transfer, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="settings whose task holds this text")
    parser.add_argument("--steps", type=int, help="for a trial: of the runs and of the fresh policies")
    parser.add_argument("--bc-steps", type=int, help="for a trial: gradient steps of BC")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=100, help="that everybody plays in the end")
    parser.add_argument("--settings", type=json.loads, default={}, help="for a trial: settings of the runs, as JSON")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for row in transfers(given.folder, given):
        rows.append(row)
        (given.folder / "transfers.json").write_text(json.dumps(rows, indent=1) + "\n")
        print(f"{row['algorithm']} {row['variant']} {row['task']} {row['world']}: {row['returns']}")


if __name__ == "__main__":
    main()
