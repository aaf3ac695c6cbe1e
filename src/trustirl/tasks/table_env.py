"""A world counted from a table as a Gymnasium environment, for methods that learn from steps. Needs no JAX."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from trustirl.tasks.counting import Kernel, Steps, steps_and_kernel

ENV_ID = "TableWorld-v0"


class TableEnv(gym.Env):
    """Observations say by ones and noughts which value each column has; nothing is paid.

    A move that cannot be made leaves the animal where it is.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  Gymnasium's own convention

    def __init__(self, steps: Steps, kernel: Kernel) -> None:
        """The world that `counted` made of steps."""
        self._features, self._kernel = steps.features().astype(np.float32), kernel
        self._total = np.cumsum(kernel.probabilities, axis=1)
        self._stay = np.where(kernel.allowed, kernel.which, kernel.which[:, :1])
        self.observation_space = Box(0.0, 1.0, (self._features.shape[1],), np.float32)
        self.action_space = Discrete(len(steps.actions))
        self._state = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin where a window begins."""
        super().reset(seed=seed, options=options)
        self._state = int(self.np_random.choice(len(self._features), p=self._kernel.initial))
        return self._features[self._state].copy(), {"state": self._state}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """What followed in the table, by chance."""
        chosen = self._stay[self._state, int(action)]
        total = self._total[chosen]
        slot = min(int(np.searchsorted(total, self.np_random.random() * total[-1], side="right")), len(total) - 1)
        self._state = int(self._kernel.successors[chosen, slot])
        return self._features[self._state].copy(), 0.0, False, False, {"state": self._state}


def table_env(**arguments: Any) -> TableEnv:
    """The environment of a table in a file, from the arguments of the task `table`."""
    arguments.pop("action_prior", None)  # of the demonstrations, not of the world
    return TableEnv(*steps_and_kernel(**arguments))
