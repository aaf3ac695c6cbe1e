"""Demonstrations and the task that they belong to: read, checked, and made what they are to an algorithm."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Dict

from trustirl.algorithms import ALGORITHMS, Entry
from trustirl.core.errors import DemoError, InputError
from trustirl.core.measure import concat
from trustirl.core.observations import Goal
from trustirl.core.types import ExpertData, Transition
from trustirl.core.words import count
from trustirl.demos.checks import LARGEST, pieces, place
from trustirl.demos.inspect import inspect
from trustirl.demos.origin import env_arguments
from trustirl.demos.record import has_goal_of_its_own, restore_state
from trustirl.demos.schema import Demos, find_demos
from trustirl.irl.measures import Weighing, weighted
from trustirl.nets.mlp import scales
from trustirl.rollouts.restarts import Starts
from trustirl.rollouts.spaces import from_env_actions
from trustirl.tasks.gym import ControlTask, make_control_task
from trustirl.tasks.robots import as_seen, told_states
from trustirl.worlds.job import Experiment


class Matched(NamedTuple):
    """Demonstrations that were read and found to belong to the task."""

    task: ControlTask
    demos: Demos
    obs: np.ndarray  # as networks see it
    action: np.ndarray  # likewise
    clipped: int  # entries of actions that lay outside the action space
    origin: str | None  # the environment that made the demonstrations, if it is another version of the task's
    margin: float | None = None  # beyond the demonstrated actions, as a share of the action space; None: no range

    def facts(self) -> dict[str, Any]:
        """For the manifest."""
        why = self.incomparable()
        told = {"demo_hash": self.demos.content_hash(), "clipped_actions": self.clipped}
        if self.margin is not None:
            told["action_range"] = [bound.tolist() for bound in self.task.bounds or ()]
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
        if self.margin is not None:
            told.append(self._told_range(self.margin))
        findings = inspect(self.demos, self.task).findings
        told += [
            f"{finding.where} of the demos: {finding.sentence.rstrip('.')}"
            for finding in findings
            if finding.severity == "problem"
        ]
        if why := self.incomparable():
            told.append(f"the demos' returns are not shown as the expert's: {why}")
        return told

    def _told_range(self, margin: float) -> str:
        assert self.task.bounds is not None
        assert self.task.action_low is not None
        assert self.task.action_high is not None
        shares = (self.task.bounds[1] - self.task.bounds[0]) / (self.task.action_high - self.task.action_low)
        left = sorted({f"{share:.0%}" for share in (shares.min(), shares.max())}, key=len)
        return (
            f"actions stay within the demonstrated range and {margin:g} of the action space beyond it on each side, "
            f"which is {' to '.join(left)} of the action space; action_margin=None allows all"
        )


def matched(
    experiment: Experiment,
    strict: bool,
    demos: Demos | None = None,
    task: str | gym.Env | Callable[..., gym.Env] | None = None,
    action_margin: float | None = None,
) -> Matched:
    """Make the task, read the demonstrations, and check that they belong together."""
    control_task = make_control_task(task or experiment.task, experiment.task_args)
    _check_actions(ALGORITHMS[experiment.algorithm], control_task)
    demos = demos or find_demos(experiment.demos, control_task.env_id)
    if experiment.demo_episodes is not None:
        demos = demos.take(experiment.demo_episodes, experiment.demo_choice)
    demos = as_seen(demos, control_task.seen)
    origin = _other_version(demos, control_task)
    obs, action, clipped = _checked(demos, control_task, strict)
    if action_margin is not None:
        control_task = acted_as_shown(control_task, demos.actions, action_margin)
        action, _ = from_env_actions(control_task, demos.actions)
    return Matched(control_task, demos, obs, action, clipped, origin, action_margin)


def acted_as_shown(task: ControlTask, actions: np.ndarray, margin: float) -> ControlTask:
    """The task, acted in as far as was demonstrated and by a share of the action space further."""
    low, high = task.action_low, task.action_high
    if low is None or high is None:
        raise InputError(f"action_margin is for continuous actions, and {task.name} has discrete ones: leave it out.")
    inside, room = np.clip(actions, low, high), margin * (high - low)
    least, most = np.maximum(low, inside.min(axis=0) - room), np.minimum(high, inside.max(axis=0) + room)
    return replace(task, range_low=least.astype(low.dtype), range_high=most.astype(high.dtype))


def restorable(task: ControlTask, demos: Demos) -> Demos:
    """Episodes can begin at demonstrated states if the simulator's are known and the task can be put into them.

    Where observations tell the states, they are taken from these.
    """
    env = task.make()
    try:
        if demos.states is None:
            demos = replace(demos, states=told_states(env, task.goal, demos))
        check_restorable(task, env, demos)
    finally:
        env.close()
    return demos


def check_restorable(task: ControlTask, env: gym.Env, demos: Demos) -> None:
    """Refuse demonstrations from whose states no episode can begin."""
    if demos.states is None:
        raise DemoError(
            "resets need the simulator's states, which these demos do not hold: record them with `Demos.record` or "
            "`trustirl expert` in a task whose state can be set, or set resets to 0."
        )
    try:
        env.reset(seed=0)
        restore_state(env, demos.states[0])
    except DemoError as error:
        raise DemoError(f"{task.name} cannot begin at demonstrated states: {error}") from None
    space = env.observation_space
    if isinstance(space, Dict) and "desired_goal" in space.spaces and not has_goal_of_its_own(env):
        raise DemoError(f"{task.name} cannot begin at demonstrated states: its goal is no part of the simulator's.")


def starts_of(given: Matched) -> Starts:
    """Every demonstrated step."""
    assert given.demos.states is not None
    return Starts(given.demos.states, given.obs, given.demos.time_in_episode())


def standards(demos: Demos, goal: Goal | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation that standardise observations, among which position and goal may be."""
    mean, deviation = (moment.ravel() for moment in demos.statistics())
    shift, scale = mean.astype(np.float32), scales(deviation, mean)
    if goal is not None:
        goal.on_one_scale(shift, scale, demos.observations)
    return shift, scale


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


def require_successors(demos: Demos) -> None:
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
    if task.goal is not None and given.shape[1] == task.obs_dim - task.goal.size:
        raise DemoError(
            f"observations of {task.name} end with the way that is left to the goal, desired_goal - achieved_goal, "
            "and the demos' do not: give them as a dictionary, Demos.from_numpy({'observation': ..., "
            "'achieved_goal': ..., 'desired_goal': ...}, actions, ...)."
        )
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
            f"{'lies' if clipped == 1 else 'lie'} outside the action space of {task.name}; leave --strict out to "
            "clip them."
        )
    return obs, action.astype(np.int32) if task.discrete else action, clipped
