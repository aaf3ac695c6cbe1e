"""A learned reward in plain NumPy: Reward("reward.npz")(state, action)."""

from typing import Any

import numpy as np


class Reward:
    """A number for every state and action, both counted from 0."""

    def __init__(self, path: str = "reward.npz") -> None:
        with np.load(path, allow_pickle=False) as file:
            self.table = file["table"]

    def __call__(self, obs: Any, action: Any = 0, next_obs: Any = None, terminated: Any = False) -> Any:  # noqa: ARG002
        return self.table[np.asarray(obs), np.asarray(action)]
