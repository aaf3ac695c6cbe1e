"""f-IRL: descent of an f-divergence between the states of expert and agent (Ni et al. 2021, Theorem 4.1).

For an agent that maximises entropy, the divergence has in a reward of states the gradient

    Cov(sum_t -k(l(s_t)), sum_t dr(s_t)) / T,    l = log(rho_E / rho_pi),

up to a factor, over episodes of length T; k is in `DIVERGENCES`. `surrogate` is the function with that gradient. The
log ratio l is the logit of a discriminator, fitted in every iteration to whole episodes of the present policy. As
many of the expert's, drawn with replacement, join the agent's in the covariance, so that the reward learns of states
where the agent never goes.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, PyTree

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.algorithms.shared import CARTPOLE, FOLLOWER, PENDULUM
from trustirl.core.checks import at_least, at_most, positive
from trustirl.core.descend import decaying_adam, descend, trainable
from trustirl.core.measure import Reward, concat
from trustirl.core.records import Algorithm, Parts, Solver
from trustirl.core.types import ExpertData, IrlState, Metrics, RewardData, Transition
from trustirl.irl.compose import learned, policy_step
from trustirl.irl.terms import cross_entropy

DIVERGENCES = {"fkl": jnp.exp, "rkl": lambda log_ratio: log_ratio, "js": jax.nn.softplus}


@dataclass(frozen=True)
class FIrlConfig:
    """Settings of the reward step and of the density ratio."""

    divergence: Literal["fkl", "rkl", "js"] = "js"
    """What is descended: forward or reverse KL, or Jensen and Shannon's."""
    reward_step: float = 1e-3
    """Adam's step size for the reward."""
    inner_steps: int = 1
    """Optimiser steps per reward update, each with other episodes of the expert."""
    weight_decay: float = 1e-4
    """Strength of an L2 penalty on the weights of the reward and of the density ratio."""
    ratio_step: float = 1e-3
    """Adam's step size for the density ratio."""
    ratio_steps: int = 100
    """Optimiser steps of the density ratio before each reward update."""

    def __post_init__(self) -> None:
        """Refuse steps that cannot be."""
        positive(self, "reward_step", "ratio_step")
        at_least(0, self, "weight_decay")
        at_least(1, self, "inner_steps", "ratio_steps")
        at_most(100_000, self, "inner_steps", "ratio_steps")


class Ratio(NamedTuple):
    """What f-IRL carries beside its reward."""

    logit: PyTree
    optimizer: PyTree
    episode: Integer[Array, " rows"]  # of each row of the expert's measure


def surrogate(
    reward: Reward, term: Float[Array, " rows"], rows: Transition, share: Float[Array, "episodes rows"], horizon: int
) -> Float[Array, ""]:
    """The covariance of -sum_t k(l(s_t)) and sum_t r(s_t) over episodes, by T; `term` is k(l) of each row.

    `share` is what rows weigh in episodes. An episode's sum is T times its mean, so that shorter ones count as whole.
    Half the square of the mean sum is added: the covariance is the same whatever is added to all rewards, and without
    an anchor they drift to their bound, where nothing moves them.
    """

    def sums(values: Float[Array, " rows"]) -> Float[Array, " episodes"]:
        return horizon * (share @ values) / share.sum(axis=1)

    unlikely, paid = -sums(term), sums(reward(rows))
    return (jnp.mean((unlikely - unlikely.mean()) * paid) + 0.5 * jnp.mean(paid) ** 2) / horizon


def f_irl(parts: Parts, config: FIrlConfig) -> Algorithm:
    """Put the algorithm together."""
    solver: Solver = parts.make_solver()
    optimizer = decaying_adam(config.reward_step, 0.0, config.weight_decay)
    ratio_optimizer = decaying_adam(config.ratio_step, 0.0, config.weight_decay)

    def init(key: Array, expert: ExpertData) -> IrlState:
        assert expert.episode is not None
        reward_key, ratio_key, policy_key = jax.random.split(key, 3)
        reward, logit = parts.make_reward(reward_key), parts.make_reward(ratio_key)
        ratio = Ratio(logit, ratio_optimizer.init(trainable(logit)), expert.episode)
        return IrlState(solver.init(policy_key), reward, optimizer.init(trainable(reward)), ratio)

    def update_reward(state: IrlState, data: RewardData, key: Array) -> tuple[IrlState, Metrics]:
        assert data.episodes is not None
        ratio: Ratio = state.extra
        ratio_key, reward_key = jax.random.split(key)
        count, horizon = data.episodes.weight.shape
        own = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), data.episodes)

        batches = parts.draw(data._replace(learner=own), config.ratio_steps, ratio_key)
        logit, ratio_state = descend(cross_entropy, ratio_optimizer, ratio.logit, ratio.optimizer, batches)

        rows, own_share = concat(own, data.demo), jnp.repeat(jnp.eye(count), horizon, axis=1) * own.weight
        term = DIVERGENCES[config.divergence](logit(rows))

        def misfit(reward: Reward, key: Array) -> Float[Array, ""]:
            drawn = jax.random.choice(key, ratio.episode, (count, 1), p=data.demo.weight)
            share = jax.scipy.linalg.block_diag(own_share, jnp.where(ratio.episode == drawn, data.demo.weight, 0.0))
            return surrogate(reward, term, rows, share, horizon)

        keys = jax.random.split(reward_key, config.inner_steps)
        reward, optimizer_state = descend(misfit, optimizer, state.reward, state.optimizer, (keys,))
        ratio = Ratio(logit, ratio_state, ratio.episode)
        return replace(state, reward=reward, optimizer=optimizer_state, extra=ratio), {}

    return Algorithm(solver, init, policy_step(solver, learned), update_reward, learned, learned)


# Episodes cost many steps, and the paper's single step of the reward would waste them.
WHOLE_EPISODES: dict[str, Any] = {"termination": "T3", "reward_inputs": "state"}
WHOLE_EPISODES |= {"inner_steps": 50, "ratio_steps": 200}
# Half of the steps are practice. With the reverse KL the last policies waver more.
SHORT: dict[str, Any] = {"envs": 4, "steps_per_iteration": 800, "rounds": 4, "update_ratio": 2.0}
# Steps of whole episodes are not all made: most are the repeated ends of those that fall.
BALANCE: dict[str, Any] = {"learning_rate": 1e-3, "temperature": 0.05, "reward_step": 1e-3, "reward_depth": 1}
BALANCE |= {"inner_steps": 20, "steps": 81_000}
TASKS = {"CartPole-v1": CARTPOLE | BALANCE, "Pendulum-v1": PENDULUM | SHORT}
ENTRY = Entry(
    name="f-irl",
    config=FIrlConfig,
    build=f_irl,
    reference="Ni, Sikchi, Wang, Gupta, Lee and Eysenbach 2021, f-IRL: Inverse Reinforcement Learning via State "
    "Marginal Matching",
    worlds=("simulator",),
    needs=frozenset({"episodes", "rewards of states"}),
    defaults=Defaults(FOLLOWER | WHOLE_EPISODES, TASKS),
)
