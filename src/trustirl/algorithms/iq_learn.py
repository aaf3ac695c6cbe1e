"""IQ-Learn: inverse soft Q-learning (Garg et al. 2021). Learn one soft Q; the reward is what its values imply.

    r_Q(s, a, s') = Q(s, a) - g V(s'),  maximise E_E[phi(r_Q)] - (1-g) E[V(s0)],  phi(x) = x - x^2 / (4 a)

with V the soft value of Q and phi that of the chi-squared divergence. The second term is written as the mean of
V(s) - g V(s') over all rows, which is the same for every discounted occupancy; the quadratic part of phi is taken
over all rows, too, not over the expert's alone. Both are the authors' choice online. `loss` is the negative
objective; the policy follows Q as in any soft Q-learning or SAC. Nothing follows an end (T0), as in the paper.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.core.checks import at_most, positive
from trustirl.core.records import Algorithm, Parts
from trustirl.core.types import Transition
from trustirl.irl.compose import implicit
from trustirl.rl.targets import CriticLoss, Fit, no_reward


@dataclass(frozen=True)
class IqLearnConfig:
    """Settings of the critic's loss."""

    largest: float = 0.5
    """a of the chi-squared term: rewards much beyond 2a cost more than they bring."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        positive(self, "largest")
        at_most(1_000_000, self, "largest")


def inverse_soft_q(largest: float) -> CriticLoss:
    """The negative objective on minibatches in which expert rows are marked."""

    def loss(fit: Fit, batch: Transition) -> Float[Array, ""]:
        assert batch.expert is not None
        following = fit.discount * fit.next_value
        implied = fit.q(batch.obs, batch.action) - following  # r_Q, by each member
        gained = jnp.mean(jnp.mean(implied, axis=-1, where=batch.expert))
        start = jnp.mean(fit.v(batch.obs) - following)
        return start - gained + jnp.mean(implied**2) / (4 * largest)

    return loss


def iq_learn(parts: Parts, config: IqLearnConfig) -> Algorithm:
    """Put the algorithm together."""
    return implicit(parts, parts.make_solver(critic_loss=inverse_soft_q(config.largest)), no_reward)


# The authors' for robots: one critic, a low fixed temperature, a slow actor, demonstrated rows in every minibatch.
AUTHORS = {"critics": 1, "temperature": 0.01, "demo_share": 0.5, "termination": "T0", "actor_learning_rate": 3e-5}
# With these Hopper-v4 falls at once and for good (three seeds of 56,000 steps); with LayerNorm, larger steps and a
# quicker target it hops like the expert after 15,000.
OURS = AUTHORS | {
    "layer_norm": True,
    "learning_rate": 1e-3,
    "actor_learning_rate": 3e-4,
    "tau": 0.02,
    "averaging": 0.1,
}
SMALL = {"steps_per_iteration": 1000, "warmup": 500, "width": 64, "layer_norm": False, "evaluate_every": 2}
TASKS = {
    "CartPole-v1": SMALL | {"batch": 128, "temperature": 0.02, "learning_rate": 5e-4, "steps": 20_500},
    "Pendulum-v1": SMALL | {"annealing": 0.1, "steps": 15_500},
}
ENTRY = Entry(
    name="iq-learn",
    config=IqLearnConfig,
    build=iq_learn,
    reference="Garg et al. 2021, IQ-Learn: Inverse soft-Q Learning for Imitation",
    worlds=("simulator",),
    needs=frozenset({"expert rows"}),
    defaults=Defaults(OURS, TASKS, paper=AUTHORS),
)
