"""EnvPool steps the same tasks as Gymnasium, and its own autoreset stays hidden."""

import sys
from dataclasses import replace
from importlib.util import find_spec

import gymnasium as gym
import numpy as np
import pytest

from tests.rollouts.policies import always, falling
from tests.rollouts.test_host import grid_of_seeds
from trustirl.core.errors import InputError
from trustirl.rollouts.host import Backend, HostEnvs, Rollout, evaluate_returns, evaluation_envs
from trustirl.rollouts.ledger import Ledger
from trustirl.rollouts.policy import Policies
from trustirl.tasks.gym import ControlTask, make_control_task

installed = pytest.mark.skipif(find_spec("envpool") is None, reason="envpool is not installed")


def roll(task: ControlTask, steps: int, seeds: np.ndarray) -> Rollout:
    """At random."""
    with HostEnvs(task, *seeds.shape, Ledger(), "envpool") as envs:
        envs.reset(seeds)
        return envs.rollout(None, steps)


@installed
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Hopper-v4"])
def test_observations_and_actions_are_those_of_gymnasium(name: str) -> None:
    if name == "Hopper-v4":
        for package in ("mujoco", "imageio"):
            pytest.importorskip(package, reason=f"{package} is not installed")
    task = make_control_task(name)
    rollout = roll(task, 3, grid_of_seeds(2, 2))
    assert rollout.obs.shape == (3, 2, 2, task.obs_dim)
    assert rollout.obs.dtype == np.float32
    with pytest.raises(InputError, match="has other observations or actions than Gymnasium's"):
        HostEnvs(replace(task, obs_dim=task.obs_dim + 1), 1, 1, Ledger(), "envpool")
    if task.action_low is not None:
        with pytest.raises(InputError, match="has other observations or actions"):
            HostEnvs(replace(task, action_low=2 * task.action_low), 1, 1, Ledger(), "envpool")


@installed
def test_every_transition_is_true() -> None:
    """Gymnasium, put into each observed state, goes to the same successor: there are no fake reset steps."""
    rollout = roll(make_control_task("CartPole-v1"), 60, grid_of_seeds(1, 4))
    assert rollout.terminated.sum() > 4
    cart = gym.make("CartPole-v1").unwrapped
    cart.reset(seed=0)
    for obs, action, successor, terminated in zip(
        *(array[:, 0].reshape(240, *array.shape[3:]) for array in rollout[:4]), strict=True
    ):
        cart.state, cart.steps_beyond_terminated = obs.astype(float), None  # type: ignore[attr-defined]
        expected, _, ends, *_ = cart.step(action)
        np.testing.assert_allclose(successor, expected, atol=1e-5)
        assert ends == terminated
    after = rollout.obs[1:][rollout.terminated[:-1]]
    assert (np.abs(after) <= 0.05).all()  # where CartPole starts
    np.testing.assert_array_equal(rollout.true_reward, 1.0)


@installed
def test_episodes_are_as_long_as_those_of_gymnasium() -> None:
    task, returns = make_control_task("CartPole-v1"), {}
    backends: tuple[Backend, ...] = ("sync", "envpool")
    for seed_root, backend in enumerate(backends):
        ledger = Ledger()
        with evaluation_envs(task, 1, 512, ledger, backend) as envs:
            returns[backend] = evaluate_returns(envs, falling(1), 512, seed_root)
        assert ledger.evaluation == returns[backend].sum()  # idle environments are not stepped
    error = np.sqrt(sum(sample.var() / sample.size for sample in returns.values()))
    assert abs(returns["sync"].mean() - returns["envpool"].mean()) < 4 * error


@installed
def test_seeds_decide_everything() -> None:
    task, seeds = make_control_task("CartPole-v1"), grid_of_seeds(2, 3)
    sure, rollouts = always(task, 1, 2), []
    with HostEnvs(task, 2, 3, Ledger(), "envpool") as envs:
        for starts in (seeds, seeds[::-1, ::-1], seeds):
            envs.reset(starts)
            rollouts.append(envs.rollout(sure, 120))
    first, turned, again = rollouts
    assert first.terminated.sum() > 6  # so resets without a seed lie within
    for before, other, after in zip(first, turned, again, strict=True):
        np.testing.assert_array_equal(before, after)
        np.testing.assert_array_equal(before, np.flip(other, (1, 2)))
    assert len(np.unique(first.obs[0].reshape(6, -1), axis=0)) == 6


@installed
@pytest.mark.parametrize("policies", [None, falling(2)], ids=["random", "policy"])
def test_noise_is_that_of_the_other_backends(policies: Policies | None) -> None:
    """Environments start elsewhere, but the same noise picks the same actions wherever observations hardly matter."""
    task, actions = make_control_task("CartPole-v1"), []
    backends: tuple[Backend, ...] = ("sync", "envpool")
    for backend in backends:
        with HostEnvs(task, 2, 3, Ledger(), backend) as envs:
            envs.reset(grid_of_seeds(2, 3))
            actions.append(envs.rollout(policies, 5).action)
    assert (actions[0] == actions[1]).mean() >= (1.0 if policies is None else 0.8)


@installed
def test_the_time_limit_truncates_and_does_not_terminate() -> None:
    rollout = roll(make_control_task("Pendulum-v1"), 401, grid_of_seeds(1, 2))
    assert not rollout.terminated.any()
    for env in range(2):
        assert np.flatnonzero(rollout.truncated[:, 0, env]).tolist() == [199, 399]
    np.testing.assert_array_equal(rollout.time[200], 0)
    inside = ~rollout.truncated[:-1]
    np.testing.assert_array_equal(rollout.next_obs[:-1][inside], rollout.obs[1:][inside])
    assert not np.array_equal(rollout.next_obs[199], rollout.obs[200])


@installed
def test_an_end_in_the_last_step_is_both() -> None:
    task, seeds = make_control_task("CartPole-v1"), grid_of_seeds(1, 1)
    length = int(roll(task, 200, seeds).terminated.argmax()) + 1
    limited = roll(replace(task, horizon=length), length, seeds)
    assert limited.terminated[-1].all()
    assert limited.truncated[-1].all()
    assert not (limited.terminated | limited.truncated)[:-1].any()


@installed
@pytest.mark.parametrize(
    "task",
    [
        make_control_task("Pendulum-v1", {"g": 9.0}),
        make_control_task(lambda: gym.make("CartPole-v1")),
        make_control_task(gym.make("CartPole-v1", max_episode_steps=30)),
    ],
    ids=["arguments", "function", "other limit"],
)
def test_tasks_that_envpool_would_change_are_refused(task: ControlTask) -> None:
    with pytest.raises(InputError, match=r"EnvPool has no .* with just these settings and wrappers: use backend="):
        HostEnvs(task, 1, 1, Ledger(), "envpool")


def test_repeated_terminal_observations_are_refused() -> None:
    with pytest.raises(InputError, match=r"cannot repeat terminal observations \(T3\)"):
        HostEnvs(make_control_task("CartPole-v1"), 1, 1, Ledger(), "envpool", "T3")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(InputError, match=r"run pip install 'trustirl\[envpool\]'"):
        HostEnvs(make_control_task("CartPole-v1"), 1, 1, Ledger(), "envpool")
