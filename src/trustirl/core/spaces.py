"""What a task's observations and actions look like, and what follows an end. Needs neither Gymnasium nor JAX."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

Termination = Literal["T0", "T2", "T3"]


@dataclass(frozen=True, kw_only=True)
class Spaces:
    """What a task's observations and actions look like.

    `action_low` and `action_high` are None for discrete actions, which networks count from 0 and the environment
    from `action_start`.
    """

    name: str
    obs_dim: int
    action_dim: int
    discrete: bool
    action_low: Float[np.ndarray, "action_dim"] | None = None
    action_high: Float[np.ndarray, "action_dim"] | None = None
    action_start: int = 0

    @property
    def action_shape(self) -> tuple[int, ...]:
        """The shape of one action."""
        return () if self.discrete else (self.action_dim,)


@dataclass(frozen=True)
class Finite:
    """The spaces of the exact world, whose states and actions are numbered."""

    states: int
    actions: int
