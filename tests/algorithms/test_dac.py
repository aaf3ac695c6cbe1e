"""DAC: its objective, and absorbing rows against the paper's, written out as self-loops."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.compiled import compiled
from trustirl.algorithms.dac import DacConfig, dac, remembered, shown
from trustirl.core.buffer import add, empty_buffer
from trustirl.core.measure import expect, minibatches
from trustirl.core.records import Algorithm, Parts
from trustirl.core.types import ExpertData, RewardData, Transition
from trustirl.demos.schema import Demos
from trustirl.irl.measures import Weighing, weighted
from trustirl.irl.terms import cross_entropy, slope_penalty
from trustirl.nets.rewards import NetworkReward, blank_network_reward
from trustirl.rl.config import SolverConfig
from trustirl.rl.softq import softq
from trustirl.rl.targets import terminal_value
from trustirl.worlds.matching import expert_data

DISCOUNT = 0.9
ENDS = np.array([False, False, True, False, True, False])  # of six steps that a learner remembers


def steps() -> Transition:
    obs = jnp.arange(6.0)[:, None] + 1
    return Transition(obs, jnp.zeros((6, 1)), jnp.ones(6), obs + 1, jnp.asarray(ENDS))


def demonstrated() -> Transition:
    """An episode that ends after two steps and one of three that is cut off, of up to ten."""
    obs, action = np.arange(5.0)[:, None] + 11, np.zeros((5, 1))
    demos = Demos.from_numpy(obs, action, [2, 5], [True, False])
    return compiled(
        lambda: expert_data(demos, obs.astype(np.float32), action, Weighing(10, DISCOUNT, False, True)).measure
    )


def logit_of(key: int = 0, depth: int = 1) -> NetworkReward:
    """Some network; one without hidden layers is linear, as far as its bound is out of reach."""
    std = np.full(2, 3.0, np.float32)
    make = blank_network_reward(np.ones(2, np.float32), std, 0, "state-action", 8, depth, 1e4)
    last = lambda net: net.network.layers[-1].weight  # noqa: E731

    def moved(first: jax.Array, second: jax.Array) -> NetworkReward:
        net = make(first)
        return eqx.tree_at(last, net, jax.random.normal(second, last(net).shape))

    return compiled(moved, jax.random.key(key), jax.random.key(key + 1))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


def test_the_terms_equal_a_computation_by_hand() -> None:
    rng = np.random.default_rng(0)
    shape = rng.normal(size=(3, 3))
    demo, learner = rng.normal(size=(2, 40, 3))
    loss = compiled(slope_penalty, lambda x: x @ jnp.asarray(shape) @ x, demo, learner, jax.random.key(1))
    share = np.asarray(jax.random.uniform(jax.random.key(1), (40, 1)))
    between = share * demo + (1 - share) * learner
    expected = np.mean((np.linalg.norm(between @ (shape + shape.T), axis=1) - 1) ** 2)
    np.testing.assert_allclose(loss, expected, rtol=1e-4)

    h, weight = rng.normal(size=(2, 40)), rng.uniform(size=(2, 40))
    sides = [Transition(jnp.asarray(h[side]), jnp.zeros(40), jnp.asarray(weight[side])) for side in range(2)]
    told = 1 / (1 + np.exp(-h))
    expected = -np.average(np.log(told[0]), weights=weight[0]) - np.average(np.log(1 - told[1]), weights=weight[1])
    np.testing.assert_allclose(compiled(cross_entropy, lambda pairs: pairs.obs, *sides), expected, rtol=1e-5)


def test_a_flat_logit_has_a_finite_gradient() -> None:
    x = jnp.ones((4, 2))
    slope = compiled(jax.grad(lambda w: slope_penalty(lambda x: x @ w, x, x, jax.random.key(0))), jnp.zeros(2))
    assert np.isfinite(slope).all()


def step_of(penalty: float) -> tuple[NetworkReward, NetworkReward, Any]:
    """A linear logit before and after one step on one pair of each side, and Adam's memory of the gradient."""
    old = logit_of(depth=0)
    parts = Parts(lambda: softq(1, 2, SolverConfig(width=4)), lambda _: old, minibatches(16))
    algorithm: Algorithm = dac(parts, DacConfig(inner_steps=1, penalty=penalty))
    one = weighted(Transition(jnp.full((1, 1), 4.0), jnp.full((1, 1), 0.5), jnp.ones(1)))
    replay = compiled(lambda rows: add(empty_buffer(3, rows), jax.tree.map(lambda x: x[:1], rows)), steps())
    state = compiled(algorithm.init, jax.random.key(0), ExpertData(one, 1))
    assert algorithm.update_reward is not None
    new, _ = compiled(algorithm.update_reward, state, RewardData(one, one, one, replay=replay), jax.random.key(1))
    return old, new.reward, new.optimizer[0].mu


@pytest.mark.parametrize("penalty", [0.0, 10.0])
def test_the_step_follows_the_gradient_of_the_objective(penalty: float) -> None:
    old, new, memory = step_of(penalty)
    weight = np.asarray(old.network.layers[0].weight, float).ravel()
    demo, learner = np.array([(4 - 1) / 3, (0.5 - 1) / 3, 0]), np.array([(1 - 1) / 3, (0 - 1) / 3, 0])

    def objective(weight: np.ndarray) -> float:
        slope = np.linalg.norm(weight)
        return float(softplus(-weight @ demo) + softplus(weight @ learner) + penalty * (slope - 1) ** 2)

    nudges = 1e-5 * np.eye(3)
    expected = [(objective(weight + nudge) - objective(weight - nudge)) / 2e-5 for nudge in nudges]
    gradient = np.asarray(memory.network.layers[0].weight).ravel() / 0.1  # (1 - b1) of the first one
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-5)
    moved = np.asarray(new.network.layers[0].weight).ravel() - weight
    assert (np.sign(moved) == -np.sign(expected)).all()


def test_absorbing_rows_have_the_values_of_self_loops() -> None:
    """The paper's row (s_abs, 0, s_abs) has target r + g Q(s_abs, 0), whose fixed point is an end's value here."""
    logit = logit_of()
    row = Transition(jnp.zeros((1, 1)), jnp.zeros((1, 1)), jnp.ones(1), absorbing=jnp.ones(1, bool))
    paid, value = float(compiled(logit, row)[0]), 0.0
    for _ in range(400):
        value = paid + DISCOUNT * value
    assert paid != 0
    end = compiled(lambda logit: terminal_value(logit, 1, jnp.zeros((1, 1)), DISCOUNT, "T2").learner, logit)
    np.testing.assert_allclose(end, value, rtol=1e-5)


def drawn_of_steps(count: int, absorb: bool) -> Transition:
    replay = compiled(lambda rows: add(empty_buffer(9, rows), rows), steps())
    return compiled(remembered, replay, count, absorb, jax.random.key(0))


def test_the_loss_is_that_of_explicit_absorbing_transitions() -> None:
    logit, size = logit_of(), 60_000
    there = Transition(jnp.zeros((1, 1)), jnp.zeros((1, 1)), jnp.ones(1), absorbing=jnp.ones(1, bool))
    real = Transition(jnp.arange(5.0)[:, None] + 11, jnp.zeros((5, 1)), jnp.ones(5))
    at_end, at_demo, at_own = (
        np.asarray(compiled(logit, rows)) for rows in (there, real, replace(steps(), absorbing=None))
    )

    ours = compiled(expect, lambda pairs: jax.nn.softplus(-logit(pairs)), compiled(shown, demonstrated()))
    np.testing.assert_allclose(ours, softplus(-np.concatenate([at_demo, at_end])).mean(), rtol=1e-5)

    drawn = drawn_of_steps(size, True)
    np.testing.assert_allclose(np.mean(drawn.absorbing), 2 / 8, atol=0.01)
    expected = softplus(np.concatenate([at_own, at_end, at_end])).mean()
    np.testing.assert_allclose(softplus(np.asarray(compiled(logit, drawn))).mean(), expected, rtol=0.02)


def test_where_ends_are_not_absorbed_nobody_has_absorbing_rows() -> None:
    drawn = drawn_of_steps(100, False)
    assert not drawn.absorbing.any()
