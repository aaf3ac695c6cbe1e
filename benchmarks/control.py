"""Learning curves on Gymnasium tasks: the last policy's true return, all seeds, every evaluation kept.

    python benchmarks/control.py piro Hopper-v4 demos.npz --steps 400000 --seeds 5 --out hopper.json

One demonstration episode by default. `--set name=value` changes a setting of the algorithm, for example target=2.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from trustirl.algorithms import ALGORITHMS
from trustirl.control import SAMPLED, ControlExperiment, build_control
from trustirl.irl.loop import iterate, seed_keys
from trustirl.irl.practice import Plan

METRICS = ("gap", "drift", "mu", "q", "entropy", "critic_loss")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=sorted(SAMPLED))
    parser.add_argument("task")
    parser.add_argument("demos", type=Path)
    parser.add_argument("--demo-episodes", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400_000, help="training steps per seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--temperature", type=float, default=0.2)
    parser.add_argument("--termination", choices=["T0", "T2", "T3"], default="T2")
    parser.add_argument("--evaluate-every", type=int, default=4, help="reward updates between evaluations")
    parser.add_argument("--episodes", type=int, default=10, help="evaluation episodes per seed")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of the algorithm")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def question(arguments: argparse.Namespace) -> ControlExperiment:
    """The arguments as an experiment."""
    changes = {name: json.loads(value) for name, _, value in (text.partition("=") for text in arguments.set)}
    config = ALGORITHMS[arguments.algorithm].config(**(SAMPLED[arguments.algorithm] | changes))
    return ControlExperiment(
        algorithm=arguments.algorithm,
        task=arguments.task,
        env_kwargs={},
        demos=str(arguments.demos),
        demo_episodes=arguments.demo_episodes,
        seeds=arguments.seeds,
        steps=arguments.steps,
        termination=arguments.termination,
        reward_inputs="state-action",
        reward_width=128,
        reward_depth=2,
        reward_bound=10.0,
        backend="auto",
        evaluation_episodes=arguments.episodes,
        plan=asdict(Plan()),
        solver_config={"temperature": arguments.temperature},
        algorithm_config=asdict(config),
    )


def main() -> None:
    """Train, print a line per evaluation, keep everything."""
    arguments = parse()
    experiment = question(arguments)
    parts = build_control(experiment)
    begin, rows = time.perf_counter(), []
    for state, metrics in iterate(parts.loop, seed_keys(experiment.seeds), experiment.iterations - 1):
        iteration = int(state.iteration[0])
        if iteration % arguments.evaluate_every and iteration != experiment.iterations - 1:
            continue
        returns = parts.evaluate(state.irl.policy).mean(axis=1)
        row: dict[str, Any] = {
            "iteration": iteration,
            "steps": (iteration + 1) * Plan().steps_per_iteration,
            "seconds": round(time.perf_counter() - begin, 1),
            "returns": returns.round(1).tolist(),
        }
        row |= {name: np.asarray(metrics[name]).round(4).tolist() for name in METRICS if name in metrics}
        rows.append(row)
        print(json.dumps(row), flush=True)
    parts.close()
    if arguments.out:
        versions = {name: version(name) for name in ("jax", "gymnasium", "equinox", "optax")} | dict(
            parts.task.versions
        )
        result = {
            "command": " ".join(["python", *sys.argv]),
            "experiment": asdict(experiment),
            "demo_hash": parts.demo_hash,
            "env_steps": parts.ledger.counts,
            "device": jax.devices()[0].device_kind,
            "versions": versions,
            "curve": rows,
        }
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
