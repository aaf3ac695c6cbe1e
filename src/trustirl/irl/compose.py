"""The builder that keeps algorithm files short."""

from collections.abc import Callable
from dataclasses import replace

import jax
import optax
from jaxtyping import Array, PyTree

from trustirl.core.descend import trainable
from trustirl.core.records import Algorithm, DrawBatch, ExactSolver, Solver
from trustirl.core.types import IrlState, Metrics, RewardData

UpdateReward = Callable[[IrlState, RewardData, Array], tuple[IrlState, Metrics]]


def explicit(
    solver: Solver | ExactSolver,
    make_reward: Callable[[Array], PyTree],
    optimizer: optax.GradientTransformation,
    update_reward: UpdateReward,
    extra: PyTree = None,
) -> Algorithm:
    """An algorithm with an explicit reward: the solver follows it, `update_reward` moves it."""

    def init(key: Array) -> IrlState:
        reward_key, policy_key = jax.random.split(key)
        reward = make_reward(reward_key)
        return IrlState(solver.init(policy_key), reward, optimizer.init(trainable(reward)), extra)

    def improve(state: IrlState, draw: DrawBatch | None, key: Array) -> tuple[IrlState, Metrics]:
        policy, metrics = solver.improve(state.policy, draw, state.reward, key)  # type: ignore[arg-type]
        return replace(state, policy=policy), metrics

    return Algorithm(init, improve, update_reward)
