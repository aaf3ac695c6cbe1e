"""Compare two rewards: of runs, of folders that hold a reward, or one of them with the task's true one."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from trustirl.core.checks import counts
from trustirl.core.errors import DemoError, InputError
from trustirl.core.observations import flatten
from trustirl.core.precision import double_precision
from trustirl.core.spaces import Finite
from trustirl.core.words import count
from trustirl.demos.record import restore_state
from trustirl.evaluation.comparison import (
    Experience,
    RewardComparison,
    Tried,
    compare_functions,
    compare_tables,
    true_rewards,
    true_table,
)
from trustirl.rewards.reward import LearnedReward
from trustirl.rewards.saved import load_rewards
from trustirl.runs.playing import played
from trustirl.runs.run import Run, load
from trustirl.tasks.gym import ControlTask, make_control_task, task_of_file
from trustirl.tasks.registry import TASKS, make_task

TRUE = "true"
TRIES = 4  # random actions from each step, for DARD
SEED = 40_000  # of the episodes; evaluations, films and demonstrations use others

Rewarded = str | Path | Run | LearnedReward
Task = str | gym.Env | Callable[..., gym.Env]


class Side(NamedTuple):
    """One of the two."""

    name: str
    rewards: Sequence[LearnedReward]
    run: Run | None


def compare_rewards(
    first: Rewarded,
    second: Rewarded = TRUE,
    *,
    task: Task | None = None,
    task_args: Mapping[str, Any] | None = None,
    episodes: int = 5,
    transitions: int = 1000,
    discount: float = 0.99,
) -> RewardComparison:
    """Correlations, distances and regret of two rewards, seed by seed.

    Each is a run, its folder, a folder with a reward, a reward, or the text "true". Where the MDP is known all is
    exact, on all transitions. On a simulator `episodes` of each run's policy and as many of random actions are
    played, and `transitions` of them compared. `task` is the run's own if it is not given.
    """
    episodes, transitions = counts(1, episodes=episodes, transitions=transitions)
    sides = _side(first), _side(second)
    named = [side for side in sides if side is not None]
    if not named:
        raise InputError("compare a learned reward with another, or with the true one; two true ones are the same.")
    spaces = [side.rewards[0].spaces for side in named]
    names = sides[0].name if sides[0] else TRUE, sides[1].name if sides[1] else TRUE
    run = next((side.run for side in named if side.run is not None), None)
    if isinstance(spaces[0], Finite):
        if any(other != spaces[0] for other in spaces):
            raise InputError(f"{' and '.join(names)} are rewards of worlds of different size; name rewards of one.")
        with double_precision():
            exact = _known_task(task, task_args, run, names[0])
            if (exact.mdp.states, exact.mdp.actions) != (spaces[0].states, spaces[0].actions):
                raise InputError(f"the reward of {names[0]} is not one of {exact.name} of that size; name its task.")
            one, other = (
                [true_table(exact)] if side is None else [np.asarray(r.table(), np.float64) for r in side.rewards]
                for side in sides
            )
            return compare_tables(one, other, exact, names)
    control = _control_task(task, task_args, run, names[0])
    for side in named:
        for reward in side.rewards[:1]:
            _check_spaces(reward, control, side.name)
    players = [(side.name, side.run.policy) for side in named if side.run is not None]
    seen = _experience(control, [policy for _, policy in players], episodes, transitions, discount)
    who = [f"the policy of {name}" for name, _ in players] + ["random actions"]
    words = f"{count(len(seen.obs), 'step')} that did not end an episode, of {count(episodes, 'episode')} each of "
    one_pays, other_pays = (
        [None] if side is None else [partial(_paid, reward) for reward in side.rewards] for side in sides
    )
    return compare_functions(one_pays, other_pays, seen, words + " and ".join(who), names)


def _side(given: Rewarded) -> Side | None:
    if isinstance(given, LearnedReward):
        return Side("a reward", [given], None)
    if isinstance(given, Run):
        return Side(str(given.path), _learned(given), given)
    if str(given) == TRUE:
        return None
    path = Path(given)
    if (path / "summary.json").exists():
        run = load(path)
        return Side(str(given), _learned(run), run)
    return Side(str(given), load_rewards(path), None)


def _learned(run: Run) -> Sequence[LearnedReward]:
    return run.rewards or [run.reward]  # the latter says that there is none


def _known_task(task: Task | None, task_args: Mapping[str, Any] | None, run: Run | None, name: str) -> Any:
    if task is None and run is None:
        raise InputError(f"{name} does not say which world it is a reward of: name the task.")
    if task is not None and not (isinstance(task, str) and TASKS.get(task)):
        raise InputError(f"{name} holds a reward of numbered states: name one of {', '.join(TASKS)}.")
    if isinstance(task, str):
        return make_task(task, task_args)
    assert run is not None
    return make_task(run.config["task"], run.config["task_args"])


def _control_task(task: Task | None, task_args: Mapping[str, Any] | None, run: Run | None, name: str) -> ControlTask:
    if task is None and run is None:
        raise InputError(f"{name} does not say which task it is a reward of: name the task.")
    own = {} if run is None else run.config["task_args"]
    if task is None:
        assert run is not None
        task = task_of_file(run.config["task"], run.path / "config.json")
    return make_control_task(task, own if task_args is None else task_args)


def _check_spaces(reward: LearnedReward, task: ControlTask, name: str) -> None:
    spaces = reward.spaces
    if isinstance(spaces, Finite) or (spaces.obs_dim, spaces.action_dim, spaces.discrete) != (
        task.obs_dim,
        task.action_dim,
        task.discrete,
    ):
        raise InputError(f"{name} holds a reward of other observations or actions than {task.name}; name its task.")


def _paid(reward: LearnedReward, obs: np.ndarray, action: np.ndarray, following: np.ndarray) -> np.ndarray:
    return np.asarray(reward(obs, action, following, False))


def _experience(
    task: ControlTask, policies: list[Any], episodes: int, transitions: int, discount: float
) -> Experience:
    """Steps of policies and of chance, in equal parts."""
    random, parts, first = np.random.default_rng(SEED), [], 0
    with played(task, episodes, SEED) as (env, play):
        for policy in (*policies, None):
            demos = play(policy)
            last = np.isin(np.arange(len(demos.actions)), demos.episode_ends - 1)
            kept = np.flatnonzero(~last)
            kept = np.sort(random.choice(kept, min(len(kept), -(-transitions // (len(policies) + 1))), replace=False))
            obs = demos.observations
            if isinstance(obs, dict):
                obs = flatten(obs, 1)
            episode = first + np.repeat(np.arange(len(demos)), demos.lengths())[kept]
            tried = None if demos.states is None else _tried(env, demos.states, kept)
            here = obs[kept], demos.actions[kept], obs[kept + 1], true_rewards(demos)[kept], episode
            parts.append((here, tried))
            first += len(demos)
    obs, action, following, reward, episode = (
        np.concatenate(column) for column in zip(*(here for here, _ in parts), strict=True)
    )
    trials = [tried for _, tried in parts if tried is not None]
    complete = len(trials) == len(parts)
    tried = Tried(*(np.concatenate(column) for column in zip(*trials, strict=True))) if complete else None
    return Experience(obs, action, following, reward, episode, tried, discount)


def _tried(env: gym.Env, states: np.ndarray, rows: np.ndarray) -> Tried | None:
    """What follows random actions, the same from the state of a step and from the next one."""
    env.reset(seed=SEED)
    inner: Any = env.unwrapped

    def followed(state: np.ndarray, action: Any) -> np.ndarray:
        restore_state(env, state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CartPole remembers that it fell, in a state of before
            return np.asarray(inner.step(action)[0])

    actions = [[env.action_space.sample() for _ in range(TRIES)] for _ in rows]
    try:
        here, after = (
            [[followed(states[row], a) for a in drawn] for row, drawn in zip(of, actions, strict=True)]
            for of in (rows, rows + 1)
        )
    except DemoError:
        return None
    return Tried(np.array(actions), np.array(here), np.array(after))
