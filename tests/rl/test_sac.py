"""SAC against hand computations and closed forms."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.rl.batches import (
    ACTIONS,
    DISCOUNT,
    END_REWARD,
    OBS,
    ROWS,
    TEMPERATURE,
    agent_of,
    differs,
    forward,
    make,
    quick_jit,
    reward,
    shared_spy,
    spied,
    transitions,
)
from trustirl.core.types import Transition
from trustirl.rl.sac import SacState


def with_std(agent: SacState, log_std: float) -> SacState:
    """The agent with one and the same spread everywhere."""
    last = agent.actor.net.layers[-1]
    weight = last.weight.at[ACTIONS:].set(0.0)
    bias = last.bias.at[ACTIONS:].set(log_std)
    return eqx.tree_at(lambda a: (a.actor.net.layers[-1].weight, a.actor.net.layers[-1].bias), agent, (weight, bias))


def cold(agent: SacState) -> SacState:
    """Without entropy and (nearly) without noise, so that a target can be computed by hand."""
    return replace(with_std(agent, -20.0), log_temperature=jnp.float32(-40.0))


def any_action(obs: jax.Array, terminated: jax.Array) -> Callable[[jax.Array], Transition]:
    """Draws uniform actions at the same observations."""

    def draw(key: jax.Array) -> Transition:
        action = jax.random.uniform(key, (len(obs), ACTIONS), jnp.float32, -1.0, 1.0)
        return Transition(obs, action, jnp.ones(len(obs), jnp.float32), obs, terminated)

    return draw


@pytest.mark.parametrize(("termination", "end"), [("T0", 0.0), ("T2", END_REWARD / (1 - DISCOUNT))])
def test_the_target_is_the_one_computed_by_hand(termination: str, end: float) -> None:
    agent, batch = cold(agent_of("sac")), transitions("sac")
    next_obs = np.asarray(batch.next_obs, float)
    action = np.tanh(forward(agent.actor.net, next_obs)[:, :ACTIONS])
    pairs = np.concatenate([next_obs, action], axis=1)
    smallest = np.minimum(*(forward(agent.target_critic.nets, pairs, member)[:, 0] for member in range(2)))
    ended = np.asarray(batch.terminated)
    assert 0 < ended.sum() < len(ended)  # the others bootstrap, as truncated rows do
    expected = np.asarray(reward(batch)) + DISCOUNT * np.where(ended, end, smallest)
    target, _, metrics = shared_spy("sac", termination)(agent, batch)
    np.testing.assert_allclose(target, expected, rtol=1e-4, atol=1e-5)

    pairs = np.concatenate([np.asarray(batch.obs, float), np.asarray(batch.action, float)], axis=1)
    q = np.stack([forward(agent.critic.nets, pairs, member)[:, 0] for member in range(2)])
    assert float(metrics["critic_loss"]) == pytest.approx(np.mean((q - expected) ** 2), rel=1e-4)


def test_the_target_holds_the_entropy_of_the_policy() -> None:
    """With a critic of zero, V is temperature times entropy, which a quadrature knows."""
    log_std = -3.0
    agent = with_std(agent_of("sac"), log_std)
    agent = eqx.tree_at(lambda a: a.target_critic, agent, jax.tree.map(jnp.zeros_like, agent.target_critic))
    one = transitions("sac", 1)
    batch = jax.tree.map(lambda x: jnp.repeat(x, ROWS, axis=0), one)
    targets = [shared_spy("sac")(agent, batch, seed=seed)[0] for seed in range(100)]
    mean = forward(agent.actor.net, np.asarray(one.next_obs, float))[0, :ACTIONS]
    u = np.linspace(-4, 4, 40_001)[:, None]
    density = np.exp(-0.5 * ((u - mean) / np.exp(log_std)) ** 2 - log_std) / np.sqrt(2 * np.pi)
    log_density = np.log(density + 1e-300) - np.log1p(-(np.tanh(u) ** 2))
    entropy = -np.trapezoid(density * log_density, u, axis=0).sum()
    expected = float(reward(one)[0]) + DISCOUNT * TEMPERATURE * entropy
    assert np.mean(targets) == pytest.approx(expected, abs=0.06)


class Uniform(eqx.Module):
    """A prior that is its own distribution: even chances on [-1, 1]^n, whatever is observed."""

    def __call__(self, _obs: jax.Array) -> "Uniform":
        return self

    def log_prob(self, action: jax.Array) -> jax.Array:
        return jnp.full(action.shape[:-1], -ACTIONS * np.log(2), jnp.float32)


def test_a_prior_turns_the_entropy_into_minus_the_divergence() -> None:
    """A uniform prior has log density -n log 2 everywhere, so values fall by exactly temperature * n log 2."""
    agent, batch = agent_of("sac"), transitions("sac")
    plain, _, plain_metrics = shared_spy("sac")(agent, batch)
    prior, _, metrics = spied("sac")(replace(agent, prior=Uniform()), batch)
    shift = ACTIONS * np.log(2)
    alive = ~np.asarray(batch.terminated)
    np.testing.assert_allclose((prior - plain)[alive], -DISCOUNT * TEMPERATURE * shift, rtol=1e-4)
    assert float(metrics["entropy"] - plain_metrics["entropy"]) == pytest.approx(-shift, rel=1e-4)


def test_a_hold_adds_the_divergence_to_the_entropy() -> None:
    """The prior is the policy as it is: nothing to pay at first. Against another one, w (log pi - log prior) more."""
    agent, batch, weight = agent_of("sac"), transitions("sac"), 3.0
    free = replace(agent, log_temperature=jnp.float32(-40))
    plain, valued = (shared_spy("sac")(one, batch)[0] for one in (agent, free))
    held = make("sac").hold(agent, jnp.asarray(weight))
    target, _, _ = spied("sac")(held, batch)
    np.testing.assert_allclose(target, plain, rtol=1e-5)
    far, _, _ = spied("sac")(replace(held, prior=Uniform()), batch)
    alone, _, _ = spied("sac")(replace(agent, prior=Uniform()), batch)
    np.testing.assert_allclose(far - plain, weight * (alone - valued), atol=1e-4)
    assert np.abs(far - plain).max() > 0.1


def test_neither_loss_reaches_the_network_of_the_other() -> None:
    """A critic loss without critic leaves it alone, though the actor's loss contains it; and the reward, which is in
    the critic loss only, cannot show in an actor step that follows an unmoved critic."""
    solver = make("sac", critic_loss=lambda fit, batch: jnp.mean(fit.target**2))
    batch, agent = transitions("sac"), agent_of("sac")
    improve = quick_jit(
        lambda bonus: solver.improve(agent, lambda _: batch, lambda b: reward(b) + bonus, jax.random.key(0))[0]
    )
    one, other = improve(jnp.float32(0)), improve(jnp.float32(100))
    assert not differs(one.critic, agent.critic)
    assert differs(one.actor, agent.actor)
    assert not differs(one.actor, other.actor)


def test_a_fixed_temperature_stays_and_a_learned_one_steers_the_entropy() -> None:
    batch, agent = transitions("sac"), agent_of("sac")
    _, improved, metrics = shared_spy("sac")(agent, batch)
    assert float(improved.log_temperature) == float(agent.log_temperature)
    assert float(metrics["temperature"]) == pytest.approx(TEMPERATURE, rel=1e-6)
    solver = make("sac", {"learn_temperature": True})
    improve = quick_jit(lambda agent: solver.improve(agent, lambda _: batch, reward, jax.random.key(0)))
    for log_std, direction in ((0.0, -1), (-6.0, 1)):  # entropy above and below -ACTIONS
        moved, metrics = improve(with_std(agent, log_std))
        assert np.sign(-ACTIONS - float(metrics["entropy"])) == direction
        assert np.sign(float(moved.log_temperature - agent.log_temperature)) == direction


def test_the_policy_becomes_the_boltzmann_density_of_its_values() -> None:
    """Every step ends and pays -k (a - 0.3)^2: the best policy is near N(0.3, temperature/2k) on each axis."""
    k, temperature, peak = 5.0, 0.1, 0.3
    solver = make("sac", {"updates": 1000, "learning_rate": 5e-3, "temperature": temperature, "tau": 0.1})
    agent = replace(agent_of("sac"), log_temperature=jnp.log(jnp.float32(temperature)))
    obs, end = jnp.zeros((64, OBS), jnp.float32), jnp.ones(64, bool)

    def pay(batch: Transition) -> jax.Array:
        plain = -k * jnp.sum((batch.action - peak) ** 2, axis=-1)
        return plain if batch.absorbing is None else jnp.full(len(batch.obs), 0.2)

    agent, _ = quick_jit(lambda agent: solver.improve(agent, any_action(obs, end), pay, jax.random.key(0)))(agent)
    action = np.asarray(solver.act(solver.actor(agent), jnp.zeros((5000, OBS), jnp.float32), jax.random.key(1)))
    np.testing.assert_allclose(action.mean(0), peak, atol=0.05)
    np.testing.assert_allclose(action.std(0), np.sqrt(temperature / (2 * k)), rtol=0.2)
    probe: Any = jnp.asarray([[peak, peak], [peak, -0.7]], jnp.float32)
    q = agent.critic(jnp.zeros((2, OBS), jnp.float32), probe).min(0)
    np.testing.assert_allclose(q, np.asarray([0, -k]) + DISCOUNT * 0.2 / (1 - DISCOUNT), atol=0.3)


def test_without_reward_the_value_is_that_of_the_entropy() -> None:
    """The best policy is uniform, so V = temperature * n log 2 / (1 - g), and Q = g V."""
    discount, temperature = 0.5, 1.0
    solver = make("sac", {"updates": 1000, "learning_rate": 5e-3, "discount": discount, "temperature": temperature})
    agent = replace(agent_of("sac"), log_temperature=jnp.float32(0))
    obs, alive = jnp.zeros((64, OBS), jnp.float32), jnp.zeros(64, bool)
    silent = lambda batch: jnp.zeros(len(batch.obs))  # noqa: E731
    draw = any_action(obs, alive)
    agent, _ = quick_jit(lambda agent: solver.improve(agent, draw, silent, jax.random.key(0)))(agent)
    value = temperature * ACTIONS * np.log(2) / (1 - discount)
    q = agent.critic(obs[:5], jnp.linspace(-0.9, 0.9, 10, dtype=jnp.float32).reshape(5, 2))
    np.testing.assert_allclose(q, discount * value, atol=0.1)
    np.testing.assert_allclose(np.exp(agent.actor(obs[0]).log_std), 0.87, atol=0.15)


def test_a_policy_can_improve_only_where_it_has_been_while_the_critic_learns_from_demonstrations_too() -> None:
    batch = transitions("sac")
    shown = jnp.arange(ROWS) >= ROWS - 2
    elsewhere = replace(batch, obs=jnp.where(shown[:, None], batch.obs + 1.0, batch.obs))  # other demonstrations
    solver = make("sac", {"learning_rate": 1e-20, "actor_learning_rate": 1e-2})  # a step of nothing keeps the critic
    improve = quick_jit(lambda b: solver.improve(agent_of("sac"), lambda _: b, reward, jax.random.key(0)))
    (one, told), (other, told_other) = (improve(replace(b, critic_only=shown)) for b in (batch, elsewhere))
    assert not differs(one.actor, other.actor)
    assert differs(one.actor, agent_of("sac").actor)
    assert float(told["critic_loss"]) != pytest.approx(float(told_other["critic_loss"]))
    assert differs(*(improve(replace(b, critic_only=~shown))[0].actor for b in (batch, elsewhere)))
    nowhere, _ = improve(replace(batch, critic_only=jnp.ones(ROWS, bool)))
    assert not differs(nowhere.actor, agent_of("sac").actor)
