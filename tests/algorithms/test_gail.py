"""GAIL: its objective with absorbing rows on both sides, the signs of its reward, and whose pairs it looks at."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.adversaries import INPUTS, WEIGHT, differences, side, stepped
from trustirl.algorithms import ALGORITHMS
from trustirl.algorithms.gail import GailConfig, gail
from trustirl.core.precision import double_precision
from trustirl.core.types import ExpertData
from trustirl.irl.known_mdp import exact_parts, exact_sampler
from trustirl.irl.loop import as_one_program, iterate, make_loop, seed_keys
from trustirl.nets.rewards import reward_factory
from trustirl.rl.exact import exact_solver, occupancy, solve
from trustirl.tasks.registry import make_task


@pytest.mark.parametrize("penalty", [0.0, 10.0])
def test_the_step_follows_the_gradient_of_the_objective(penalty: float) -> None:
    """Pairs weigh what their measures say, what follows an end included; a linear network is as steep everywhere."""

    def objective(weight: np.ndarray) -> float:
        expert, learner = INPUTS @ weight
        told = np.average(np.logaddexp(0, -expert), weights=WEIGHT[0])
        told += np.average(np.logaddexp(0, learner), weights=WEIGHT[1])
        return float(told + penalty * (np.linalg.norm(weight) - 1) ** 2)

    _, old, new = stepped(gail, GailConfig(inner_steps=1, penalty=penalty))
    layer = lambda net: np.asarray(net.network.layers[0].weight, float).ravel()  # noqa: E731
    expected = differences(objective, layer(old.reward))
    gradient = layer(new.optimizer[0].mu) / 0.1  # (1 - b1) of the first one
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-5)
    assert (np.sign(layer(new.reward) - layer(old.reward)) == -np.sign(expected)).all()


@pytest.mark.parametrize("sign", ["positive", "negative", "both"])
def test_what_is_paid_is_made_of_the_chance_and_follows_every_update(sign: str) -> None:
    algorithm, old, new = stepped(gail, GailConfig(inner_steps=1, reward_sign=sign))
    assert algorithm.paid is not None
    assert algorithm.kept is not None
    for state in (old, new):
        chance = 1 / (1 + np.exp(-np.asarray(state.reward(side(False)))))
        expected = {"positive": -np.log(1 - chance), "negative": np.log(chance)}
        expected["both"] = expected["positive"] + expected["negative"]
        np.testing.assert_allclose(algorithm.paid(state)(side(False)), expected[sign], rtol=1e-4)
        assert algorithm.kept(state) is state.reward
    before, after = (np.asarray(algorithm.paid(state)(side(True))) for state in (old, new))
    assert (after != before).any()
    if sign == "positive":
        assert (after > 0).all()
    if sign == "negative":
        assert (after < 0).all()


@pytest.mark.parametrize("sign", ["both", pytest.param("positive", marks=pytest.mark.slow)])
def test_the_best_discriminator_leads_to_the_experts_occupancy(sign: str) -> None:
    """Where entropy weighs next to nothing; the discriminator is log(rho_E / rho_pi) in the end."""
    with double_precision():
        task = make_task("gridworld", {"size": 3})
        mdp, cold = task.mdp, make_task("gridworld", {"size": 3, "temperature": 0.2}).mdp
        expert = occupancy(mdp, solve(mdp, jnp.asarray(task.true_reward)).log_prob)
        make_reward = reward_factory("table", task.features, mdp.actions, True)
        parts = exact_parts(exact_solver(cold), make_reward, make_reward)
        algorithm = ALGORITHMS["gail"].build(parts, GailConfig(reward_step=0.04, inner_steps=1, reward_sign=sign))
        sampler = exact_sampler(algorithm, ExpertData(mdp.pairs(expert), 36), cold, lambda *_: {})
        updates = 60
        *_, (state, _) = iterate(as_one_program(make_loop(algorithm, sampler, updates)), seed_keys(1), updates)
        own = jax.jit(occupancy)(cold, state.irl.policy.log_prob[0])
        distance = float((1 - mdp.discount) * jnp.abs(own - expert).sum())
        assert distance < 0.05
        best = np.log(np.asarray(expert) / np.asarray(own))
        np.testing.assert_allclose(state.irl.reward.table[0], best, atol=0.1)
