"""What tests of methods that learn values share: minibatches of eight rows, and what a critic loss can ask."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from trustirl.core.types import Transition
from trustirl.rl.targets import Fit

EXPERT = np.arange(8) >= 5
ENDED = np.arange(8) % 3 == 0  # rows 0 and 3 of the learner, row 6 of the expert


class Values(NamedTuple):
    """Random values of two critics."""

    q: np.ndarray
    v: np.ndarray
    after: np.ndarray
    reward: np.ndarray

    def fit(self, q: jnp.ndarray | None = None, discount: float = 0.9) -> Fit:
        """As a loss sees them."""
        members = jnp.asarray(self.q if q is None else q)
        v, after, reward = (jnp.asarray(x) for x in (self.v, self.after, self.reward))
        return Fit(lambda *_: members, lambda _: v, None, reward, after, discount)


def values(scale: float = 1.0) -> Values:
    rng = np.random.default_rng(0)
    return Values(scale * rng.normal(size=(2, 8)), *(scale * rng.normal(size=(3, 8))))


def rows() -> Transition:
    obs = jnp.zeros((8, 1))
    return Transition(
        obs, jnp.zeros(8, int), jnp.ones(8), obs, terminated=jnp.asarray(ENDED), expert=jnp.asarray(EXPERT)
    )
