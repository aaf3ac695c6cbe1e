"""Random MDPs for property tests: few shapes, so few compilations; everything else varies."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jaxtyping import Array, Float

from trustirl.core.mdp import MDP, make_mdp

SHAPES = [(2, 2, 2), (6, 3, 3)]  # states, actions, successors
DISCOUNTS = [0.3, 0.6, 0.8, 0.9, 0.95]
TEMPERATURES = [0.2, 1.0, 2.0]


class World(NamedTuple):
    """An MDP, two rewards, and an expert policy that need not be optimal for anything."""

    mdp: MDP
    reward: Float[Array, "states actions"]
    other: Float[Array, "states actions"]
    expert: Float[Array, "states actions"]


def random_world(
    seed: int, shape: tuple[int, int, int], discount: float, temperature: float, distance: float = 1.0
) -> World:
    """Rewards of unit scale; `other` lies at about `distance` from `reward`."""
    states, actions, successors = shape
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(successors, 0.5), size=(states, actions))
    mdp = make_mdp(
        rng.integers(states, size=probabilities.shape),
        probabilities,
        rng.dirichlet(np.ones(states)),
        discount,
        temperature,
    )
    reward = rng.normal(size=(states, actions))
    other = reward + distance * rng.normal(size=reward.shape)
    expert = np.log(rng.dirichlet(np.ones(actions), size=states) + 1e-9)
    expert -= np.log(np.exp(expert).sum(1, keepdims=True))
    return World(mdp, jnp.asarray(reward), jnp.asarray(other), jnp.asarray(expert))


worlds = st.builds(
    random_world,
    seed=st.integers(0, 2**31 - 1),
    shape=st.sampled_from(SHAPES),
    discount=st.sampled_from(DISCOUNTS),
    temperature=st.sampled_from(TEMPERATURES),
    distance=st.sampled_from([1e-3, 0.1, 1.0, 3.0]),
)
