"""TRIRL's identity on random MDPs: a policy step held near the old one is the best answer to a corrected reward."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.theory.test_monotone import INPUTS, history
from tests.theory.worlds import DISCOUNTS, TEMPERATURES, World, random_world
from trustirl.core.mdp import MDP
from trustirl.nets.rewards import TableReward
from trustirl.rl import exact

ETAS = (0.0, 0.3, 1.0, 10.0)
CASES = 40
DISCOUNTED = (0.3, 0.6, 0.9, 0.95)


def worlds() -> tuple[World, jax.Array]:
    """Stacked MDPs of one shape, and weights of the divergence."""
    rng = np.random.default_rng(1)
    drawn = [
        random_world(seed, (6, 3, 3), float(rng.choice(DISCOUNTS)), float(rng.choice(TEMPERATURES)))
        for seed in range(CASES)
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *drawn)
    return stacked, jnp.asarray(np.resize(ETAS, CASES))


def held_step(mdp: MDP, old: exact.SoftPolicy, eta: Any, reward: jax.Array) -> exact.SoftPolicy:
    """The exact solver's policy step, held near a policy."""
    solver = exact.exact_solver(mdp)
    held = solver.hold(old, jnp.asarray(eta))
    policy: exact.SoftPolicy = solver.improve(held, None, TableReward(reward), jax.random.key(0))[0]
    return policy


def test_a_held_step_is_soft_optimal_for_the_corrected_reward() -> None:
    """Policy and values against those that are solved for from nothing, to 1e-8; and so it is what is maximised.

    That is by the objective itself: the reward and the entropy less eta times the divergence, policy for policy.
    """

    def one(world: World, eta: jax.Array) -> tuple[jax.Array, ...]:
        mdp = world.mdp
        old = exact.solve(mdp, world.reward)
        held = held_step(mdp, old, eta, world.other)
        best = exact.solve(mdp, (world.other + eta * world.reward) / (1 + eta))

        def worth(log_prob: jax.Array) -> jax.Array:
            divergence = jnp.sum(exact.occupancy(mdp, log_prob) * (log_prob - old.log_prob))
            return exact.objective(mdp, log_prob, world.other) - mdp.temperature * eta * divergence

        noise = 1e-3 * jax.random.normal(jax.random.key(0), (3, *held.log_prob.shape))
        others = jnp.concatenate([jnp.stack([old.log_prob, world.expert]), jax.nn.log_softmax(held.log_prob + noise)])
        attained, told = worth(held.log_prob), (1 + eta) * held.value - eta * old.value  # as the docstring has it
        return (
            held.log_prob - best.log_prob,
            held.value - best.value,
            attained - jnp.vdot(mdp.initial, told),
            attained - jax.vmap(worth)(others),
            held.log_prob - old.log_prob,
        )

    policies, values, error, ahead, moved = jax.jit(jax.vmap(one))(*worlds())
    for difference in (policies, values, error):
        assert np.abs(difference).max() < 1e-8
    assert ahead.min() > 0
    assert np.abs(moved).max(axis=(1, 2)).min() > 0.01


def test_a_policy_that_is_not_optimal_is_held_all_the_same() -> None:
    """Then it is the policy that counts, not the reward that it was meant for."""
    world = random_world(3, (6, 3, 3), 0.9, 1.0)
    other = replace(exact.solve(world.mdp, world.other), log_prob=world.expert)
    near = held_step(world.mdp, other, 1e6, world.reward)
    np.testing.assert_allclose(np.exp(near.log_prob), np.exp(world.expert), atol=1e-4)


def trirl(eta: float, size: float, inputs: bool, iterations: int, **config: Any) -> tuple[np.ndarray, ...]:
    return history("trirl", {"reward_step": size, "eta": eta} | config, iterations, inputs, DISCOUNTED)


@pytest.mark.parametrize(
    ("size", "inputs", "iterations"),
    [
        (1.0, True, 3),
        *[pytest.param(*case, 30, marks=pytest.mark.slow) for case in ((0.1, False), (1.0, True), (10.0, False))],
    ],
)
def test_the_dual_never_falls(size: float, inputs: bool, iterations: int) -> None:
    """Also for steps with which plain ascent falls (`test_monotone`); and it moves."""
    ell, distance, drift, _ = trirl(1.0, size, inputs, iterations)
    assert np.diff(ell, axis=1).min() >= -1e-9
    assert (ell[:, -1] - ell[:, 0]).min() > 0
    assert (drift > 0).mean() > 0.5
    assert distance[:, -1].mean() < distance[:, 0].mean()


@INPUTS
@pytest.mark.slow
def test_small_steps_are_those_of_ml_irl_shortened(action_inputs: bool) -> None:
    """Where nothing has to be doubled, it is plain ascent with steps divided by 1 + eta."""
    ours = trirl(3.0, 0.004, action_inputs, 20)
    plain = history("ml-irl", {"reward_step": 0.001, "decay": 0.0}, 20, action_inputs, DISCOUNTED)
    for mine, theirs in zip(ours, plain, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-8)
