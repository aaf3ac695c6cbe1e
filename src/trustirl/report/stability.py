"""How steadily a seed learned, from its evaluations alone."""

import math
from dataclasses import dataclass

import numpy as np

from trustirl.report.runs import Numbers, Summary


@dataclass(frozen=True)
class Stability:
    """One seed's learning curve in five numbers; what is unknown is NaN, `steps_to_90` infinite if never reached."""

    last: float
    best: float
    drawdown: float
    below_90: float
    steps_to_90: float


def zero_of(summary: Summary) -> float:
    """The return that counts as 0 %: no return, or where the expert's own is negative, that of random actions."""
    negative = summary.expert_return <= 0 and math.isfinite(summary.random_return)
    return summary.random_return if negative else 0.0


def share_of_expert(summary: Summary) -> float:
    """The mean return as a share of the expert's, NaN where that means nothing."""
    zero = zero_of(summary)
    known = summary.expert_return > zero
    return float(summary.returns.mean() - zero) / (summary.expert_return - zero) if known else math.nan


def stability(steps: Numbers, returns: Numbers, summary: Summary) -> Stability:
    """`returns` at training `steps`, both [evaluations]; evaluations without a return count for nothing."""
    there = np.isfinite(returns)
    steps, returns = steps[there], returns[there]
    if not returns.size:
        return Stability(*[math.nan] * 5)
    zero, highest = zero_of(summary), np.maximum.accumulate(returns)
    reached = returns >= _ninety_percent(np.array([summary.expert_return]), zero)
    first = float(steps[reached.argmax()]) if reached.any() else math.inf
    return Stability(
        last=float(returns[-1]),
        best=float(highest[-1]),
        drawdown=float((highest - returns).max()),
        below_90=float((returns < _ninety_percent(highest, zero)).mean()),
        steps_to_90=first if math.isfinite(summary.expert_return) else math.nan,
    )


def _ninety_percent(level: Numbers, zero: float) -> Numbers:
    """A tenth below `level`, also where it lies below `zero`."""
    return level - 0.1 * np.abs(level - zero)
