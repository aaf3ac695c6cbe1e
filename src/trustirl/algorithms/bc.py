"""BC: behavioural cloning. Maximise the mean log-likelihood of the demonstrated actions, and nothing else.

No reward is learned and no environment is stepped; what a policy does where no demonstration went is left to chance.
"""

from dataclasses import dataclass, replace

import jax
from jaxtyping import Array, Float, PyTree

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.core.checks import at_least, at_most, positive
from trustirl.core.descend import decaying_adam, descend, trainable
from trustirl.core.measure import expect
from trustirl.core.records import Algorithm, DrawBatch, Parts, Solver
from trustirl.core.types import ExpertData, IrlState, Metrics, Transition


@dataclass(frozen=True)
class BcConfig:
    """Settings of the fit."""

    fit_step: float = 1e-3
    """Adam's step size."""
    weight_decay: float = 1e-4
    """Strength of an L2 penalty on the policy's weights."""
    fit_batch: int = 128
    """Demonstrated pairs per minibatch."""
    updates: int = 500
    """Minibatches per iteration."""

    def __post_init__(self) -> None:
        """Refuse a fit that cannot be."""
        positive(self, "fit_step")
        at_least(0, self, "weight_decay")
        at_least(1, self, "fit_batch", "updates")
        at_most(1_000_000, self, "fit_batch", "updates")


def bc(parts: Parts, config: BcConfig) -> Algorithm:
    """Put the algorithm together; of the solver only the kind of policy counts."""
    solver: Solver = parts.make_solver()
    optimizer = decaying_adam(config.fit_step, 0.0, config.weight_decay)

    def misfit(actor: PyTree, pairs: Transition) -> Float[Array, ""]:
        return -expect(lambda batch: solver.log_prob(actor, batch.obs, batch.action), pairs)

    def init(key: Array, _expert: ExpertData) -> IrlState:
        actor = solver.actor(solver.init(key))
        return IrlState(actor, reward=None, optimizer=optimizer.init(trainable(actor)))

    def improve(state: IrlState, draw: DrawBatch | None, key: Array) -> tuple[IrlState, Metrics]:
        assert draw is not None
        batches = jax.vmap(draw)(jax.random.split(key, config.updates))
        actor, optimizer_state = descend(misfit, optimizer, state.policy, state.optimizer, (batches,))
        return replace(state, policy=actor, optimizer=optimizer_state), {}

    return Algorithm(solver, init, improve)


# One network, which gives the logits where actions are finitely many.
ENTRY = Entry(
    name="bc",
    config=BcConfig,
    build=bc,
    reference="Pomerleau 1991, Efficient Training of Artificial Neural Networks for Autonomous Navigation",
    worlds=("offline",),
    defaults=Defaults(ours={"critics": 1, "temperature": 1.0}),
)
