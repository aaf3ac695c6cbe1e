"""Measures of a known MDP: every state-action pair, weighted by its occupancy."""

from jaxtyping import Array

from trustirl.core.mdp import MDP
from trustirl.core.records import Sampler
from trustirl.core.types import RewardData, Transition
from trustirl.rl.exact import SoftPolicy, occupancy


def exact_sampler(mdp: MDP, demo: Transition) -> Sampler:
    """The learner's exact occupancy beside the expert's measure; drift is measured on the whole space."""

    def collect(policy: SoftPolicy, _key: Array) -> RewardData:
        return RewardData(demo, mdp.pairs(occupancy(mdp, policy.log_prob)), mdp.pairs())

    return Sampler(collect)
