"""Control: the parts that answer a question on a Gymnasium task, where experience is sampled."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from trustirl.algorithms import ALGORITHMS, Entry
from trustirl.core.checks import at_least, at_most, positive
from trustirl.core.errors import DemoError, InputError
from trustirl.core.measure import concat, minibatches
from trustirl.core.records import Algorithm, Parts, Solver
from trustirl.core.types import ExpertData, Transition
from trustirl.core.words import count
from trustirl.demos.checks import LARGEST, pieces, place
from trustirl.demos.inspect import inspect
from trustirl.demos.origin import env_arguments
from trustirl.demos.schema import Demos, find_demos
from trustirl.irl.loop import Loop, make_loop
from trustirl.irl.measures import Steps, Weighing, weighted
from trustirl.irl.plan import Plan
from trustirl.irl.practice import simulator_sampler
from trustirl.nets.mlp import scales
from trustirl.nets.rewards import RewardInputs, network_reward_factory
from trustirl.rl.config import WIDEST, SolverConfig
from trustirl.rollouts.host import (
    Backend,
    HostEnvs,
    Termination,
    episode_seeds,
    evaluate_returns,
    evaluation_envs,
)
from trustirl.rollouts.ledger import Ledger, Purpose
from trustirl.rollouts.policy import Policies
from trustirl.rollouts.spaces import from_env_actions
from trustirl.runs.policies import host_policies, make_solver
from trustirl.tasks.gym import ControlTask, make_control_task
from trustirl.worlds.job import Experiment, filled
from trustirl.worlds.memory import check_memory, check_networks, replay_bytes

OFFERS = frozenset({"episodes", "expert rows"})  # what algorithms may need of this world
UPDATE_SECONDS = 0.0005, 0.012  # of any policy update, and of one with batch 256 and layers of 256


@dataclass(frozen=True)
class StageOptions:
    """How environments are stepped, and how often a run is looked at."""

    backend: Backend = "auto"
    """How environments are stepped: in this process, in several, or by EnvPool."""
    evaluate_every: int = 4
    """Iterations between evaluations."""
    evaluation_episodes: int = 10
    """Episodes per evaluation and seed."""
    checkpoint_every: int = 10
    """Iterations between checkpoints."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        at_least(1, self, "evaluate_every", "evaluation_episodes", "checkpoint_every")
        at_most(100_000, self, "evaluation_episodes")


@dataclass(frozen=True)
class ControlOptions(StageOptions):
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
    strict: bool = False
    """Refuse demonstrated actions outside the action space instead of clipping them."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        super().__post_init__()
        at_least(1, self, "reward_width", "reward_depth")
        at_most(WIDEST, self, "reward_width")
        at_most(100, self, "reward_depth")
        positive(self, "reward_bound")
        at_most(1_000_000, self, "reward_bound")


class Matched(NamedTuple):
    """Demonstrations that were read and found to belong to the task."""

    task: ControlTask
    demos: Demos
    obs: np.ndarray  # as networks see it
    action: np.ndarray  # likewise
    clipped: int  # entries of actions that lay outside the action space
    origin: str | None  # the environment that made the demonstrations, if it is another version of the task's

    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        why = self.incomparable()
        told = {"demo_hash": self.demos.content_hash(), "clipped_actions": self.clipped}
        return told | ({"expert_incomparable": why} if why else {})

    def expert_return(self) -> dict[str, float]:
        """For the summary: the demonstrations' mean true return, where it is known and can be compared."""
        returns = self.demos.returns()
        return {} if returns is None or self.incomparable() else {"expert_return": float(returns.mean())}

    @np.errstate(over="ignore")
    def incomparable(self) -> str:
        """Why the returns of the demonstrations say nothing of what the task can bring; empty where they do."""
        returns = self.demos.returns()
        if returns is None:
            return ""
        longest = int(self.demos.lifetimes().max())
        if longest > self.task.horizon:
            return (
                f"demonstrated episodes last up to {count(longest, 'step')}, and the task stops after "
                f"{self.task.horizon}"
            )
        made = str(self.demos.provenance.get("env_id", ""))
        if made and _kinds_of_reward(made) != _kinds_of_reward(self.task.env_id):
            return f"{made} pays another reward than {self.task.env_id}"
        made_with = env_arguments(self.demos.provenance)
        for name, value in self.task.env_kwargs.items():
            if made_with is not None and ("reward" in name or "cost" in name) and made_with.get(name) != value:
                return f"they were recorded without {name}={value}"
        return "" if np.isfinite(returns.mean()) else "they are too large to be added up"

    def notes(self) -> list[str]:
        """What a user should know before the work begins."""
        told = []
        if self.origin:
            told.append(f"the demos were made in {self.origin} and the task is {self.task.env_id}")
        if (made_with := env_arguments(self.demos.provenance)) is not None:
            given = self.task.env_kwargs.items()
            if new := [f"{name}={value}" for name, value in given if made_with.get(name) != value]:
                told.append(f"the task is given {' '.join(new)}, which the environment of the demos was not")
        if self.clipped:
            told.append(
                f"{count(self.clipped, 'entry', 'entries')} of the demonstrated actions lay outside the action space "
                "and were clipped"
            )
        findings = inspect(self.demos, self.task).findings
        told += [
            f"{finding.where} of the demos: {finding.sentence.rstrip('.')}"
            for finding in findings
            if finding.severity == "problem"
        ]
        if why := self.incomparable():
            told.append(f"the demos' returns are not shown as the expert's: {why}")
        return told


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
    loop: Loop
    evaluate: Callable[[PyTree], Float[np.ndarray, "seeds episodes"]]
    close: Callable[[], None]


class Practice:
    """Environments of all seeds, and the round of an iteration that they have reached."""

    def __init__(self, envs: HostEnvs, to_host: Callable[[PyTree], Policies], kept: type[Any] = Steps) -> None:
        """`to_host` fetches the policies of stacked actors from the device; `kept` names what a learner may see."""
        self.envs, self._to_host, self._kept = envs, to_host, kept

    def fresh(self, iteration: int, purpose: Purpose) -> None:
        """Start new episodes whose seeds derive from the run's seeds, the iteration and the purpose."""
        rows = [episode_seeds(seed, iteration, self.envs.envs_per_seed, purpose) for seed in self.envs.seed_numbers]
        self.envs.reset(np.stack(rows))
        self._iteration, self._purpose, self._round = iteration, purpose, 0

    def collect(self, actor: PyTree | None, steps: int) -> Any:
        """Go on for `steps` steps in every environment; without an actor, at random."""
        policies = None if actor is None else self._to_host(actor)
        rollout = self.envs.rollout(policies, steps, self._purpose, self._iteration, self._round)
        self._round += 1
        return self._kept(*(getattr(rollout, name) for name in self._kept._fields))


class Stage(NamedTuple):
    """Environments to practise in, and others where policies are judged."""

    practice: Practice
    backend: str
    evaluate: Callable[[PyTree], Float[np.ndarray, "seeds episodes"]]  # true returns of the agents' outcomes
    close: Callable[[], None]


def open_stage(
    task: ControlTask,
    seeds: int,
    envs_per_seed: int,
    options: StageOptions,
    termination: Termination,
    ledger: Ledger,
    solver: Solver,
    to_host: Callable[[PyTree], Policies],
    kept: type[Any] = Steps,
    contest: bool = False,
    first_seed: int = 0,
) -> Stage:
    """Open the environments of a run.

    In a `contest` all seeds are judged on the same episodes, others than those on which imitators of the winner are.
    """
    paid = "true_reward" in kept._fields
    envs = HostEnvs(task, seeds, envs_per_seed, ledger, options.backend, termination, first_seed, paid)
    judged = evaluation_envs(task, seeds, options.evaluation_episodes, ledger, options.backend, first_seed)

    def evaluate(agents: PyTree) -> Float[np.ndarray, "seeds episodes"]:
        policies, root = to_host(solver.outcome(agents)), int(contest)
        return evaluate_returns(judged, policies, options.evaluation_episodes, root, alike=contest)

    def close() -> None:
        envs.close()
        judged.close()

    return Stage(Practice(envs, to_host, kept), envs.backend, evaluate, close)


def groups(entry: Entry, task: str, paper: bool = False) -> dict[str, Any]:
    """The settings of an algorithm on Gymnasium tasks, with the defaults of its paper or ours on the named task."""
    kinds = {
        "algorithm_config": entry.config,
        "solver": SolverConfig,
        "plan": Plan,
        "control": ControlOptions,
    }
    return filled(kinds, entry.defaults.of(task, paper))


def rough_seconds(experiment: Experiment) -> float:
    """Of one seed."""
    plan, width = experiment.settings["plan"], experiment.settings["solver"]["width"]
    least, most = UPDATE_SECONDS
    update = least + most * plan["batch"] * width**2 / (256 * 256**2)
    return float(experiment.steps * plan["update_ratio"] * update)


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
    given = matched(experiment, options.strict, demos, task)
    plan = _needed(ALGORITHMS[experiment.algorithm], Plan(**experiment.settings["plan"]), options, given)
    if options.reward_inputs == "transition":
        _require_successors(given.demos)
    iterations(experiment.steps, plan)
    capacity = min(experiment.steps, plan.replay or experiment.steps)
    return Prepared(given, plan, capacity, example_row(given.task))


def _needed(entry: Entry, plan: Plan, options: ControlOptions, given: Matched) -> Plan:
    """The plan with what the algorithm needs; one that cannot have it is refused."""
    if "expert rows" in entry.needs:
        if not round(plan.demo_share * plan.batch):
            raise InputError(
                f"{entry.name} learns from demonstrated rows beside its own: set demo_share between 0 and 1, such as "
                "0.5."
            )
        if not len(given.demos.successors()[0]):
            raise DemoError(
                f"{entry.name} must know what followed a demonstrated step, and the demos are subsampled without "
                "next_observations; give whole episodes, or next_observations."
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


def matched(
    experiment: Experiment,
    strict: bool,
    demos: Demos | None = None,
    task: str | gym.Env | Callable[..., gym.Env] | None = None,
) -> Matched:
    """Make the task, read the demonstrations, and check that they belong together."""
    control_task = make_control_task(task or experiment.task, experiment.task_args)
    _check_actions(ALGORITHMS[experiment.algorithm], control_task)
    demos = demos or find_demos(experiment.demos, control_task.env_id)
    if experiment.demo_episodes is not None:
        demos = demos.take(experiment.demo_episodes, experiment.demo_choice)
    origin = _other_version(demos, control_task)
    return Matched(control_task, demos, *_checked(demos, control_task, strict), origin)


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

    statistics = standards(demos)
    absorb = options.termination == "T2"
    reward_updates = iterations(experiment.steps, plan)
    run_updates = plan.updates * plan.rounds * (reward_updates + 1)
    weighing = Weighing(control_task.horizon, config.discount, plan.discounted, absorb)
    expert = expert_data(demos, obs, action, weighing, repeat=options.termination == "T3")

    def solver(**slots: Any) -> Solver:
        given: dict[str, Any] = {"updates": plan.updates, "run_updates": run_updates}
        given |= {"termination": "T2" if absorb else "T0"} | slots
        return make_solver(control_task, config, *statistics, **given)

    parts = Parts(
        solver,
        network_reward_factory(
            jax.tree.map(lambda rows: rows[: expert.steps], expert.measure),
            control_task.action_dim if control_task.discrete else 0,
            options.reward_inputs,
            options.reward_width,
            options.reward_depth,
            options.reward_bound,
        ),
        minibatches(plan.reward_batch),
        control_task,
        config,
        statistics,
    )
    algorithm = entry.build(parts, entry.config(**settings["algorithm_config"]))
    check_networks(experiment.seeds, lambda key: algorithm.init(key, expert))
    ledger = Ledger()

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
    )
    sampler = simulator_sampler(algorithm, expert, stage.practice, plan, weighing, capacity, example, entry.needs)
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
        loop=loop,
        evaluate=stage.evaluate,
        close=stage.close,
    )


def expert_data(
    demos: Demos, obs: np.ndarray, action: np.ndarray, weighing: Weighing, repeat: bool = False
) -> ExpertData:
    """What demonstrations are to an algorithm, with what follows an end as the learner has it.

    That is the absorbing state, or the terminal observation, repeated until the horizon (`repeat`). There, the last
    demonstrated action stands for those that an expert would take.
    """
    last = demos.episode_ends - 1
    index, after = demos.successors()
    next_obs, terminated = obs.copy(), np.zeros(len(obs), bool)
    next_obs[index] = after.reshape(-1, obs.shape[1])
    terminated[last] = demos.terminated & (not repeat)
    weight = demos.discount_weights(weighing.rate).astype(np.float32)
    rest = demos.absorbing_weights(weighing.horizon, weighing.rate).astype(np.float32)
    steps = _rows(obs, action, weight, next_obs, terminated)
    episode = np.repeat(np.arange(len(last)), demos.lengths())
    if repeat:
        if weighing.rate is not None:  # the learner's episodes end at the horizon, and so does the repetition
            rest *= 1 - weighing.rate ** (weighing.horizon - demos.time_in_episode()[last] - 1)
        known = next_obs if demos.next_observations is not None else obs
        ends = _rows(known[last], action[last], rest, known[last], terminated[last])
        measure, episode = concat(weighted(steps), weighted(ends)), np.append(episode, np.arange(len(last)))
    else:
        after_each = np.zeros(len(obs), np.float32)
        after_each[last] = rest
        measure = weighted(steps, jnp.asarray(after_each) if weighing.absorb else None)
        episode = np.tile(episode, 2) if weighing.absorb else episode
    return ExpertData(measure, len(obs), *_experience(demos, steps, index), jnp.asarray(episode, jnp.int32))


def _rows(
    obs: np.ndarray, action: np.ndarray, weight: np.ndarray, next_obs: np.ndarray, terminated: np.ndarray
) -> Transition:
    """On the device, as networks see them."""
    seen, weights, after = (jnp.asarray(array, jnp.float32) for array in (obs, weight, next_obs))
    return Transition(seen, jnp.asarray(action), weights, after, jnp.asarray(terminated))


def _experience(demos: Demos, steps: Transition, index: np.ndarray) -> tuple[Transition, Transition]:
    """Rows of experience for the steps of which it is known what followed, and the pairs that followed them."""
    rows = jax.tree.map(lambda x: x[index], replace(steps, weight=jnp.ones_like(steps.weight)))
    known = np.diff(demos.time_in_episode(), append=0) == 1
    known[demos.episode_ends - 1] = False
    following = steps.action[np.minimum(index + 1, len(known) - 1)]
    return rows, Transition(rows.next_obs, following, jnp.asarray(known[index], jnp.float32))


def standards(demos: Demos) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation that standardise observations."""
    mean, deviation = (moment.ravel() for moment in demos.statistics())
    return mean.astype(np.float32), scales(deviation)


def example_row(task: ControlTask) -> Transition:
    """One row of experience."""
    obs, no = jnp.zeros((1, task.obs_dim), jnp.float32), jnp.zeros(1, bool)
    action = jnp.zeros((1, *task.action_shape), jnp.int32 if task.discrete else jnp.float32)
    return Transition(obs, action, jnp.ones(1, jnp.float32), obs, no)


def _check_actions(entry: Entry, task: ControlTask) -> None:
    kind = "discrete" if task.discrete else "continuous"
    if kind not in entry.actions:
        raise InputError(
            f"{entry.name} learns with {' and '.join(entry.actions)} actions, and {task.name} has {kind} ones; "
            "choose another algorithm or task."
        )


def _kinds_of_reward(name: str) -> set[str]:
    """What an environment's name says of its reward: AntMaze_UMaze-v4 pays less often than AntMaze_UMazeDense-v4."""
    return {kind for kind in ("sparse", "dense") if kind in name.lower()}


def _other_version(demos: Demos, task: ControlTask) -> str | None:
    """The environment that demonstrations name, if it is another version of the task's; another task is refused.

    Names that begin alike count as versions: LunarLanderContinuous-v3 is LunarLander-v3 with an argument.
    """
    made, here = str(demos.provenance.get("env_id", "")), task.env_id
    if made == here or "-v" not in made or "-v" not in here:
        return None
    one, other = sorted((name.rpartition(":")[2].rpartition("-v")[0] for name in (made, here)), key=len)
    if not other.startswith(one):
        raise DemoError(f"the demos were made in {made} and the task is {here}; choose the demos or the task anew.")
    return made


def _require_learnable(demos: Demos) -> None:
    """Refuse numbers whose squares are beyond float32, in which networks compute."""
    for name in ("observations", "next_observations"):
        array = getattr(demos, name)
        if array is None:
            continue
        for first, rows in pieces(array.reshape(len(array), -1)):
            # The negative of the least integer is no integer of the same kind.
            far = (rows > LARGEST) | (rows < -LARGEST)
            if far.any():
                step, column = (int(number) for number in np.argwhere(far)[0])
                raise DemoError(
                    f"column {column} of the demos' {name} is {rows[step, column]:.3g} at "
                    f"{place(first + step, demos.episode_ends)}, and networks can learn from numbers up to "
                    f"{LARGEST:.0g}; rescale the column, or leave out such episodes."
                )


def _require_successors(demos: Demos) -> None:
    """Refuse demonstrations that a reward of transitions cannot be asked about."""
    steps, known = len(demos.observations), len(demos.successors()[0])
    if known < steps:
        raise DemoError(
            f"it is not known what followed {steps - known:,} of {count(steps, 'demonstrated step')}, and a reward "
            "of transitions depends on that; give demos with next_observations, or choose other reward_inputs."
        )


def _checked(demos: Demos, task: ControlTask, strict: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """Observations and actions as networks see them, after checking that they belong to the task."""
    given = demos.observations.reshape(len(demos.observations), -1)
    if given.shape[1] != task.obs_dim:
        raise DemoError(
            f"the demos have {given.shape[1]} observation dimensions and {task.name} has {task.obs_dim}; versions of "
            "a task differ (Ant: 27 in v4, 105 in v5; Humanoid: 376 and 348), so use the version that made the demos."
        )
    _require_learnable(demos)
    obs = given.astype(np.float32)
    if demos.actions.shape[1:] != task.action_shape:
        raise DemoError(
            f"the demos have actions of shape {demos.actions.shape[1:]}, {task.name} {task.action_shape}."
        )
    if task.discrete and demos.actions.dtype.kind == "f":
        raise DemoError(
            f"the demos have actions of dtype {demos.actions.dtype} and {task.name} takes whole numbers; if they "
            "are, say so by Demos.with_discrete_actions() and save them."
        )
    action, clipped = from_env_actions(task, demos.actions)
    if clipped and strict:
        raise DemoError(
            f"{clipped:,} of {demos.actions.size:,} entries of the demonstrated actions "
            f"{'lies' if clipped == 1 else 'lie'} outside the action space of {task.name}; leave --strict away to "
            "clip them."
        )
    return obs, action.astype(np.int32) if task.discrete else action, clipped
