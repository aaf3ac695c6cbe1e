"""Soft Q-learning for finitely many actions: SAC whose actor is known in closed form.

V(s) = a log sum_a exp(Q(s,a)/a) and pi = exp((Q - V)/a) with temperature a and Q the smallest critic, as in
`rl/exact.py`; the critic regresses on r + g V(s') (by default). A partner is a function that the critic loss fits
together with the critic.

Held near the policy of old values Q', V' with weight w, values are Q + w (Q - Q') and V + w (V - V'), in the loss and
in what follows a step: Q stays what the policy is read off, and pi is the best answer to r - w a log(pi/pi').
"""

import math
from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Integer, Num, PyTree
from numpy.typing import ArrayLike

from trustirl.core.descend import trainable
from trustirl.core.errors import InputError
from trustirl.core.measure import Reward
from trustirl.core.records import Solver
from trustirl.core.types import Metrics, Transition
from trustirl.nets.critics import DiscreteQEnsemble
from trustirl.nets.mlp import standardiser
from trustirl.nets.policies import Categorical
from trustirl.rl.config import SolverConfig
from trustirl.rl.targets import (
    CriticLoss,
    EndValue,
    Fit,
    Termination,
    squared_bellman_error,
    successors,
    terminal_value,
    updated,
    value_cap,
)


class SoftQState(eqx.Module):
    """The agent: critics and optimiser state, arrays only."""

    critic: DiscreteQEnsemble
    average: DiscreteQEnsemble  # of the critics so far, the latest weighing most
    target_critic: DiscreteQEnsemble
    critic_optimizer: PyTree
    partner: PyTree = None  # optimised with the critic
    prior: DiscreteQEnsemble | None = None  # the critic of the policy near which this one is held
    hold: Float[Array, ""] | None = None  # what the divergence from it weighs beside the entropy


def softq(
    obs_dim: int,
    actions: int,
    config: SolverConfig,
    obs_mean: ArrayLike | None = None,
    obs_std: ArrayLike | None = None,
    updates: int = 1000,
    termination: Termination = "T2",
    run_updates: int | None = None,
    critic_loss: CriticLoss = squared_bellman_error,
) -> Solver:
    """A solver for actions 0..n-1 that makes `updates` gradient steps per policy step.

    All its functions take raw observations. `init` takes parts that are given instead of made: `critic` and
    `partner`.
    """
    if config.learn_temperature:
        raise InputError("learn_temperature is a setting of SAC; with discrete actions the temperature stays.")
    standardise = standardiser(obs_mean, obs_std)
    temperature = config.temperature
    adam = config.adam(run_updates)

    def init(key: Array, critic: DiscreteQEnsemble | None = None, partner: PyTree = None) -> SoftQState:
        if critic is None:
            critic = DiscreteQEnsemble(
                obs_dim, actions, config.width, config.depth, config.critics, key, config.layer_norm
            )
        average, target_critic = (jax.tree.map(jnp.copy, critic) for _ in range(2))  # own buffers, to be donated
        return SoftQState(critic, average, target_critic, adam.init(trainable((critic, partner))), partner)

    def q_of(
        critic: DiscreteQEnsemble, obs: Num[Array, "batch obs"], action: Integer[Array, " batch"]
    ) -> Float[Array, "members batch"]:
        return jnp.take_along_axis(critic(standardise(obs)), action[None, :, None], axis=-1)[..., 0]

    def logits(critic: DiscreteQEnsemble, obs: Num[Array, "*batch obs"]) -> Float[Array, "*batch actions"]:
        return jnp.min(critic(standardise(obs)), axis=0) / temperature

    def soft_value(critic: DiscreteQEnsemble, obs: Num[Array, "batch obs"]) -> Float[Array, " batch"]:
        return temperature * jax.nn.logsumexp(logits(critic, obs), axis=-1)

    def beyond(
        agent: SoftQState, now: Float[Array, "..."], before: Callable[[DiscreteQEnsemble], Float[Array, "..."]]
    ) -> Float[Array, "..."]:
        """Values as far beyond the old ones as the hold asks for."""
        return now if agent.prior is None or agent.hold is None else now + agent.hold * (now - before(agent.prior))

    def smallest(
        critic: DiscreteQEnsemble, obs: Num[Array, "batch obs"], action: Integer[Array, " batch"]
    ) -> Float[Array, " batch"]:
        return jnp.min(q_of(critic, obs, action), axis=0)

    def policy(critic: DiscreteQEnsemble, obs: Num[Array, "*batch obs"]) -> Categorical:
        return Categorical(logits(critic, obs))

    def describe(agent: SoftQState, obs: Num[Array, "batch obs"]) -> Metrics:
        """Mean action value and entropy of the policy."""
        log_probs = policy(agent.critic, obs).log_probs()
        entropy = -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
        q = soft_value(agent.critic, obs) - temperature * entropy
        return {"q": jnp.mean(q), "entropy": jnp.mean(entropy), "temperature": jnp.float32(temperature)}

    def after_end(reward: Reward) -> EndValue:
        return terminal_value(reward, obs_dim, jnp.zeros(1, jnp.int32), config.discount, termination)

    def update_critic(
        agent: SoftQState, batch: Transition, reward: Array, next_value: Array
    ) -> tuple[SoftQState, Float[Array, ""]]:
        fitted, fixed = eqx.partition((agent.critic, agent.partner), eqx.is_inexact_array)

        def loss(fitted: PyTree) -> Float[Array, ""]:
            critic, partner = eqx.combine(fitted, fixed)
            fit = Fit(
                lambda obs, action: beyond(agent, q_of(critic, obs, action), lambda old: smallest(old, obs, action)),
                lambda obs: beyond(agent, soft_value(critic, obs), lambda old: soft_value(old, obs)),
                partner,
                reward,
                next_value,
                config.discount,
                lambda reward: after_end(reward).learner,
            )
            return critic_loss(fit, batch)

        value, gradient = jax.value_and_grad(loss)(fitted)
        step, optimizer = adam.update(gradient, agent.critic_optimizer)
        critic, partner = eqx.combine(optax.apply_updates(fitted, config.of_both(step)), fixed)
        target_critic = optax.incremental_update(critic, agent.target_critic, config.tau)
        average = optax.incremental_update(critic, agent.average, config.newest(run_updates))
        agent = replace(
            agent,
            critic=critic,
            average=average,
            target_critic=target_critic,
            critic_optimizer=optimizer,
            partner=partner,
        )
        return agent, value

    def improve(
        agent: SoftQState, draw: Callable[[Array], Transition], reward: Reward, key: Array
    ) -> tuple[SoftQState, Metrics]:
        end_value = after_end(reward)
        cap = value_cap(config, reward, draw, end_value, key)
        most_bonus = temperature * math.log(actions) / (1 - config.discount)

        def prepare(key: Array) -> tuple[Transition, Array, Array]:
            batch = draw(key)
            return batch, reward(batch).astype(jnp.float32), end_value.of(batch)

        def update(agent: SoftQState, prepared: tuple[Transition, Array, Array]) -> tuple[SoftQState, Metrics]:
            batch, paid, worth_of_end = prepared
            next_obs, terminated = successors(batch)
            next_value = soft_value(agent.target_critic, next_obs)
            next_value = beyond(agent, next_value, lambda old: soft_value(old, next_obs))
            next_value = jnp.minimum(next_value, cap + most_bonus)
            next_value = jnp.where(terminated, worth_of_end, next_value)
            metrics = describe(agent, batch.obs)
            agent, value = update_critic(agent, batch, paid, next_value)
            return agent, metrics | {"critic_loss": value}

        return updated(update, agent, prepare, jax.random.split(key, updates))

    return Solver(
        init,
        improve,
        actor=lambda agent: agent.critic,
        outcome=lambda agent: agent.average,
        act=lambda critic, obs, key: policy(critic, obs).sample(key),
        mode=lambda critic, obs: policy(critic, obs).mode(),
        log_prob=lambda critic, obs, action: policy(critic, obs).log_prob(action),
        q=lambda agent, obs, action: smallest(agent.critic, obs, action),
        v=lambda agent, obs, _key: soft_value(agent.critic, obs),
        hold=lambda agent, weight: replace(
            agent, prior=jax.tree.map(jnp.copy, agent.critic), hold=weight.astype(jnp.float32)
        ),
    )
