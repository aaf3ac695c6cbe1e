"""The sampler of a known MDP: nothing is sampled, a policy's measure is its exact occupancy."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from trustirl.core.mdp import MDP
from trustirl.core.measure import Reward, whole
from trustirl.core.records import Algorithm, ExactSolver, Parts, Sampler, Turned
from trustirl.core.types import ExpertData, IrlState, Metrics, RewardData, Transition
from trustirl.irl.loop import sampler_on_device, strongly_typed, three_keys
from trustirl.irl.terms import gap
from trustirl.rl.exact import occupancy

Observe = Callable[[PyTree, Reward], Metrics]
"""Reads a policy and its reward for the record (true returns, ell); training never sees what it returns."""


def exact_parts(
    solver: ExactSolver, make_reward: Callable[[Array], PyTree], make_potential: Callable[[Array], PyTree]
) -> Parts:
    """What a known MDP gives an algorithm to build on."""
    mdp = solver.mdp

    def after(of: Reward, pairs: Transition) -> Float[Array, "..."]:
        states, chance = mdp.successors[pairs.obs, pairs.action], mdp.probabilities[pairs.obs, pairs.action]
        return jnp.sum(chance * of(Transition(states, jnp.zeros_like(states), chance)), axis=-1)

    return Parts(lambda **_: solver, make_reward, whole, config=mdp, make_potential=make_potential, after=after)


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

    return sampler_on_device(three_keys, lambda key: algorithm.init(key, expert), one_turn)
