"""What may be said about several seeds and tasks, and how steadily they learned; NumPy alone.

The measures between algorithms are those of Agarwal et al. (2021), "Deep reinforcement learning at the edge of the
statistical precipice". A run counts once, and the reported return is always that of its last policy.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Strata = Sequence[Numbers]  # the runs of each task, [runs]; how many there are may differ

RESAMPLES = 2000
ROUNDING = 1e-9  # the exact likelihood is solved to about this; a smaller fall is none


class Interval(NamedTuple):
    """Where a statistic lies with 95 % confidence; arrays where the statistic is a curve."""

    low: Numbers
    high: Numbers


# --- between algorithms ----------------------------------------------------------------------------------


def normalised(returns: Numbers, random: float, expert: float) -> Numbers:
    """Returns on the scale where random actions are 0 and the expert is 1; NaN where that scale means nothing."""
    return (returns - random) / (expert - random) if expert > random else np.full_like(returns, math.nan)


def iqm(values: Numbers) -> Numbers:
    """The inter-quartile mean over the last axis: the mean without the lowest and the highest quarter.

    Where the count n is not divisible by 4, floor(n / 4) values are dropped at each end and the others count fully,
    as in `scipy.stats.trim_mean(x, 0.25)`: of five seeds the middle three are averaged, of three all.
    """
    count = values.shape[-1]
    cut = count // 4
    return np.asarray(np.sort(values, axis=-1)[..., cut : count - cut].mean(axis=-1))


def bootstrap(
    strata: Strata, statistic: Callable[[Numbers], Numbers] = iqm, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The 95 % percentile interval of a statistic of all runs, which reduces the last axis.

    Runs are drawn anew within their own task, so that the interval tells of the seeds and not of the choice of tasks.
    """
    random = np.random.default_rng(seed)
    drawn = [values[random.integers(values.size, size=(resamples, values.size))] for values in strata]
    return _interval(statistic(np.concatenate(drawn, axis=-1)))


def iqm_band(values: Numbers, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The bootstrap interval of the inter-quartile mean at every evaluation, for `values` [seeds, evaluations].

    A resample's inter-quartile mean is linear in the sorted sample: sorting the drawn ranks gives the weights once,
    for every evaluation, and a band costs one product of matrices.
    """
    count = len(values)
    ranks = np.sort(np.random.default_rng(seed).integers(count, size=(resamples, count)), axis=1)
    middle = ranks[:, count // 4 : count - count // 4]
    weights = (middle[:, :, None] == np.arange(count)).mean(axis=1)
    return _interval(weights @ np.sort(values, axis=0))


def several(strata: Strata) -> bool:
    """Whether any task has more than one run; without, there is nothing that an interval could tell."""
    return any(values.size > 1 for values in strata)


def performance_profile(scores: Numbers, thresholds: Numbers) -> Numbers:
    """The share of runs that score more than each threshold, for `scores` [..., runs]: [thresholds, ...]."""
    return np.stack([(scores > threshold).mean(axis=-1) for threshold in thresholds])


def probability_of_improvement(ours: Strata, theirs: Strata) -> float:
    """How likely a run of ours beats one of theirs on a task, ties counting half, averaged over tasks."""
    return float(np.mean([_wins(x, y) for x, y in zip(ours, theirs, strict=True)]))


def improvement_interval(ours: Strata, theirs: Strata, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The bootstrap interval of the probability of improvement, both sides drawn anew within each task."""
    random = np.random.default_rng(seed)

    def drawn(values: Numbers) -> Numbers:
        return values[random.integers(values.size, size=(resamples, values.size))]

    return _interval(np.mean([_wins(drawn(x), drawn(y)) for x, y in zip(ours, theirs, strict=True)], axis=0))


def _wins(x: Numbers, y: Numbers) -> Numbers:
    """Mann-Whitney's U as a share of all pairs, over the last axis."""
    difference = x[..., :, None] - y[..., None, :]
    return np.asarray(((np.sign(difference) + 1) / 2).mean(axis=(-2, -1)))


def _interval(statistics: Numbers) -> Interval:
    """The middle 95 % along the first axis."""
    low, high = map(np.asarray, np.quantile(statistics, (0.025, 0.975), axis=0))
    return Interval(low, high)


# --- one learning curve ----------------------------------------------------------------------------------


def area_under_curve(steps: Numbers, returns: Numbers) -> float:
    """The mean height of a learning curve, by trapezoids over steps; evaluations without a return count for nothing.

    Divided by the steps it spans, so that budgets of different length compare; a single evaluation is its own mean.
    """
    steps, returns = _evaluated(steps, returns)
    if not returns.size:
        return math.nan
    length = steps[-1] - steps[0]
    return float(np.trapezoid(returns, steps) / length) if length > 0 else float(returns.mean())


def steps_to(threshold: float, steps: Numbers, returns: Numbers) -> float:
    """The steps of the first evaluation at or above a threshold, infinite if none is, NaN if it is unknown."""
    steps, returns = _evaluated(steps, returns)
    if math.isnan(threshold) or not returns.size:
        return math.nan
    reached = returns >= threshold
    return float(steps[reached.argmax()]) if reached.any() else math.inf


def drawdown(returns: Numbers) -> float:
    """How far the return fell, at worst, below the highest one before it."""
    returns = returns[np.isfinite(returns)]
    return float((np.maximum.accumulate(returns) - returns).max()) if returns.size else math.nan


def share_below(returns: Numbers, zero: float = 0.0, share: float = 0.9) -> float:
    """The share of evaluations below 90 % of the highest return so far, measured from `zero`."""
    returns = returns[np.isfinite(returns)]
    if not returns.size:
        return math.nan
    return float((returns < share_of(np.maximum.accumulate(returns), zero, share)).mean())


def share_of(level: Numbers, zero: float, share: float = 0.9) -> Numbers:
    """90 % of a level measured from `zero`; a tenth of the distance below it also where it lies below `zero`."""
    return np.asarray(level - (1 - share) * np.abs(level - zero))


def spread(returns: Numbers) -> float:
    """The standard deviation between seeds, NaN for a single one."""
    return float(returns.std(ddof=1)) if returns.size > 1 else math.nan


def share_falling(values: Numbers) -> float:
    """The share of iterations in which a value fell, rounding aside; here the objective, which should not."""
    values = values[np.isfinite(values)]
    if values.size < 2:
        return math.nan
    allowed = ROUNDING * np.maximum(1.0, np.abs(values[:-1]))
    return float((np.diff(values) < -allowed).mean())


def zero_of(expert: float, random: float) -> float:
    """The return that counts as 0 %: no return, or where the expert's own is negative, that of random actions."""
    return random if expert <= 0 and math.isfinite(random) else 0.0


def share_of_expert(returns: Numbers, expert: float, random: float) -> float:
    """The mean return as a share of the expert's, NaN where that means nothing."""
    zero = zero_of(expert, random)
    return float(normalised(returns, zero, expert).mean())


@dataclass(frozen=True)
class Stability:
    """One seed's learning curve in a few numbers; what is unknown is NaN, `steps_to_90` infinite if never reached."""

    last: float
    best: float
    drawdown: float
    below_90: float
    steps_to_90: float
    area: float


def stability(steps: Numbers, returns: Numbers, expert: float, random: float) -> Stability:
    """`returns` at training `steps`, both [evaluations]; evaluations without a return count for nothing."""
    zero, there = zero_of(expert, random), returns[np.isfinite(returns)]
    return Stability(
        last=float(there[-1]) if there.size else math.nan,
        best=float(there.max()) if there.size else math.nan,
        drawdown=drawdown(returns),
        below_90=share_below(returns, zero),
        steps_to_90=steps_to(float(share_of(np.array(expert), zero)), steps, returns),
        area=area_under_curve(steps, returns),
    )


def _evaluated(steps: Numbers, returns: Numbers) -> tuple[Numbers, Numbers]:
    there = np.isfinite(returns)
    return steps[there], returns[there]
