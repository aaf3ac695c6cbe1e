"""Bundles: environments that act by themselves, one after another in one process or in processes of a bundle each.

One message to a process moves its bundle for a whole round, and the weights of its policies lie in shared memory, so
communication costs little beside the simulation. What an environment does depends on its seed, its policy and its
noise only, never on how environments are bundled.

Nothing here imports JAX. Worker processes are never forked from this one, whose JAX threads could deadlock them.
"""

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Discrete
from gymnasium.vector import AsyncVectorEnv
from jaxtyping import Float, Num

from trustirl.core.errors import NumericalError
from trustirl.rollouts.policy import AtRandom, Design, HostPolicy, NoiseKey, Policies, Trembling, noise_generator
from trustirl.rollouts.restarts import SHOWN, TIME
from trustirl.rollouts.spaces import flatten_observations, to_env_actions
from trustirl.tasks.gym import ControlTask

Rows = np.ndarray  # of `row_type`, [steps, environments]
Episodes = np.ndarray  # of `EPISODE`, one per environment

EPISODE = np.dtype(
    [
        ("true_return", np.float64),
        ("steps", np.int64),
        ("success", np.float64),  # whether the environment ever reported it; NaN where it reports none
        ("steps_to_success", np.int64),  # until it first did, or all
    ]
)
SUCCESS = ("success", "is_success")  # in an info, as robots' environments call it
REPEATED = "trustirl.repeated"  # in the info of a step that did not reach the environment
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def row_type(task: ControlTask) -> np.dtype:
    """What a step did in one environment."""
    return np.dtype(
        [
            ("obs", np.float32, (task.obs_dim,)),
            ("action", np.int32 if task.discrete else np.float32, task.action_shape),  # as the network gave it
            ("next_obs", np.float32, (task.obs_dim,)),  # the true successor, also where an episode ended
            ("terminated", np.bool),
            ("truncated", np.bool),
            ("time", np.int32),  # within the episode
            ("true_reward", np.float64),
            ("stepped", np.bool),  # whether env.step was called
        ]
    )


class FixedHorizon(gym.Wrapper):
    """Termination mode T3: after an end the terminal observation repeats with reward 0 until the horizon."""

    def __init__(self, env: gym.Env, horizon: int) -> None:
        super().__init__(env)
        self.horizon = horizon

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(**arguments)
        self._time, self._terminal_obs = info.get(TIME, 0), None
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, or stay at the end; `terminated` is never true."""
        self._time += 1
        at_horizon = self._time >= self.horizon
        if self._terminal_obs is not None:
            return self._terminal_obs, 0.0, False, at_horizon, {REPEATED: True}
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._terminal_obs = obs if terminated else None
        return obs, reward, False, at_horizon or (truncated and not terminated), info


class Unpaid(gym.Wrapper):
    """For whoever learns a reward: the true one is never looked at, and need not be a number."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step, and pay what spoils all that it is added to."""
        obs, _, terminated, truncated, info = self.env.step(action)
        return obs, math.nan, terminated, truncated, info


class Copy:
    """One environment and where its episode stands; environment `place` of a seed."""

    def __init__(self, task: ControlTask, number: int, envs_per_seed: int, first_seed: int) -> None:
        self._task, self.number = task, number
        self.policy, self.place = divmod(number, envs_per_seed)
        self.seed = first_seed + self.policy
        self._env: gym.Env | None = None

    def reset(self, seed: int | None = None, shown: bool = False) -> None:
        """Begin an episode, as the later ones at a demonstrated state if it is to be `shown`.

        Without a seed it begins as the last one did, with the generator that was left.
        """
        if self._env is None:  # made late: in the process that steps it, whose errors reach the user
            self._env = self._ask(self._task.make)
        if seed is not None:
            self._steps, self._options = 0, {"options": {SHOWN: True}} if shown else {}
        observation, info = self._ask(self._env.reset, seed=seed, **self._options)
        self.obs, self._time = self._seen(observation), info.get(TIME, 0)

    def step(self, action: Num[np.ndarray, "..."]) -> tuple[Any, ...]:
        """Step with a network's action: a row of what happened."""
        assert self._env is not None
        env_action = to_env_actions(self._task, action[None])[0]
        successor, reward, terminated, truncated, info = self._ask(self._env.step, env_action)
        obs, time = self.obs, self._time
        self._time, self._steps = time + 1, self._steps + 1
        self.obs, self.success = self._seen(successor), reported_success(info)
        return obs, action, self.obs, terminated, truncated, time, reward, REPEATED not in info

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()

    def _ask(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except Exception as error:
            # A plain error, since one of a class that only the worker process knows would never arrive.
            message = f"environment {self.number} failed: {type(error).__name__}: {error}"
            raise RuntimeError(message) from error

    def _seen(self, observation: Any) -> Float[np.ndarray, " obs_dim"]:
        obs = flatten_observations(observation, 1)[0]  # a copy: an environment may use the memory again
        if not np.isfinite(obs).all():
            raise not_finite(self._task.name, self.seed, self.place, self._steps)
        return obs


def reported_success(info: Mapping[str, Any]) -> float:
    """1 or 0 as an environment says of a step, NaN where it says nothing that is a number."""
    told = next((info[name] for name in SUCCESS if name in info), math.nan)
    try:
        return float(bool(told)) if told == told else math.nan
    except (TypeError, ValueError):
        return math.nan


def not_finite(task: str, seed: int, env: int, steps: int) -> NumericalError:
    """The error for an observation that no policy can act on."""
    return NumericalError(
        f"{task}: environment {env} of seed {seed} gave a NaN or infinite observation at step {steps} after its "
        "reset; check its dynamics and its action bounds."
    )


class Bundle:
    """The environments of one process: those with these `numbers` among all."""

    def __init__(self, task: ControlTask, numbers: range, envs_per_seed: int, first_seed: int = 0) -> None:
        self._task = task
        self._copies = [Copy(task, number, envs_per_seed, first_seed) for number in numbers]
        self._policies: dict[int, HostPolicy] = {}

    def reset(self, seeds: Sequence[int], shown: int = 0) -> None:
        """Begin an episode in every environment; `seeds` are those of all bundles.

        The first `shown` environments of each policy begin theirs at demonstrated states.
        """
        for copy in self._copies:
            copy.reset(seeds[copy.number], copy.place < shown)

    def load(self, policies: Policies) -> None:
        """Act with these from now on."""
        self._policies = {number: policies.of(number) for number in {copy.policy for copy in self._copies}}

    def attach(self, design: Design, file: Path, shape: tuple[int, int]) -> None:
        """Act with policies whose weights another process writes."""
        # A plain array over the mapped memory, since operations on a memmap itself are slow.
        self.load(Policies(design, np.asarray(np.memmap(file, np.float32, "r", shape=shape))))

    def rollout(self, steps: int, key: NoiseKey, random: bool, tremble: float = 0.0) -> Rows:
        """Go on for `steps` steps in every environment, with its policy or at random.

        `tremble` is the chance that a policy's action is a random one.
        """
        rows = np.zeros((steps, len(self._copies)), row_type(self._task))
        for column, copy in enumerate(self._copies):
            policy: Any = AtRandom(self._task) if random else self._policies[copy.policy]
            if tremble and not random:
                policy = Trembling(policy, self._task, tremble)
            for step, noise in enumerate(policy.noise(noise_generator(copy.seed, copy.place, key), steps)):
                rows[step, column] = row = copy.step(policy.act(copy.obs, noise))
                if row[3] or row[4]:
                    copy.reset()
        return rows

    def play(self, seeds: Sequence[int]) -> Episodes:
        """One episode per environment without noise; `seeds` are those of all bundles."""
        return np.array([self._episode(copy, seeds[copy.number]) for copy in self._copies], EPISODE)

    def close(self) -> None:
        """Close every environment."""
        for copy in self._copies:
            copy.close()

    def _episode(self, copy: Copy, seed: int) -> tuple[float, int, float, int]:
        copy.reset(seed)
        true_return, steps, ended, success, needed = 0.0, 0, False, math.nan, 0
        while not ended:
            *_, terminated, truncated, time, reward, stepped = copy.step(self._policies[copy.policy].mode(copy.obs))
            true_return, steps = true_return + reward, steps + stepped
            needed += int(success != 1)  # another step, as long as there was none
            success = float(np.fmax(success, copy.success))
            ended = terminated or truncated or time + 1 == self._task.horizon
        return true_return, steps, success, needed


class BundleEnv(gym.Env):
    """A bundle that looks like one environment, so that Gymnasium can run it in a process."""

    observation_space, action_space = Discrete(1), Discrete(1)  # never used

    def __init__(self, task: ControlTask, numbers: range, envs_per_seed: int, first_seed: int) -> None:
        self._bundle = Bundle(task, numbers, envs_per_seed, first_seed)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the bundle."""
        return getattr(self._bundle, method)(*arguments)

    def close(self) -> None:
        """Close the bundle."""
        self._bundle.close()


class Workers:
    """Environments in bundles of nearly one size, each in a process."""

    def __init__(
        self, task: ControlTask, count: int, envs_per_seed: int, processes: int, first_seed: int = 0
    ) -> None:
        bounds = [count * process // processes for process in range(processes + 1)]
        numbers = [range(first, end) for first, end in pairwise(bounds)]
        bundles = [partial(BundleEnv, task, own, envs_per_seed, first_seed) for own in numbers]
        self._layout: tuple[Design, tuple[int, int]] | None = None
        with _main_module_hidden(), _environment(ONE_THREAD):
            # Spawned, not forked: by a fork server they would inherit the variables of when that server started.
            self._vector = AsyncVectorEnv(bundles, shared_memory=False, context="spawn")

    def reset(self, seeds: Sequence[int], shown: int = 0) -> None:
        """As a bundle does."""
        self._ask("reset", seeds, shown)

    def load(self, policies: Policies) -> None:
        """Copy the weights to where the processes read them."""
        layout = policies.design, policies.weights.shape
        if layout != self._layout:
            # Once mapped everywhere the file is removed, so whatever ends this process leaves nothing behind.
            with TemporaryDirectory(prefix="trustirl-", ignore_cleanup_errors=True) as folder:
                file = Path(folder) / "weights"
                self._weights = np.memmap(file, np.float32, "w+", shape=policies.weights.shape)
                self._ask("attach", policies.design, file, policies.weights.shape)
            self._layout = layout
        self._weights[:] = policies.weights

    def rollout(self, steps: int, key: NoiseKey, random: bool, tremble: float = 0.0) -> Rows:
        """As a bundle does."""
        return np.concatenate(self._ask("rollout", steps, key, random, tremble), axis=1)

    def play(self, seeds: Sequence[int]) -> Episodes:
        """As a bundle does."""
        return np.concatenate(self._ask("play", seeds))

    def close(self) -> None:
        """Close every environment and end the processes."""
        self._vector.close()

    def _ask(self, method: str, *arguments: Any) -> tuple[Any, ...]:
        try:
            return self._vector.call("ask", method, *arguments)
        except (EOFError, ConnectionError) as error:
            for process in self._vector.processes:
                process.terminate()
            self._vector.closed = True  # a polite close would wait for the dead
            raise RuntimeError(
                "a process that steps environments died, as when memory runs out or a simulator crashes; "
                "try fewer environments, or backend='sync' to see the crash itself."
            ) from error


@contextmanager
def _main_module_hidden() -> Iterator[None]:
    """Keep workers from running the user's script again, which would import JAX and ask for a __main__ guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Environment variables for processes that start meanwhile: tiny products must not wake a pool of threads."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
