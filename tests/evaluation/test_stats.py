"""Every statistic equals what a pencil gives, and the intervals hold what they promise."""

import math

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, trim_mean

from trustirl.evaluation.stats import (
    area_under_curve,
    bootstrap,
    drawdown,
    improvement_interval,
    iqm,
    iqm_band,
    normalised,
    performance_profile,
    probability_of_improvement,
    share_below,
    share_falling,
    share_of_expert,
    spread,
    stability,
    steps_to,
)


def numbers(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


# --- between algorithms ----------------------------------------------------------------------------------


def test_normalised_score_puts_random_at_0_and_the_expert_at_1() -> None:
    np.testing.assert_allclose(normalised(numbers(-1200, -700, -200, 300), -1200.0, -200.0), [0, 0.5, 1, 1.5])
    for random, expert in ((5.0, 5.0), (5.0, 4.0), (math.nan, 4.0), (5.0, math.nan)):
        assert np.isnan(normalised(numbers(1, 2), random, expert)).all()


def test_inter_quartile_mean_by_hand() -> None:
    assert iqm(numbers(100, 1, 3, 5, 7, -50, 9, 2)) == (2 + 3 + 5 + 7) / 4
    assert iqm(numbers(900, 1, 2, 6, -900)) == 3  # of five, the middle three
    assert iqm(numbers(0, 3, 9)) == 4  # of three, all
    assert iqm(numbers(7)) == 7
    np.testing.assert_allclose(iqm(np.array([[0.0, 1, 2, 100], [4, 4, 8, 8]])), [1.5, 6])


@pytest.mark.parametrize("count", range(1, 23))
def test_inter_quartile_mean_is_scipys_trimmed_mean(count: int) -> None:
    values = np.random.default_rng(count).normal(size=(3, count))
    np.testing.assert_allclose(iqm(values), trim_mean(values, 0.25, axis=1), rtol=1e-12)


def test_bootstrap_draws_within_each_task() -> None:
    """Tasks whose runs agree leave nothing to draw, however far apart the tasks are."""
    low, high = bootstrap([np.full(4, 0.0), np.full(4, 1000.0)])
    assert low == high == 500
    low, high = bootstrap([np.array([0.0, 0, 0, 0, 1000, 1000, 1000, 1000])])
    assert low < 250
    assert high > 750


def test_bootstrap_of_two_runs_by_hand() -> None:
    """A resample of {0, 1} has the mean 0 or 1 with a chance of 1/4 each, so the interval reaches both."""
    assert tuple(bootstrap([numbers(0, 1)])) == (0, 1)
    same = bootstrap([np.arange(9.0)], seed=3)
    assert same == bootstrap([np.arange(9.0)], seed=3)
    assert same != bootstrap([np.arange(9.0)], seed=4)


@pytest.mark.parametrize(("tasks", "seeds"), [(5, 10), (1, 5)])
def test_bootstrap_interval_covers_the_truth(tasks: int, seeds: int) -> None:
    """95 % intervals hold the true value in about that share of 400 studies, a little less with five seeds."""
    random = np.random.default_rng(0)
    centres = np.linspace(0, 2, tasks)[:, None]
    truth = float(iqm((centres + random.normal(size=(tasks, 200_000))).ravel()))
    held = 0
    for study in range(400):
        low, high = bootstrap(list(centres + random.normal(size=(tasks, seeds))), resamples=500, seed=study)
        held += bool(low <= truth <= high)
    assert 0.88 <= held / 400 <= 0.985


@pytest.mark.parametrize("seeds", [1, 2, 5, 9])
def test_a_band_is_the_bootstrap_of_every_evaluation(seeds: int) -> None:
    values = np.random.default_rng(seeds).normal(size=(seeds, 6))
    low, high = iqm_band(values, resamples=40_000)
    for evaluation in range(6):
        expected = bootstrap([values[:, evaluation]], resamples=40_000, seed=1)
        np.testing.assert_allclose((low[evaluation], high[evaluation]), expected, atol=0.08)


def test_performance_profile_by_hand() -> None:
    scores, thresholds = numbers(0, 0.5, 0.5, 1), numbers(-0.1, 0, 0.5, 0.9, 1)
    np.testing.assert_allclose(performance_profile(scores, thresholds), [1, 0.75, 0.25, 0.25, 0])
    assert performance_profile(np.ones((7, 4)), thresholds).shape == (5, 7)


def test_probability_of_improvement_by_hand() -> None:
    """Of the six pairs of the first task four are won and one is a tie; the second task is lost."""
    ours, theirs = [numbers(1, 3), numbers(0)], [numbers(0, 1, 2), numbers(5, 6)]
    assert probability_of_improvement(ours, theirs) == pytest.approx((4.5 / 6 + 0) / 2)
    assert probability_of_improvement(theirs, ours) == pytest.approx(1 - 4.5 / 12)
    assert probability_of_improvement(ours, ours) == 0.5


def test_probability_of_improvement_is_mann_whitneys_u() -> None:
    random = np.random.default_rng(0)
    x, y = random.integers(6, size=12).astype(float), random.integers(6, size=9).astype(float)
    assert probability_of_improvement([x], [y]) == pytest.approx(mannwhitneyu(x, y).statistic / (12 * 9))


def test_improvement_interval() -> None:
    low, high = improvement_interval([numbers(1, 2), numbers(4, 4)], [numbers(0, 0.5), numbers(4, 4)])
    assert low == high == 0.75  # every draw wins the first task and ties on the second
    random = np.random.default_rng(2)
    x, y = [random.normal(size=20)], [random.normal(size=20)]
    low, high = improvement_interval(x, y)
    assert low < probability_of_improvement(x, y) < high
    assert 0.2 < high - low < 0.5  # U's standard deviation for 20 against 20 is 0.092


# --- one learning curve ----------------------------------------------------------------------------------


def test_area_under_the_curve_by_hand() -> None:
    """Trapezoids of area 5 and 60 over 40 steps; what was not evaluated is bridged."""
    assert area_under_curve(numbers(0, 10, 40), numbers(0, 1, 3)) == (5 + 60) / 40
    assert area_under_curve(numbers(0, 5, 10, 40), numbers(0, math.nan, 1, 3)) == (5 + 60) / 40
    assert area_under_curve(numbers(7), numbers(3)) == 3
    assert math.isnan(area_under_curve(numbers(7), numbers(math.nan)))


def test_steps_to_a_threshold() -> None:
    steps, returns = numbers(10, 20, 30, 40), numbers(1, math.nan, 5, 2)
    assert steps_to(1.0, steps, returns) == 10
    assert steps_to(1.5, steps, returns) == 30
    assert steps_to(6.0, steps, returns) == math.inf
    assert math.isnan(steps_to(math.nan, steps, returns))


def test_drawdown_is_from_the_running_maximum() -> None:
    assert drawdown(numbers(0, 5, 2, 9, math.nan, 3, 8)) == 6
    assert drawdown(numbers(1, 2, 3)) == 0
    assert math.isnan(drawdown(numbers(math.nan)))


def test_share_below_ninety_percent_of_the_running_maximum() -> None:
    assert share_below(numbers(10, 9, 8.9, 100, 91, math.nan, 89)) == 2 / 6
    # Measured from -1200, 90 % of -200 is -300; of -1200 it is -1200 itself.
    assert share_below(numbers(-1200, -300, -200, -390), zero=-1200.0) == 1 / 4
    assert share_below(numbers(-10, -10.5, -11.5)) == 1 / 3  # below zero, a tenth lower


def test_spread_between_seeds() -> None:
    assert spread(numbers(1, 3, 5)) == 2
    assert math.isnan(spread(numbers(1)))


def test_share_of_iterations_in_which_the_likelihood_fell() -> None:
    assert share_falling(numbers(math.nan, -3, -2, -2.5, -2.5 - 1e-12, -1)) == 1 / 4
    assert math.isnan(share_falling(numbers(-3)))


def test_share_of_expert_counts_from_random_where_returns_are_negative() -> None:
    assert share_of_expert(numbers(50, 70), 100.0, 20.0) == 0.6
    assert share_of_expert(numbers(-390), -200.0, -1200.0) == pytest.approx(0.81)
    assert math.isnan(share_of_expert(numbers(-390), -200.0, math.nan))


def test_stability_of_a_seed() -> None:
    course = stability(numbers(0, 10, 20, 30), numbers(0, 95, 40, 80), 100.0, 3.0)
    assert vars(course) == {
        "last": 80,
        "best": 95,
        "drawdown": 55,
        "below_90": 0.5,
        "steps_to_90": 10,
        "area": (475 + 675 + 600) / 30,
    }
