"""The sampler where demonstrations are all there is: no environment is stepped."""

import equinox as eqx
from jaxtyping import Array

from trustirl.core.measure import expect, sample
from trustirl.core.records import Algorithm, Sampler
from trustirl.core.types import ExpertData, IrlState, Metrics
from trustirl.irl.loop import strongly_typed, two_keys


def offline_sampler(algorithm: Algorithm, expert: ExpertData, batch: int) -> Sampler:
    """Policy steps that see minibatches of demonstrated pairs."""
    demo, solver = expert.measure, algorithm.solver

    def made(key: Array) -> tuple[IrlState, None]:
        return strongly_typed(algorithm.init(key, expert)), None

    @eqx.filter_vmap
    def improved(irl: IrlState, key: Array) -> tuple[IrlState, Metrics]:
        irl, metrics = algorithm.improve(irl, lambda k: sample(demo, batch, k), key)
        likelihood = expect(lambda pairs: solver.log_prob(irl.policy, pairs.obs, pairs.action), demo)
        return strongly_typed(irl), metrics | {"log_likelihood": likelihood}

    def turn(irl: IrlState, _: None, keys: Array, _iteration: Array) -> tuple[IrlState, None, None, Metrics]:
        irl, metrics = improved(irl, keys)
        return irl, None, None, metrics

    return Sampler(two_keys, eqx.filter_vmap(made), turn, lambda key: (*made(key), None))
