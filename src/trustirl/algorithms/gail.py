"""GAIL: generative adversarial imitation learning (Ho and Ermon 2016; their Algorithm 1), by the solvers at hand.

    min_pi max_D  E_E[log D] + E_pi[log(1 - D)] - a H(pi),    D = sigmoid(h) the chance that a pair is the expert's

    lines 4 and 5   `update_reward`   D's step, on what the present policy did; with the penalty of Gulrajani et al.
    line 6          `improve`         the solver's step, with temperature a, on the reward that `SIGNS` makes of h

An end is followed by the absorbing state for what is left of the episode, for expert and learner alike (termination
mode T2), so that no reward has to reach for an end or shun it by its sign.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.algorithms.shared import DISCRIMINATED, FOLLOWER, SMALL, AdversaryConfig
from trustirl.core.descend import decaying_adam
from trustirl.core.measure import Reward
from trustirl.core.records import Algorithm, Parts
from trustirl.core.types import IrlState
from trustirl.irl.compose import explicit, reward_step
from trustirl.irl.terms import cross_entropy, penalised

SIGNS = {"positive": jax.nn.softplus, "negative": jax.nn.log_sigmoid, "both": lambda logit: logit}


@dataclass(frozen=True)
class GailConfig(AdversaryConfig):
    """Settings of the discriminator's step, and what is made of it."""

    reward_sign: Literal["positive", "negative", "both"] = "both"
    """What is paid: positive -log(1 - D), negative log D, both their sum h, which is never flat."""


def gail(parts: Parts, config: GailConfig) -> Algorithm:
    """Put the algorithm together."""
    optimizer = decaying_adam(config.reward_step, 0.0, config.weight_decay)
    loss = penalised(cross_entropy, config.penalty)
    update_reward = reward_step(parts.draw, loss, optimizer, config.inner_steps)

    def paid(state: IrlState) -> Reward:
        return lambda pairs: SIGNS[config.reward_sign](state.reward(pairs))

    return explicit(parts.make_solver(), parts.make_reward, optimizer, update_reward, paid=paid)


# Against the latest policies alone it goes in circles: two of three pendulums (with two layers) fell again.
OURS = FOLLOWER | SMALL | {"past_share": 0.5}
# The authors' for robots, but for their TRPO, whose place SAC takes: all steps of an iteration in one minibatch, no
# weight on entropy (as little as SAC's temperature can be), rewards that are positive, and nothing after an end.
AUTHORS: dict[str, Any] = {"steps_per_iteration": 50_000, "reward_batch": 50_000, "discount": 0.995}
AUTHORS |= {"termination": "T0", "temperature": 1e-3, "width": 100, "reward_width": 100, "reward_step": 0.01}
AUTHORS |= {"inner_steps": 1, "penalty": 0.0, "past_share": 0.0, "reward_sign": "positive"}
ENTRY = Entry(
    name="gail",
    config=GailConfig,
    build=gail,
    reference="Ho and Ermon 2016, Generative Adversarial Imitation Learning",
    worlds=("exact", "simulator"),
    defaults=Defaults(OURS, DISCRIMINATED, AUTHORS),
)
