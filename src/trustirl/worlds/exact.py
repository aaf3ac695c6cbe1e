"""The exact world: the parts that answer a question where the MDP is known (`Question`)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trustirl.algorithms import ALGORITHMS, Entry
from trustirl.core.checks import at_least, at_most
from trustirl.core.errors import InputError
from trustirl.core.mdp import MDP, check_reward_table
from trustirl.core.measure import Reward, expect
from trustirl.core.precision import double_precision
from trustirl.core.types import ExpertData, IrlState, Metrics, Transition
from trustirl.core.words import count
from trustirl.demos.schema import Demos
from trustirl.demos.tabular import tabular_measure
from trustirl.evaluation.returns import episode_return
from trustirl.irl.known_mdp import Observe, exact_parts, exact_sampler
from trustirl.irl.loop import Loop, as_one_program, make_loop
from trustirl.nets.rewards import (
    RewardInputs,
    RewardKind,
    expected_reward_factory,
    numbered_transitions,
    reward_factory,
)
from trustirl.rl.exact import NEVER, SoftPolicy, exact_solver, occupancy, solve
from trustirl.rollouts.exact import sample_episodes
from trustirl.tasks.exact import MOST_NUMBERS, ExactTask
from trustirl.tasks.registry import make_task
from trustirl.worlds.job import Experiment
from trustirl.worlds.memory import check_free

UPDATE_SECONDS = 0.05  # a reward update and the solution that follows


@dataclass(frozen=True)
class ExactOptions:
    """What can be chosen where the MDP is known."""

    reward: RewardKind = "table"
    """The class of rewards."""
    reward_inputs: RewardInputs | None = None
    """What the reward may depend on; by default what the task's true reward depends on, or states. Of a transition, a
    state and the one that follows, the mean over what may follow is paid."""
    policy_rounds: int = 0
    """Rounds of soft policy iteration per reward update; 0 solves for the optimal policy."""
    suboptimality: float = 0.0
    """Solve the policy only to this proven suboptimality (theory section 4); 0: exactly."""
    bootstrap: int = 0
    """On a table: learn so many rewards from groups drawn anew, which say how sure the page's rewards are."""
    compare: bool = False
    """Also run other algorithms on the same question, for the report."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        at_least(0, self, "policy_rounds", "suboptimality")
        at_least(0, self, "bootstrap")
        at_most(1000, self, "policy_rounds", "bootstrap")


class Question(NamedTuple):
    """The parts of an exact experiment, put together."""

    task: ExactTask
    mdp: MDP  # the task's, or where demonstrations were sampled, the task's started like them
    expert: SoftPolicy | None  # None where no true reward is known
    demos: Demos | None  # None where the expert's exact occupancy demonstrates
    demo: Transition
    demo_hash: str
    observe: Observe
    kept: Callable[[IrlState], Any]  # the reward that is saved
    loop: Loop


def groups(entry: Entry) -> dict[str, Any]:
    """The settings of an algorithm; defaults are those of its class."""
    return {"algorithm_config": entry.config(), "exact": ExactOptions()}


def build(experiment: Experiment, demos: Demos | None = None) -> Question:
    """Put task, expert, demonstrations and algorithm together; checks everything that a user gave."""
    options = ExactOptions(**experiment.settings["exact"])
    task = make_task(experiment.task, experiment.task_args)
    mdp, truth = task.mdp, _truth(task)
    _check_room(experiment, options, task)
    demos = given_demos(experiment, task, demos)
    expert = None if truth is None else jax.jit(solve)(mdp, truth)
    if expert and demos is None and experiment.demo_episodes is not None:
        demos = sampled_demos(task, expert, experiment.demo_episodes)
    if demos:
        demo, demo_hash = tabular_measure(demos, mdp), demos.content_hash()
        mdp = started_like(demos, mdp)
        if demos is task.shown and task.table is not None:
            demo = mdp.pairs(jax.jit(occupancy)(mdp, jnp.log(jnp.maximum(task.table.policy, np.exp(NEVER / 2)))))
    else:
        assert expert  # or demonstrations had been asked for
        demo, demo_hash = mdp.pairs(jax.jit(occupancy)(mdp, expert.log_prob)), "exact expert occupancy"
    make_reward = make_reward_of(options, task)
    solver = exact_solver(mdp, options.policy_rounds, options.suboptimality)
    parts = exact_parts(solver, make_reward, make_potential_of(options, task))
    solved = not (options.policy_rounds or options.suboptimality)

    def observe(policy: SoftPolicy, reward: Reward) -> Metrics:
        judged = () if truth is None else episode_return(task.mdp, policy.log_prob, truth, task.horizon)
        returns = dict(zip(("return_mean", "return_std"), judged, strict=False))
        best = jnp.vdot(mdp.initial, policy.value) if solved else solver.optimal_value(reward)
        told = expect(lambda taken: policy.log_prob[taken.obs, taken.action], demo)
        ell = mdp.mass * expect(reward, demo) - best
        return returns | {"ell": ell, "log_likelihood": told}

    entry = ALGORITHMS[experiment.algorithm]
    algorithm = entry.build(parts, entry.config(**experiment.settings["algorithm_config"]))
    sampler = exact_sampler(algorithm, ExpertData(demo, len(demo.weight)), mdp, observe)
    loop = as_one_program(make_loop(algorithm, sampler, experiment.steps))
    assert algorithm.kept is not None
    return Question(task, mdp, expert, demos, demo, demo_hash, observe, algorithm.kept, loop)


def given_demos(experiment: Experiment, task: ExactTask, demos: Demos | None = None) -> Demos | None:
    """The demonstrations that a user gave, as many as are to be used; None where the task's expert demonstrates."""
    if demos is None and experiment.demos != "packaged":
        demos = Demos.load(experiment.demos)
    if demos is None:
        demos = task.shown
    if demos is None and task.true_reward is None:
        raise InputError(
            f"{experiment.task} has no true reward here, so it has no expert to demonstrate: give demonstrations "
            "(--demos FILE, or demos=... in Python)."
        )
    if demos is None or experiment.demo_episodes is None:
        return demos
    return demos.take(experiment.demo_episodes, experiment.demo_choice)


def _truth(task: ExactTask) -> Float[Array, "states actions"] | None:
    """The task's true reward, checked, if it is known."""
    return None if task.true_reward is None else check_reward_table(task.true_reward, task.mdp)


def check(experiment: Experiment) -> int:
    """Refuse what `build` would refuse, without solving anything; nothing is replayed."""
    with double_precision():
        task = make_task(experiment.task, experiment.task_args)
        _truth(task)
        _check_room(experiment, ExactOptions(**experiment.settings["exact"]), task)
        demos = given_demos(experiment, task)
        if demos:
            tabular_measure(demos, task.mdp)
    return 0


def rough_seconds(experiment: Experiment) -> float:
    """Of one seed, where all are solved at once."""
    return experiment.steps * UPDATE_SECONDS / experiment.seeds


def _check_room(experiment: Experiment, options: ExactOptions, task: ExactTask) -> None:
    """Refuse what cannot fit into memory: policies, rewards, optimisers and measures of every seed, roughly."""
    states, actions, successors = task.mdp.successors.shape
    per_seed = states * actions * (20 + 2 * successors)
    if reward_inputs(options, task) == "transition":
        per_seed += states * actions * successors * (6 if options.reward == "table" else 6 * task.features.shape[1])
    elif options.reward != "table":
        per_seed += 3 * task.features.size
    seeds, advice = count(experiment.seeds, "seed"), "use fewer seeds or a smaller task"
    check_free(f"the tables of {seeds} need", 8 * experiment.seeds * per_seed, advice)
    shown = task.horizon * (experiment.demo_episodes or 0)
    if experiment.demos == "packaged" and shown > MOST_NUMBERS:
        raise InputError(
            f"{count(experiment.demo_episodes or 0, 'episode')} of {count(task.horizon, 'step')} are more than "
            f"{MOST_NUMBERS:,} steps; use fewer demo_episodes or a shorter horizon."
        )


def reward_inputs(options: ExactOptions, task: ExactTask) -> RewardInputs:
    """What the reward sees."""
    return options.reward_inputs or ("state" if task.state_only else "state-action")


def make_reward_of(options: ExactOptions, task: ExactTask) -> Callable[[Array], Reward]:
    """A function of a key that makes a reward of the class asked for."""
    inputs = reward_inputs(options, task)
    if inputs == "transition":
        numbers, features = transitions(options, task)
        return expected_reward_factory(options.reward, features, numbers, np.asarray(task.mdp.probabilities))
    return reward_factory(options.reward, task.features, task.mdp.actions, inputs == "state-action")


def make_potential_of(options: ExactOptions, task: ExactTask) -> Callable[[Array], Reward]:
    """The same for functions of states alone."""
    return reward_factory(options.reward, task.features, task.mdp.actions, False)


def transitions(
    options: ExactOptions, task: ExactTask
) -> tuple[Int[np.ndarray, "states actions successors"], Float[np.ndarray, "transitions both"]]:
    """The numbers of what may follow, and the features of each number, of which a table has none."""
    features = task.features[:, :0] if options.reward == "table" else task.features
    return numbered_transitions(np.asarray(task.mdp.successors), features)


def started_like(demos: Demos, mdp: MDP) -> MDP:
    """The same MDP, started where the demonstrations start.

    A learner that must start elsewhere can never match them, and ell would grow without bound by punishing the
    states where only the learner has to begin.
    """
    starts = np.concatenate([[0], demos.episode_ends[:-1]])
    counts = np.bincount(demos.observations[starts], minlength=mdp.states)
    return replace(mdp, initial=jnp.asarray(counts / counts.sum()))


def sampled_demos(task: ExactTask, expert: SoftPolicy, episodes: int) -> Demos:
    """Episodes of the soft-optimal expert, always the same ones for the same number."""
    states, actions = sample_episodes(task.mdp, expert.log_prob, task.horizon, episodes, jax.random.key(2**31))
    ends = task.horizon * np.arange(1, episodes + 1)
    return Demos.from_numpy(np.asarray(states).ravel(), np.asarray(actions).ravel(), ends)
