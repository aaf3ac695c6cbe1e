"""ML-IRL: maximum likelihood inverse reinforcement learning (Zeng et al. 2022; the paper's Algorithm 2).

Ascend ell(theta) = J(pi_E, r) - J(pi_theta, r) along its gradient (Equation 6a) with a decaying step.
Line 3, the policy step, is the solver's; line 4, the reward step, is `update_reward`.
"""

from dataclasses import dataclass, replace

from jaxtyping import Array, Float

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.algorithms.shared import CARTPOLE, FOLLOWER, PAPER, REWARD_STEP
from trustirl.core.checks import at_least, at_most, positive
from trustirl.core.descend import decaying_adam, descend
from trustirl.core.measure import Reward
from trustirl.core.records import Algorithm, Parts
from trustirl.core.types import IrlState, Metrics, RewardData, Transition
from trustirl.irl.compose import explicit
from trustirl.irl.terms import gap


@dataclass(frozen=True)
class MlIrlConfig:
    """Settings of the reward step."""

    reward_step: float = 0.1
    """Step size of the first reward update."""
    decay: float = 0.5
    """The step size falls as (number of steps)^-decay; 0 keeps it constant."""
    weight_decay: float = 0.0
    """Strength of an L2 penalty on the reward's weights."""
    inner_steps: int = 1
    """n, optimiser steps per reward update."""

    def __post_init__(self) -> None:
        """Refuse steps that cannot be."""
        positive(self, "reward_step")
        at_least(0, self, "decay", "weight_decay")
        at_least(1, self, "inner_steps")
        at_most(100_000, self, "inner_steps")


def ml_irl(parts: Parts, config: MlIrlConfig) -> Algorithm:
    """Put the algorithm together."""
    optimizer = decaying_adam(config.reward_step, config.decay, config.weight_decay)

    def misfit(reward: Reward, demo: Transition, learner: Transition) -> Float[Array, ""]:
        return -gap(reward, demo, learner)  # -ell_old up to a constant, Equation 5c

    def update_reward(state: IrlState, data: RewardData, key: Array) -> tuple[IrlState, Metrics]:
        batches = parts.draw(data, config.inner_steps, key)
        reward, optimizer_state = descend(misfit, optimizer, state.reward, state.optimizer, batches)
        return replace(state, reward=reward, optimizer=optimizer_state), {}

    return explicit(parts.make_solver(), parts.make_reward, optimizer, update_reward)


ENTRY = Entry(
    name="ml-irl",
    config=MlIrlConfig,
    build=ml_irl,
    reference="Zeng, Li, Garcia and Hong 2022, Maximum-Likelihood Inverse Reinforcement Learning",
    worlds=("exact", "simulator"),
    defaults=Defaults(FOLLOWER | REWARD_STEP, {"CartPole-v1": CARTPOLE}, PAPER),
    compare={"ML-IRL": {}},
)
