"""Certificates that move: theory sections 3 and 4."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.theory.worlds import World, worlds
from trustirl.irl.certificates import certified_step, quadratic_error, smoothness
from trustirl.rl import exact


@jax.jit
def curvature_two_ways(world: World) -> tuple[jax.Array, jax.Array]:
    mdp, reward, other, _ = world
    direction = (other - reward) / jnp.max(jnp.abs(other - reward))
    h = 1e-3
    slope = lambda t: jnp.vdot(  # noqa: E731
        exact.occupancy(mdp, exact.solve(mdp, reward + t * direction).log_prob), direction
    )
    fourth_order = (8 * (slope(h) - slope(-h)) - (slope(2 * h) - slope(-2 * h))) / (12 * h)
    return exact.curvature(mdp, exact.solve(mdp, reward).log_prob, direction), fourth_order


@given(worlds)
def test_curvature_formula(world: World) -> None:
    formula, difference = map(float, curvature_two_ways(world))
    constant = float(smoothness(world.mdp.temperature, world.mdp.discount))
    assert formula == pytest.approx(difference, rel=1e-4, abs=1e-6 * constant)
    assert 0 <= formula <= constant * (1 + 1e-9)  # f is K-smooth in the sup norm


@jax.jit
def minorizer_quantities(world: World, shift: jax.Array) -> dict[str, jax.Array]:
    mdp, old, new, expert = world
    rho = exact.occupancy(mdp, expert)
    policy = exact.solve(mdp, old)
    rho_old = exact.occupancy(mdp, policy.log_prob)
    constant = smoothness(mdp.temperature, mdp.discount)
    likelihood = lambda r: exact.log_likelihood(mdp, rho, r)  # noqa: E731
    gap = jnp.sum(jnp.abs(rho - rho_old))
    step, gain = certified_step(gap, constant, jnp.asarray(0.0))
    return {
        "error": exact.surrogate(mdp, rho, policy.log_prob, new) - likelihood(new),
        "oscillation_bound": quadratic_error(new - old, constant),
        "shifted_bound": quadratic_error(new - old + shift, constant),
        "eps_bound": constant / 2 * jnp.max(jnp.abs(new - old)) ** 2,
        "squared_bound": constant / 2 * jnp.sum((new - old) ** 2),
        "promised": gain,
        "formula": gap**2 / (2 * constant),
        "gained": likelihood(old + step * jnp.sign(rho - rho_old)) - likelihood(old),
        "gap": gap,
    }


@given(worlds, st.floats(-5, 5))
def test_quadratic_and_squared_minorizers(world: World, shift: float) -> None:
    q = {name: float(value) for name, value in minorizer_quantities(world, jnp.asarray(shift)).items()}
    assert q["error"] <= q["oscillation_bound"] + 1e-9
    assert q["oscillation_bound"] <= q["eps_bound"] * (1 + 1e-12)
    assert q["eps_bound"] <= q["squared_bound"] * (1 + 1e-12)  # so mu >= K makes the squared penalty a minorizer
    assert q["shifted_bound"] == pytest.approx(q["oscillation_bound"], rel=1e-6)  # a constant shift costs nothing


@given(worlds)
def test_best_tabular_step_moves_and_keeps_its_promise(world: World) -> None:
    q = {name: float(value) for name, value in minorizer_quantities(world, jnp.asarray(0.0)).items()}
    assert q["promised"] == pytest.approx(q["formula"], rel=1e-12)
    assert q["gained"] >= q["promised"] - 1e-9
    if q["gap"] > 1e-3:
        assert q["gained"] > 0


@jax.jit
def inexact_quantities(world: World, noise: jax.Array) -> dict[str, jax.Array]:
    mdp, old, new, expert = world
    rho = exact.occupancy(mdp, expert)
    best = exact.solve(mdp, old)
    sloppy = jax.nn.log_softmax(best.log_prob + noise, axis=1)
    rho_best, rho_sloppy = exact.occupancy(mdp, best.log_prob), exact.occupancy(mdp, sloppy)
    delta = jnp.maximum(exact.optimal_value(old, mdp) - exact.objective(mdp, sloppy, old), 0.0)
    constant = smoothness(mdp.temperature, mdp.discount)
    likelihood = lambda r: exact.log_likelihood(mdp, rho, r)  # noqa: E731
    step, gain = certified_step(jnp.sum(jnp.abs(rho - rho_sloppy)), constant, delta)
    return {
        "delta": delta,
        "distance": jnp.sum(jnp.abs(rho_best - rho_sloppy)),
        # Delta is a difference of two values, known to their rounding only; the root makes that visible.
        "distance_bound": jnp.sqrt(2 * constant * (delta + 8 * jnp.finfo(float).eps * jnp.abs(best.value).max())),
        "error": exact.surrogate(mdp, rho, sloppy, new) - likelihood(new),
        "error_bound": quadratic_error(new - old, constant, delta),
        "promised": gain,
        "gained": likelihood(old + step * jnp.sign(rho - rho_sloppy)) - likelihood(old),
    }


@given(worlds, st.integers(0, 10**6), st.sampled_from([1e-3, 1e-1, 1.0]))
def test_certificate_for_inexact_policies(world: World, seed: int, size: float) -> None:
    noise = size * np.random.default_rng(seed).normal(size=world.reward.shape)
    q = {name: float(value) for name, value in inexact_quantities(world, jnp.asarray(noise)).items()}
    assert q["distance"] <= q["distance_bound"] + 1e-6
    assert q["error"] <= q["error_bound"] + 1e-8
    assert q["gained"] >= q["promised"] - 1e-8


def test_certified_step_closes_at_the_largest_delta() -> None:
    gap, constant = 3.0, 50.0
    largest = gap**2 / (8 * constant)
    step, gain = certified_step(gap, constant, jnp.asarray([0.0, 0.99 * largest, 1.01 * largest]))
    assert float(step[0]) == pytest.approx(gap / constant)
    assert float(gain[0]) == pytest.approx(gap**2 / (2 * constant))
    assert float(gain[1]) > 0
    assert float(step[2]) == float(gain[2]) == 0.0


@jax.jit
def early_stopped(world: World, delta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    mdp, reward, _, _ = world
    policy = exact.solve(mdp, reward, suboptimality=delta)
    actual = exact.optimal_value(reward, mdp) - exact.objective(mdp, policy.log_prob, reward)
    return actual, policy.suboptimality, policy.sweeps


@given(worlds, st.sampled_from([1e-8, 1e-4, 1e-2, 1.0]))
def test_solver_keeps_the_suboptimality_it_was_asked_for(world: World, delta: float) -> None:
    actual, proven, sweeps = map(float, early_stopped(world, jnp.asarray(delta)))
    assert actual <= proven + 1e-9
    assert proven <= delta * (1 + 1e-9)
    assert sweeps <= float(early_stopped(world, jnp.asarray(0.0))[2])
