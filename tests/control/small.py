"""Small control experiments that tests share."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from trustirl.demos.schema import Demos
from trustirl.training.train import setting_groups
from trustirl.worlds.job import Experiment, settle

SETTINGS: dict[str, Any] = {
    "steps_per_iteration": 80,
    "envs": 2,
    "rounds": 2,
    "batch": 16,
    "reward_batch": 8,
    "reference": 8,
    "warmup": 20,
    "reward_width": 8,
    "reward_depth": 1,
    "width": 8,
    "depth": 1,
    "backend": "sync",
    "evaluation_episodes": 2,
    "evaluate_every": 1,
    "checkpoint_every": 1,
}


def flags() -> list[str]:
    """The settings as a person types them."""
    return [f"--{name.replace('_', '-')}={value}".replace("=True", "") for name, value in SETTINGS.items()]


def cartpole_demo() -> Demos:
    rng = np.random.default_rng(0)
    return Demos.from_numpy(rng.normal(size=(60, 4)), rng.integers(2, size=60), [30, 60], [True, False])


def pendulum_demo() -> Demos:
    rng = np.random.default_rng(1)
    return Demos.from_numpy(rng.normal(size=(60, 3)), rng.uniform(-2, 2, (60, 1)))


def experiment(algorithm: str = "piro", task: str = "CartPole-v1", seeds: int = 2, **changes: Any) -> Experiment:
    """Two reward updates."""
    return Experiment(
        algorithm=algorithm,
        task=task,
        task_args={},
        demos="",
        demo_episodes=None,
        demo_choice="first",
        seeds=seeds,
        steps=260,
        settings=settle(setting_groups(algorithm, task), SETTINGS | changes, algorithm),
        world="simulator",
    )


def stopping(task: str, folder: Path) -> Callable[..., gym.Env]:
    """Makes environments that ask the run in `folder` to stop, once, in the middle of an iteration."""
    asked = False

    class Nudge(gym.Wrapper):
        def step(self, action: Any) -> Any:
            nonlocal asked
            if not asked and sum(1 for _ in (folder / "metrics.jsonl").open()) >= 2:
                asked = True
                os.kill(os.getpid(), signal.SIGTERM)
            return self.env.step(action)

    def make(**arguments: Any) -> gym.Env:
        return Nudge(gym.make(task, **arguments))

    make.__name__ = task
    return make
