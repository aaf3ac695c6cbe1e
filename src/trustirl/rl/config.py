"""The settings that the sampled solvers, SAC and soft Q, share."""

from dataclasses import dataclass

import jax
import optax
from jaxtyping import PyTree

from trustirl.core.checks import at_least, at_most, positive
from trustirl.core.errors import InputError

WIDEST = 65_536  # units of a layer


@dataclass(frozen=True)
class SolverConfig:
    """Settings of the policy step."""

    width: int = 256
    """Units of each hidden layer."""
    depth: int = 2
    """Hidden layers."""
    layer_norm: bool = False
    """LayerNorm in the critics' hidden layers."""
    critics: int = 2
    """Networks of the critic; targets and policy use the smallest of their values."""
    learning_rate: float = 3e-4
    """Adam's step size for critic and temperature, and for the actor unless it has its own."""
    actor_learning_rate: float | None = None
    """Adam's step size for the actor, which discrete actions do not need; None: the same as the critic's."""
    partner_learning_rate: float | None = None
    """Adam's step size for a reward that the critic's loss fits too; None: the same as the critic's."""
    discount: float = 0.99
    """g, the factor by which a reward one step later counts less."""
    tau: float = 0.005
    """Share of the critic that enters the target critic after each update."""
    annealing: float = 1.0
    """The step sizes fall linearly to this share of themselves at the end of the run; 1 keeps them."""
    averaging: float = 0.0
    """Share of the run over which policies are averaged to the one that is evaluated and kept; 0: the newest."""
    temperature: float = 0.2
    """Weight of the policy's entropy; its first value with --learn-temperature."""
    learn_temperature: bool = False
    """Steer SAC's temperature so that the entropy approaches minus the number of action dimensions."""
    cap_values: bool = False
    """Values never exceed what the highest reward seen so far would be worth if it were paid for ever."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work, before anything is computed."""
        at_least(1, self, "width", "depth", "critics")
        at_most(WIDEST, self, "width")
        at_most(100, self, "depth", "critics")
        positive(self, "learning_rate", "temperature")
        at_most(1_000_000, self, "temperature")
        for name in ("actor_learning_rate", "partner_learning_rate"):
            if getattr(self, name) is not None:
                positive(self, name)
        if not 0.0 < self.tau <= 1.0:
            raise InputError(f"tau must lie in (0, 1], got {self.tau}.")
        if not 0.0 <= self.discount < 1.0:
            raise InputError(f"the discount must lie in [0, 1), got {self.discount}.")
        if not 0.0 < self.annealing <= 1.0:
            raise InputError(f"annealing must lie in (0, 1], got {self.annealing}.")
        if not 0.0 <= self.averaging <= 1.0:
            raise InputError(f"averaging must lie in [0, 1], got {self.averaging}.")

    def adam(self, run_updates: int | None, learning_rate: float | None = None) -> optax.GradientTransformation:
        """Adam for a run of so many updates, as far as that is known."""
        first = self.learning_rate if learning_rate is None else learning_rate
        if run_updates is None or self.annealing == 1.0:
            return optax.adam(first)
        return optax.adam(optax.linear_schedule(first, self.annealing * first, run_updates))

    def of_both(self, steps: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        """Adam's steps of critic and partner, each of its own size: Adam scales every entry by itself."""
        critic, partner = steps
        share = 1.0 if self.partner_learning_rate is None else self.partner_learning_rate / self.learning_rate
        return critic, jax.tree.map(lambda step: share * step, partner)

    def newest(self, run_updates: int | None) -> float:
        """Share of the newest policy in their average, so that the average reaches back as far as it should."""
        return 1.0 / max(1.0, self.averaging * (run_updates or 0))
