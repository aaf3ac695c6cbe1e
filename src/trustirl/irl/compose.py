"""The builders that keep algorithm files short."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from trustirl.core.descend import descend, trainable
from trustirl.core.measure import Draw, Reward
from trustirl.core.records import Algorithm, DrawBatch, ExactSolver, Parts, Solver
from trustirl.core.types import ExpertData, IrlState, Metrics, RewardData
from trustirl.nets.agent_rewards import ValueReward, value_reward

UpdateReward = Callable[[IrlState, RewardData, Array], tuple[IrlState, Metrics]]


def learned(state: IrlState) -> Any:
    """The reward that the reward step moves."""
    return state.reward


def explicit(
    solver: Solver | ExactSolver,
    make_reward: Callable[[Array], PyTree],
    optimizer: optax.GradientTransformation,
    update_reward: UpdateReward,
    extra: PyTree = None,
    paid: Callable[[IrlState], Reward] = learned,
    kept: Callable[[IrlState], Any] = learned,
) -> Algorithm:
    """An algorithm with an explicit reward: the solver follows it, `update_reward` moves it."""

    def init(key: Array, _expert: ExpertData) -> IrlState:
        reward_key, policy_key = jax.random.split(key)
        reward = make_reward(reward_key)
        return IrlState(solver.init(policy_key), reward, optimizer.init(trainable(reward)), extra)

    return Algorithm(solver, init, policy_step(solver, paid), update_reward, paid, kept)


def implicit(parts: Parts, solver: Solver, reward: Reward) -> Algorithm:
    """An algorithm that learns values alone, for a reward that never changes; kept is the one that they imply."""

    def init(key: Array, _expert: ExpertData) -> IrlState:
        return IrlState(solver.init(key), reward=None, optimizer=None)

    def implied(state: IrlState) -> ValueReward:
        agent, settings = state.policy, parts.config
        discrete = parts.spaces.discrete
        temperature = settings.temperature if discrete else jnp.exp(agent.log_temperature)
        actor = None if discrete else agent.actor
        mean, std = parts.statistics
        return value_reward(agent.critic, actor, temperature, mean, std, settings.discount)

    return Algorithm(solver, init, policy_step(solver, lambda _: reward), kept=implied)


def reward_step(
    draw: Draw,
    loss: Callable[..., Float[Array, ""]],
    optimizer: optax.GradientTransformation,
    steps: int,
    anchors: Callable[[IrlState], tuple[Any, ...]] = lambda _: (),
) -> UpdateReward:
    """The reward step of whoever minimises `loss(reward, *anchors, demo, learner, key)` on minibatches."""

    def update_reward(state: IrlState, data: RewardData, key: Array) -> tuple[IrlState, Metrics]:
        draw_key, loss_key = jax.random.split(key)
        batches = *draw(data, steps, draw_key), jax.random.split(loss_key, steps)
        reward, memory = descend(loss, optimizer, state.reward, state.optimizer, batches, *anchors(state))
        return replace(state, reward=reward, optimizer=memory), {}

    return update_reward


def policy_step(
    solver: Solver | ExactSolver, paid: Callable[[IrlState], Reward]
) -> Callable[[IrlState, DrawBatch | None, Array], tuple[IrlState, Metrics]]:
    """The policy step of whoever follows a reward: the solver's."""

    def improve(state: IrlState, draw: DrawBatch | None, key: Array) -> tuple[IrlState, Metrics]:
        policy, metrics = solver.improve(state.policy, draw, paid(state), key)  # type: ignore[arg-type]
        return replace(state, policy=policy), metrics

    return improve
