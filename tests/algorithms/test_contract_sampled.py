"""What every algorithm owes on Gymnasium tasks: that of `test_contract`, and to leave the true reward alone."""

from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from tests.algorithms.contract import SEEDS, check_loop
from tests.compiled import compiled
from tests.control.small import SETTINGS
from trustirl.algorithms import ALGORITHMS, Entry
from trustirl.core.trees import tree_from_arrays
from trustirl.core.types import TrainState, Transition
from trustirl.demos.schema import Demos
from trustirl.irl.loop import seed_keys
from trustirl.training.train import setting_groups
from trustirl.worlds.job import Experiment, settle
from trustirl.worlds.offline import offline_job
from trustirl.worlds.simulator import Control, build

HORIZON = 10
SMALL = SETTINGS | {"steps_per_iteration": 40, "evaluation_episodes": 1}
# What only some algorithms have.
SMALL |= {"inner_steps": 2, "ratio_steps": 2, "clone_updates": 3, "value_updates": 3, "fit_batch": 8, "updates": 20}


class Secret:
    """A reward that nobody may look at."""

    def _refuse(self, *_arguments: Any) -> Any:
        raise AssertionError("the true reward was read")

    __float__ = __int__ = __index__ = __bool__ = __array__ = __eq__ = __lt__ = __gt__ = _refuse
    __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __neg__ = _refuse
    __hash__ = object.__hash__


class Slope(gym.Env):
    """A point that is pushed along a line, and falls off its end."""

    def __init__(self, discrete: bool) -> None:
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = Discrete(2) if discrete else Box(-2, 2, (1,), np.float32)
        self._discrete = discrete

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = self.np_random.normal(size=2, scale=0.3).astype(np.float32)
        return self._state.copy(), {}

    def get_state(self) -> np.ndarray:
        return self._state

    def set_state(self, state: np.ndarray) -> None:
        self._state = state.astype(np.float32)

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        push = 2.0 * action - 1 if self._discrete else float(np.asarray(action)[0])
        place, speed = self._state
        self._state = np.array([place + 0.3 * speed, 0.9 * speed + 0.3 * push], np.float32)
        return self._state.copy(), Secret(), bool(abs(self._state[0]) > 1.5), False, {}


def slope(discrete: bool) -> gym.Env:
    return gym.wrappers.TimeLimit(Slope(discrete), HORIZON)


def shown(discrete: bool) -> Demos:
    """Six episodes that always push one way."""
    env, rows = slope(discrete), []
    for number in range(6):
        obs, _ = env.reset(seed=number)
        over = False
        while not over:
            action = 1 if discrete else np.float32([1.5])
            after, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            rows.append((obs, action, after, over, terminated))
            obs = after
    observations, actions, following, over, terminated = (np.array(column) for column in zip(*rows, strict=True))
    ends = np.flatnonzero(over) + 1
    assert terminated.any()
    return Demos.from_numpy(
        observations, actions, ends, terminated[ends - 1], next_observations=following, states=observations
    )


def asked(entry: Entry, world: Any) -> Experiment:
    groups = setting_groups(entry.name, "Slope-v0", offline=world == "offline")
    known = {name for group in groups.values() for name in vars(group)}
    settings = {name: value for name, value in SMALL.items() if name in known}
    return Experiment(
        algorithm=entry.name,
        task="Slope-v0",
        task_args={},
        demos="",
        demo_episodes=None,
        demo_choice="first",
        seeds=SEEDS,
        steps=400,
        settings=settle(groups, settings, entry.name),
        world=world,
    )


def learned(parts: Control, state: TrainState) -> np.ndarray:
    """The reward of every seed on all that it remembers."""
    of = parts.algorithm.kept or parts.algorithm.paid
    assert of is not None
    rewards = compiled(eqx.filter_vmap(of), state.irl)
    rows: Transition = state.replay.rows
    return np.asarray(compiled(eqx.filter_vmap(lambda reward, batch: reward(batch)), rewards, rows))


CASES = [
    (name, actions, world)
    for name in ALGORITHMS.trained_in("simulator", "offline")
    for actions in ALGORITHMS[name].actions
    for world in ALGORITHMS[name].worlds
    if world != "exact"
]
QUICK = {
    ("discrete", "simulator"): ("dac", "iq-learn"),
    ("continuous", "simulator"): ("plain-gradient",),
    ("discrete", "offline"): ("p2il",),
    ("continuous", "offline"): ("bc",),
}


@pytest.mark.parametrize(
    ("name", "actions", "world"),
    [
        pytest.param(*case, marks=() if case[0] in QUICK[case[1:]] else pytest.mark.slow, id="-".join(case))
        for case in CASES
    ],
)
def test_contract(name: str, actions: str, world: str) -> None:
    entry, discrete = ALGORITHMS[name], actions == "discrete"
    task = partial(slope, discrete)
    if world == "offline":
        job = offline_job(asked(entry, world), shown(discrete), task)
        states, _ = check_loop(job.loop)
        assert any(not np.array_equal(states[0][key], states[2][key]) for key in states[0] if ".policy" in key)
        job.close()
        return
    parts = build(asked(entry, world), shown(discrete), task)
    states, _ = check_loop(parts.loop)
    first, last = (tree_from_arrays(parts.loop.blank(seed_keys(SEEDS)), states[at], Path("")) for at in (0, 2))
    paid = learned(parts, eqx.tree_at(lambda state: state.replay, first, last.replay)), learned(parts, last)
    assert np.isfinite(paid).all()
    assert (np.abs(paid[1] - paid[0]).max(axis=1) > 0).all()
    with pytest.raises(AssertionError, match="the true reward was read"):
        parts.evaluate(last.irl.policy)  # only judging looks at it
    parts.close()
