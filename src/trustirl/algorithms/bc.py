"""BC: behavioural cloning. Maximise the mean log-likelihood of the demonstrated actions, and nothing else.

No reward is learned and no environment is stepped; what a policy does where no demonstration went is left to chance.
Where there are several episodes some are held out, and the policy to keep is the one that fitted those best: later
ones know the others by heart. Single steps held out would tell nothing, since their neighbours are fitted.
"""

from dataclasses import dataclass, replace
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.core.checks import at_least, at_most, positive
from trustirl.core.descend import decaying_adam, descend, trainable
from trustirl.core.errors import InputError
from trustirl.core.measure import expect
from trustirl.core.records import Algorithm, DrawBatch, Parts, Solver
from trustirl.core.types import ExpertData, IrlState, Metrics, Transition
from trustirl.nets.policies import MixtureActor


@dataclass(frozen=True)
class BcConfig:
    """Settings of the fit."""

    loss: Literal["likelihood", "squared-error"] = "likelihood"
    """What is fitted: the likelihood of the actions, or their mean squared distance to the policy's middle action."""
    components: int = 1
    """Gaussians of which continuous actions are drawn; several where demonstrators do one thing or another."""
    fit_step: float = 1e-3
    """Adam's step size."""
    weight_decay: float = 1e-4
    """Strength of an L2 penalty on the policy's weights."""
    fit_batch: int = 128
    """Demonstrated pairs per minibatch."""
    updates: int = 500
    """Minibatches per iteration."""
    held_out: float = 0.1
    """Share of the episodes, rounded, that are not fitted: the policy that fits them best is kept, else the last."""

    def __post_init__(self) -> None:
        """Refuse a fit that cannot be."""
        positive(self, "fit_step")
        at_least(0, self, "weight_decay")
        at_least(1, self, "fit_batch", "updates", "components")
        at_most(1000, self, "components")
        at_most(1_000_000, self, "fit_batch", "updates")
        at_least(0, self, "held_out")
        at_most(0.9, self, "held_out")


class Clone(eqx.Module):
    """The policy that is being fitted, and the one to keep."""

    actor: PyTree
    best: PyTree  # of those after each iteration; the newest, where no episodes are held out
    loss: Float[Array, ""] | None  # the best one's on held-out episodes


def bc(parts: Parts, config: BcConfig) -> Algorithm:
    """Put the algorithm together; of the solver only the kind of policy counts."""
    _check(parts, config)

    def mixture(key: Array) -> MixtureActor:
        spaces, settings = parts.spaces, parts.config
        return MixtureActor(spaces.obs_dim, spaces.action_dim, settings.width, settings.depth, key, config.components)

    plain: Solver = parts.make_solver(**({"make_actor": mixture} if config.components > 1 else {}))
    solver = plain._replace(actor=lambda clone: clone.actor, outcome=lambda clone: clone.best)
    optimizer = decaying_adam(config.fit_step, 0.0, config.weight_decay)

    def misfit(actor: PyTree, pairs: Transition) -> Float[Array, ""]:
        if config.loss == "squared-error":
            return expect(lambda batch: jnp.sum((solver.mode(actor, batch.obs) - batch.action) ** 2, axis=-1), pairs)
        return -expect(lambda batch: solver.log_prob(actor, batch.obs, batch.action), pairs)

    def init(key: Array, _expert: ExpertData) -> IrlState:
        actor = plain.actor(plain.init(key))
        loss = None if parts.held_out is None else jnp.asarray(jnp.inf, jnp.float32)
        return IrlState(Clone(actor, actor, loss), reward=None, optimizer=optimizer.init(trainable(actor)))

    def improve(state: IrlState, draw: DrawBatch | None, key: Array) -> tuple[IrlState, Metrics]:
        assert draw is not None
        batches, clone = jax.vmap(draw)(jax.random.split(key, config.updates)), state.policy
        actor, optimizer_state = descend(misfit, optimizer, clone.actor, state.optimizer, (batches,))
        new, metrics = Clone(actor, actor, None), {}
        if parts.held_out is not None:
            loss = misfit(actor, parts.held_out)
            best = jax.tree.map(lambda x, y: jnp.where(loss < clone.loss, x, y), actor, clone.best)
            new, metrics = Clone(actor, best, jnp.minimum(loss, clone.loss)), {"held_out_loss": loss}
        return replace(state, policy=new, optimizer=optimizer_state), metrics

    return Algorithm(solver, init, improve)


def _check(parts: Parts, config: BcConfig) -> None:
    """Refuse what has no meaning for the task's actions."""
    special = config.components > 1 or config.loss == "squared-error"
    if special and parts.spaces.discrete:
        raise InputError(
            "components and the squared error are for continuous actions: leave both as they are where actions are "
            "finitely many."
        )
    if config.components > 1 and config.loss == "squared-error":
        raise InputError("a mixture has no single middle to which a squared error is: fit its likelihood.")


# One network, which gives the logits where actions are finitely many.
ENTRY = Entry(
    name="bc",
    config=BcConfig,
    build=bc,
    reference="Pomerleau 1991, Efficient Training of Artificial Neural Networks for Autonomous Navigation",
    worlds=("offline",),
    defaults=Defaults(ours={"critics": 1, "temperature": 1.0}),
)
