"""Gymnasium environments stepped on the host: all seeds and their environments in one vector environment.

An episode that ends is reset within the same step, so every vector step is one true transition per environment: the
successor in `next_obs`, also where an episode ended, and the observation to act on next in `obs`. Later episodes of
an environment draw on the generator that `reset` seeded: given the actions, all that follows a reset is reproducible.

Nothing here imports JAX. Worker processes are never forked from this one, whose JAX threads could deadlock them.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType, TracebackType
from typing import Any, Literal, NamedTuple, get_args

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from jaxtyping import Bool, Float, Int, Num

from trustirl.core.errors import InputError, NumericalError
from trustirl.rollouts.ledger import Ledger, Purpose
from trustirl.rollouts.spaces import flatten_observations, to_env_actions
from trustirl.tasks.control import ControlTask, MakeEnv

Backend = Literal["auto", "sync", "async"]
Termination = Literal["T0", "T2", "T3"]
Act = Callable[[np.ndarray], np.ndarray]

SEED_BITS = 29  # with the purpose on top, every seed fits a signed 32-bit integer, which some simulators ask for
MAX_EVALUATION_ENVS = 64
CORES_FOR_ASYNC = 4


class StepResult(NamedTuple):
    """One vector step; `obs` differs from `next_obs` only where an episode ended and the next one began."""

    next_obs: Float[np.ndarray, "seeds envs obs_dim"]
    terminated: Bool[np.ndarray, "seeds envs"]
    truncated: Bool[np.ndarray, "seeds envs"]
    obs: Float[np.ndarray, "seeds envs obs_dim"]
    true_reward: Float[np.ndarray, "seeds envs"]

    @property
    def ended(self) -> Bool[np.ndarray, "seeds envs"]:
        """Where an episode ended, for whatever reason."""
        return self.terminated | self.truncated


class Rollout(NamedTuple):
    """Aligned transitions (s_t, a_t, s_{t+1}), and where to go on from; only evaluation reads `true_reward`."""

    obs: Float[np.ndarray, "steps seeds envs obs_dim"]
    action: Num[np.ndarray, "steps seeds envs ..."]
    next_obs: Float[np.ndarray, "steps seeds envs obs_dim"]
    terminated: Bool[np.ndarray, "steps seeds envs"]
    truncated: Bool[np.ndarray, "steps seeds envs"]
    time: Int[np.ndarray, "steps seeds envs"]  # t within the episode
    true_reward: Float[np.ndarray, "steps seeds envs"]
    final_obs: Float[np.ndarray, "seeds envs obs_dim"]
    final_time: Int[np.ndarray, "seeds envs"]


class FixedHorizon(gym.Wrapper):
    """Termination mode T3: after an end the terminal observation repeats with reward 0 until the horizon."""

    def __init__(self, env: gym.Env, horizon: int) -> None:
        super().__init__(env)
        self.horizon = horizon

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._time, self._terminal_obs = 0, None
        return self.env.reset(**arguments)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, or stay at the end; `terminated` is never true."""
        self._time += 1
        at_horizon = self._time >= self.horizon
        if self._terminal_obs is not None:
            return self._terminal_obs, 0.0, False, at_horizon, {}
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._terminal_obs = obs if terminated else None
        return obs, reward, False, at_horizon or (truncated and not terminated), info


class HostEnvs:
    """`seeds` x `envs_per_seed` copies of a task; arrays in and out are [seeds, envs, ...]."""

    def __init__(
        self,
        task: ControlTask,
        seeds: int,
        envs_per_seed: int,
        ledger: Ledger,
        backend: Backend = "auto",
        termination: Termination = "T0",
    ) -> None:
        self.task, self.seeds, self.envs_per_seed = task, seeds, envs_per_seed
        self.ledger, self.termination = ledger, termination
        self.backend = resolve_backend(backend, task)
        make = partial(_make_fixed, task.make, task.horizon) if termination == "T3" else task.make
        self._vector = _open([make] * self.count, self.backend)
        self._steps = 0

    @property
    def count(self) -> int:
        """How many environments there are."""
        return self.seeds * self.envs_per_seed

    def reset(self, seeds: Int[np.ndarray, "seeds envs"]) -> Float[np.ndarray, "seeds envs obs_dim"]:
        """Start a fresh episode in every environment."""
        if seeds.shape != (self.seeds, self.envs_per_seed):
            raise InputError(f"expected {self.seeds} x {self.envs_per_seed} environment seeds, not {seeds.shape}.")
        self._steps = 0
        observations, _ = self._vector.reset(seed=seeds.reshape(-1).tolist())
        return self._grid(self._finite(flatten_observations(observations, self.count)))

    def step(self, actions: Num[np.ndarray, "seeds envs ..."], purpose: Purpose) -> StepResult:
        """Step every environment once; `purpose` says in which column the steps are counted."""
        expected = (self.seeds, self.envs_per_seed, *self.task.action_shape)
        if actions.shape != expected:
            raise InputError(f"{self.task.name} needs actions of shape {expected}, not {actions.shape}.")
        env_actions = to_env_actions(self.task, actions.reshape(self.count, *self.task.action_shape))
        observations, reward, terminated, truncated, info = self._vector.step(env_actions)
        self.ledger.add(purpose, self.count)
        self._steps += 1
        obs = self._finite(flatten_observations(observations, self.count))
        next_obs = self._finite(_true_successors(obs, terminated | truncated, info))
        return StepResult(*map(self._grid, (next_obs, terminated, truncated, obs, reward)))

    def close(self) -> None:
        """Close every environment, and the processes that ran them."""
        self._vector.close()

    def __enter__(self) -> "HostEnvs":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _grid(self, rows: Num[np.ndarray, "count ..."] | Bool[np.ndarray, "count"]) -> np.ndarray:
        return rows.reshape(self.seeds, self.envs_per_seed, *rows.shape[1:])

    def _finite(self, obs: Float[np.ndarray, "count obs_dim"]) -> Float[np.ndarray, "count obs_dim"]:
        bad = ~np.isfinite(obs).all(axis=1)
        if bad.any():
            seed, env = divmod(int(bad.argmax()), self.envs_per_seed)
            raise NumericalError(
                f"{self.task.name}: environment {env} of seed {seed} gave a NaN or infinite observation "
                f"at step {self._steps} after its reset; check its dynamics and its action bounds."
            )
        return obs


def _make_fixed(make: MakeEnv, horizon: int) -> FixedHorizon:
    return FixedHorizon(make(), horizon)


def _true_successors(
    obs: Float[np.ndarray, "count obs_dim"], ended: Bool[np.ndarray, "count"], info: dict[str, Any]
) -> Float[np.ndarray, "count obs_dim"]:
    successors = obs.copy()
    for index in np.flatnonzero(ended):
        successors[index] = flatten_observations(info["final_obs"][index], 1)[0]
    return successors


def resolve_backend(backend: Backend, task: ControlTask) -> Literal["sync", "async"]:
    """What "auto" means here: processes pay off for a slow simulator on a machine with cores to spare."""
    if backend == "auto":
        return "async" if "mujoco" in task.versions and _cores() > CORES_FOR_ASYNC else "sync"
    return backend


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _open(makers: list[MakeEnv], backend: Literal["sync", "async"]) -> SyncVectorEnv | AsyncVectorEnv:
    # copy=False: flattening copies anyway.
    if backend == "sync":
        return SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
    context = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    with _main_module_hidden():
        return AsyncVectorEnv(makers, copy=False, context=context, autoreset_mode=AutoresetMode.SAME_STEP)


@contextmanager
def _main_module_hidden() -> Iterator[None]:
    """Keep workers from running the user's script again, which would import JAX and ask for a __main__ guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def episode_seeds(run_seed: int, iteration: int, envs: int, purpose: Purpose) -> Int[np.ndarray, "envs"]:
    """Environment seeds that depend on nothing else; those of different purposes never coincide."""
    column = get_args(Purpose).index(purpose)
    words = np.random.SeedSequence(run_seed, spawn_key=(column, iteration)).generate_state(envs)
    return (column << SEED_BITS) | (words.astype(np.int64) >> (32 - SEED_BITS))


def collect(
    envs: HostEnvs,
    act: Act,
    steps: int,
    obs: Float[np.ndarray, "seeds envs obs_dim"],
    time: Int[np.ndarray, "seeds envs"] | None = None,
    purpose: Purpose = "train",
) -> Rollout:
    """Run `steps` vector steps from `obs`; `time` is where its episodes stand, 0 after a reset."""
    time = np.zeros(obs.shape[:2], np.int64) if time is None else time
    rows = []
    for _ in range(steps):
        action = np.asarray(act(obs))
        result = envs.step(action, purpose)
        rows.append((obs, action, *result[:3], time, result.true_reward))
        obs, time = result.obs, np.where(result.ended, 0, time + 1)
    return Rollout._make((*map(np.stack, zip(*rows, strict=True)), obs, time))


def evaluation_envs(
    task: ControlTask, seeds: int, episodes: int, ledger: Ledger, backend: Backend = "auto"
) -> HostEnvs:
    """Environments for `evaluate_returns`, to be opened once and used often: starting processes takes seconds."""
    return HostEnvs(task, seeds, _evaluation_envs(seeds, episodes), ledger, backend)


def evaluate_returns(envs: HostEnvs, act: Act, episodes: int, seed_root: int) -> Float[np.ndarray, "seeds episodes"]:
    """True returns of full episodes that start the same way at every call, as many from every environment."""
    starts = np.stack([episode_seeds(seed_root, seed, episodes, "evaluation") for seed in range(envs.seeds)])
    rounds = np.split(starts, episodes // envs.envs_per_seed, axis=1)
    return np.concatenate([_play_episodes(envs, act, round_) for round_ in rounds], axis=1)


def _evaluation_envs(seeds: int, episodes: int) -> int:
    """The most environments per seed among which the episodes divide evenly."""
    at_most = max(1, MAX_EVALUATION_ENVS // seeds)
    return max(envs for envs in range(1, episodes + 1) if episodes % envs == 0 and envs <= at_most)


def _play_episodes(envs: HostEnvs, act: Act, seeds: Int[np.ndarray, "seeds envs"]) -> Float[np.ndarray, "seeds envs"]:
    """One episode per environment; those that end early idle along, so short episodes are not seen more often."""
    obs = envs.reset(seeds)
    returns, running = np.zeros(seeds.shape), np.ones(seeds.shape, bool)
    for _ in range(envs.task.horizon):
        result = envs.step(np.asarray(act(obs)), "evaluation")
        returns += np.where(running, result.true_reward, 0.0)
        running &= ~result.ended
        obs = result.obs
        if not running.any():
            break
    return returns
