"""Offline: the parts that answer a question from demonstrations alone, and the run that comes of it.

The task is needed for its spaces, and to judge policies now and then; nothing is learned from those episodes.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax.numpy as jnp
import numpy as np

from trustirl.algorithms import ALGORITHMS, Entry
from trustirl.algorithms.shared import of_robots
from trustirl.core.checks import at_least, at_most
from trustirl.core.errors import InputError
from trustirl.core.files import write_json
from trustirl.core.measure import minibatches
from trustirl.core.types import ExpertData, Metrics, TrainState, Transition
from trustirl.core.words import count
from trustirl.demos.schema import Demos
from trustirl.irl.loop import as_one_program, make_loop
from trustirl.irl.measures import Weighing
from trustirl.irl.offline import offline_sampler
from trustirl.irl.plan import Plan
from trustirl.nets.policies import INSIDE
from trustirl.rl.config import SolverConfig
from trustirl.rollouts.host import evaluate_episodes, evaluation_envs, judged
from trustirl.rollouts.ledger import Ledger
from trustirl.runs.policies import host_policies
from trustirl.worlds.job import Experiment, Job, Row, columns, filled, told_steps
from trustirl.worlds.matching import Matched, expert_data, matched, standards
from trustirl.worlds.memory import check_networks
from trustirl.worlds.simulator import ControlOptions, parts_of, require_known, update_seconds
from trustirl.worlds.simulator_run import save_learned, stage_facts, summary_of
from trustirl.worlds.stage import DemoOptions

OFFERS = frozenset({"expert rows", "demonstrated steps"})
FIT_SECONDS = 0.004  # of a gradient step of a policy alone


@dataclass(frozen=True)
class Fit:
    """How demonstrations are gone through by who, elsewhere, gathers experience."""

    updates: int = 1000
    """Minibatches per iteration."""
    batch: int = 256
    """Demonstrated steps per minibatch."""

    def __post_init__(self) -> None:
        """Refuse a fit that cannot be."""
        at_least(1, self, "updates", "batch")
        at_most(1_000_000, self, "updates", "batch")


def groups(entry: Entry, task: str, paper: bool = False) -> dict[str, Any]:
    """The settings of an algorithm, with the defaults of its paper or ours on the named task.

    One that knows simulators has its settings there, but for how experience is gathered; one that does not brings
    `updates` and `fit_batch` of its own.
    """
    kinds = {"algorithm_config": entry.config, "solver": SolverConfig}
    kinds |= {"fit": Fit, "control": ControlOptions} if _gathers(entry) else {"offline": DemoOptions}
    return filled(kinds, defaults(entry, task, paper))


def defaults(entry: Entry, task: str, paper: bool = False) -> dict[str, Any]:
    """What an entry says of its settings here, `steps` among them."""
    told = dict(entry.defaults.of(task, paper))
    options = {field.name for field in fields(DemoOptions)} - {"evaluate_every"}
    robots = {} if paper else of_robots(task, told)
    told = {name: value for name, value in robots.items() if name in options} | told
    if not _gathers(entry):
        return told
    elsewhere = {"steps", "evaluate_every", *(field.name for field in fields(Plan))} - {"batch"}
    return {name: value for name, value in told.items() if name not in elsewhere} | dict(entry.defaults.offline)


def _gathers(entry: Entry) -> bool:
    return "simulator" in entry.worlds


def check(experiment: Experiment) -> int:
    """Refuse what the job would refuse; nothing is replayed."""
    prepared(experiment)
    return 0


def updates(experiment: Experiment) -> int:
    """Gradient steps of an iteration."""
    return int(experiment.settings.get("fit", experiment.settings["algorithm_config"])["updates"])


def rough_seconds(experiment: Experiment) -> float:
    """Of one seed."""
    fit = experiment.settings.get("fit")
    return experiment.steps * (update_seconds(experiment, fit["batch"]) if fit else FIT_SECONDS)


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
    options = _options(experiment)
    given = matched(experiment, options.strict, demos, task, options.action_margin)
    if isinstance(options, ControlOptions):
        require_known(ALGORITHMS[experiment.algorithm], options, given.demos)
    return given, iterations


def _options(experiment: Experiment) -> DemoOptions:
    settings = experiment.settings
    return ControlOptions(**settings["control"]) if "fit" in settings else DemoOptions(**settings["offline"])


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
    config, options, each = SolverConfig(**settings["solver"]), _options(experiment), updates(experiment)
    fit = entry.config(**settings["algorithm_config"])
    statistics = standards(given.demos, given.task.goal)
    apart: Transition | None = None
    told: list[str] = []
    if isinstance(options, ControlOptions):
        shown, batch, rest = _experience(given, config, options), settings["fit"]["batch"], options
    else:
        shown, apart, told = _pairs(given, getattr(fit, "held_out", 0.0))
        batch, rest = fit.fit_batch, ControlOptions()
    draw, run_updates = minibatches(batch), each * (iterations + 1)
    parts = parts_of(given.task, config, rest, shown, statistics, draw, each, run_updates)
    first = jnp.asarray(given.obs[given.demos.time_in_episode() == 0])
    parts = parts._replace(own_rows=False, held_out=apart, starts=lambda: first)
    algorithm = entry.build(parts, fit)
    check_networks(experiment.seeds, lambda key: algorithm.init(key, shown))
    sampler = offline_sampler(algorithm, shown, batch)
    ledger, seeds, episodes = Ledger(), experiment.seeds, options.evaluation_episodes
    stage = evaluation_envs(given.task, seeds, episodes, ledger, options.backend, experiment.first_seed)

    def observe(state: TrainState, metrics: Metrics) -> dict[str, np.ndarray]:
        policies = host_policies(algorithm.solver.outcome(state.irl.policy), config, *statistics)
        return columns(metrics) | judged(evaluate_episodes(stage, policies, episodes, 0))

    def finish(state: TrainState, last_rows: list[Row], seconds: float, path: Path) -> None:
        learned = save_learned(experiment, path, algorithm, state.irl, given, config, statistics, rest.termination)
        summary = summary_of(given.task, ledger, last_rows, seconds, seeds * run_updates)
        write_json(path / "summary.json", summary | given.expert_return() | learned)

    return Job(
        loop=as_one_program(make_loop(algorithm, sampler, iterations)),
        iterations=iterations,
        evaluate_every=options.evaluate_every,
        checkpoint_every=options.checkpoint_every,
        ledger=ledger,
        observe=observe,
        finish=finish,
        facts=given.facts() | stage_facts(given.task, stage.backend, 0),
        notes=(*told_steps(experiment.steps, iterations + 1, each), *told, *given.notes()),
        close=stage.close,
    )


def _experience(given: Matched, config: SolverConfig, options: ControlOptions) -> ExpertData:
    """What demonstrations are to a learner of values."""
    weighing = Weighing(given.task.horizon, config.discount, discounted=False, absorb=options.termination == "T2")
    return expert_data(given.demos, given.obs, given.action, weighing, repeat=options.termination == "T3")


def _pairs(given: Matched, share: float) -> tuple[ExpertData, Transition | None, list[str]]:
    """What they are to who learns a policy alone, those of them that are held out, and what to know of that."""
    action = given.action if given.task.discrete else np.clip(given.action, np.float32(-INSIDE), np.float32(INSIDE))
    apart, told = held_out(given.demos, share)
    weight = jnp.ones(len(action), jnp.float32).at[apart].set(0.0)
    pairs = Transition(jnp.asarray(given.obs), jnp.asarray(action), weight)
    expert = ExpertData(pairs, len(action))
    if not len(apart):
        return expert, None, told
    return expert, Transition(pairs.obs[apart], pairs.action[apart], 1.0 - weight[apart]), told
