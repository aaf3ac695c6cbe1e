"""Control: the parts that answer a question on a Gymnasium task, where experience is sampled."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from trustirl.algorithms import ALGORITHMS, Entry
from trustirl.algorithms.shared import of_robots
from trustirl.core.checks import at_least, at_most, positive
from trustirl.core.errors import DemoError, InputError
from trustirl.core.measure import Draw, minibatches
from trustirl.core.records import Algorithm, Parts, Solver
from trustirl.core.spaces import Termination
from trustirl.core.types import ExpertData, Transition
from trustirl.core.words import count
from trustirl.demos.schema import Demos
from trustirl.irl.loop import Loop, make_loop
from trustirl.irl.measures import Weighing, after_steps
from trustirl.irl.plan import Plan
from trustirl.irl.practice import Stopwatch, simulator_sampler
from trustirl.irl.start import check_start
from trustirl.nets.rewards import NetworkReward, RewardInputs, network_reward_factory
from trustirl.rl.config import WIDEST, SolverConfig
from trustirl.rollouts.bundles import Episodes
from trustirl.rollouts.host import first_observations
from trustirl.rollouts.ledger import Ledger
from trustirl.rollouts.policy import Policies
from trustirl.runs.policies import host_policies, make_solver
from trustirl.tasks.gym import ControlTask
from trustirl.worlds.job import Experiment, filled
from trustirl.worlds.matching import (
    Matched,
    example_row,
    expert_data,
    matched,
    require_successors,
    restorable,
    standards,
    starts_of,
)
from trustirl.worlds.memory import check_memory, check_networks, replay_bytes
from trustirl.worlds.stage import DemoOptions, open_stage

# What algorithms may need of this world.
OFFERS = frozenset({"demonstrated steps", "episodes", "expert rows", "rewards of states"})
STARTS = 256  # episodes whose first states stand for all, where an algorithm asks for them
UPDATE_SECONDS = 0.0005, 0.012  # of any policy update, and of one with batch 256 and layers of 256


@dataclass(frozen=True)
class ControlOptions(DemoOptions):
    """What can be chosen on a Gymnasium task."""

    termination: Termination = "T2"
    """What follows an end: T0 nothing; T2 an absorbing state with a learned reward; T3 the last state, repeated."""
    reward_inputs: RewardInputs = "state-action"
    """What the reward may depend on; a transition is a state and the one that follows."""
    reward_width: int = 128
    """Units of each hidden layer of the reward."""
    reward_depth: int = 2
    """Hidden layers of the reward."""
    reward_bound: float = 10.0
    """Rewards stay within plus and minus this."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        super().__post_init__()
        at_least(1, self, "reward_width", "reward_depth")
        at_most(WIDEST, self, "reward_width")
        at_most(100, self, "reward_depth")
        positive(self, "reward_bound")
        at_most(1_000_000, self, "reward_bound")


class Control(NamedTuple):
    """The parts of a control experiment, put together."""

    task: ControlTask
    given: Matched
    plan: Plan
    replay_bytes: int
    backend: str
    statistics: tuple[np.ndarray, np.ndarray]  # mean and deviation that standardise observations
    algorithm: Algorithm
    ledger: Ledger
    watch: Stopwatch
    loop: Loop
    evaluate: Callable[[PyTree], Episodes]
    close: Callable[[], None]


def groups(entry: Entry, task: str, paper: bool = False) -> dict[str, Any]:
    """The settings of an algorithm on Gymnasium tasks, with the defaults of its paper or ours on the named task."""
    kinds = {
        "algorithm_config": entry.config,
        "solver": SolverConfig,
        "plan": Plan,
        "control": ControlOptions,
    }
    return filled(kinds, defaults(entry, task, paper))


def defaults(entry: Entry, task: str, paper: bool = False) -> Mapping[str, Any]:
    """What an entry says of its settings here, `steps` among them."""
    known = entry.defaults.of(task, paper)
    if paper:
        return known
    return {**known, **of_robots(task, known), **entry.defaults.tasks.get(task, {})}


def rough_seconds(experiment: Experiment) -> float:
    """Of one seed."""
    plan = experiment.settings["plan"]
    return float(experiment.steps * plan["update_ratio"] * update_seconds(experiment, plan["batch"]))


def update_seconds(experiment: Experiment, batch: int) -> float:
    """Of a policy update."""
    least, most = UPDATE_SECONDS
    return float(least + most * batch * experiment.settings["solver"]["width"] ** 2 / (256 * 256**2))


def parts_of(
    task: ControlTask,
    config: SolverConfig,
    options: ControlOptions,
    expert: ExpertData,
    statistics: tuple[np.ndarray, np.ndarray],
    draw: Draw,
    updates: int,
    run_updates: int,
) -> Parts:
    """What an algorithm is put together from, whether environments are stepped or not."""

    def solver(**slots: Any) -> Solver:
        given: dict[str, Any] = {"updates": updates, "run_updates": run_updates}
        given |= {"termination": "T2" if options.termination == "T2" else "T0"} | slots
        return make_solver(task, config, *statistics, **given)

    def network(inputs: RewardInputs, bound: float) -> Callable[[Array], NetworkReward]:
        shown = jax.tree.map(lambda rows: rows[: expert.steps], expert.measure)
        actions = task.action_dim if task.discrete else 0
        sizes = options.reward_width, options.reward_depth
        return network_reward_factory(shown, actions, inputs, *sizes, bound, task.goal)

    values = options.reward_bound / (1 - config.discount)  # as large as those of bounded rewards
    rewards = network(options.reward_inputs, options.reward_bound), network("state", values)
    absorb = options.termination == "T2"
    return Parts(solver, rewards[0], draw, task, config, statistics, rewards[1], after_steps, absorb=absorb)


def iterations(steps: int, plan: Plan) -> int:
    """Reward updates that the steps allow; the first round of practice comes before any."""
    updates = (steps - plan.warmup) // plan.whole - 1
    if updates < 1:
        least = plan.warmup + 2 * plan.whole
        raise InputError(
            f"no reward update fits into {count(steps, 'step')}; use at least {least}, or fewer steps_per_iteration."
        )
    return updates


class Prepared(NamedTuple):
    """A question that was checked, with what it needs of memory."""

    given: Matched
    plan: Plan
    capacity: int  # steps per seed that are remembered
    example: Transition  # one row of experience

    @property
    def bytes_per_seed(self) -> int:
        """Memory of one seed's replay."""
        return replay_bytes(1, self.capacity, self.example)


def prepared(
    experiment: Experiment, demos: Demos | None = None, task: str | gym.Env | Callable[..., gym.Env] | None = None
) -> Prepared:
    """Check everything that a user gave, except whether all seeds fit into memory."""
    options = ControlOptions(**experiment.settings["control"])
    given = matched(experiment, options.strict, demos, task, options.action_margin)
    plan = _needed(ALGORITHMS[experiment.algorithm], Plan(**experiment.settings["plan"]), options, given)
    if plan.shown:
        given = given._replace(demos=restorable(given.task, given.demos))
    if plan.tremble and options.backend == "envpool":
        raise InputError("actions of EnvPool cannot tremble: use backend='sync' or 'async', or set tremble to 0.")
    iterations(experiment.steps, plan)
    capacity = min(experiment.steps, plan.replay or experiment.steps)
    return Prepared(given, plan, capacity, example_row(given.task))


def require_known(entry: Entry, options: ControlOptions, demos: Demos) -> None:
    """Refuse demonstrations that do not tell what followed a step, as far as that is needed."""
    if {"expert rows", "demonstrated steps"} & entry.needs and not len(demos.successors()[0]):
        raise DemoError(
            f"{entry.name} must know what followed a demonstrated step, and the demos are subsampled without "
            "next_observations; give whole episodes, or next_observations."
        )
    if options.reward_inputs == "transition":
        require_successors(demos)


def _needed(entry: Entry, plan: Plan, options: ControlOptions, given: Matched) -> Plan:
    """The plan with what the algorithm needs; one that cannot have it is refused."""
    if "expert rows" in entry.needs:
        if not round(plan.demo_share * plan.batch):
            raise InputError(
                f"{entry.name} learns from demonstrated rows beside its own: set demo_share between 0 and 1, such as "
                "0.5."
            )
        if plan.demo_half_life is not None:
            raise InputError(f"{entry.name} needs demonstrated rows to the end: set demo_half_life to None.")
    require_known(entry, options, given.demos)
    if "rewards of states" in entry.needs and options.reward_inputs != "state":
        raise InputError(
            f"{entry.name} compares how often states are visited: reward_inputs must be state, got "
            f"{options.reward_inputs}."
        )
    if "episodes" not in entry.needs:
        return plan
    whole = plan.envs * given.task.horizon
    if options.termination != "T3":
        raise InputError(
            f"{entry.name} compares whole episodes of one length: termination must be T3, got {options.termination}."
        )
    if plan.envs < 2:
        raise InputError(
            f"{entry.name} compares the episodes of several environments: envs must be at least 2, got {plan.envs}."
        )
    if plan.extra_steps not in (0, whole):
        raise InputError(
            f"{entry.name} needs one episode in each of {plan.envs} environments: extra_steps must be {whole} (or 0, "
            f"which stands for it), got {plan.extra_steps}."
        )
    return replace(plan, extra_steps=whole)


def build(
    experiment: Experiment, demos: Demos | None = None, task: str | gym.Env | Callable[..., gym.Env] | None = None
) -> Control:
    """Put task, demonstrations, solver and algorithm together; checks everything that a user gave."""
    settings = experiment.settings
    options = ControlOptions(**settings["control"])
    config, entry = SolverConfig(**settings["solver"]), ALGORITHMS[experiment.algorithm]
    given, plan, capacity, example = prepared(experiment, demos, task)
    control_task, demos, obs, action = given.task, given.demos, given.obs, given.action
    memory = check_memory(experiment.seeds, capacity, example, plan.least_replay)

    statistics = standards(demos, control_task.goal)
    absorb = options.termination == "T2"
    reward_updates = iterations(experiment.steps, plan)
    run_updates = plan.updates * plan.rounds * (reward_updates + 1)
    weighing = Weighing(control_task.horizon, config.discount, plan.discounted, absorb)
    expert = expert_data(demos, obs, action, weighing, repeat=options.termination == "T3")

    draw = minibatches(plan.reward_batch)
    parts = parts_of(control_task, config, options, expert, statistics, draw, plan.updates, run_updates)
    parts = parts._replace(starts=lambda: jnp.asarray(first_observations(control_task, STARTS)))
    algorithm = entry.build(parts, entry.config(**settings["algorithm_config"]))
    check_networks(experiment.seeds, lambda key: algorithm.init(key, expert))
    if plan.clone_start:
        first = eqx.filter_eval_shape(lambda key: algorithm.init(key, expert), jax.random.key(0))
        check_start(entry.name, first.policy, control_task.discrete, config)
    ledger, watch = Ledger(), Stopwatch()

    def to_host(actors: PyTree) -> Policies:
        return host_policies(actors, config, *statistics)

    stage = open_stage(
        control_task,
        experiment.seeds,
        plan.envs,
        options,
        options.termination,
        ledger,
        algorithm.solver,
        to_host,
        first_seed=experiment.first_seed,
        starts=starts_of(given) if plan.shown else None,
        shown=plan.shown,
        tremble=plan.tremble,
    )
    sampler = simulator_sampler(
        algorithm, expert, stage.practice, plan, weighing, capacity, example, watch, entry.needs
    )
    loop = make_loop(algorithm, sampler, reward_updates)
    return Control(
        task=control_task,
        given=given,
        plan=plan,
        replay_bytes=memory,
        backend=stage.backend,
        statistics=statistics,
        algorithm=algorithm,
        ledger=ledger,
        watch=watch,
        loop=loop,
        evaluate=stage.evaluate,
        close=stage.close,
    )
