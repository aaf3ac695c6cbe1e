"""IQ-Learn: inverse soft Q-learning (Garg et al. 2021). Learn one soft Q; the reward is what its values imply.

    r_Q(s, a, s') = Q(s, a) - g V(s'),  maximise E_E[phi(r_Q)] - (1-g) E[V(s0)],  phi(x) = x - x^2 / (4 a)

with V the soft value of Q and phi that of the chi-squared divergence. `loss` is the negative objective; the policy
follows Q as in any soft Q-learning or SAC. The second term is taken as it stands, over the states in which the task
begins episodes (`v0`), or as the mean of V(s) - g V(s') over all rows, which is the same for every discounted
occupancy (`value`, the authors' choice online); the quadratic part of phi over all rows or the expert's alone.

What an end is worth: nothing (T0), as in the paper, or as much as the step that led there (T2), whose reward then
goes on for ever. With an absorbing state of value u after it, the quadratic part is least at u = Q(s, a),

    (Q - g u)^2 + g/(1-g) ((1-g) u)^2 = (1-g) Q^2,

as much as 1/(1-g) steps of reward (1-g) Q cost, and in the other parts u drops out. Without it a single reward has to
make up for all that an end brings or spoils.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.core.checks import at_most, positive
from trustirl.core.records import Algorithm, Parts
from trustirl.core.types import Transition
from trustirl.irl.compose import implicit
from trustirl.rl.targets import CriticLoss, Fit, no_reward, successors


@dataclass(frozen=True)
class IqLearnConfig:
    """Settings of the critic's loss."""

    largest: float = 0.5
    """a of the chi-squared term: rewards much beyond 2a cost more than they bring."""
    start: Literal["value", "v0"] = "value"
    """What stands for the value of first states: the telescoped mean over all rows, or first states themselves."""
    chi2: Literal["both", "expert"] = "both"
    """The rows that the chi-squared term is taken over: of both sides, or of the expert alone."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        positive(self, "largest")
        at_most(1_000_000, self, "largest")


def inverse_soft_q(
    config: IqLearnConfig, absorb: bool = False, starts: Float[Array, "states obs"] | None = None
) -> CriticLoss:
    """The negative objective on minibatches in which expert rows are marked."""

    def loss(fit: Fit, batch: Transition) -> Float[Array, ""]:
        expert, g = batch.expert, fit.discount
        assert expert is not None
        ended = successors(batch)[1] & absorb
        steps = lasting(ended, expert, g)

        def left(value: Float[Array, "*members batch"]) -> Float[Array, "*members batch"]:
            """A value less what it is worth to go on: for ever the same after an end."""
            return value - g * jnp.where(ended, value, fit.next_value)

        implied = left(fit.q(batch.obs, batch.action))  # r_Q, by each member
        gained = jnp.mean(jnp.mean(steps * implied, axis=-1, where=expert))
        first = steps * left(fit.v(batch.obs)) if starts is None else (1 - g) * fit.v(starts)
        over = expert if config.chi2 == "expert" else jnp.ones_like(expert)
        return jnp.mean(first) - gained + jnp.mean(steps * implied**2, where=over) / (4 * config.largest)

    return loss


def lasting(ended: Array, expert: Array, discount: Float[Array, ""] | float) -> Float[Array, " batch"]:
    """How many steps each row stands for: an end for 1/(1-g) of them. Each side has a mean of 1."""
    steps = jnp.where(ended, 1 / (1 - discount), 1.0)
    mean = lambda side: jnp.sum(steps, where=side) / jnp.maximum(jnp.sum(side), 1)  # noqa: E731
    return steps / jnp.where(expert, mean(expert), mean(~expert))


def iq_learn(parts: Parts, config: IqLearnConfig) -> Algorithm:
    """Put the algorithm together."""
    starts = None
    if config.start == "v0":
        assert parts.starts is not None
        starts = parts.starts()
    return implicit(parts, parts.make_solver(critic_loss=inverse_soft_q(config, parts.absorb, starts)), no_reward)


# The authors' for robots: one critic, a low fixed temperature, a slow actor, demonstrated rows in every minibatch.
AUTHORS = {"critics": 1, "temperature": 0.01, "demo_share": 0.5, "termination": "T0", "actor_learning_rate": 3e-5}
# With these Hopper-v4 falls at once and for good (three seeds of 56,000 steps); with LayerNorm, larger steps and a
# quicker target it hops like the expert after 15,000.
OURS = AUTHORS | {
    "termination": "T2",
    "layer_norm": True,
    "learning_rate": 1e-3,
    "actor_learning_rate": 3e-4,
    "tau": 0.02,
    "averaging": 0.1,
}
SMALL = {"steps_per_iteration": 1000, "warmup": 500, "width": 64, "layer_norm": False, "evaluate_every": 2}
# CartPole-v1 is held after 3,500 to 9,500 steps, and with more of them lost again. On Pendulum-v1 the telescoped mean
# does not hold what it learned; the values of first states do.
TASKS: dict[str, dict[str, Any]] = {
    "CartPole-v1": SMALL | {"batch": 128, "temperature": 0.02, "learning_rate": 5e-4, "steps": 7500},
    "Pendulum-v1": SMALL | {"start": "v0", "annealing": 0.1, "steps": 15_500},
}
ENTRY = Entry(
    name="iq-learn",
    config=IqLearnConfig,
    build=iq_learn,
    reference="Garg et al. 2021, IQ-Learn: Inverse soft-Q Learning for Imitation",
    worlds=("simulator", "offline"),
    needs=frozenset({"expert rows"}),
    defaults=Defaults(OURS, TASKS, paper=AUTHORS | {"batch": 512}, offline={"start": "value"}),  # 256 of each side
)
