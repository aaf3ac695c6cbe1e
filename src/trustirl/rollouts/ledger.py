"""Every call of env.step is counted, by purpose; and every reset to a demonstrated state."""

from dataclasses import dataclass
from typing import Literal, get_args

Purpose = Literal["train", "reward", "evaluation"]


@dataclass
class Ledger:
    """Environment steps of all seeds together; `vars` of one are what a checkpoint saves."""

    train: int = 0
    reward: int = 0
    evaluation: int = 0
    resets: int = 0
    """To demonstrated states; the simulator is put into them, and no step is made on the way."""

    def add(self, purpose: Purpose, steps: int) -> None:
        """Count steps taken for a purpose."""
        setattr(self, purpose, getattr(self, purpose) + steps)

    @property
    def counts(self) -> dict[str, int]:
        """Steps by purpose, as a run's summary stores them."""
        return {purpose: getattr(self, purpose) for purpose in get_args(Purpose)}

    @property
    def total(self) -> int:
        """Steps for every purpose together."""
        return sum(self.counts.values())
