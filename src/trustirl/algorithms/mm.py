"""MM: moment matching, a game against a reward of bounded slope (Swamy et al. 2021, "Of Moments and Matching").

    min_pi max_r  E_E[r] - E_pi[r],    minus w * E_x[(|dr/dx| - c)^2] with x between a pair of each

The critic of the paper is a cost, -r. Its gap is ML-IRL's; what is new is the class of rewards, which instead of a
likelihood keeps the game finite. `update_reward` is the step of the reward, and the policy step is the solver's.

Authors' schedule (`--preset paper`): one step of size 2 s/k after the k-th round of practice, along the gradient's
sign. That is what their optimistic Adam of step s comes to, since it is made anew for every single step.
"""

from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Array, Float

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.algorithms.shared import DISCRIMINATED, FOLLOWER, REWARD_STEP, AdversaryConfig
from trustirl.core.checks import at_least
from trustirl.core.descend import decaying_adam, decaying_sign
from trustirl.core.measure import Reward
from trustirl.core.records import Algorithm, Parts
from trustirl.core.types import Transition
from trustirl.irl.compose import explicit, reward_step
from trustirl.irl.terms import gap, penalised


@dataclass(frozen=True)
class MmConfig(AdversaryConfig):
    """Settings of the reward step."""

    slope: float = 0.4
    """What the penalty keeps the slope of a network near, instead of 1."""
    decay: float = 0.0
    """The step size falls as (number of steps)^-decay; 0 keeps it constant."""
    rule: Literal["adam", "sign"] = "adam"
    """How a step follows from the gradient: Adam's, or the sign alone, as the authors' comes to."""

    def __post_init__(self) -> None:
        """Refuse steps that cannot be."""
        super().__post_init__()
        at_least(0, self, "slope", "decay")


def mm(parts: Parts, config: MmConfig) -> Algorithm:
    """Put the algorithm together."""
    rule = decaying_adam if config.rule == "adam" else decaying_sign
    optimizer = rule(config.reward_step, config.decay, config.weight_decay)

    def misfit(reward: Reward, demo: Transition, learner: Transition) -> Float[Array, ""]:
        return -gap(reward, demo, learner)

    loss = penalised(misfit, config.penalty, config.slope)
    update_reward = reward_step(parts.draw, loss, optimizer, config.inner_steps)
    return explicit(parts.make_solver(), parts.make_reward, optimizer, update_reward)


# Whoever sees demonstrated rows plays another game (Ren et al. 2024): the one extra it does without.
OURS: dict[str, Any] = FOLLOWER | REWARD_STEP | {"demo_share": 0.0, "demo_fade": None, "past_share": 0.5}
# A slope that is never 0 pays for something always: with constant steps CartPole-v1's pole was lost now and then.
BALANCE: dict[str, Any] = {"reward_step": 5e-3, "decay": 0.5, "temperature": 0.02}
TASKS = DISCRIMINATED | {"CartPole-v1": DISCRIMINATED["CartPole-v1"] | BALANCE}
# Four episodes of 1,000 steps for every step of the reward. The step size of their later code.
AUTHORS: dict[str, Any] = {"envs": 4, "extra_steps": 4000, "reward_batch": 4096, "inner_steps": 1, "rule": "sign"}
AUTHORS |= {"reward_step": 1.6e-3, "decay": 1.0, "reward_width": 256, "termination": "T0", "discount": 0.98}
AUTHORS |= {"tau": 0.02, "learning_rate": 7.3e-4, "temperature": 1.0, "learn_temperature": True}
ENTRY = Entry(
    name="mm",
    config=MmConfig,
    build=mm,
    reference="Swamy, Choudhury, Bagnell and Wu 2021, Of Moments and Matching",
    worlds=("exact", "simulator"),
    defaults=Defaults(OURS, TASKS, AUTHORS),
)
