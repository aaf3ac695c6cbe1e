"""The exact solver against dense linear algebra, closed forms and Monte Carlo."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from tests.compiled import compiled
from tests.theory.worlds import World, random_world, worlds
from trustirl.core.mdp import MDP, make_mdp
from trustirl.rl import exact
from trustirl.rollouts.exact import sample_episodes
from trustirl.tasks.registry import make_task


def dense_transitions(mdp: MDP) -> np.ndarray:
    """P[s, a, s'], the array that successor lists spare us."""
    dense = np.zeros((mdp.states, mdp.actions, mdp.states))
    state, action, _ = np.indices(mdp.successors.shape)
    np.add.at(dense, (state, action, np.asarray(mdp.successors)), np.asarray(mdp.probabilities))
    return dense


solve = jax.jit(exact.solve)
occupancy = jax.jit(exact.occupancy)
evaluate = jax.jit(exact.evaluate)
soft_backup = jax.jit(exact.soft_backup)


@given(worlds)
def test_values_and_occupancies_solve_their_linear_systems(world: World) -> None:
    mdp, reward, _, log_prob = world
    prob, discount = np.exp(np.asarray(log_prob)), float(mdp.discount)
    dense = np.einsum("sa,sat->st", prob, dense_transitions(mdp))
    system = np.eye(mdp.states) - discount * dense
    immediate = (prob * (np.asarray(reward) - float(mdp.temperature) * np.asarray(log_prob))).sum(1)
    np.testing.assert_allclose(
        evaluate(mdp, log_prob, reward, mdp.temperature),
        np.linalg.solve(system, immediate),
        rtol=1e-9,
        atol=1e-9,
    )
    marginal = np.linalg.solve(system.T, np.asarray(mdp.initial))
    rho = np.asarray(occupancy(mdp, log_prob))
    np.testing.assert_allclose(rho, marginal[:, None] * prob, rtol=1e-9, atol=1e-9)
    assert rho.sum() == pytest.approx(1 / (1 - discount), rel=1e-10)


@given(worlds)
def test_soft_value_iteration_reaches_the_fixed_point(world: World) -> None:
    mdp, reward, _, _ = world
    policy = solve(mdp, reward)
    again, log_prob = soft_backup(mdp, reward, policy.value)
    scale = 1e-10 * (1 + np.abs(policy.value).max())
    np.testing.assert_allclose(again, policy.value, atol=scale)
    np.testing.assert_allclose(log_prob, policy.log_prob, atol=scale / float(mdp.temperature))
    np.testing.assert_allclose(np.exp(policy.log_prob).sum(1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("discount", [0.5, 0.99, 0.999])
def test_one_state_has_a_closed_form(discount: float) -> None:
    reward = np.array([[1.0, -2.0, 0.5]])
    mdp = make_mdp(np.zeros((1, 3, 1), int), np.ones((1, 3, 1)), [1.0], discount, temperature=0.7)
    value = 0.7 * np.log(np.exp(reward / 0.7).sum()) / (1 - discount)
    policy = solve(mdp, jnp.asarray(reward))
    assert float(policy.value[0]) == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(np.exp(policy.log_prob), np.exp(reward / 0.7) / np.exp(reward / 0.7).sum())


@pytest.mark.parametrize("name", ["gridworld", "chain", "random-mdp"])
def test_near_a_discount_of_one_solutions_are_exact_and_take_no_minutes(name: str) -> None:
    """Rounding of values near 1e5 must not keep sweeps from settling, nor tell in what is done and visited."""
    task = make_task(name, {"discount": 0.99999})
    mdp, reward = task.mdp, jnp.asarray(task.true_reward)
    policy = solve(mdp, reward)
    assert int(policy.sweeps) < 100
    prob = np.exp(np.asarray(policy.log_prob))
    np.testing.assert_allclose(prob.sum(axis=1), 1.0, rtol=1e-13)
    system = np.eye(mdp.states) - 0.99999 * np.einsum("sa,sat->st", prob, dense_transitions(mdp))
    marginal = np.linalg.solve(system.T, np.asarray(mdp.initial))
    rho = np.asarray(occupancy(mdp, policy.log_prob))
    np.testing.assert_allclose(rho, marginal[:, None] * prob, rtol=1e-8, atol=1e-8)
    immediate = (prob * (np.asarray(reward) - np.asarray(policy.log_prob))).sum(1)
    np.testing.assert_allclose(policy.value, np.linalg.solve(system, immediate), rtol=1e-9)


def test_a_periodic_chain_where_the_span_does_not_help() -> None:
    successors = np.array([[[1]], [[0]]])
    mdp = make_mdp(successors, np.ones((2, 1, 1)), [1.0, 0.0], 0.9)
    policy = solve(mdp, jnp.asarray([[1.0], [0.0]]))
    np.testing.assert_allclose(policy.value, [1 / (1 - 0.81), 0.9 / (1 - 0.81)], rtol=1e-10)
    np.testing.assert_allclose(occupancy(mdp, policy.log_prob)[:, 0], [1 / (1 - 0.81), 0.9 / (1 - 0.81)], rtol=1e-10)


def test_exact_occupancy_equals_monte_carlo() -> None:
    episodes, horizon = 100_000, 60
    mdp, reward, _, _ = random_world(3, (6, 3, 3), 0.8, 1.0)
    policy = solve(mdp, reward)
    states, actions = map(np.asarray, sample_episodes(mdp, policy.log_prob, horizon, episodes, jax.random.key(0)))
    weight = np.broadcast_to(0.8 ** np.arange(horizon), states.shape)
    rho = np.asarray(occupancy(mdp, policy.log_prob)).ravel()
    pair = np.arange(episodes)[:, None] * rho.size + states * mdp.actions + actions
    visits = np.bincount(pair.ravel(), weight.ravel(), episodes * rho.size).reshape(episodes, rho.size)
    error = visits.std(axis=0, ddof=1) / np.sqrt(episodes)
    assert (abs(visits.mean(axis=0) - rho) <= 4 * error + 0.8**horizon / 0.2).all()


def test_sampled_pairs_are_aligned_and_follow_the_dynamics() -> None:
    task = make_task("gridworld", {"slip": 0.3})
    policy = solve(task.mdp, jnp.asarray(task.true_reward))
    states, actions = sample_episodes(task.mdp, policy.log_prob, 30, 200, jax.random.key(1))
    reachable = np.asarray(task.mdp.successors)[states[:, :-1], actions[:, :-1]]
    assert (reachable == np.asarray(states)[:, 1:, None]).any(-1).all()


def test_warm_start_gives_the_same_answer() -> None:
    mdp, reward, other, _ = random_world(5, (6, 3, 3), 0.9, 1.0)
    cold = solve(mdp, other)
    warm = solve(mdp, other, solve(mdp, reward).value)
    np.testing.assert_allclose(warm.value, cold.value, rtol=1e-10)
    np.testing.assert_allclose(warm.log_prob, cold.log_prob, atol=1e-9)


def test_policy_iteration_rounds_approach_the_solution_monotonically() -> None:
    mdp, reward, _, _ = random_world(7, (6, 3, 3), 0.9, 1.0)
    best = float(compiled(exact.optimal_value, reward, mdp))
    values = []
    for rounds in (1, 2, 3, 6):
        solver = exact.exact_solver(mdp, rounds)
        pay = lambda batch: reward[batch.obs, batch.action]  # noqa: E731
        start = compiled(solver.init, jax.random.key(0))
        policy, metrics = compiled(solver.improve, start, None, pay, jax.random.key(0))
        values.append(float(compiled(exact.objective, mdp, policy.log_prob, reward)))
        assert best - values[-1] <= float(metrics["suboptimality"]) + 1e-9
    assert values == sorted(values)
    assert values[-1] == pytest.approx(best, abs=1e-6)
