"""PIRO: proximal inverse reward optimization (the paper's Algorithm 3).

ML-IRL plus a trust region: n inner steps on L = ell_old - mu * eps_bar with r_old frozen, then mu follows eps_bar
towards a target (Equation 11). With n = 1 the penalty has no gradient where it is asked for one, and PIRO is ML-IRL.
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.algorithms.shared import CARTPOLE, FOLLOWER, PAPER, REWARD_STEP
from trustirl.core.checks import at_least, at_most, positive
from trustirl.core.descend import decaying_adam, descend, shorten
from trustirl.core.errors import InputError
from trustirl.core.measure import Reward, split_first
from trustirl.core.records import Algorithm, Parts
from trustirl.core.types import IrlState, Metrics, RewardData, Transition
from trustirl.irl.compose import explicit
from trustirl.irl.terms import drift, gap, squared_change


@dataclass(frozen=True)
class PiroConfig:
    """Settings of the reward step and of its trust region."""

    reward_step: float = 0.1
    """Step size of the first reward update."""
    decay: float = 0.5
    """The step size falls as (number of steps)^-decay; 0 keeps it constant."""
    weight_decay: float = 0.0
    """Strength of an L2 penalty on the reward's weights."""
    inner_steps: int = 10
    """n, optimiser steps per reward update, all against the same r_old."""
    penalty: Literal["l2", "squared"] = "l2"
    """l2: mu * eps_bar as in the paper; squared: (mu/2) * eps_bar^2, smooth and with a guarantee for mu >= K."""
    mu: float = 0.01
    """First weight of the penalty."""
    target: float = 0.5
    """The drift eps_bar that mu steers to."""
    narrowing: float = 0.0
    """The target falls over the run as (share of reward updates still to come)^narrowing; 0 keeps it constant."""
    x: float = 1.5
    """mu rests while eps_bar lies within [target / x, target * x]."""
    y: float = 1.5
    """Factor by which mu grows or shrinks."""
    trust: Literal["adaptive", "backtrack", "monotone"] = "adaptive"
    """What mu alone does not hold: backtrack shortens a step beyond target * x, monotone one that lowers L."""
    mu_min: float = 1e-4
    """mu never falls below this."""
    mu_max: float = 10.0
    """mu never rises above this."""

    def __post_init__(self) -> None:
        """Refuse steps that cannot be."""
        positive(self, "reward_step")
        at_least(0, self, "decay", "weight_decay")
        at_least(1, self, "inner_steps")
        at_most(100_000, self, "inner_steps")
        positive(self, "target")
        at_least(0, self, "mu", "narrowing", "mu_min")
        at_least(1, self, "x", "y")
        if not max(self.mu, self.mu_min) <= self.mu_max < inf:
            raise InputError(f"mu_max must be at least mu = {self.mu} and mu_min = {self.mu_min}, got {self.mu_max}.")


def piro(parts: Parts, config: PiroConfig) -> Algorithm:
    """Put the algorithm together."""
    optimizer = decaying_adam(config.reward_step, config.decay, config.weight_decay)

    def misfit(reward: Reward, demo: Transition, learner: Transition) -> Float[Array, ""]:
        return -gap(reward, demo, learner)  # -ell_old up to a constant, Equation 5c

    def penalty(reward: Reward, old: Reward, reference: Transition) -> Float[Array, ""]:
        if config.penalty == "squared":
            return squared_change(reward, old, reference) / 2
        return drift(reward, old, reference)

    def confined(
        reward: Reward, old: Reward, mu: Array, reference: Transition, demo: Transition, learner: Transition
    ) -> Float[Array, ""]:
        return misfit(reward, demo, learner) + mu * penalty(reward, old, reference)  # -L, Equation 9

    def adapt(mu: Array, eps: Array, target: Array) -> Array:  # Equation 11
        factor = jnp.where(eps > target * config.x, config.y, 1.0)
        factor = jnp.where(eps < target / config.x, 1.0 / config.y, factor)
        return jnp.clip(mu * factor, config.mu_min, config.mu_max)

    def update_reward(state: IrlState, data: RewardData, key: Array) -> tuple[IrlState, Metrics]:
        old = state.reward
        mu, target = state.extra, config.target * (1.0 - data.progress) ** config.narrowing
        batches = parts.draw(data, config.inner_steps, key)
        # At r_old the penalty has no gradient, so the first step is free; taking it apart keeps rounding noise at
        # the norm's kink from counting as a direction.
        first, rest = split_first(batches)
        reward, optimizer_state = descend(misfit, optimizer, old, state.optimizer, first)
        reward, optimizer_state = descend(confined, optimizer, reward, optimizer_state, rest, old, mu, data.reference)
        if config.trust == "monotone":  # what a proof of improvement asks for, and minibatches do not promise
            loss = lambda short: confined(short, old, mu, data.reference, data.demo, data.learner)  # noqa: E731
            reward = shorten(reward, old, lambda short: loss(short) <= loss(old))
        eps = drift(reward, old, data.reference)
        if config.trust == "backtrack":
            reward = shorten(reward, old, lambda short: drift(short, old, data.reference) <= target * config.x)
        state = replace(state, reward=reward, optimizer=optimizer_state, extra=adapt(mu, eps, target))
        return state, {"mu": mu}

    return explicit(parts.make_solver(), parts.make_reward, optimizer, update_reward, extra=jnp.asarray(config.mu))


# Above sqrt(1/256 + 1/256) no step is worth the plain norm's price: mu starts just below it and passes it as the
# target narrows, whereupon the reward comes to rest. A wide target leaves early plateaus quickly. A reward that moves
# ever more slowly must not forget what the learner has given up (without a trust region past steps do harm).
TRUST_REGION = {"mu": 0.075, "target": 2.0, "narrowing": 1.5, "trust": "backtrack", "past_share": 0.5}
# The target narrows from far to almost nothing within the few updates of a short run.
SHORT = {"target": 1.5, "narrowing": 3.0}
# The range of mu is that of the released code.
PUBLISHED = {"mu": 0.01, "mu_min": 1e-3, "mu_max": 10.0, "target": 0.5, "narrowing": 0.0, "trust": "adaptive"}
ENTRY = Entry(
    name="piro",
    config=PiroConfig,
    build=piro,
    reference="Trust Region Reward Optimization and Proximal Inverse Reward Optimization, arXiv 2509.23135",
    worlds=("exact", "simulator"),
    defaults=Defaults(FOLLOWER | REWARD_STEP | TRUST_REGION, {"CartPole-v1": CARTPOLE | SHORT}, PAPER | PUBLISHED),
    compare={"PIRO": {}},
)
