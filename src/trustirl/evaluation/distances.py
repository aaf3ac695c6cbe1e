"""Distances between rewards, which are nothing where two rewards make the same policies best: EPIC, DARD and STARC.

Each takes away what does not matter to a policy (potentials, a shift), then the scale, and measures what is left: 0
for rewards that are alike, 1 for opposed ones, 1/2 where one of the two says nothing. All are |x/|x| - y/|y|| / 2,
which for centred values is Pearson's distance, sqrt((1 - correlation) / 2).

    EPIC   Gleave et al. (2021), "Quantifying differences in reward functions": takes away what a reward pays on
           average from a state, to states that are drawn whatever the dynamics
    DARD   Wulfe et al. (2022), "Dynamics-aware comparison of learned reward functions": the same with states that
           may follow
    STARC  Skalse et al. (2024), "STARC: a general framework for quantifying differences between reward functions":
           takes away values, of uniform actions where the MDP is known; else the potential that leaves least

Tables are r(s, a), or r(s, a, s') with an entry for every state.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from trustirl.core.mdp import MDP
from trustirl.rl.exact import evaluate, next_value

Values = Float[np.ndarray, " rows"]
Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # observations, actions, and what was observed next
Weights = Float[np.ndarray, "*resamples rows"]
Numbers = Float[np.ndarray, "*resamples"]
Bools = Bool[np.ndarray, "*resamples"]
Table = Float[np.ndarray, "states actions"]
Tabular = Float[np.ndarray, "states actions *following"]

NOTHING = 1e-6  # of a reward's largest number: what is left of it and no larger is rounding
TIE = 1e-9  # of the largest value that there could be: actions that differ less are equally good


_value = jax.jit(evaluate)  # as one program for all policies of a world


# --- what is compared ------------------------------------------------------------------------------------


def distance(x: Values, y: Values, weight: Weights, centred: bool = True) -> Numbers:
    """|x/|x| - y/|y|| / 2 under each row of weights, of values less their means if they are centred."""
    cosine, there = _cosine(x, y, weight, centred)
    apart = np.sqrt((1 - cosine) / 2)
    return np.where(there[0] & there[1], apart, np.where(there[0] | there[1], 0.5, 0.0))


def correlation(x: Values, y: Values, weight: Weights) -> Numbers:
    """Pearson's; 0 where one of the two is constant."""
    return _cosine(x, y, weight, centred=True)[0]


def rank_correlation(x: Values, y: Values, weight: Weights) -> Numbers:
    """Spearman's, of ranks among all rows."""
    return correlation(ranks(x), ranks(y), weight)


def ranks(values: Values) -> Values:
    """From 0 on; equal values share the mean of theirs."""
    _, place, counts = np.unique(settled(values, values), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[place]


def settled(left: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """What is left of a reward, to as many digits as it has: what only rounding tells apart is alike."""
    step = NOTHING * float(np.abs(reward).max(initial=0.0))
    return np.round(left / step) * step if step > 0 else np.zeros_like(left)


def _cosine(x: Values, y: Values, weight: Weights, centred: bool) -> tuple[Numbers, tuple[Bools, Bools]]:
    """Of the angle between two vectors, and whether there is any of each."""
    weight = weight / weight.sum(axis=-1, keepdims=True)
    large = [max(float(np.abs(values).max(initial=0.0)), 1e-300) for values in (x, y)]
    x, y = x / large[0], y / large[1]
    means = [np.zeros(())] * 2
    if centred:
        x, y = x - x.mean(), y - y.mean()  # before squares are taken, so that no digits are lost
        means = [weight @ x, weight @ y]
    squares = [weight @ values**2 - mean**2 for values, mean in ((x, means[0]), (y, means[1]))]
    there = np.asarray(squares[0] > NOTHING**2), np.asarray(squares[1] > NOTHING**2)
    both = there[0] & there[1]
    sizes = np.sqrt(np.where(both, squares[0] * squares[1], 1.0))
    return np.where(both, np.clip((weight @ (x * y) - means[0] * means[1]) / sizes, -1, 1), 0.0), there


# --- where the MDP is known ------------------------------------------------------------------------------


class Transitions(NamedTuple):
    """Weighted steps of a known MDP: the distribution over which rewards are compared."""

    state: Int[np.ndarray, " rows"]
    action: Int[np.ndarray, " rows"]
    following: Int[np.ndarray, " rows"]
    weight: Values


def all_transitions(mdp: MDP, share: Table | None = None) -> Transitions:
    """Whatever may follow each state and action, as often as it does; pairs count alike, or by their share."""
    prob, following = np.asarray(mdp.probabilities), np.asarray(mdp.successors)
    weight = prob if share is None else prob * share[..., None]
    state, action, slot = np.nonzero(weight)
    kept = weight[state, action, slot]
    return Transitions(state, action, following[state, action, slot], kept / kept.sum())


def paid(reward: Tabular, steps: Transitions) -> Values:
    """The reward of each step."""
    table = _whole(reward)
    whole = np.broadcast_to(table, (*table.shape[:2], len(table)))
    return np.asarray(whole[steps.state, steps.action, steps.following])


def epic(reward: Tabular, steps: Transitions, discount: float) -> Values:
    """R(s,a,s') + E[g R(s',A,S') - R(s,A,S') - g R(S,A,S')] of every step; S, A and S' uniform and independent."""
    here = _whole(reward).mean(axis=(1, 2))
    left = paid(reward, steps) + discount * here[steps.following] - here[steps.state] - discount * here.mean()
    return settled(left, reward)


def dard(reward: Tabular, steps: Transitions, mdp: MDP) -> Values:
    """R(s,a,s') + E[g R(s',A,S'') - R(s,A,S') - g R(S',A,S'')]; uniform A leads from s to S' and from s' to S''."""
    table, discount = _whole(reward), float(mdp.discount)
    whole = np.broadcast_to(table, (*table.shape[:2], len(table)))
    prob, following = np.asarray(mdp.probabilities), np.asarray(mdp.successors)
    here = expected(reward, mdp).mean(axis=1)
    between = np.zeros(len(steps.state))
    for action in range(mdp.actions):
        first, then = following[steps.state, action], following[steps.following, action]  # [rows, successors]
        pays = whole[first[:, :, None], action, then[:, None, :]]
        between += np.einsum("ni,nj,nij->n", prob[steps.state, action], prob[steps.following, action], pays)
    left = paid(reward, steps) + discount * (here[steps.following] - between / mdp.actions) - here[steps.state]
    return settled(left, reward)


def starc(reward: Tabular, mdp: MDP) -> Values:
    """E[R(s,a,S') - V(s) + g V(S')] of every state and action, V the value of uniform actions."""
    mean = jnp.asarray(expected(reward, mdp))
    uniform = jnp.full(mean.shape, -jnp.log(float(mdp.actions)))
    value = _value(mdp, uniform, mean)
    return settled(np.asarray(mean - value[:, None] + mdp.discount * next_value(mdp, value)).ravel(), reward)


def expected(reward: Tabular, mdp: MDP) -> Table:
    """E[R(s,a,S')]: all that a reward says to a policy."""
    if reward.ndim == 2:
        return reward
    pays = np.take_along_axis(reward, np.asarray(mdp.successors), axis=2)
    return np.asarray((np.asarray(mdp.probabilities) * pays).sum(axis=-1))


def regret(mdp: MDP, followed: Table, judge: Table) -> float:
    """What the best policy for one reward loses of another, as a share of what chance loses; NaN if that is none."""
    chance = jnp.full(judge.shape, 1 / mdp.actions)

    def earns(prob: Any) -> float:
        return float(jnp.vdot(mdp.initial, _value(mdp, jnp.log(jnp.asarray(prob)), jnp.asarray(judge))))

    most, least = earns(best_policy(mdp, judge)), earns(chance)
    if most - least <= TIE * max(1.0, float(np.abs(judge).max())) * float(mdp.mass):
        return float("nan")
    return (most - earns(best_policy(mdp, followed))) / (most - least)


def best_policy(mdp: MDP, reward: Table) -> Table:
    """Policy iteration: the chances of actions of a policy that takes the best ones, equally good ones alike."""
    tie = TIE * max(1.0, float(np.abs(reward).max())) * float(mdp.mass)
    prob = np.full(reward.shape, 1 / mdp.actions)
    for _ in range(mdp.states * mdp.actions):
        value = _value(mdp, jnp.log(jnp.asarray(prob)), jnp.asarray(reward))
        q = np.asarray(reward + mdp.discount * next_value(mdp, value))
        best = q >= q.max(axis=1, keepdims=True) - tie
        better = best / best.sum(axis=1, keepdims=True)
        if np.array_equal(better, prob):
            break
        prob = better
    return prob


def _whole(reward: Tabular) -> Float[np.ndarray, "states actions following"]:
    """With an axis of what follows, of length 1 where that does not matter."""
    return reward if reward.ndim == 3 else reward[:, :, None]


# --- on samples ------------------------------------------------------------------------------------------

Pays = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # observations, actions, what follows: rewards


def sampled_epic(pays: Pays, rows: Rows, others: np.ndarray, discount: float) -> Values:
    """`epic` of observed steps; A and S' are those of the steps that `others` numbers, S that of any row."""
    obs, action, after = rows
    drawn, ends = action[others], after[others]

    def from_each(states: np.ndarray) -> Values:
        flat = [np.repeat(states, len(others), axis=0), *(np.concatenate([x] * len(states)) for x in (drawn, ends))]
        return np.asarray(pays(*flat)).reshape(len(states), len(others)).mean(axis=1)

    reward, here = np.asarray(pays(obs, action, after), np.float64), from_each(obs)
    return settled(reward + discount * from_each(after) - here - discount * here.mean(), reward)


def sampled_dard(
    pays: Pays,
    rows: Rows,
    tried: Rows,
    discount: float,
) -> Values:
    """`dard` of observed steps; `tried` are random actions [rows, tries] and what follows them from s and from s'."""
    obs, action, after = rows
    tries = tried[0].shape[1]
    drawn, one, two = (array.reshape(-1, *array.shape[2:]) for array in tried)

    def mean(states: np.ndarray, ends: np.ndarray) -> Values:
        return np.asarray(pays(states, drawn, ends)).reshape(len(obs), tries).mean(axis=1)

    here, then = (np.repeat(states, tries, axis=0) for states in (obs, after))
    reward = np.asarray(pays(obs, action, after), np.float64)
    return settled(reward + discount * (mean(then, two) - mean(one, two)) - mean(here, one), reward)


def sampled_starc(reward: Values, features: np.ndarray, following: np.ndarray, discount: float) -> Values:
    """What a potential, linear in features of states, leaves at least: the least square of r + g f(s') - f(s)."""
    shapes = discount * following - features
    weights = np.linalg.lstsq(shapes, reward, rcond=None)[0]
    return settled(reward - shapes @ weights, reward)


def waves(obs: np.ndarray, following: np.ndarray, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A constant, the columns, and waves of random direction over them (Rahimi and Recht, 2007), all standardised."""
    mean, deviation = obs.mean(axis=0), np.maximum(obs.std(axis=0), 1e-8)
    random = np.random.default_rng(seed)
    length = np.sqrt(obs.shape[1])  # the distance of two typical rows, about
    direction = random.normal(size=(obs.shape[1], count)) / length
    phase = random.uniform(0, 2 * np.pi, count)

    def of(states: np.ndarray) -> np.ndarray:
        scaled = np.clip((states - mean) / deviation, -10, 10)
        return np.concatenate([np.ones((len(scaled), 1)), scaled, np.cos(scaled @ direction + phase)], axis=1)

    return of(obs), of(following)
