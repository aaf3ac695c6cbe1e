"""What a task of the exact world is."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from trustirl.core.checks import at_least, at_most
from trustirl.core.errors import InputError
from trustirl.core.mdp import MDP
from trustirl.demos.schema import Demos

LONGEST = 1_000_000  # steps of an episode
MOST_NUMBERS = 2**26  # in a table: half a gibibyte


@dataclass(frozen=True)
class ExactTask:
    """A known MDP; its true reward, if that is known, is read by the expert and by evaluation only.

    `features` describe the states to linear and network rewards; `horizon` ends sampled episodes and truncates
    reported returns; `grid` is the shape of the picture, where there is one, and `target` a state to mark in it;
    `file_hash` is that of the file that it was read from, if it was; `shown` are demonstrations that came with it,
    and `table` is what else is known of a table (`from_table.Known`).
    """

    name: str
    mdp: MDP
    true_reward: Float[np.ndarray, "states actions"] | None
    features: Float[np.ndarray, "states features"]
    horizon: int
    state_only: bool
    grid: tuple[int, int] | None = None
    target: int | None = None
    file_hash: str | None = None
    shown: Demos | None = None
    table: Any = None

    def __post_init__(self) -> None:
        """Refuse a task without steps, or with more than anybody waits for."""
        at_least(1, self, "horizon")
        at_most(LONGEST, self, "horizon")


def check_size(name: str, states: int, per_state: int) -> None:
    """Refuse a task that would fill the memory while it is made."""
    if states * per_state > MOST_NUMBERS:
        raise InputError(
            f"{name} with {states:,} states needs a table of {states * per_state:,} numbers, and {MOST_NUMBERS:,} "
            "are the most; make it smaller."
        )
