"""Runs on Gymnasium tasks: what is evaluated on the way and written at the end."""

import math
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium as gym
import numpy as np

from trustirl.core.files import write_json
from trustirl.core.records import Algorithm
from trustirl.core.spaces import Termination
from trustirl.core.types import IrlState, Metrics, TrainState
from trustirl.demos.schema import Demos
from trustirl.rewards.kinds import card_of
from trustirl.rewards.saved import Shown, save_rewards
from trustirl.rl.config import SolverConfig
from trustirl.rollouts.host import judged
from trustirl.rollouts.ledger import Ledger
from trustirl.runs.policies import save_policies
from trustirl.tasks.gym import ControlTask
from trustirl.worlds.fixed_reward import Expert
from trustirl.worlds.job import Experiment, Job, Row, columns, origin_of, told_steps
from trustirl.worlds.matching import Matched
from trustirl.worlds.simulator import Control, ControlOptions, build, iterations
from trustirl.worlds.stage import StageOptions

MOST_SHOWN = 10_000  # demonstrated steps on which the reward that is kept is measured


SUCCESS = ("success", "steps_to_success")  # where the environment reports it


def control_job(
    experiment: Experiment, demos: Demos | None = None, task: str | gym.Env | Callable[..., gym.Env] | None = None
) -> Job:
    """An experiment on a Gymnasium task, ready to run."""
    options, config = ControlOptions(**experiment.settings["control"]), SolverConfig(**experiment.settings["solver"])
    parts = build(experiment, demos, task)
    plan = parts.plan
    updates = iterations(experiment.steps, plan)
    notes = told_steps(experiment.steps, updates + 1, plan.whole, plan.random_steps)
    notes += [memory_note(parts.replay_bytes), *parts.given.notes()]
    if plan.demo_share and not len(parts.given.demos.successors()[0]):
        notes.append("it is not known what followed any demonstrated step, so the policy's minibatches have none")

    def observe(state: TrainState, metrics: Metrics) -> dict[str, np.ndarray]:
        return columns(metrics) | judged(parts.evaluate(state.irl.policy))

    def finish(state: TrainState, last_rows: list[Row], seconds: float, path: Path) -> None:
        termination = options.termination
        learned = save_learned(
            experiment, path, parts.algorithm, state.irl, parts.given, config, parts.statistics, termination
        )
        policy_updates = experiment.seeds * (updates + 1) * plan.rounds * plan.updates
        summary = summary_of(parts.task, parts.ledger, last_rows, seconds, policy_updates)
        told = {"practice_seconds": parts.watch.seconds, "resets": parts.ledger.resets}
        write_json(path / "summary.json", summary | parts.given.expert_return() | told | learned)

    return staged(parts, options, updates, observe, finish, parts.given.facts(), notes)


def shown(demos: Demos) -> Shown:
    """Demonstrated steps of which it is known what followed, or any where that is known of none; some thousands."""
    known, after = demos.successors()
    steps = known if len(known) else np.arange(len(demos.actions))
    some = slice(None, None, math.ceil(len(steps) / MOST_SHOWN))
    following = after[some] if len(known) else None
    return Shown(demos.observations[steps[some]], demos.actions[steps[some]], following)


def save_learned(
    experiment: Experiment,
    path: Path,
    algorithm: Algorithm,
    irl: IrlState,
    given: Matched,
    config: SolverConfig,
    statistics: tuple[np.ndarray, np.ndarray],
    termination: Termination,
) -> dict[str, bool]:
    """Policies, and rewards where any are kept; for the summary, whether there are any."""
    save_policies(path, algorithm.solver.outcome(irl.policy), given.task, config, *statistics)
    if algorithm.kept is not None:
        rewards = eqx.filter_vmap(algorithm.kept)(irl)
        card = card_of(rewards, given.task, config.discount, termination)
        origin = origin_of(experiment, path, given.demos, given.facts()["demo_hash"])
        save_rewards(path, rewards, card, origin, shown(given.demos))
    return {"learns_reward": algorithm.kept is not None}


def summary_of(
    task: ControlTask, ledger: Ledger, last_rows: list[Row], seconds: float, policy_updates: int
) -> dict[str, Any]:
    """What every run on a Gymnasium task sums up."""
    known = {name: [row[name] for row in last_rows] for name in SUCCESS if name in last_rows[0]}
    return known | {
        "returns": [row["return_mean"] for row in last_rows],
        "expert_return": task.expert_return,
        "random_return": task.random_return,
        **({} if task.still_return is None else {"still_return": task.still_return}),
        "env_steps": ledger.counts,
        "wall_seconds": round(seconds, 3),
        "updates_per_second": round(policy_updates / seconds, 3),
    }


def staged(
    parts: Control | Expert,
    options: StageOptions,
    iterations: int,
    observe: Callable[[TrainState, Metrics], Mapping[str, np.ndarray]],
    finish: Callable[[TrainState, list[Row], float, Path], None],
    facts: Mapping[str, Any],
    notes: Sequence[str],
) -> Job:
    """The job of whatever steps environments: where these run in other processes, evaluations go on beside it."""
    return Job(
        loop=parts.loop,
        iterations=iterations,
        evaluate_every=options.evaluate_every,
        checkpoint_every=options.checkpoint_every,
        ledger=parts.ledger,
        observe=observe,
        observe_aside=parts.backend != "sync",
        finish=finish,
        facts=dict(facts) | stage_facts(parts.task, parts.backend, parts.replay_bytes),
        notes=tuple(notes),
        close=parts.close,
    )


def stage_facts(task: ControlTask, backend: str, replay_bytes: int) -> dict[str, Any]:
    """For the manifest: what steps were made with."""
    versions = dict(task.versions)
    if backend == "envpool":  # it brings a simulator of its own
        versions = {"gymnasium": versions["gymnasium"], "envpool": version("envpool")}
    return {"task_versions": versions, "backend": backend, "horizon": task.horizon, "replay_bytes": replay_bytes}


def memory_note(replay_bytes: int) -> str:
    """What a user should know before the work begins."""
    return f"the replay will take up to {math.ceil(replay_bytes / 2**20):,} MiB of memory"
