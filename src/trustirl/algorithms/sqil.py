"""SQIL: soft Q imitation learning (Reddy, Dragan and Levine 2020). Soft Q-learning on 1 for demonstrated rows.

    minimise  delta^2(D_demo, 1) + lambda delta^2(D_samp, 0)                    (Algorithm 1, line 4; Equation 4)
    delta^2(D, r) = E_D[(Q(s, a) - (r + g V(s')))^2]

with V the soft value of Q. `two_sided` is the loss, on minibatches of as many demonstrated as own rows; `SideReward`
is the reward, and the policy follows Q as in any soft Q-learning or SAC (line 5: sample, and remember). After an end
each side goes on with its own reward (T2): one that the expert chose is worth 1/(1-g), one of the learner nothing.
"""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array, Float

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.core.checks import at_most, positive
from trustirl.core.records import Algorithm, Parts
from trustirl.core.types import Transition
from trustirl.irl.compose import implicit
from trustirl.rl.targets import CriticLoss, Fit, SideReward


@dataclass(frozen=True)
class SqilConfig:
    """Settings of the critic's loss."""

    own_weight: float = 1.0
    """lambda: what the errors on own rows weigh beside those on demonstrated ones."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        positive(self, "own_weight")
        at_most(1_000_000, self, "own_weight")


def two_sided(own_weight: float) -> CriticLoss:
    """The squared Bellman errors of both sides, each by its own mean, for each member of the critic."""

    def loss(fit: Fit, batch: Transition) -> Float[Array, ""]:
        assert batch.expert is not None
        error = (fit.q(batch.obs, batch.action) - fit.target) ** 2
        return jnp.mean(error, where=batch.expert) + own_weight * jnp.mean(error, where=~batch.expert)

    return loss


def sqil(parts: Parts, config: SqilConfig) -> Algorithm:
    """Put the algorithm together."""
    solver = parts.make_solver(critic_loss=two_sided(config.own_weight))
    return implicit(parts, solver, SideReward(expert=1.0, learner=0.0))


# The authors' for robots is plain SAC, whose episodes end with nothing.
AUTHORS = {"demo_share": 0.5, "termination": "T0"}
# Own rows come to be as good as demonstrated ones: CartPole-v1 is held after 5,500 steps, and after 12,000 lost.
OURS = {
    "own_weight": 0.1,
    "demo_share": 0.5,
    "temperature": 0.02,
    "layer_norm": True,
    "learning_rate": 1e-3,
    "actor_learning_rate": 3e-4,
    "tau": 0.02,
    "averaging": 0.1,
}
SMALL = {"steps_per_iteration": 1000, "warmup": 500, "width": 64, "batch": 128, "evaluate_every": 2}
TASKS = {
    "CartPole-v1": SMALL | {"learning_rate": 5e-4, "steps": 5500},
    "Pendulum-v1": SMALL | {"discount": 0.98, "steps": 20_500},
}
ENTRY = Entry(
    name="sqil",
    config=SqilConfig,
    build=sqil,
    reference="Reddy, Dragan and Levine 2020, SQIL: Imitation Learning via RL with Sparse Rewards",
    worlds=("simulator",),
    needs=frozenset({"expert rows"}),
    defaults=Defaults(OURS, TASKS, paper=AUTHORS),
)
