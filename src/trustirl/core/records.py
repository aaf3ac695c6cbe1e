"""The four roles of an IRL method, as records of functions.

    Solver      improves a policy for a given reward function            (Algorithm 3, line 3)
    Sampler     improves the policy in its world, and measures it        (lines 3, 5 and 6)
    Algorithm   initialises, improves the policy, updates the reward     (lines 3 and 4-10)
    Parts       what a world gives an algorithm to build on

Functions of solvers and algorithms are pure and written for one seed; samplers and the loop serve all seeds at once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from jaxtyping import Array, Float, Integer, PyTree

from trustirl.core.mdp import MDP
from trustirl.core.measure import Draw, Reward
from trustirl.core.types import ExpertData, IrlState, Metrics, RewardData, Transition

DrawBatch = Callable[[Array], Transition]
"""A minibatch of experience for a key."""


class Solver(NamedTuple):
    """Policy improvement from sampled experience.

    `improve(agent, draw, reward, key)` makes its updates in one scan; each draws a minibatch with `draw(key)` and
    labels it with `reward` as it reads, so no reward is ever stored. `actor(agent)` is the part of the agent that
    acting needs, and `outcome(agent)` the one to evaluate and keep (the same, or an average of the latest ones):
    `act(actor, obs, key)` samples actions, `mode(actor, obs)` takes the most likely; continuous ones lie in [-1, 1].
    `q(agent, obs, action)` and `v(agent, obs, key)` are the agent's values, and `init(key, **parts)` takes parts of
    an agent, such as `critic`, that are given instead of made. `hold(agent, weight)` makes policy steps pay `weight`
    temperatures for the KL divergence from the policy that the agent has now, or from another that is given, and
    `begin_with(agent, actor)` gives the agent that policy in place of its own; with actions that are numbered neither
    can be given.
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
    hold: Callable[..., PyTree]
    begin_with: Callable[[PyTree, PyTree], PyTree] | None = None


class ExactSolver(NamedTuple):
    """A solver that knows the MDP, needs no experience, and can also answer what a certificate asks.

    `actor`, `log_prob` and `hold` are a sampled solver's, but that a hold ends with the next policy step.
    """

    init: Callable[[Array], PyTree]
    improve: Callable[[PyTree, None, Reward, Array], tuple[PyTree, Metrics]]
    mdp: MDP
    optimal_value: Callable[[Reward], Float[Array, ""]]  # f(r), differentiable in the reward
    curvature: Callable[[PyTree, Float[Array, "states actions"]], Float[Array, ""]]  # f''(r_old)[u, u]
    actor: Callable[[PyTree], PyTree]
    log_prob: Callable[[PyTree, Array, Array], Array]
    hold: Callable[[PyTree, Float[Array, ""]], PyTree]


class Algorithm(NamedTuple):
    """An IRL method: `improve` is its policy step, `update_reward` its reward step.

    `paid(state)` is the reward that the policy follows, and `kept(state)` the one that is saved; a method that has
    no such reward, or no reward step, gives None instead of the function.
    """

    solver: Any  # a Solver, or in a known MDP an ExactSolver
    init: Callable[[Array, ExpertData], IrlState]
    improve: Callable[[IrlState, DrawBatch | None, Array], tuple[IrlState, Metrics]]
    update_reward: Callable[[IrlState, RewardData, Array], tuple[IrlState, Metrics]] | None = None
    paid: Callable[[IrlState], Reward] | None = None
    kept: Callable[[IrlState], Any] | None = None


Turned = tuple[IrlState, PyTree, RewardData | None, Metrics]
"""States, replays, measures (None where no reward is learned) and metrics, after a turn."""


class Sampler(NamedTuple):
    """Where policies improve and are measured, for all seeds at once: a known MDP, environments, or records alone.

    `split(keys, first)` parts keys into the next ones, those of the start or else of the reward step, and those of a
    turn. `turn(irl, replay, keys, iteration)` improves policies and returns all with fresh measures and metrics;
    `begin(keys, turn_keys)` makes states and their replay, and the first turn.
    """

    split: Callable[[Array, bool], tuple[Array, Array | None, Any]]
    begin: Callable[[Array, Any], Turned]
    turn: Callable[[IrlState, PyTree, Any, Integer[Array, "..."]], Turned]
    blank: Callable[[Array], tuple[IrlState, PyTree, RewardData | None]]
    """Shapes of what the others return, for one key."""


class MakeSolver(Protocol):
    """Makes the solver of a world; in the exact world there are no slots."""

    def __call__(self, **slots: Any) -> Any:
        """`critic_loss` and `make_actor`, where they are not the usual ones."""


class Parts(NamedTuple):
    """What a world gives an algorithm to build on; where nothing is sampled there are no spaces and statistics.

    `make_potential` makes functions of states alone, and `after(of, pairs)` is what such a function is worth after
    each pair: nothing after an end, and where it is known what may follow, the mean over that. `held_out` are pairs
    of episodes that are not drawn, for whoever asks to judge a fit by them. Without `own_rows` every row of a
    minibatch is demonstrated.
    """

    make_solver: MakeSolver
    make_reward: Callable[[Array], PyTree]
    draw: Draw
    spaces: Any = None  # sizes and kind of observations and actions
    config: Any = None  # the solver's settings, or the MDP; both have a discount and a temperature
    statistics: Any = None  # mean and deviation by which networks standardise observations
    make_potential: Callable[[Array], PyTree] | None = None
    after: Callable[[Reward, Transition], Float[Array, "..."]] | None = None
    held_out: Transition | None = None
    starts: Callable[[], Float[Array, "states obs"]] | None = None
    absorb: bool = False
    own_rows: bool = True
