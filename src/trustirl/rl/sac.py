"""Soft actor-critic (Haarnoja et al. 2018) for a reward that is a function, not data.

The soft value is V(s) = E_pi[min_i Q_i(s, a) - a log pi(a|s)] with temperature a; the critic regresses on
r + g V(s') (by default), the actor climbs V. With a prior policy, log pi - log prior takes the place of log pi, or,
where the policy is held near it with weight w, w (log pi - log prior) is added; a partner is a function that the
critic loss fits together with the critic.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Num, PyTree
from numpy.typing import ArrayLike

from trustirl.core.descend import trainable
from trustirl.core.measure import Reward
from trustirl.core.records import Solver
from trustirl.core.types import Metrics, Transition
from trustirl.nets.critics import QEnsemble
from trustirl.nets.mlp import standardiser
from trustirl.nets.policies import GaussianActor
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

MakeActor = Callable[[Array], Any]
"""Makes an actor for a key: a function of standardised observations to distributions such as `TanhGaussian`."""


class SacState(eqx.Module):
    """The agent: networks, temperature and optimiser states, arrays only."""

    actor: PyTree
    average: PyTree  # of the actors so far, the latest weighing most
    critic: QEnsemble
    target_critic: QEnsemble
    log_temperature: Float[Array, ""]
    actor_optimizer: PyTree
    critic_optimizer: PyTree
    temperature_optimizer: PyTree
    partner: PyTree = None  # optimised with the critic
    prior: PyTree = None  # an actor that stays as it is
    hold: Float[Array, ""] | None = None  # what the divergence from the prior weighs beside the entropy; None: alone


def sac(
    obs_dim: int,
    action_dim: int,
    config: SolverConfig,
    obs_mean: ArrayLike | None = None,
    obs_std: ArrayLike | None = None,
    updates: int = 1000,
    termination: Termination = "T2",
    run_updates: int | None = None,
    critic_loss: CriticLoss = squared_bellman_error,
    make_actor: MakeActor | None = None,
) -> Solver:
    """A solver for actions in [-1, 1]^n that makes `updates` gradient steps per policy step.

    All its functions take raw observations. `init` takes parts that are given instead of made: `actor`, `critic`,
    `partner` and `prior`.
    """
    standardise = standardiser(obs_mean, obs_std)
    make_actor = make_actor or (lambda key: GaussianActor(obs_dim, action_dim, config.width, config.depth, key))
    most_entropy = action_dim * math.log(2.0)  # of even chances on [-1, 1]^n
    adam, actor_adam = config.adam(run_updates), config.adam(run_updates, config.actor_learning_rate)

    def init(
        key: Array,
        actor: PyTree = None,
        critic: QEnsemble | None = None,
        partner: PyTree = None,
        prior: PyTree = None,
    ) -> SacState:
        actor_key, critic_key = jax.random.split(key)
        actor = make_actor(actor_key) if actor is None else actor
        if critic is None:
            critic = QEnsemble(
                obs_dim, action_dim, config.width, config.depth, config.critics, critic_key, config.layer_norm
            )
        log_temperature = jnp.log(jnp.float32(config.temperature))
        return SacState(
            actor,
            jax.tree.map(jnp.copy, actor),
            critic,
            jax.tree.map(jnp.copy, critic),  # its own buffers, so that the agent can be donated
            log_temperature,
            actor_adam.init(trainable(actor)),
            adam.init(trainable((critic, partner))),
            adam.init(log_temperature),
            partner,
            prior,
        )

    def policy(actor: PyTree, obs: Num[Array, "*batch obs"]) -> Any:
        return actor(standardise(obs))

    def propose(
        actor: PyTree, agent: SacState, obs: Num[Array, "batch obs"], key: Array
    ) -> tuple[Float[Array, "batch actions"], Float[Array, " batch"]]:
        """Actions and their log density, relative to the prior's where there is one; held, the sum of both."""
        action, log_prob = policy(actor, obs).sample_with_log_prob(key)
        if agent.prior is None:
            return action, log_prob
        relative = log_prob - policy(agent.prior, obs).log_prob(action)
        return action, relative if agent.hold is None else log_prob + agent.hold * relative

    def smallest_q(critic: QEnsemble, obs: Num[Array, "batch obs"], action: Array) -> Float[Array, " batch"]:
        return jnp.min(critic(standardise(obs), action), axis=0)

    def soft_value(agent: SacState, critic: QEnsemble, obs: Array, key: Array) -> Float[Array, " batch"]:
        action, log_prob = propose(agent.actor, agent, obs, key)
        return smallest_q(critic, obs, action) - jnp.exp(agent.log_temperature) * log_prob

    def after_end(reward: Reward) -> EndValue:
        nothing = jnp.zeros((1, action_dim), jnp.float32)
        return terminal_value(reward, obs_dim, nothing, config.discount, termination)

    def update_critic(
        agent: SacState, batch: Transition, reward: Array, next_value: Array, key: Array
    ) -> tuple[SacState, Metrics]:
        fitted, fixed = eqx.partition((agent.critic, agent.partner), eqx.is_inexact_array)

        def loss(fitted: PyTree) -> Float[Array, ""]:
            critic, partner = eqx.combine(fitted, fixed)
            fit = Fit(
                lambda obs, action: critic(standardise(obs), action),
                lambda obs: soft_value(agent, critic, obs, key),
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
        agent = replace(
            agent, critic=critic, partner=partner, target_critic=target_critic, critic_optimizer=optimizer
        )
        return agent, {"critic_loss": value}

    def update_actor(agent: SacState, batch: Transition, key: Array) -> tuple[SacState, Metrics]:
        temperature = jnp.exp(agent.log_temperature)

        def mean(x: Float[Array, " batch"]) -> Float[Array, ""]:
            """Over the states at which the policy improves."""
            if batch.critic_only is None:
                return jnp.mean(x)
            here = ~batch.critic_only
            return jnp.sum(x, where=here) / jnp.maximum(jnp.sum(here), 1)

        moving, fixed = eqx.partition(agent.actor, eqx.is_inexact_array)

        def loss(moving: PyTree) -> tuple[Float[Array, ""], tuple[Float[Array, ""], Float[Array, ""]]]:
            action, log_prob = propose(eqx.combine(moving, fixed), agent, batch.obs, key)
            q, entropy = mean(smallest_q(agent.critic, batch.obs, action)), -mean(log_prob)
            return -temperature * entropy - q, (q, entropy)

        (value, (q, entropy)), gradient = jax.value_and_grad(loss, has_aux=True)(moving)
        step, optimizer = actor_adam.update(gradient, agent.actor_optimizer)
        actor = eqx.combine(optax.apply_updates(moving, step), fixed)
        average = optax.incremental_update(actor, agent.average, config.newest(run_updates))
        agent = replace(agent, actor=actor, average=average, actor_optimizer=optimizer)
        metrics = {"actor_loss": value, "q": q, "entropy": entropy, "temperature": temperature}
        return update_temperature(agent, entropy), metrics

    def update_temperature(agent: SacState, entropy: Float[Array, ""]) -> SacState:
        if not config.learn_temperature:
            return agent
        excess = entropy + action_dim  # the gradient of log_temperature * (entropy - target)
        step, optimizer = adam.update(excess, agent.temperature_optimizer)
        return replace(
            agent,
            log_temperature=optax.apply_updates(agent.log_temperature, step),
            temperature_optimizer=optimizer,
        )

    def improve(
        agent: SacState, draw: Callable[[Array], Transition], reward: Reward, key: Array
    ) -> tuple[SacState, Metrics]:
        end_value = after_end(reward)
        cap = value_cap(config, reward, draw, end_value, key)

        def prepare(key: Array) -> tuple[Transition, Array, Array, Array]:
            draw_key, *others = jax.random.split(key, 4)
            batch = draw(draw_key)
            return batch, reward(batch).astype(jnp.float32), end_value.of(batch), jnp.stack(others)

        def update(agent: SacState, prepared: tuple[Transition, Array, Array, Array]) -> tuple[SacState, Metrics]:
            batch, paid, worth_of_end, (target_key, critic_key, actor_key) = prepared
            next_obs, terminated = successors(batch)
            next_value = soft_value(agent, agent.target_critic, next_obs, target_key)
            most_bonus = jnp.exp(agent.log_temperature) * most_entropy / (1 - config.discount)
            next_value = jnp.where(terminated, worth_of_end, jnp.minimum(next_value, cap + most_bonus))
            agent, critic_metrics = update_critic(agent, batch, paid, next_value, critic_key)
            agent, actor_metrics = update_actor(agent, batch, actor_key)
            return agent, critic_metrics | actor_metrics

        return updated(update, agent, prepare, jax.random.split(key, updates))

    return Solver(
        init,
        improve,
        actor=lambda agent: agent.actor,
        outcome=lambda agent: agent.average,
        act=lambda actor, obs, key: policy(actor, obs).sample(key),
        mode=lambda actor, obs: policy(actor, obs).mode(),
        log_prob=lambda actor, obs, action: policy(actor, obs).log_prob(action),
        q=lambda agent, obs, action: smallest_q(agent.critic, obs, action),
        v=lambda agent, obs, key: soft_value(agent, agent.critic, obs, key),
        hold=lambda agent, weight, actor=None: replace(
            agent,
            prior=jax.tree.map(jnp.copy, agent.actor if actor is None else actor),
            hold=weight.astype(jnp.float32),
        ),
        begin_with=lambda agent, actor: replace(agent, actor=actor, average=jax.tree.map(jnp.copy, actor)),
    )
