"""What a task's observations and actions look like, and what follows an end. Needs neither Gymnasium nor JAX."""

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Float

Termination = Literal["T0", "T2", "T3"]


@dataclass(frozen=True, kw_only=True)
class Spaces:
    """What a task's observations and actions look like.

    `action_low` and `action_high` are None for discrete actions, which networks count from 0 and the environment
    from `action_start`. `range_low` and `range_high` are the part of the action space in which networks act, where
    that is not all of it.
    """

    name: str
    obs_dim: int
    action_dim: int
    discrete: bool
    action_low: Float[np.ndarray, "action_dim"] | None = None
    action_high: Float[np.ndarray, "action_dim"] | None = None
    action_start: int = 0
    range_low: Float[np.ndarray, "action_dim"] | None = None
    range_high: Float[np.ndarray, "action_dim"] | None = None

    @property
    def action_shape(self) -> tuple[int, ...]:
        """The shape of one action."""
        return () if self.discrete else (self.action_dim,)

    @property
    def bounds(self) -> tuple[Float[np.ndarray, "action_dim"], Float[np.ndarray, "action_dim"]] | None:
        """What -1 and 1 of networks stand for; None where actions are numbers."""
        if self.action_low is None or self.action_high is None:
            return None
        low = self.action_low if self.range_low is None else self.range_low
        return low, self.action_high if self.range_high is None else self.range_high


AnySpaces = TypeVar("AnySpaces", bound=Spaces)


def acting_as(spaces: AnySpaces, others: Spaces) -> AnySpaces:
    """The spaces with the range of actions of others, in which a policy or a reward was learned."""
    return replace(spaces, range_low=others.range_low, range_high=others.range_high)


@dataclass(frozen=True)
class Finite:
    """The spaces of the exact world, whose states and actions are numbered."""

    states: int
    actions: int
