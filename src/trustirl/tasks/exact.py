"""What a task of the exact world is."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from trustirl.core.checks import at_least
from trustirl.core.mdp import MDP


@dataclass(frozen=True)
class ExactTask:
    """A known MDP with a true reward (read by the expert and by evaluation only).

    `features` describe the states to linear and network rewards; `horizon` ends sampled episodes and truncates
    reported returns; `grid` is the shape of the picture, where there is one, and `target` a state to mark in it.
    """

    name: str
    mdp: MDP
    true_reward: Float[np.ndarray, "states actions"]
    features: Float[np.ndarray, "states features"]
    horizon: int
    state_only: bool
    grid: tuple[int, int] | None = None
    target: int | None = None

    def __post_init__(self) -> None:
        """Refuse a task without steps."""
        at_least(1, self, "horizon")
