"""A reward that is given: the parts that train an expert on a task's true reward, or anybody on another (`Given`).

Rounds of practice, solvers and environments are those of every run; what differs is that the replay remembers what
the environment paid, and that there is no reward step. Nothing follows an end (T0), as in the true return.

Observations are not standardised. Training on demonstrations takes statistics from them; an expert would have to take
them from random steps, which know nothing of where it will go: at HalfCheetah's 11 m/s its speed would lie beyond the
clip of ten random deviations.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from trustirl.core.buffer import Buffer, draw
from trustirl.core.checks import at_least, at_most
from trustirl.core.errors import InputError
from trustirl.core.records import Algorithm, DrawBatch, Sampler, Solver, Turned
from trustirl.core.spaces import Spaces, Termination, acting_as
from trustirl.core.types import ExpertData, IrlState, Metrics, Transition
from trustirl.core.words import count
from trustirl.irl.loop import Loop, make_loop, split
from trustirl.irl.measures import Steps, experience
from trustirl.irl.plan import Schedule
from trustirl.irl.practice import Learner, Rounds, Stopwatch, begun_by, rounds_of_practice
from trustirl.rl.config import SolverConfig
from trustirl.rl.truth import PaidTransition, true_reward
from trustirl.rollouts.bundles import Episodes
from trustirl.rollouts.ledger import Ledger
from trustirl.rollouts.policy import Policies
from trustirl.runs.policies import host_policies, make_solver
from trustirl.tasks.gym import ControlTask, make_control_task
from trustirl.worlds.job import Experiment, filled
from trustirl.worlds.matching import example_row
from trustirl.worlds.memory import check_memory, check_networks, replay_bytes
from trustirl.worlds.stage import StageOptions, open_stage

Task = str | gym.Env | Callable[..., gym.Env]

# Settings by kind of task and by task: those that made the demonstrations of the package.
# In an iteration every environment practises for the length of a whole episode, or the ends of long ones would never
# be seen. Steps that shrink, and an average of the latest policies, make the last policy a steady one. With a
# temperature of 0.1, steps of 1e-3 and no LayerNorm, two of three CartPole seeds lost their 500 again.
STEADY = {"annealing": 0.1, "averaging": 0.01}
SAC = STEADY | {"learn_temperature": True, "layer_norm": True}
SOFT_Q = STEADY | {"temperature": 0.5, "tau": 0.02, "layer_norm": True}
ROBOT = SAC | {"rounds": 20, "warmup": 10_000, "replay": 1_000_000, "evaluate_every": 20, "checkpoint_every": 20}
# With a learned temperature and a slow target critic the best of three seeds had 3,198 (Hopper) and 4,926 (Walker2d).
WALKER = ROBOT | {"learn_temperature": False, "temperature": 0.1, "tau": 0.02, "learning_rate": 1e-3}
LANDER = {"steps_per_iteration": 4000, "envs": 4, "rounds": 20, "width": 128, "batch": 128, "evaluate_every": 5}
PRESETS: dict[str, dict[str, Any]] = {
    "CartPole-v1": SOFT_Q
    | {"steps": 30_000, "steps_per_iteration": 1000, "envs": 2, "width": 64, "learning_rate": 5e-4}
    | {"evaluate_every": 5},
    "Pendulum-v1": SAC
    | {"steps": 20_000, "steps_per_iteration": 1000, "rounds": 20, "width": 64, "learning_rate": 1e-3}
    | {"evaluate_every": 2},
    "LunarLander-v3": SOFT_Q | LANDER | {"steps": 300_000, "temperature": 0.1},  # at 0.5 it would rather hover
    "LunarLanderContinuous-v3": SAC | LANDER | {"steps": 200_000, "tau": 0.01, "learning_rate": 7e-4},
    "Hopper-v4": WALKER | {"steps": 800_000},
    "Walker2d-v4": WALKER | {"steps": 1_300_000},
    "HalfCheetah-v4": ROBOT | {"steps": 2_000_000},
    "Ant-v4": ROBOT | {"steps": 900_000},
    "Humanoid-v4": ROBOT | {"steps": 1_200_000, "episodes": 5},
}
STEPS = 1_000_000  # for a task without a preset


@dataclass(frozen=True)
class ExpertOptions(StageOptions):
    """What can be chosen for an expert."""

    evaluation_episodes: int = 20
    """Episodes per evaluation and seed; the last evaluation decides which seed is the expert."""
    episodes: int = 10
    """Demonstrations to record."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        super().__post_init__()
        at_least(1, self, "episodes")
        at_most(100_000, self, "episodes")


class PaidSteps(NamedTuple):
    """What an expert sees of its steps: arrays [steps, seeds, envs, ...]."""

    obs: Any
    action: Any
    next_obs: Any
    terminated: Any
    true_reward: Any


class Given(NamedTuple):
    """A reward that is not the true one, which then nobody sees, and what its policies are trained with."""

    functions: PyTree  # of all seeds, stacked
    statistics: tuple[np.ndarray | None, np.ndarray | None]  # mean and deviation that standardise observations
    termination: Termination
    spaces: Spaces  # for which it was learned


class Expert(NamedTuple):
    """The parts of such a training, put together."""

    task: ControlTask
    replay_bytes: int
    backend: str
    solver: Solver
    to_host: Callable[[PyTree], Policies]
    ledger: Ledger
    watch: Stopwatch
    loop: Loop
    evaluate: Callable[[PyTree], Episodes]
    close: Callable[[], None]


def preset(task: Task, task_args: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Steps and settings for a task; one that we know nothing of gets those of its kind of actions."""
    known = PRESETS.get(task) if isinstance(task, str) else None
    if known is None:
        known = SOFT_Q if make_control_task(task, task_args).discrete else SAC
    return {"steps": STEPS} | known


def groups(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an expert, with a preset's values as defaults."""
    kinds = {"solver": SolverConfig, "plan": Schedule, "expert": ExpertOptions}
    return filled(kinds, settings)


def check(experiment: Experiment) -> int:
    """Refuse what the job would refuse, opening nothing; bytes of replay that each seed will need."""
    schedule = Schedule(**experiment.settings["plan"])
    iterations(experiment.steps, schedule)
    row = example_row(make_control_task(experiment.task, experiment.task_args))
    return replay_bytes(1, min(experiment.steps, schedule.replay or experiment.steps), _paid(row))


def iterations(steps: int, schedule: Schedule) -> int:
    """Iterations after the first that the steps allow."""
    rounds = (steps - schedule.warmup) // schedule.steps_per_iteration
    if rounds < 1:
        least = schedule.warmup + schedule.steps_per_iteration
        raise InputError(
            f"{count(steps, 'step is', 'steps are')} too few; use at least {least}, or fewer steps_per_iteration."
        )
    return rounds - 1


def build(
    experiment: Experiment, options: StageOptions, task: Task | None = None, given: Given | None = None
) -> Expert:
    """Put task, solver and environments together; checks everything that a user gave."""
    settings, schedule = experiment.settings, Schedule(**experiment.settings["plan"])
    config = SolverConfig(**settings["solver"])
    total = iterations(experiment.steps, schedule) + 1
    control_task = make_control_task(task or experiment.task, experiment.task_args)
    if given:  # its numbers between -1 and 1 mean actions of the range in which it was learned
        control_task = acting_as(control_task, given.spaces)
    capacity = min(experiment.steps, schedule.replay or experiment.steps)
    row = example_row(control_task)
    example = row if given else _paid(row)
    statistics = given.statistics if given else (None, None)
    termination = given.termination if given else "T0"
    memory = check_memory(experiment.seeds, capacity, example, schedule.least_replay)
    updates = schedule.updates
    solver = make_solver(
        control_task,
        config,
        *statistics,
        updates=updates,
        termination="T2" if termination == "T2" else "T0",
        run_updates=updates * schedule.rounds * total,
    )
    check_networks(experiment.seeds, solver.init)

    def to_host(actors: PyTree) -> Policies:
        return host_policies(actors, config, *statistics)

    ledger, watch, seeds = Ledger(), Stopwatch(), experiment.seeds
    stage = open_stage(
        control_task,
        seeds,
        schedule.envs,
        options,
        termination,
        ledger,
        solver,
        to_host,
        kept=Steps if given else PaidSteps,
        contest=given is None,
        first_seed=experiment.first_seed,
    )
    algorithm, learner = practising(solver, schedule, given)
    rounds = rounds_of_practice(learner, None, stage.practice, schedule, capacity, example, watch)
    if given:
        rounds = rounds._replace(initial=_each_its_own(rounds.initial, given.functions))
    loop = make_loop(algorithm, fixed_reward_sampler(rounds, schedule), total - 1)
    return Expert(
        task=control_task,
        replay_bytes=memory,
        backend=stage.backend,
        solver=solver,
        to_host=to_host,
        ledger=ledger,
        watch=watch,
        loop=loop,
        evaluate=stage.evaluate,
        close=stage.close,
    )


def practising(solver: Solver, schedule: Schedule, given: Given | None = None) -> tuple[Algorithm, Learner]:
    """Whoever learns from a fixed reward, the true one if none is given, as the loop and rounds of practice know."""
    first = None if given is None else jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, given.functions)

    def init(key: Array, _: ExpertData | None = None) -> IrlState:
        return IrlState(solver.init(key), reward=first, optimizer=None)

    def improve(state: IrlState, draw: DrawBatch | None, key: Array) -> tuple[IrlState, Metrics]:
        assert draw is not None
        reward = true_reward if given is None else state.reward
        agent, metrics = solver.improve(state.policy, draw, reward, key)
        return replace(state, policy=agent), metrics

    def practise(state: IrlState, replay: Buffer, _: None, key: Array) -> tuple[IrlState, Metrics]:
        return improve(state, lambda k: draw(replay, k, schedule.batch), key)

    return Algorithm(solver, init, improve), Learner(init, practise, solver.actor, experience if given else _rows)


def _each_its_own(
    initial: Callable[[Array], tuple[IrlState, Buffer]], functions: PyTree
) -> Callable[[Array], tuple[IrlState, Buffer]]:
    """The beginning of all seeds, each with its own reward."""

    def begin(keys: Array) -> tuple[IrlState, Buffer]:
        irl, replay = initial(keys)
        return replace(irl, reward=functions), replay

    return begin


def fixed_reward_sampler(rounds: Rounds, schedule: Schedule) -> Sampler:
    """Rounds of practice for the true reward, and nothing else."""

    def parted(keys: Array, first: bool) -> tuple[Array, Array | None, list[Array]]:
        keys, init_keys = split(keys, 2) if first else (keys, None)
        keys, *round_keys = split(keys, schedule.rounds + 1)
        return keys, init_keys, round_keys

    def turn(irl: IrlState, replay: Buffer, keys: list[Array], iterations: Array) -> Turned:
        irl, replay, _, metrics = rounds.practise(irl, replay, keys, int(iterations[0]))
        return irl, replay, None, metrics

    return Sampler(parted, begun_by(rounds, turn), turn, lambda key: (*rounds.made(key), None))


def _paid(row: Transition) -> PaidTransition:
    """The same row, as an expert remembers it."""
    return PaidTransition(**vars(row), true_reward=row.weight)


def _rows(steps: PaidSteps) -> PaidTransition:
    """Rows for an expert's replay."""
    weight = jnp.ones(steps.terminated.shape, jnp.float32)
    return PaidTransition(
        steps.obs, steps.action, weight, steps.next_obs, steps.terminated, true_reward=steps.true_reward
    )
