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
from trustirl.core.types import IrlState, Metrics, RewardData, Transition

DrawBatch = Callable[[Array], Transition]
"""A minibatch of experience for a key."""


class Solver(NamedTuple):
    """Policy improvement from sampled experience.

    `improve(agent, draw, reward, key)` makes its updates in one scan; each draws a minibatch with `draw(key)` and
    labels it with `reward` as it reads, so no reward is ever stored. `actor(agent)` is the part of the agent that
    acting needs, and `outcome(agent)` the one to evaluate and keep (the same, or an average of the latest ones):
    `act(actor, obs, key)` samples actions, `mode(actor, obs)` takes the most likely; continuous ones lie in [-1, 1].
    `q(agent, obs, action)` and `v(agent, obs, key)` are the agent's values, and `init(key, **parts)` takes parts of
    an agent, such as `critic`, that are given instead of made.
    """

    init: Callable[..., PyTree]
    improve: Callable[[PyTree, DrawBatch, Reward, Array], tuple[PyTree, Metrics]]
    actor: Callable[[PyTree], PyTree]
    outcome: Callable[[PyTree], PyTree]
    act: Callable[[PyTree, Array, Array], Array]
    mode: Callable[[PyTree, Array], Array]
    log_prob: Callable[[PyTree, Array, Array], Array]
    q: Callable[[PyTree, Array, Array], Array]
    v: Callable[[PyTree, Array, Array], Array]


class ExactSolver(NamedTuple):
    """A solver that knows the MDP, needs no experience, and can also answer what a certificate asks."""

    init: Callable[[Array], PyTree]
    improve: Callable[[PyTree, None, Reward, Array], tuple[PyTree, Metrics]]
    mdp: MDP
    optimal_value: Callable[[Reward], Float[Array, ""]]  # f(r), differentiable in the reward
    curvature: Callable[[PyTree, Float[Array, "states actions"]], Float[Array, ""]]  # f''(r_old)[u, u]


class Sampler(NamedTuple):
    """Where the measures of a reward step come from."""

    collect: Callable[[PyTree, Array], RewardData]


class Algorithm(NamedTuple):
    """An IRL method: `improve` is its policy step, `update_reward` its reward step."""

    init: Callable[[Array], IrlState]
    improve: Callable[[IrlState, DrawBatch | None, Array], tuple[IrlState, Metrics]]
    update_reward: Callable[[IrlState, RewardData, Array], tuple[IrlState, Metrics]]
