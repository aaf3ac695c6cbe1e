"""Episodes that begin at demonstrated states instead of where the task begins them."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit
from jaxtyping import Float, Int

from trustirl.demos.record import restore_state

SHOWN = "trustirl.shown"  # among the options of a reset that shall lead to a demonstrated state
TIME = "trustirl.time"  # in the info of such a reset: the time within the episode


class Starts(NamedTuple):
    """Demonstrated steps, from which episodes may begin."""

    states: Float[np.ndarray, "steps size"]  # the simulator's
    observations: Float[np.ndarray, "steps obs_dim"]
    times: Int[np.ndarray, " steps"]  # within their episodes


class Restarting(gym.Wrapper):
    """Begins an episode at a demonstrated state, each as likely, where a reset asks for it.

    Its clock stands where the demonstration's stood, so that it ends at the same time.
    """

    def __init__(self, env: gym.Env, starts: Starts) -> None:
        super().__init__(env)
        self._starts = starts

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; with `SHOWN` among the options at a demonstrated state."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        observation, info = self.env.reset(seed=seed)
        if not options or SHOWN not in options:
            return observation, info
        row = int(self._random.integers(len(self._starts.states)))
        restore_state(self.env, self._starts.states[row])
        time = int(self._starts.times[row])
        env: gym.Env = self.env
        while isinstance(env, gym.Wrapper):
            if isinstance(env, TimeLimit):
                env._elapsed_steps = time  # type: ignore[assignment]
            env = env.env
        return self._starts.observations[row], info | {TIME: time}
