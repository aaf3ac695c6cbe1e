"""Every call of env.step is counted, by purpose."""

from dataclasses import asdict, dataclass
from typing import Literal

Purpose = Literal["train", "reward", "evaluation"]


@dataclass
class Ledger:
    """Environment steps of all seeds together; start one from saved counts with `Ledger(**counts)`."""

    train: int = 0
    reward: int = 0
    evaluation: int = 0

    def add(self, purpose: Purpose, steps: int) -> None:
        """Count steps taken for a purpose."""
        setattr(self, purpose, getattr(self, purpose) + steps)

    @property
    def counts(self) -> dict[str, int]:
        """Steps by purpose, as a run's summary stores them."""
        return asdict(self)

    @property
    def total(self) -> int:
        """Steps for every purpose together."""
        return sum(self.counts.values())
