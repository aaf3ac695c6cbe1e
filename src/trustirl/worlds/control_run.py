"""Runs on Gymnasium tasks: what is evaluated on the way and written at the end."""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import gymnasium as gym
import numpy as np

from trustirl.core.files import write_json
from trustirl.core.types import Metrics, TrainState
from trustirl.demos.schema import Demos
from trustirl.irl.practice import Plan
from trustirl.learned import save_policies, save_rewards
from trustirl.rl.config import SolverConfig
from trustirl.worlds.control import ControlOptions, build, iterations
from trustirl.worlds.job import Experiment, Job, Row

COLUMNS = ("gap", "drift", "mu", "q", "entropy", "critic_loss", "actor_loss", "temperature")


def control_job(
    experiment: Experiment, demos: Demos | None = None, task: str | gym.Env | Callable[..., gym.Env] | None = None
) -> Job:
    """An experiment on a Gymnasium task, ready to run."""
    plan, options = Plan(**experiment.settings["plan"]), ControlOptions(**experiment.settings["control"])
    config = SolverConfig(**experiment.settings["solver"])
    updates = iterations(experiment.steps, plan)
    parts = build(experiment, demos, task)

    def observe(state: TrainState, metrics: Metrics) -> dict[str, np.ndarray]:
        returns = parts.evaluate(state.irl.policy)
        seen = {name: np.asarray(metrics[name]) for name in COLUMNS if name in metrics}
        return {"return_mean": returns.mean(axis=1), "return_std": returns.std(axis=1)} | seen

    def finish(state: TrainState, last_rows: list[Row], seconds: float, path: Path) -> None:
        actors = parts.solver.outcome(state.irl.policy)
        save_policies(path, actors, parts.task, config, *parts.statistics)
        card = {
            "action_inputs": options.reward_inputs == "state-action",
            "width": options.reward_width,
            "depth": options.reward_depth,
            "bound": options.reward_bound,
            "discount": config.discount,
            "termination": options.termination,
        }
        save_rewards(path, state.irl.reward, parts.task, card)
        policy_updates = experiment.seeds * (updates + 1) * plan.rounds * plan.updates
        summary = {
            "returns": [row["return_mean"] for row in last_rows],
            "expert_return": parts.task.expert_return if parts.demo_return is None else parts.demo_return,
            "random_return": parts.task.random_return,
            "env_steps": parts.ledger.counts,
            "wall_seconds": round(seconds, 3),
            "updates_per_second": round(policy_updates / seconds, 3),
        }
        write_json(path / "summary.json", summary)

    versions = dict(parts.task.versions)
    if parts.backend == "envpool":  # it brings a simulator of its own
        versions = {"gymnasium": versions["gymnasium"], "envpool": version("envpool")}
    facts = {
        "demo_hash": parts.demo_hash,
        "clipped_actions": parts.clipped,
        "task_versions": versions,
        "backend": parts.backend,
        "horizon": parts.task.horizon,
        "replay_bytes": parts.replay_bytes,
    }
    notes = [f"the replay will take up to {parts.replay_bytes / 2**20:,.0f} MiB of memory"]
    if parts.origin:
        notes.append(f"the demos were made in {parts.origin} and the task is {parts.task.env_id}")
    if parts.clipped:
        notes.append(
            f"{parts.clipped} entries of the demonstrated actions lay outside the action space and were clipped"
        )
    return Job(
        loop=parts.loop,
        iterations=updates,
        evaluate_every=options.evaluate_every,
        checkpoint_every=options.checkpoint_every,
        ledger=parts.ledger,
        observe=observe,
        finish=finish,
        facts=facts,
        notes=tuple(notes),
        close=parts.close,
    )
