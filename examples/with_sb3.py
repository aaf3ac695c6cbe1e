"""Train Stable-Baselines3's SAC on a learned reward of Pendulum-v1: python examples/with_sb3.py

The rewards in examples/rewards were learned by PIRO from packaged demonstrations; reward.md beside them says how. The
task's own reward judges the policy in the end, and is used for nothing else.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import trustirl as ti

TASK = "Pendulum-v1"
REWARD = Path(__file__).parent / "rewards" / TASK


def learned(wrapper: Callable[[gym.Env], gym.Env] | None = None, steps: int = 10_000) -> Any:
    """A policy that was trained on the learned reward alone."""
    envs = make_vec_env(TASK, 1, seed=0, wrapper_class=wrapper or ti.load_reward(REWARD).wrap)
    small = {"net_arch": [64, 64]}
    return SAC("MlpPolicy", envs, learning_rate=1e-3, policy_kwargs=small, seed=0, device="cpu").learn(steps)


def judged(policy: Any, episodes: int = 20) -> float:
    """The mean true return of new episodes."""
    return float(evaluate_policy(policy, make_vec_env(TASK, 1, seed=1000), episodes)[0])


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are small
    print(f"{TASK}: mean true return {judged(learned()):.1f}")
