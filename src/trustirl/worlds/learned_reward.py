"""Learned rewards as teachers: fresh policies are trained on the frozen rewards of a run, in its task or in another.

Everything is as where an expert is trained, except for what is paid: the true reward is never seen. The rewards bring
their absorbing values, bounds and normalisers; the run brings its solver's settings and statistics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from trustirl.core.errors import InputError
from trustirl.core.files import file_hash, read_arrays, write_json
from trustirl.core.spaces import Finite, Spaces, Termination
from trustirl.core.types import Metrics, TrainState, Transition
from trustirl.irl.plan import Schedule
from trustirl.rewards.reward import LearnedReward
from trustirl.rewards.saved import load_rewards
from trustirl.rl.config import SolverConfig
from trustirl.rollouts.host import judged
from trustirl.runs.policies import save_policies
from trustirl.tasks.gym import ControlTask, make_control_task
from trustirl.worlds.fixed_reward import Expert, Given, Task, build, iterations
from trustirl.worlds.job import Experiment, Groups, Job, Row, columns, told_steps
from trustirl.worlds.matching import example_row
from trustirl.worlds.memory import replay_bytes
from trustirl.worlds.simulator_run import memory_note, staged, summary_of
from trustirl.worlds.stage import StageOptions

REWARD = "reward.safetensors"


@dataclass(frozen=True)
class RetrainOptions(StageOptions):
    """What can be chosen where a learned reward is paid."""

    reward: str = ""
    """The run that learned it."""
    paid: Literal["learned", "zero"] = "learned"
    """The learned reward, or nothing at all: what the solver and the ends of episodes do alone."""
    termination: Termination = "T2"
    """What follows an end, as the reward was learned."""


class Nothing(eqx.Module):
    """A reward of zero."""

    def __call__(self, batch: Transition) -> Float[Array, "..."]:
        return jnp.zeros_like(batch.weight)


def groups(config: Mapping[str, Any] | None = None) -> Groups:
    """Settings as those of the run with this configuration, as far as it has them."""
    kinds = {"solver": SolverConfig, "plan": Schedule, "retraining": RetrainOptions}
    told = {} if config is None else config
    found = {"solver": told.get("solver"), "plan": told.get("plan"), "retraining": told.get("control")}
    return {group: kind(**_known(kind, found[group] or {})) for group, kind in kinds.items()}


def _known(kind: type[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: settings[field.name] for field in fields(kind) if field.name in settings}


def check(experiment: Experiment) -> int:
    """Refuse what the job would refuse, opening nothing; bytes of replay that each seed will need."""
    schedule = Schedule(**experiment.settings["plan"])
    iterations(experiment.steps, schedule)
    row = example_row(make_control_task(experiment.task, experiment.task_args))
    return replay_bytes(1, min(experiment.steps, schedule.replay or experiment.steps), row)


def given_of(experiment: Experiment, task: Task | None = None) -> Given:
    """The rewards of the run that is named, one per seed; the fewer begin again."""
    options = RetrainOptions(**experiment.settings["retraining"])
    folder = Path(options.reward)
    arrays = read_arrays(folder / "policy.safetensors")
    statistics = arrays.get("obs_mean"), arrays.get("obs_std")
    rewards = list(load_rewards(folder))
    control_task = make_control_task(task or experiment.task, experiment.task_args)
    spaces = _check_spaces(rewards[0], control_task, folder)
    each = [rewards[seed % len(rewards)].function for seed in experiment.seed_numbers]
    functions: PyTree = Nothing()
    if options.paid == "learned":
        dynamic, static = zip(*(eqx.partition(function, eqx.is_array) for function in each), strict=True)
        functions = eqx.combine(jax.tree.map(lambda *x: jnp.stack(x), *dynamic), static[0])
    return Given(functions, statistics, options.termination, spaces)


def _check_spaces(reward: LearnedReward, task: ControlTask, folder: Path) -> Spaces:
    spaces = reward.spaces
    if isinstance(spaces, Finite):
        raise InputError(f"{folder} learned a reward of numbered states, which no simulator has; compare it instead.")
    here, learned = ((s.obs_dim, s.action_dim, s.discrete) for s in (task, spaces))
    if here != learned:
        raise InputError(
            f"the reward of {folder} was learned for {spaces.name}, and {task.name} has other observations or "
            "actions; name a task like the run's own."
        )
    return spaces


def learned_reward_job(experiment: Experiment, task: Task | None = None) -> Job:
    """The training of fresh policies on learned rewards, ready to run."""
    options = RetrainOptions(**experiment.settings["retraining"])
    schedule, config = Schedule(**experiment.settings["plan"]), SolverConfig(**experiment.settings["solver"])
    last, given = iterations(experiment.steps, schedule), given_of(experiment, task)
    parts: Expert = build(experiment, options, task, given)
    reward = Path(options.reward)

    def observe(state: TrainState, metrics: Metrics) -> dict[str, np.ndarray]:
        return columns(metrics) | judged(parts.evaluate(state.irl.policy))

    def finish(state: TrainState, last_rows: list[Row], seconds: float, path: Path) -> None:
        save_policies(path, parts.solver.outcome(state.irl.policy), parts.task, config, *given.statistics)
        made = experiment.seeds * (last + 1) * schedule.rounds * schedule.updates
        summary = summary_of(parts.task, parts.ledger, last_rows, seconds, made)
        write_json(path / "summary.json", summary | {"practice_seconds": parts.watch.seconds})

    facts = {"reward_hash": file_hash(reward / REWARD)}
    notes = told_steps(experiment.steps, last + 1, schedule.whole, schedule.random_steps)
    return staged(parts, options, last, observe, finish, facts, [*notes, memory_note(parts.replay_bytes)])
