"""Policies whose behaviour is plain to see: one layer without units between."""

from typing import Any

import numpy as np

from trustirl.rollouts.policy import Design, Policies
from trustirl.tasks.gym import ControlTask

SURE = 1e6  # so much better that no noise matters


def linear(weight: Any, bias: Any, seeds: int, discrete: bool = True) -> Policies:
    """Values of the actions, or mean and log_std, are weight @ obs + bias."""
    matrix, vector = np.asarray(weight, np.float32), np.asarray(bias, np.float32)
    obs_dim = matrix.shape[1]
    design = Design(discrete, ((1, *matrix.shape), (1, *vector.shape)), 1, 1.0, 1e9, (-20.0, 2.0))
    one = np.concatenate([np.zeros(obs_dim), np.ones(obs_dim), matrix.reshape(-1), vector])
    return Policies(design, np.tile(one.astype(np.float32), (seeds, 1)))


def always(task: ControlTask, action: int, seeds: int) -> Policies:
    """One action, whatever is observed."""
    return linear(np.zeros((task.action_dim, task.obs_dim)), SURE * np.eye(task.action_dim)[action], seeds)


def upright(seeds: int) -> Policies:
    """CartPole's pole pushed back to where it leans."""
    return linear(SURE * np.array([[0, 0, -1, -1], [0, 0, 1, 1]]), np.zeros(2), seeds)


def falling(seeds: int) -> Policies:
    """CartPole's pole let fall, soon, by actions that depend on every entry and on noise."""
    return linear([[1, -2, 5, 1], [2, 1, -5, -1]], [0.1, 0.0], seeds)


def pushing(seeds: int) -> Policies:
    """Hopper falls within 60 steps."""
    return linear(np.vstack([9 * np.eye(3, 11), np.zeros((3, 11))]), [0, 0, 0, -1, -1, -1], seeds, discrete=False)
