"""How well a reward was recovered."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Alignment(NamedTuple):
    """The best affine fit of the truth by a recovered reward, and how well they correlate."""

    scale: float
    shift: float
    correlation: float


def align(recovered: Float[np.ndarray, "..."], truth: Float[np.ndarray, "..."]) -> Alignment:
    """Least squares of truth on recovered; IRL fixes a reward at best up to such a map."""
    x, y = recovered.ravel() - recovered.mean(), truth.ravel() - truth.mean()
    spread = np.sqrt((x @ x) * (y @ y))
    if spread == 0.0:  # a constant reward explains nothing
        return Alignment(0.0, float(truth.mean()), 0.0)
    scale = float(x @ y / (x @ x))
    return Alignment(scale, float(truth.mean() - scale * recovered.mean()), float(x @ y / spread))
