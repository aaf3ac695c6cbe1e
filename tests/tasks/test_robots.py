"""Robots' tasks: blind ones, states that hold what a reset draws, and settings of their own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import trustirl as ti
from tests.control.small import SETTINGS, experiment
from tests.rollouts.test_goals import reach, shown
from trustirl.algorithms import ALGORITHMS
from trustirl.core.observations import Seen, flatten
from trustirl.demos.record import read_state, restore_state
from trustirl.tasks.gym import make_control_task
from trustirl.worlds import offline, simulator
from trustirl.worlds.matching import matched, restorable

ADROIT = ["AdroitHandPen-v1", "AdroitHandDoor-v1", "AdroitHandHammer-v1", "AdroitHandRelocate-v1"]


def test_a_blind_task_shows_neither_place_nor_goal_nor_do_demonstrations() -> None:
    task = make_control_task(reach, {"blind": True})
    assert (task.obs_dim, task.goal, task.seen) == (1, None, Seen(4, 1, 7))
    demos = shown()
    given = matched(replace(experiment(), task_args={"blind": True}), False, demos, reach)
    np.testing.assert_array_equal(given.obs, demos.observations[:, 4:5])
    np.testing.assert_array_equal(given.demos.next_observations, demos.next_observations[:, 4:5])
    assert matched(experiment(), False, demos, reach).obs.shape[1] == 7
    assert make_control_task(reach, {"blind": False}).obs_dim == 7
    with pytest.raises(ti.InputError, match="blind must be true or false"):
        make_control_task(reach, {"blind": "yes"})
    with pytest.raises(ti.InputError, match="CartPole-v1 tells no goal"):
        make_control_task("CartPole-v1", {"blind": True})


def test_a_goal_is_part_of_the_state() -> None:
    env = gym.make("Hopper-v4")
    size = read_state(env).size
    env.reset(seed=0)
    env.unwrapped.goal = np.array([3.0, 4.0])
    state = read_state(env)
    assert state.size == size + 2
    env.step(np.ones(3))
    env.unwrapped.goal = np.zeros(2)
    restore_state(env, state)
    np.testing.assert_array_equal(env.unwrapped.goal, [3, 4])
    np.testing.assert_array_equal(read_state(env), state)


def test_robots_have_settings_of_their_own_unless_a_method_rules_them_out() -> None:
    """And the five robots that run have not."""

    def plan(name: str) -> Any:
        return simulator.groups(ALGORITHMS[name], "AntMaze_UMazeDense-v4")["plan"]

    plans = {name: plan(name) for name in ("piro", "mm", "sqil", "csil", "trirl")}
    assert [name for name, plan in plans.items() if plan.clone_start] == ["piro", "mm", "sqil"]
    assert (plans["mm"].demo_share, plans["sqil"].demo_fade, plans["piro"].demo_fade) == (0, None, 300_000)
    assert simulator.groups(ALGORITHMS["piro"], "AntMaze_UMaze-v5")["control"].action_margin == 0.025
    assert offline.groups(ALGORITHMS["bc"], "AntMaze_UMaze-v5")["offline"].action_margin == 0.025
    assert simulator.defaults(ALGORITHMS["piro"], "Ant-v4") == ALGORITHMS["piro"].defaults.of("Ant-v4")
    paper = simulator.groups(ALGORITHMS["piro"], "AdroitHandPen-v1", paper=True)
    assert (paper["plan"].clone_start, paper["control"].action_margin) == (0, None)


@pytest.mark.parametrize("task", ["AntMaze_UMazeDense-v4", "AntMaze_UMaze-v5", *ADROIT])
def test_from_a_recorded_state_the_same_goes_on(task: str) -> None:
    """Also in an episode that began with another goal, or with the door elsewhere."""
    pytest.importorskip("gymnasium_robotics")
    env = make_control_task(task).make()
    env.action_space.seed(0)
    demos = ti.Demos.record(lambda _: 0.3 * env.action_space.sample(), env, 1, 5)
    env.reset(seed=99)
    restore_state(env, demos.states[60])
    obs, reward, *_ = env.step(demos.actions[60])
    np.testing.assert_array_equal(flatten(obs, 1)[0] if isinstance(obs, dict) else obs, demos.observations[61])
    assert float(reward) == demos.rewards[60]
    env.close()


def test_an_ants_observations_tell_its_states() -> None:
    pytest.importorskip("gymnasium_robotics")
    task = make_control_task("AntMaze_MediumDense-v4")
    env = task.make()
    env.action_space.seed(0)
    demos = ti.Demos.record(lambda _: 0.2 * env.action_space.sample(), env, 1, 5).take(1)
    told = restorable(task, replace(demos, states=None))
    env.reset(seed=7)
    for row in (0, 40, 400):
        restore_state(env, told.states[row])
        obs = flatten(env.step(demos.actions[row])[0], 1)[0]
        np.testing.assert_allclose(obs, demos.observations[row + 1], atol=1e-6)
    env.close()
    with pytest.raises(ti.DemoError, match="resets need the simulator's states"):
        restorable(make_control_task("AdroitHandPen-v1"), replace(demos, states=None))


@pytest.mark.slow
def test_peoples_demonstrations_of_a_door_load_and_train(tmp_path: Path) -> None:
    """25 episodes of up to 300 steps, in D4RL's layout, made up where people would have acted."""
    pytest.importorskip("gymnasium_robotics")
    h5py = pytest.importorskip("h5py")
    env = make_control_task("AdroitHandDoor-v1", {"max_episode_steps": 300}).make()
    env.action_space.seed(0)
    demos = ti.Demos.record(lambda _: 0.5 * env.action_space.sample(), env, 25)
    env.close()
    rng, kept = np.random.default_rng(0), []
    for episode, last in zip(range(25), rng.integers(223, 301, 25), strict=True):
        kept.append(np.arange(episode * 300, episode * 300 + last))
    rows = np.concatenate(kept)
    ends = np.isin(np.arange(len(rows)), np.cumsum([len(part) for part in kept]) - 1)
    with h5py.File(tmp_path / "door.hdf5", "w") as file:
        for name in ("observations", "actions", "rewards"):
            file[name] = getattr(demos, name)[rows].astype(np.float32)
        file["terminals"], file["timeouts"] = np.zeros(len(rows), bool), ends
        file["infos/qpos"] = np.zeros((len(rows), 30))
    given: dict[str, Any] = {"task_args": {"max_episode_steps": 300}, "demos": str(tmp_path / "door.hdf5")}
    short = {name: value for name, value in SETTINGS.items() if name != "batch"} | {"clone_start": 20, "batch": 16}
    run = ti.train("ml-irl", "AdroitHandDoor-v1", steps=260, out=tmp_path / "run", **given, **short)
    assert np.isfinite(run.summary["returns"]).all()
    assert run.summary["success"] == [0.0]
    assert run.summary["random_return"] is None or run.summary["random_return"] < 0
