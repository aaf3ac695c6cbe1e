"""LS-IQ: least squares inverse Q-learning (Al-Hafez et al. 2023). IQ-Learn's values by regression on bounded rewards.

With a penalty c E[r^2] over both sides alike, IQ-Learn's objective in r = Q(s, a) - g V(s') is, but for a constant
and a factor, the negative of

    E_E[(r - 1/c)^2] + E_pi[(r + 1/c)^2]

so that values are those of earning 1/c where the expert is and -1/c where the policy is, and lie within 1/(c (1-g)).
`least_squares` is that loss, whose target values are cut there. On demonstrated rows the target may be the greatest
value itself, since an expert stays one (`fix`). On the other side Q may be that of own steps (`q_old_policy`) or,
at all states, as V at what the policy would do (`value`), which can be had without own steps, too. After an end each
side goes on with its own reward (T2).
"""

from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.core.checks import at_most, positive
from trustirl.core.errors import InputError
from trustirl.core.records import Algorithm, Parts
from trustirl.core.types import Transition
from trustirl.irl.compose import implicit
from trustirl.rl.targets import CriticLoss, Fit, SideReward


@dataclass(frozen=True)
class LsIqConfig:
    """Settings of the critic's loss."""

    regulariser: float = 0.5
    """c: rewards lie between -1/c and 1/c."""
    expert_side: Literal["fix", "bootstrap"] = "fix"
    """What values of demonstrated rows are fitted to: the greatest there can be, or 1/c and what follows."""
    own_side: Literal["value", "q_old_policy"] = "value"
    """What is fitted to -1/c and what follows: the policy's value at all states, or own actions at own states."""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        positive(self, "regulariser")
        at_most(1_000_000, self, "regulariser")


def least_squares(config: LsIqConfig) -> CriticLoss:
    """The squared errors of both sides, for each member of the critic; the rewards are the sides' own."""

    def loss(fit: Fit, batch: Transition) -> Float[Array, ""]:
        assert batch.expert is not None
        best = 1 / config.regulariser
        most = best / (1 - fit.discount)
        following = fit.discount * jnp.clip(fit.next_value, -most, most)
        q = fit.q(batch.obs, batch.action)
        shown = (q - (most if config.expert_side == "fix" else best + following)) ** 2
        if config.own_side == "value":
            own = jnp.mean((fit.v(batch.obs) - (following - best)) ** 2)
        else:
            own = jnp.mean((q - (following - best)) ** 2, where=~batch.expert)
        return jnp.mean(shown, where=batch.expert) + own

    return loss


def ls_iq(parts: Parts, config: LsIqConfig) -> Algorithm:
    """Put the algorithm together."""
    if config.own_side == "q_old_policy" and not parts.own_rows:
        raise InputError("ls-iq has no own rows to learn from offline: set own_side to value.")
    solver = parts.make_solver(critic_loss=least_squares(config))
    best = 1 / config.regulariser
    return implicit(parts, solver, SideReward(expert=best, learner=-best))


# The authors' for robots: one critic, a low fixed temperature, a slow actor, and 256 rows of each side.
AUTHORS = {"critics": 1, "temperature": 0.001, "demo_share": 0.5, "batch": 512, "warmup": 10_000}
AUTHORS |= {"actor_learning_rate": 3e-5}
# With V at all states two seeds of CartPole-v1 ended at 306 and 9, and Pendulum-v1 had not swung up by 5,500 steps.
OURS = {
    "own_side": "q_old_policy",
    "critics": 1,
    "temperature": 0.02,
    "demo_share": 0.5,
    "layer_norm": True,
    "learning_rate": 1e-3,
    "actor_learning_rate": 3e-4,
    "tau": 0.02,
    "averaging": 0.1,
}
SMALL = {"steps_per_iteration": 1000, "warmup": 500, "width": 64, "batch": 128, "annealing": 0.1, "evaluate_every": 2}
SMALL |= {"discount": 0.98, "steps": 10_500}
TASKS = {"CartPole-v1": SMALL | {"learning_rate": 5e-4}, "Pendulum-v1": SMALL}
ENTRY = Entry(
    name="ls-iq",
    config=LsIqConfig,
    build=ls_iq,
    reference="Al-Hafez, Tateo, Arenz, Zhao and Peters 2023, LS-IQ: Implicit Reward Regularization for Inverse "
    "Reinforcement Learning",
    worlds=("simulator", "offline"),
    needs=frozenset({"expert rows"}),
    defaults=Defaults(OURS, TASKS, paper=AUTHORS, offline={"own_side": "value"}),
)
