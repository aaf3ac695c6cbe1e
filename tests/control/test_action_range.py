"""Actions that stay where they were demonstrated, in training, in evaluation, and in others' hands."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import trustirl as ti
from tests.control.small import SETTINGS, experiment
from trustirl.rollouts.spaces import from_env_actions
from trustirl.tasks.gym import make_control_task
from trustirl.worlds.matching import acted_as_shown, matched

played: list[float] = []


class Watched(gym.Wrapper):
    """Remembers every action."""

    def step(self, action: Any) -> Any:
        played.append(float(action[0]))
        return self.env.step(action)


def pendulum(**arguments: Any) -> gym.Env:
    return Watched(gym.make("Pendulum-v1", max_episode_steps=40, **arguments))


def demos() -> ti.Demos:
    """Within -0.4 and 0.6 of -2 to 2."""
    rng = np.random.default_rng(1)
    actions = rng.uniform(-0.4, 0.6, (60, 1)).astype(np.float32)
    actions[:2] = [[-0.4], [0.6]]
    return ti.Demos.from_numpy(rng.normal(size=(60, 3)), actions)


def test_the_range_is_what_was_shown_and_a_margin_within_the_bounds() -> None:
    task = make_control_task("Pendulum-v1")
    ranged = acted_as_shown(task, demos().actions, 0.1)
    np.testing.assert_allclose(np.concatenate(ranged.bounds), [-0.8, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(ranged.action_low, task.action_low)
    as_network, outside = from_env_actions(ranged, demos().actions)
    assert outside == 0
    np.testing.assert_allclose(as_network.min(), 2 * (-0.4 + 0.8) / 1.8 - 1, rtol=1e-5)
    np.testing.assert_array_equal(acted_as_shown(task, np.array([[-9.0], [9.0]]), 0.1).bounds, task.bounds)
    still = acted_as_shown(task, np.full((5, 1), 0.5, np.float32), 0.001)
    assert still.bounds[0] < 0.5 < still.bounds[1]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ti.Run:
    played.clear()
    out = tmp_path_factory.mktemp("range") / "run"
    return ti.train("ml-irl", pendulum, demos(), steps=260, out=out, action_margin=0.1, **SETTINGS)


def inside(actions: np.ndarray) -> None:
    assert -0.8 - 1e-6 <= actions.min() < -0.4  # at random the whole range is used, but no more
    assert 0.6 < actions.max() <= 1.0 + 1e-6


def test_nobody_acts_outside_whoever_takes_the_policy_or_the_reward(run: ti.Run) -> None:
    assert len(played) > 400
    inside(np.array(played))
    assert json.loads((run.path / "config.json").read_text())["control"]["action_margin"] == 0.1
    low, high = json.loads((run.path / "manifest.json").read_text())["action_range"]
    again = ti.load(run.path)
    played.clear()
    returns = again.evaluate(2, task=pendulum).returns
    at_limits = np.array(played)
    assert at_limits.min() >= -0.8 - 1e-6
    assert at_limits.max() <= 1 + 1e-6
    inside(again.policy.predict(np.random.default_rng(0).normal(size=(500, 3)))[0])
    assert np.isfinite(returns).all()
    np.testing.assert_allclose([low, high], [[-0.8], [1.0]], rtol=1e-6)
    env = again.reward.wrap(pendulum())
    vector = again.reward.wrap_vec(SyncVectorEnv([pendulum, pendulum]))
    for space in (env.action_space, vector.single_action_space):
        np.testing.assert_allclose([space.low, space.high], [low, high])
    assert vector.action_space.shape == (2, 1)
    assert vector.action_space.high.max() == np.float32(1)


@pytest.mark.slow
def test_policies_that_are_trained_on_the_reward_stay_there_too(run: ti.Run, tmp_path: Path) -> None:
    played.clear()
    ti.retrain(run, pendulum, out=tmp_path / "retrained", seeds=1, steps=260)
    inside(np.array(played))


def test_a_reward_reads_actions_in_the_range_in_which_it_was_learned(run: ti.Run) -> None:
    """What -1 and 1 of its network stand for must not be the bounds of the task."""
    obs, own = np.zeros((3, 3)), replace(run.reward.spaces, range_low=None, range_high=None)
    elsewhere = type(run.reward)(run.reward.function, own, run.reward.end_share)
    ended = np.zeros(3, bool)
    as_network = np.array([[-1.0], [0.0], [1.0]])
    ranged = run.reward(obs, (as_network + 1) * 0.9 - 0.8, terminated=ended)
    np.testing.assert_allclose(ranged, elsewhere(obs, 2 * as_network, terminated=ended), rtol=1e-4, atol=1e-6)
    beyond = run.reward(obs, np.array([[2.0], [1.5], [1.0]]), terminated=ended)
    assert np.ptp(beyond) == pytest.approx(0, abs=1e-6)


def test_a_run_says_so_and_discrete_actions_have_no_range() -> None:
    told = matched(replace(experiment(), task="Pendulum-v1"), False, demos(), None, 0.1)
    assert any("which is 45% of the action space" in note for note in told.notes())
    rng = np.random.default_rng(0)
    cartpole = ti.Demos.from_numpy(rng.normal(size=(60, 4)), rng.integers(2, size=60))
    with pytest.raises(ti.InputError, match="action_margin is for continuous actions"):
        matched(experiment(), False, cartpole, None, 0.1)
    for wrong in (0.0, -1.0, 2.0, float("nan")):
        with pytest.raises(ti.InputError, match="action_margin must be"):
            ti.train("piro", "Pendulum-v1", demos(), action_margin=wrong)
