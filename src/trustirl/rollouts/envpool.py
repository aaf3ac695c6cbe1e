"""EnvPool: tasks that it knows, simulated in C++ threads."""

import importlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete

from trustirl.core.errors import InputError
from trustirl.core.machine import install_command
from trustirl.rollouts.bundles import EPISODE, Episodes, Rows, not_finite, row_type
from trustirl.rollouts.policy import AtRandom, HostPolicy, NoiseKey, Policies, noise_generator
from trustirl.rollouts.spaces import flatten_observations, to_env_actions
from trustirl.tasks.gym import ControlTask


class Pool:
    """Behaves like a bundle: EnvPool's own resets, a step later and with a made-up transition, never happen."""

    def __init__(self, task: ControlTask, count: int, envs_per_seed: int, first_seed: int = 0) -> None:
        self._task, self._envpool, self._count = task, _envpool_for(task), count
        self._first_seed = first_seed
        self._by_seed = [slice(first, first + envs_per_seed) for first in range(0, count, envs_per_seed)]
        self._policies: list[HostPolicy] = []

    def reset(self, seeds: Sequence[int], shown: int = 0) -> None:
        """Begin an episode in every environment, where the task begins it."""
        assert not shown  # refused before anything ran
        self._pool = _open(self._envpool, self._task, seeds)  # EnvPool takes seeds here and nowhere else
        self._obs = np.zeros((self._count, self._task.obs_dim), np.float32)
        self._time, self._steps = np.zeros(self._count, np.int32), 0
        self._begin(np.arange(self._count))

    def load(self, policies: Policies) -> None:
        """Act with these from now on."""
        self._policies = [policies.of(seed) for seed in range(len(self._by_seed))]

    def rollout(self, steps: int, key: NoiseKey, random: bool, tremble: float = 0.0) -> Rows:
        """Go on for `steps` steps in every environment, with its policy or at random."""
        assert not tremble  # refused before anything ran
        policies: Sequence[HostPolicy | AtRandom] = self._policies
        if random:
            policies = [AtRandom(self._task)] * len(self._by_seed)
        noise = [
            np.stack([policy.noise(noise_generator(seed, env, key), steps) for env in range(own.stop - own.start)], 1)
            for seed, (policy, own) in enumerate(zip(policies, self._by_seed, strict=True), self._first_seed)
        ]
        rows, everyone = np.zeros((steps, self._count), row_type(self._task)), np.arange(self._count)
        for step, row in enumerate(rows):
            for policy, own, drawn in zip(policies, self._by_seed, noise, strict=True):
                row["action"][own] = policy.act(self._obs[own], drawn[step])
            self._step(row, everyone)
            ended = np.flatnonzero(row["terminated"] | row["truncated"])
            if len(ended):
                self._begin(ended)
        return rows

    def play(self, seeds: Sequence[int]) -> Episodes:
        """One episode per environment without noise."""
        self.reset(seeds)
        episodes, going = np.zeros(self._count, EPISODE), np.arange(self._count)
        episodes["success"] = np.nan  # EnvPool's environments report none
        while len(going):
            row = np.zeros(self._count, row_type(self._task))
            for policy, own in zip(self._policies, self._by_seed, strict=True):
                row["action"][own] = policy.mode(self._obs[own])
            self._step(row, going)
            episodes["true_return"] += row["true_reward"]
            episodes["steps"] += row["stepped"]
            episodes["steps_to_success"] = episodes["steps"]
            going = going[~(row["terminated"] | row["truncated"])[going]]
        return episodes

    def close(self) -> None:
        """End the threads."""
        self._pool = None

    def _step(self, row: Rows, which: np.ndarray) -> None:
        """Step some environments with their actions in the row, and fill in what happened."""
        row["obs"], row["time"] = self._obs, self._time
        actions = to_env_actions(self._task, row["action"][which])
        obs, reward, terminated, _, info = self._pool.step(actions, which)
        which = info["env_id"]
        self._steps += 1
        self._time[which] += 1
        self._see(which, obs)
        row["next_obs"], row["stepped"][which] = self._obs, True
        row["true_reward"][which], row["terminated"][which] = reward, terminated
        row["truncated"][which] = info["elapsed_step"] >= self._task.horizon

    def _begin(self, which: np.ndarray) -> None:
        obs, info = self._pool.reset(which)
        self._time[which] = 0
        self._see(info["env_id"], obs)

    def _see(self, which: np.ndarray, observations: Any) -> None:
        obs = flatten_observations(observations, len(which))
        bad = which[~np.isfinite(obs).all(axis=1)]
        if len(bad):
            number, env = divmod(int(bad.min()), self._by_seed[0].stop)
            raise not_finite(self._task.name, self._first_seed + number, env, self._steps)
        self._obs[which] = obs


def _open(envpool: Any, task: ControlTask, seeds: Sequence[int]) -> Any:
    # Its time limit hides a termination in the last step, so we keep the time and its limit is never reached.
    limit = task.horizon + 1
    return envpool.make_gymnasium(task.env_id, num_envs=len(seeds), seed=list(seeds), max_episode_steps=limit)


def _envpool_for(task: ControlTask) -> Any:
    """The package, after making sure that it simulates this very task."""
    try:
        envpool = importlib.import_module("envpool")
    except ImportError:
        raise InputError(f"EnvPool is not installed: run {install_command('envpool')}.") from None
    instead = "use backend='sync' or 'async'"
    if not _as_registered(task) or task.env_id not in envpool.list_all_envs():
        raise InputError(f"EnvPool has no {task.name} with just these settings and wrappers: {instead}.")
    if not _same_spaces(task, _open(envpool, task, [0])):
        raise InputError(f"EnvPool's {task.name} has other observations or actions than Gymnasium's: {instead}.")
    return envpool


def _as_registered(task: ControlTask) -> bool:
    """Whether the task is what its id stands for: EnvPool knows nothing of wrappers and other arguments."""
    stock = gym.registry.get(task.env_id)
    return isinstance(task.make, partial) and task.make.args == (stock,) and not task.make.keywords


def _same_spaces(task: ControlTask, pool: Any) -> bool:
    obs, space = pool.reset()[0], pool.action_space
    if flatten_observations(obs, 1).shape[1] != task.obs_dim or isinstance(space, Discrete) != task.discrete:
        return False
    if task.action_low is None or task.action_high is None:
        return bool(space.n == task.action_dim and space.start == task.action_start)
    same_shape = space.shape == task.action_low.shape
    return same_shape and bool(np.allclose([space.low, space.high], [task.action_low, task.action_high]))
