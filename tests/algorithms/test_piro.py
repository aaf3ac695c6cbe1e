"""PIRO's trust region: where it acts, where it cannot, and that it is the only difference to ML-IRL."""

import difflib
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.test_contract import UPDATES, leaves, run, small_loop
from trustirl.core.descend import trainable
from trustirl.core.types import Transition
from trustirl.irl.loop import iterate, seed_keys
from trustirl.irl.terms import drift, squared_change
from trustirl.nets.rewards import TableReward

SLOW = pytest.mark.slow  # another kind of what a quick case checks already


@pytest.mark.parametrize(
    ("kind", "penalty"),
    [("table", "l2"), pytest.param("table", "squared", marks=SLOW), pytest.param("mlp", "l2", marks=SLOW)],
)
def test_one_inner_step_is_ml_irl_bit_for_bit(kind: str, penalty: str) -> None:
    with_region = run(small_loop("piro", kind, inner_steps=1, penalty=penalty, mu=5.0), 20)
    without = run(small_loop("ml-irl", kind, inner_steps=1), 20)
    for one, other in zip(leaves(with_region), leaves(without), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("penalty", ["l2", pytest.param("squared", marks=SLOW)])
def test_ten_inner_steps_are_not(penalty: str) -> None:
    with_region = run(small_loop("piro", inner_steps=10, penalty=penalty, mu=0.1), 5)
    without = run(small_loop("ml-irl", inner_steps=10), 5)
    assert np.isfinite(leaves(with_region)[0]).all()
    assert np.abs(leaves(with_region)[0] - leaves(without)[0]).max() > 1e-3


def test_without_a_penalty_ten_inner_steps_are_ml_irl() -> None:
    with_region = run(small_loop("piro", inner_steps=10, mu=0.0, mu_min=0.0, mu_max=0.0), 5)
    without = run(small_loop("ml-irl", inner_steps=10), 5)
    np.testing.assert_allclose(leaves(with_region)[0], leaves(without)[0], rtol=1e-9)


@pytest.mark.parametrize("penalty", [pytest.param("l2", marks=SLOW), "squared"])
def test_a_heavy_penalty_holds_the_reward(penalty: str) -> None:
    def first_drift(mu: float) -> float:
        loop = small_loop("piro", inner_steps=40, penalty=penalty, mu=mu, mu_min=mu, mu_max=mu)
        _, (_, metrics) = iterate(loop, seed_keys(1), 1)
        return float(metrics["drift"][0])

    assert first_drift(100.0) < 0.3 * first_drift(0.0)


def test_mu_follows_the_drift_and_stays_in_its_range() -> None:
    def history(**config: object) -> tuple[np.ndarray, np.ndarray]:
        rows = [m for _, m in iterate(small_loop("piro", **config), seed_keys(1), 12) if "mu" in m]
        return np.array([float(m["mu"][0]) for m in rows]), np.array([float(m["drift"][0]) for m in rows])

    mu, drifts = history(mu=0.01, target=1.0, x=1.2, y=2.0, mu_min=1e-3, mu_max=0.05)
    for before, after, eps in zip(mu, mu[1:], drifts, strict=False):
        factor = 2.0 if eps > 1.2 else 0.5 if eps < 1 / 1.2 else 1.0
        assert after == pytest.approx(np.clip(before * factor, 1e-3, 0.05))
    assert history(target=1e-9, mu_min=1e-3, mu_max=0.05)[0][-1] == pytest.approx(0.05)
    assert history(target=1e9, mu_min=1e-3, mu_max=0.05)[0][-1] == pytest.approx(1e-3)


@pytest.mark.parametrize("kind", ["table", pytest.param("mlp", marks=SLOW)])
def test_backtracking_bounds_every_step(kind: str) -> None:
    wild = {"inner_steps": 20, "mu": 1e-6, "mu_max": 1e-6, "mu_min": 1e-6, "target": 0.05, "x": 1.2}

    def drifts(trust: str) -> np.ndarray:
        history = iterate(small_loop("piro", kind, trust=trust, **wild), seed_keys(1), 6)
        return np.array([float(metrics["drift"][0]) for _, metrics in history if "drift" in metrics])

    free, bounded = drifts("adaptive"), drifts("backtrack")
    assert free.max() > 0.06 >= bounded.max()
    assert bounded.min() > 0.05 * 1.2 / 2.5  # halving stops as soon as it may


@pytest.mark.parametrize("kind", ["table", pytest.param("mlp", marks=SLOW)])
def test_with_the_theoretical_constant_no_step_passes_the_check(kind: str) -> None:
    """Any step lowers L then; an optimiser that is not checked walks about at the norm's kink."""

    def history(trust: str, mu: float) -> tuple[list[list[np.ndarray]], np.ndarray]:
        loop = small_loop("piro", kind, trust=trust, mu=mu, mu_min=mu, mu_max=mu)
        states, metrics = zip(*iterate(loop, seed_keys(1), 4), strict=True)
        weights = [[np.array(x) for x in jax.tree.leaves(trainable(state.irl.reward))] for state in states]
        return weights, np.array([float(m["drift"][0]) for m in metrics if "drift" in m])

    (first, *others), drifts = history("monotone", 111_373.55)
    for weights in others:
        for one, other in zip(first, weights, strict=True):
            np.testing.assert_array_equal(other, one)
    assert (drifts < 1e-12).all()  # two compilations of one network differ by rounding
    assert (history("adaptive", 111_373.55)[1] > 1e-6).all()
    assert history("monotone", 1e-3)[1][0] > 0


def test_the_target_narrows_with_the_run() -> None:
    wild = {"inner_steps": 20, "mu": 1e-6, "mu_max": 1e-6, "mu_min": 1e-6, "trust": "backtrack"}
    loop = small_loop("piro", target=0.05, x=1.0, narrowing=2.0, **wild)
    history = iterate(loop, seed_keys(1), UPDATES)
    drifts = np.array([float(metrics["drift"][0]) for _, metrics in history if "drift" in metrics])
    bound = 0.05 * (1 - np.arange(UPDATES) / UPDATES) ** 2
    assert (drifts <= bound * (1 + 1e-9)).all()
    assert (drifts > bound / 2.5).all()  # it follows the bound, rather than lying below it


def test_the_norms_kink_has_gradient_zero_and_no_nan() -> None:
    old = TableReward(jnp.arange(4.0))
    pairs = Transition(jnp.arange(4), jnp.zeros(4, int), jnp.ones(4))
    gradient = jax.grad(lambda table: drift(TableReward(table), old, pairs))
    np.testing.assert_array_equal(gradient(old.table), np.zeros(4))
    moved = old.table + jnp.array([3.0, 0.0, 4.0, 0.0])
    assert float(drift(TableReward(moved), old, pairs)) == pytest.approx(5.0)
    np.testing.assert_allclose(gradient(moved), [0.6, 0.0, 0.8, 0.0])
    assert float(squared_change(TableReward(moved), old, pairs)) == pytest.approx(25.0)


def test_the_files_differ_by_the_trust_region_only() -> None:
    """What ML-IRL's file has and PIRO's lacks is prose, names, and lines to which the trust region was added."""
    plain, region = (
        Path(sys.modules[f"trustirl.algorithms.{name}"].__file__).read_text().splitlines()
        for name in ("ml_irl", "piro")
    )
    only_plain = [line[2:] for line in difflib.ndiff(plain, region) if line.startswith("- ")]
    assert len(only_plain) <= 20, "\n".join(only_plain)
