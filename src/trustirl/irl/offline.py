"""The sampler where demonstrations are all there is: no environment is stepped."""

import equinox as eqx
from jaxtyping import Array

from trustirl.core.measure import expect, sample
from trustirl.core.records import Algorithm, Sampler, Turned
from trustirl.core.types import ExpertData, IrlState
from trustirl.irl.loop import strongly_typed, two_keys


def offline_sampler(algorithm: Algorithm, expert: ExpertData, batch: int) -> Sampler:
    """Policy steps that see minibatches of demonstrated pairs."""
    demo, solver = expert.measure, algorithm.solver

    def one_turn(irl: IrlState, key: Array) -> Turned:
        irl, metrics = algorithm.improve(irl, lambda k: sample(demo, batch, k), key)
        likelihood = expect(lambda pairs: solver.log_prob(irl.policy, pairs.obs, pairs.action), demo)
        return strongly_typed(irl), None, None, metrics | {"log_likelihood": likelihood}

    @eqx.filter_vmap
    def begin(key: Array, turn_key: Array) -> Turned:
        return one_turn(algorithm.init(key, expert), turn_key)

    def turn(irl: IrlState, _: None, keys: Array, _iteration: Array) -> Turned:
        return eqx.filter_vmap(one_turn)(irl, keys)

    return Sampler(two_keys, begin, turn, lambda key: one_turn(algorithm.init(key, expert), key)[:3])
