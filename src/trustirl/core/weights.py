"""What a step of an episode weighs in a measure, for NumPy and JAX arrays alike. Needs no JAX.

`discount` None stands for undiscounted: every step counts the same.
"""

from typing import Any


def step_weight(time: Any, discount: float | None) -> Any:
    """Weight of step t: discount^t."""
    return (1.0 if discount is None else discount) ** time


def rest_weight(time: Any, horizon: int, discount: float | None) -> Any:
    """What is left to an episode that ended after step t, and is spent in the absorbing state (termination mode T2).

    That is horizon - t - 1 steps, or discount^(t+1)/(1-discount) of discounted mass.
    """
    if discount is None:
        return (horizon - time - 1.0).clip(0.0)
    return discount ** (time + 1) / (1 - discount)
