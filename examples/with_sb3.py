"""Train Stable-Baselines3 on a learned reward: python examples/with_sb3.py CartPole-v1 (or Pendulum-v1).

The rewards in examples/rewards were learned by PIRO from packaged demonstrations; reward.md beside them says how. The
task's own reward judges the policy in the end, and is used for nothing else.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

import trustirl as ti

REWARDS = Path(__file__).parent / "rewards"


def learned(task: str, wrapper: Callable[[gym.Env], gym.Env] | None = None) -> Any:
    """A policy that was trained on the learned reward of the task alone."""
    wrapper = wrapper or ti.load_reward(REWARDS / task).wrap
    if task == "CartPole-v1":
        envs = make_vec_env(task, 8, seed=0, wrapper_class=wrapper)
        settings = {"n_steps": 32, "batch_size": 256, "n_epochs": 20, "gae_lambda": 0.8, "gamma": 0.98}
        steep = {"learning_rate": lambda left: 1e-3 * left, "clip_range": lambda left: 0.2 * left}
        return PPO("MlpPolicy", envs, seed=0, device="cpu", **settings, **steep).learn(50_000)
    envs = make_vec_env(task, 1, seed=0, wrapper_class=wrapper)
    small = {"net_arch": [64, 64]}
    return SAC("MlpPolicy", envs, learning_rate=1e-3, policy_kwargs=small, seed=0, device="cpu").learn(7_000)


def judged(policy: Any, task: str, episodes: int = 20) -> float:
    """The mean true return of new episodes."""
    return float(evaluate_policy(policy, Monitor(gym.make(task)), episodes)[0])


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are small
    for name in sys.argv[1:] or ["CartPole-v1", "Pendulum-v1"]:
        print(f"{name}: mean true return {judged(learned(name), name):.1f}")
