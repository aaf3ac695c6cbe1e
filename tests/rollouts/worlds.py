"""Small environments with known trajectories. Worker processes import this file: it must not import JAX."""

import os
import sys
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space
from gymnasium.wrappers import TimeLimit


class Counter(gym.Env):
    """Observes (episode, steps, last action); terminates after `length` steps; the reward is the step count."""

    def __init__(self, length: int = 10**9, start: int = 0) -> None:
        self.length, self.episode = length, -1
        self.observation_space = Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = Discrete(5, start=start)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.episode, self.steps = (0 if seed is not None else self.episode + 1), 0
        return np.array([self.episode, 0.0, -1.0]), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        return np.array([self.episode, self.steps, action]), float(self.steps), self.steps == self.length, False, {}


class CoinLength(gym.Env):
    """Half of the episodes last 1 step, half 9, by the reset's coin; every step pays 1, so the mean return is 5."""

    observation_space = Box(0, 9, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.left = 1 if self.np_random.random() < 0.5 else 9
        return np.array([self.left], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.left -= 1
        return np.array([self.left], np.float32), 1.0, self.left == 0, False, {}


class Static(gym.Env):
    """Any spaces; observes what it is told to and pays what the environment received as its action."""

    def __init__(self, observation_space: Space, action_space: Space, observation: Any = None) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.observation = observation_space.sample() if observation is None else observation

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self.observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return self.observation, float(np.sum(action)), False, False, {}


class NanAt(Counter):
    """Breaks at its third step when its seed was odd."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.broken = seed is not None and seed % 2 == 1
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        obs, *rest = super().step(action)
        return (obs * np.nan if self.broken and self.steps == 3 else obs), *rest


class Recycler(Counter):
    """Gives the same array every time, with other numbers in it."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.memory = np.zeros(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.memory[:], info = super().reset(seed=seed, options=options)
        return self.memory, info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.memory[:], *rest = super().step(action)
        return self.memory, *rest


class Breakdown(Exception):
    """Cannot be made from a message alone, as errors that come back from a process are."""

    def __init__(self, part: str, steps: int) -> None:
        super().__init__(f"the {part} broke after {steps} steps")


class Fragile(Counter):
    """Fails at its third step when its seed was odd, or kills its process when the seed was negative."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.fate = seed or 0
        return super().reset(seed=abs(self.fate), options=options)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        obs, *rest = super().step(action)
        if self.steps == 3 and self.fate < 0:
            os._exit(1)
        if self.steps == 3 and self.fate % 2:
            raise Breakdown("axle", self.steps)
        return obs, *rest


class Confession(Counter):
    """Observes (process, whether JAX is loaded there, steps)."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        _, *rest = super().step(action)
        return np.array([os.getpid(), "jax" in sys.modules, self.steps], np.float64), *rest


def limited(env: Callable[..., gym.Env], steps: int, *arguments: Any) -> Callable[[], gym.Env]:
    """A function that returns the environment with a time limit."""
    return lambda: TimeLimit(env(*arguments), steps)


def dict_space() -> Dict:
    """Keys in an order that is not the sorted one."""
    return Dict({"target": Box(-9, 9, (2,)), "body": Box(-9, 9, (3,), np.float64), "clock": Box(0, 9, ())})
