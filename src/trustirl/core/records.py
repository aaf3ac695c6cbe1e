"""The four roles of an IRL method, as records of pure functions.

    Solver      improves a policy for a given reward function            (Algorithm 3, line 3)
    Sampler     turns a policy into the measures that a reward step sees (lines 5 and 6)
    Algorithm   initialises, improves the policy, updates the reward     (lines 3 and 4-10)

Every function is pure, written for one seed, and returns `(state, metrics)`; the loop adds the seed axis.
"""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, Float, PyTree

from trustirl.core.mdp import MDP
from trustirl.core.measure import Reward
from trustirl.core.types import IrlState, Metrics, RewardData


class Solver(NamedTuple):
    """Policy improvement. `improve(policy, reward, key)` relabels with `reward` as it reads."""

    init: Callable[[Array], PyTree]
    improve: Callable[[PyTree, Reward, Array], tuple[PyTree, Metrics]]


class ExactSolver(NamedTuple):
    """A solver that knows the MDP, and so can also answer what a certificate asks."""

    init: Callable[[Array], PyTree]
    improve: Callable[[PyTree, Reward, Array], tuple[PyTree, Metrics]]
    mdp: MDP
    optimal_value: Callable[[Reward], Float[Array, ""]]  # f(r), differentiable in the reward
    curvature: Callable[[PyTree, Float[Array, "states actions"]], Float[Array, ""]]  # f''(r_old)[u, u]


class Sampler(NamedTuple):
    """Where the measures of a reward step come from."""

    collect: Callable[[PyTree, Array], RewardData]


class Algorithm(NamedTuple):
    """An IRL method: `improve` is its policy step, `update_reward` its reward step."""

    init: Callable[[Array], IrlState]
    improve: Callable[[IrlState, Array], tuple[IrlState, Metrics]]
    update_reward: Callable[[IrlState, RewardData, Array], tuple[IrlState, Metrics]]
