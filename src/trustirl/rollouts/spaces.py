"""Between an environment's spaces and the vectors that networks see.

Observations: the entries of a Dict are concatenated in sorted key order, all in float32.
Actions: networks act in [-1, 1]; the environment receives low + (a + 1) / 2 * (high - low).
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Num

from trustirl.core.errors import InputError, NumericalError
from trustirl.core.observations import flatten
from trustirl.tasks.gym import Spaces

ROUNDING = 1e-6


def flatten_observations(observations: Any, count: int) -> Float[np.ndarray, "count obs_dim"]:
    """A batch of `count` observations as rows of float32, always in fresh memory."""
    return flatten(observations, count, np.float32)


def to_env_actions(task: Spaces, actions: Num[np.ndarray, "..."]) -> Num[np.ndarray, "..."]:
    """What the environment receives for a network's actions."""
    if task.action_low is None or task.action_high is None:
        _require_choices(task, actions)
        return actions + task.action_start
    if not np.abs(actions).max(initial=0) <= 1 + ROUNDING:
        raise NumericalError(f"{task.name}: an action of the policy is NaN or outside [-1, 1].")
    low, high = task.action_low, task.action_high
    scaled = low + (actions + 1) * ((high - low) / 2)
    return np.minimum(np.maximum(scaled, low), high).astype(low.dtype, copy=False)  # np.clip takes twice the time


def from_env_actions(task: Spaces, actions: Num[np.ndarray, "..."]) -> tuple[Num[np.ndarray, "..."], int]:
    """Demonstrated actions as a network would give them, and how many entries had to be clipped."""
    if task.action_low is None or task.action_high is None:
        _require_choices(task, actions - task.action_start)
        return actions - task.action_start, 0
    low, high = task.action_low, task.action_high
    outside = np.count_nonzero((actions < low) | (actions > high))
    scaled = 2 * (np.clip(actions, low, high) - low) / (high - low) - 1
    return scaled.astype(np.float32), int(outside)


def _require_choices(task: Spaces, actions: Num[np.ndarray, "..."]) -> None:
    if not np.issubdtype(actions.dtype, np.integer) or np.any((actions < 0) | (actions >= task.action_dim)):
        first, last = task.action_start, task.action_start + task.action_dim - 1
        raise InputError(f"actions of {task.name} must be whole numbers from {first} to {last}.")
