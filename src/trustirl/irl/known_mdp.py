"""The sampler of a known MDP: nothing is sampled, a policy's measure is its exact occupancy."""

from collections.abc import Callable

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from trustirl.core.mdp import MDP
from trustirl.core.measure import Reward
from trustirl.core.records import Algorithm, Sampler, Turned
from trustirl.core.types import ExpertData, IrlState, Metrics, RewardData
from trustirl.irl.loop import strongly_typed, three_keys
from trustirl.irl.terms import gap
from trustirl.rl.exact import occupancy

Observe = Callable[[PyTree, Reward], Metrics]
"""Reads a policy and its reward for the record (true returns, ell); training never sees what it returns."""


def exact_sampler(algorithm: Algorithm, expert: ExpertData, mdp: MDP, observe: Observe) -> Sampler:
    """The learner's exact occupancy beside the expert's measure; drift is measured on the whole space."""
    reward_of = algorithm.paid
    assert reward_of is not None

    def one_turn(irl: IrlState, key: Array) -> Turned:
        policy_key, _ = jax.random.split(key)
        irl, metrics = algorithm.improve(irl, None, policy_key)
        reward, learner = reward_of(irl), mdp.pairs(occupancy(mdp, irl.policy.log_prob))
        data = RewardData(expert.measure, learner, mdp.pairs())
        metrics = metrics | observe(irl.policy, reward) | {"gap": gap(reward, data.demo, data.learner)}
        return strongly_typed(irl), None, strongly_typed(data), metrics

    @eqx.filter_vmap
    def begin(key: Array, turn_key: Array) -> Turned:
        return one_turn(algorithm.init(key, expert), turn_key)

    def turn(irl: IrlState, _: None, keys: Array, _iteration: Array) -> Turned:
        return eqx.filter_vmap(one_turn)(irl, keys)

    return Sampler(three_keys, begin, turn, lambda key: one_turn(algorithm.init(key, expert), key)[:3])
