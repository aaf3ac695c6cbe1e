"""Reward steps in a known MDP against plain NumPy: occupancies, objectives and the optimiser, all computed anew."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.algorithms.test_contract import small_loop
from trustirl.irl.loop import iterate, seed_keys
from trustirl.tasks.registry import make_task

TASK = make_task("gridworld", {"size": 3})
NEXT, CHANCE, START = (np.asarray(getattr(TASK.mdp, name)) for name in ("successors", "probabilities", "initial"))
G, HEAT = float(TASK.mdp.discount), float(TASK.mdp.temperature)
STEP = 0.05


def soft_optimal(reward: np.ndarray) -> tuple[float, np.ndarray]:
    """f(r), the best soft return, and the occupancy of the policy that has it."""
    value = np.zeros(len(NEXT))
    for _ in range(3000):
        q = reward + G * (CHANCE * value[NEXT]).sum(axis=-1)
        top = q.max(axis=1)
        value = top + HEAT * np.log(np.exp((q - top[:, None]) / HEAT).sum(axis=1))
    policy = np.exp((q - value[:, None]) / HEAT)
    moves = np.zeros((len(NEXT), len(NEXT)))
    for state, action, branch in np.ndindex(NEXT.shape):
        moves[state, NEXT[state, action, branch]] += policy[state, action] * CHANCE[state, action, branch]
    visits = np.linalg.solve(np.eye(len(NEXT)) - G * moves.T, START)
    return float(START @ value), visits[:, None] * policy


EXPERT = soft_optimal(np.asarray(TASK.true_reward))[1]


def ell(reward: np.ndarray) -> float:
    return float((EXPERT * reward).sum() - soft_optimal(reward)[0])


def adam(table: np.ndarray, slope: Callable[[np.ndarray], np.ndarray], steps: int) -> np.ndarray:
    """Downhill, with the usual constants."""
    mean, square = np.zeros_like(table), np.zeros_like(table)
    for time in range(1, steps + 1):
        gradient = slope(table)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        table = table - STEP * (mean / (1 - 0.9**time)) / (np.sqrt(square / (1 - 0.999**time)) + 1e-8)
    return table


def first_step(name: str, **config: object) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """The reward before and after an update, and what was told of it."""
    (start, _), (state, metrics) = iterate(small_loop(name, "table", True, **config), seed_keys(1), 1)
    before, after = (np.asarray(each.irl.reward.table[0]).reshape(EXPERT.shape) for each in (start, state))
    return before, after, {key: float(value[0]) for key, value in metrics.items()}


@pytest.mark.parametrize(
    ("name", "penalty"),
    [("ml-irl", None), ("mm", None), ("piro", "l2"), pytest.param("piro", "squared", marks=pytest.mark.slow)],
)
def test_inner_steps_follow_the_gap_and_the_penalty(name: str, penalty: str | None) -> None:
    mu, steps = 0.02, 6
    region = {} if penalty is None else {"penalty": penalty, "mu": mu, "trust": "adaptive"}
    before, after, told = first_step(name, reward_step=STEP, inner_steps=steps, decay=0.0, weight_decay=0.0, **region)
    uphill = (1 - G) * (EXPERT - soft_optimal(before)[1])

    def slope(table: np.ndarray) -> np.ndarray:
        change = table - before
        far = np.linalg.norm(change)
        held = {None: 0.0, "l2": mu * change / far if far else 0.0, "squared": mu * change}[penalty]
        return held - uphill

    np.testing.assert_allclose(after, adam(before, slope, steps), rtol=1e-6, atol=1e-8)
    assert told["drift"] == pytest.approx(np.linalg.norm(after - before), rel=1e-6)
    assert told["gap"] == pytest.approx((1 - G) * ((EXPERT - soft_optimal(after)[1]) * after).sum(), rel=1e-6)


def test_maximum_entropy_steps_along_the_difference_of_occupancies() -> None:
    before, after, _ = first_step("mce")
    change, uphill = after - before, EXPERT - soft_optimal(before)[1]
    cosine = (change * uphill).sum() / np.linalg.norm(change) / np.linalg.norm(uphill)
    assert cosine == pytest.approx(1.0, abs=1e-9)
    assert ell(after) > ell(before) + 1e-4 * (change * uphill).sum()  # Armijo's share


@pytest.mark.slow
def test_what_trro_certifies_is_its_bound_and_comes_true() -> None:
    before, after, told = first_step("trro", minorizer="quadratic")
    change = after - before
    promised = ((EXPERT - soft_optimal(before)[1]) * change).sum()
    error = np.ptp(change) ** 2 / 8 / (HEAT * (1 - G) ** 3)
    assert told["certified_gain"] == pytest.approx(promised - error, rel=1e-3)
    assert ell(after) - ell(before) > told["certified_gain"] > 0
