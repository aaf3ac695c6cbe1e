"""Offline: the parts that answer a question from demonstrations alone, and the run that comes of it.

The task is needed for its spaces, and to judge policies now and then; nothing is learned from those episodes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax.numpy as jnp
import numpy as np

from trustirl.algorithms import ALGORITHMS, Entry
from trustirl.core.errors import InputError
from trustirl.core.files import write_json
from trustirl.core.measure import minibatches
from trustirl.core.records import Parts
from trustirl.core.types import ExpertData, Metrics, TrainState, Transition
from trustirl.core.words import count
from trustirl.demos.schema import Demos
from trustirl.irl.loop import as_one_program, make_loop
from trustirl.irl.offline import offline_sampler
from trustirl.nets.policies import INSIDE
from trustirl.rl.config import SolverConfig
from trustirl.rollouts.host import evaluate_returns, evaluation_envs
from trustirl.rollouts.ledger import Ledger
from trustirl.runs.policies import host_policies, make_solver, save_policies
from trustirl.worlds.job import Experiment, Job, Row, columns, filled, told_steps
from trustirl.worlds.matching import Matched, matched, standards
from trustirl.worlds.memory import check_networks
from trustirl.worlds.simulator_run import stage_facts, summary_of
from trustirl.worlds.stage import StageOptions

FIT_SECONDS = 0.004  # of a gradient step


@dataclass(frozen=True)
class OfflineOptions(StageOptions):
    """What can be chosen where demonstrations are all there is."""

    strict: bool = False
    """Refuse demonstrated actions outside the action space instead of clipping them."""


def groups(entry: Entry, task: str, paper: bool = False) -> dict[str, Any]:
    """The settings of an algorithm, with the defaults of its paper or ours on the named task."""
    kinds = {"algorithm_config": entry.config, "solver": SolverConfig, "offline": OfflineOptions}
    return filled(kinds, entry.defaults.of(task, paper))


def check(experiment: Experiment) -> int:
    """Refuse what the job would refuse; nothing is replayed."""
    prepared(experiment)
    return 0


def updates(experiment: Experiment) -> int:
    """Gradient steps of an iteration."""
    return int(experiment.settings["algorithm_config"]["updates"])


def rough_seconds(experiment: Experiment) -> float:
    """Of one seed."""
    return experiment.steps * FIT_SECONDS


def prepared(
    experiment: Experiment, demos: Demos | None = None, task: str | gym.Env | Callable[..., gym.Env] | None = None
) -> tuple[Matched, int]:
    """Check everything that a user gave; the second value is the number of iterations after the first."""
    each = updates(experiment)
    iterations = experiment.steps // each - 1
    if iterations < 0:
        raise InputError(
            f"{count(experiment.steps, 'step is', 'steps are')} too few; use at least {each}, or fewer updates."
        )
    return matched(experiment, OfflineOptions(**experiment.settings["offline"]).strict, demos, task), iterations


def held_out(demos: Demos, share: float) -> tuple[np.ndarray, list[str]]:
    """The rows of that share of the episodes, always the same ones, and what a user should know of it."""
    several, few = len(demos), round(share * len(demos))
    if not few:
        return np.arange(0), []
    chosen = np.random.default_rng(0).permutation(several)[:few]
    rows = np.flatnonzero(np.isin(np.repeat(np.arange(several), demos.lengths()), chosen))
    return rows, [
        f"{few} of {count(several, 'demo episode')} {'is' if few == 1 else 'are'} held out, and what is kept and "
        "reported is the policy, of those after each iteration, that fits them best; held_out=0 keeps the last one"
    ]


def offline_job(
    experiment: Experiment, demos: Demos | None = None, task: str | gym.Env | Callable[..., gym.Env] | None = None
) -> Job:
    """An experiment that steps no environment but to judge, ready to run."""
    settings, entry = experiment.settings, ALGORITHMS[experiment.algorithm]
    given, iterations = prepared(experiment, demos, task)
    config, options = SolverConfig(**settings["solver"]), OfflineOptions(**settings["offline"])
    fit = entry.config(**settings["algorithm_config"])
    statistics = standards(given.demos)
    action = given.action if given.task.discrete else np.clip(given.action, np.float32(-INSIDE), np.float32(INSIDE))
    apart, told = held_out(given.demos, getattr(fit, "held_out", 0.0))
    weight = jnp.ones(len(action), jnp.float32).at[apart].set(0.0)
    pairs = Transition(jnp.asarray(given.obs), jnp.asarray(action), weight)
    expert = ExpertData(pairs, len(action))
    parts = Parts(
        lambda **slots: make_solver(given.task, config, *statistics, **slots),
        lambda _key: None,
        minibatches(fit.fit_batch),
        given.task,
        config,
        statistics,
        held_out=Transition(pairs.obs[apart], pairs.action[apart], 1.0 - pairs.weight[apart]) if len(apart) else None,
    )
    algorithm = entry.build(parts, fit)
    check_networks(experiment.seeds, lambda key: algorithm.init(key, expert))
    sampler = offline_sampler(algorithm, expert, fit.fit_batch)
    ledger, seeds, episodes = Ledger(), experiment.seeds, options.evaluation_episodes
    judged = evaluation_envs(given.task, seeds, episodes, ledger, options.backend, experiment.first_seed)

    def observe(state: TrainState, metrics: Metrics) -> dict[str, np.ndarray]:
        policies = host_policies(algorithm.solver.outcome(state.irl.policy), config, *statistics)
        returns = evaluate_returns(judged, policies, episodes, 0)
        return columns(metrics) | {"return_mean": returns.mean(axis=1), "return_std": returns.std(axis=1)}

    def finish(state: TrainState, last_rows: list[Row], seconds: float, path: Path) -> None:
        save_policies(path, algorithm.solver.outcome(state.irl.policy), given.task, config, *statistics)
        made = seeds * (iterations + 1) * fit.updates
        summary = summary_of(given.task, ledger, last_rows, seconds, made)
        write_json(path / "summary.json", summary | given.expert_return())

    return Job(
        loop=as_one_program(make_loop(algorithm, sampler, iterations)),
        iterations=iterations,
        evaluate_every=options.evaluate_every,
        checkpoint_every=options.checkpoint_every,
        ledger=ledger,
        observe=observe,
        finish=finish,
        facts=given.facts() | stage_facts(given.task, judged.backend, 0),
        notes=(*told_steps(experiment.steps, iterations + 1, fit.updates), *told, *given.notes()),
        close=judged.close,
    )
