"""Soft Q-learning against exact soft value iteration and closed forms."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from tests.compiled import compiled
from tests.rl.batches import (
    DISCOUNT,
    END_REWARD,
    TEMPERATURE,
    agent_of,
    forward,
    fresh_agent,
    quick_jit,
    reward,
    shared_spy,
    transitions,
)
from trustirl.core.mdp import MDP, make_mdp
from trustirl.core.records import Solver
from trustirl.core.types import Transition
from trustirl.nets.rewards import TableReward
from trustirl.rl import exact
from trustirl.rl.config import SolverConfig
from trustirl.rl.softq import SoftQState, softq
from trustirl.tasks.small import chain, random_mdp


@pytest.mark.parametrize(("termination", "end"), [("T0", 0.0), ("T2", END_REWARD / (1 - DISCOUNT))])
def test_the_target_is_the_one_computed_by_hand(termination: str, end: float) -> None:
    agent, batch = agent_of("softq"), transitions("softq")
    next_obs = np.asarray(batch.next_obs, float)
    smallest = np.minimum(*(forward(agent.target_critic.nets, next_obs, member) for member in range(2)))
    value = TEMPERATURE * logsumexp(smallest / TEMPERATURE, axis=1)
    expected = np.asarray(reward(batch)) + DISCOUNT * np.where(batch.terminated, end, value)
    target, _, metrics = shared_spy("softq", termination)(agent, batch)
    np.testing.assert_allclose(target, expected, rtol=1e-4, atol=1e-5)

    obs, rows = np.asarray(batch.obs, float), np.arange(len(batch.obs))
    q = np.stack([forward(agent.critic.nets, obs, member) for member in range(2)])
    taken = q[:, rows, np.asarray(batch.action)]
    assert float(metrics["critic_loss"]) == pytest.approx(np.mean((taken - expected) ** 2), rel=1e-4)
    log_prob = q.min(0) / TEMPERATURE - logsumexp(q.min(0) / TEMPERATURE, axis=1, keepdims=True)
    assert float(metrics["entropy"]) == pytest.approx(-np.mean(np.sum(np.exp(log_prob) * log_prob, 1)), rel=1e-4)
    assert float(metrics["q"]) == pytest.approx(np.mean(np.sum(np.exp(log_prob) * q.min(0), 1)), abs=1e-5)


def every_transition(mdp: MDP) -> Transition:
    """All (s, a, s') of an MDP whose successors are equally likely, with one-hot observations."""
    states, actions, successors = mdp.successors.shape
    state, action, _ = np.indices((states, actions, successors)).reshape(3, -1)
    one_hot = jnp.eye(states, dtype=jnp.float32)
    return Transition(
        one_hot[state],
        jnp.asarray(action),
        jnp.ones(len(state), jnp.float32),
        one_hot[mdp.successors.reshape(-1)],
        jnp.zeros(len(state), bool),
    )


def learn(
    solver: Solver, data: Transition, pay: Callable[[Transition], jax.Array]
) -> Callable[[jax.Array], jax.Array]:
    """The action values of a solver trained on all transitions at once."""
    run = quick_jit(lambda agent: solver.improve(agent, lambda _: data, pay, jax.random.key(0))[0])
    agent = run(fresh_agent(solver))
    return lambda obs: compiled(agent.critic, obs)


def world(name: str) -> tuple[MDP, np.ndarray]:
    if name == "chain":
        task = chain(length=4, discount=0.8, temperature=0.3)
        return task.mdp, task.true_reward
    task = random_mdp(states=4, actions=2, successors=3, discount=0.7, temperature=0.5)
    even = np.full(task.mdp.successors.shape, 1 / 3)
    return make_mdp(task.mdp.successors, even, np.ones(4) / 4, 0.7, 0.5), task.true_reward


@pytest.mark.parametrize(("name", "critics"), [("chain", 2), ("random-mdp", 1)])
def test_it_agrees_with_exact_soft_value_iteration(name: str, critics: int) -> None:
    mdp, table = world(name)
    config = SolverConfig(
        width=32,
        depth=1,
        critics=critics,
        learning_rate=3e-3,
        discount=float(mdp.discount),
        temperature=float(mdp.temperature),
        tau=0.05,
    )
    solver = softq(mdp.states, mdp.actions, config, updates=4000)
    pays = jnp.asarray(table, jnp.float32)

    def pay(batch: Transition) -> jax.Array:
        return jnp.sum(batch.obs @ pays * jax.nn.one_hot(batch.action, mdp.actions, dtype=jnp.float32), axis=-1)

    q = np.asarray(learn(solver, every_transition(mdp), pay)(jnp.eye(mdp.states, dtype=jnp.float32)))
    policy = jax.jit(exact.solve)(mdp, jnp.asarray(table))
    expected = np.asarray(policy.value[:, None] + mdp.temperature * policy.log_prob)
    assert np.ptp(expected) > 0.5
    for member in q:
        np.testing.assert_allclose(member, expected, atol=2e-3)


def test_held_it_agrees_with_the_exact_held_step() -> None:
    """Values for one reward, then a step for another one: those of the mixture, exactly as where the MDP is known."""
    mdp, table = world("random-mdp")
    weight, config = 1.5, SolverConfig(32, 1, critics=1, learning_rate=3e-3, discount=0.7, temperature=0.5, tau=0.05)
    solver, data = softq(mdp.states, mdp.actions, config, updates=4000), every_transition(mdp)
    other = np.random.default_rng(0).normal(size=table.shape)

    @quick_jit
    def step(agent: SoftQState, pays: jax.Array) -> SoftQState:
        def pay(batch: Transition) -> jax.Array:
            return jnp.sum(batch.obs @ pays * jax.nn.one_hot(batch.action, mdp.actions, dtype=jnp.float32), axis=-1)

        improved: SoftQState = solver.improve(agent, lambda _: data, pay, jax.random.key(0))[0]
        return improved

    agent = step(solver.hold(fresh_agent(solver), jnp.asarray(0.0)), jnp.asarray(table, jnp.float32))
    agent = step(solver.hold(agent, jnp.asarray(weight)), jnp.asarray(other, jnp.float32))

    known = exact.exact_solver(mdp)
    policy = known.hold(compiled(exact.solve, mdp, jnp.asarray(table)), jnp.asarray(weight))
    policy, _ = compiled(known.improve, policy, None, TableReward(jnp.asarray(other)), jax.random.key(0))
    expected = np.asarray(policy.value[:, None] + mdp.temperature * policy.log_prob)
    q = np.asarray(compiled(agent.critic, jnp.eye(mdp.states, dtype=jnp.float32)))[0]
    np.testing.assert_allclose(q, expected, atol=4e-3)
    alone = compiled(exact.solve, mdp, jnp.asarray(other))  # without the hold
    assert np.abs(policy.log_prob - alone.log_prob).max() > 0.3


@pytest.mark.parametrize("termination", ["T0", "T2"])
def test_an_end_is_worth_what_its_mode_says(termination: str) -> None:
    """Action 0 stays and pays just so much that V = 1; action 1 pays 0.2 and ends; after an end 0.1 a step."""
    discount, temperature, value, exit_pay, after = 0.5, 0.5, 1.0, 0.2, 0.1
    end = 0.0 if termination == "T0" else after / (1 - discount)
    leave = exit_pay + discount * end
    stay = temperature * np.log(np.exp(value / temperature) - np.exp(leave / temperature))
    obs = jnp.ones((2, 1), jnp.float32)
    data = Transition(obs, jnp.arange(2), jnp.ones(2, jnp.float32), obs, jnp.asarray([False, True]))

    def pay(batch: Transition) -> jax.Array:
        plain = jnp.where(batch.action == 0, stay - discount * value, exit_pay)
        return plain if batch.absorbing is None else jnp.where(batch.absorbing, after, plain)

    config = SolverConfig(16, 1, learning_rate=3e-3, discount=discount, temperature=temperature, tau=0.05)
    q = learn(softq(1, 2, config, updates=3000, termination=termination), data, pay)(obs[:1])
    np.testing.assert_allclose(q[:, 0], [[stay, leave]] * 2, atol=2e-3)
