"""The sampler where demonstrations are all there is: no environment is stepped."""

from jaxtyping import Array

from trustirl.core.measure import expect, sample
from trustirl.core.records import Algorithm, Sampler, Turned
from trustirl.core.types import ExpertData, IrlState
from trustirl.irl.loop import sampler_on_device, strongly_typed, two_keys


def offline_sampler(algorithm: Algorithm, expert: ExpertData, batch: int) -> Sampler:
    """Policy steps that see minibatches of demonstrated pairs."""
    demo, solver = expert.measure, algorithm.solver

    def one_turn(irl: IrlState, key: Array) -> Turned:
        irl, metrics = algorithm.improve(irl, lambda k: sample(demo, batch, k), key)
        actor = solver.actor(irl.policy)
        likelihood = expect(lambda pairs: solver.log_prob(actor, pairs.obs, pairs.action), demo)
        return strongly_typed(irl), None, None, metrics | {"log_likelihood": likelihood}

    return sampler_on_device(two_keys, lambda key: algorithm.init(key, expert), one_turn)
