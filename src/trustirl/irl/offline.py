"""The loop's two functions where demonstrations are all there is: no environment is stepped."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from trustirl.core.measure import expect, sample
from trustirl.core.records import Algorithm, Solver
from trustirl.core.types import IrlState, Metrics, TrainState, Transition
from trustirl.irl.loop import Loop, over_seeds, strongly_typed


def offline_loop(algorithm: Algorithm, solver: Solver, demo: Transition, batch: int) -> Loop:
    """Iterations of policy steps over all seeds, each of which sees minibatches of demonstrated pairs."""

    def settle(irl: IrlState, key: Array, iteration: Array) -> tuple[TrainState, Metrics]:
        key, own_key = jax.random.split(key)
        irl, metrics = algorithm.improve(irl, lambda k: sample(demo, batch, k), own_key)
        likelihood = expect(lambda pairs: solver.log_prob(irl.policy, pairs.obs, pairs.action), demo)
        return strongly_typed(TrainState(irl, None, key, iteration)), metrics | {"log_likelihood": likelihood}

    def start(key: Array) -> tuple[TrainState, Metrics]:
        key, init_key = jax.random.split(key)
        return settle(algorithm.init(init_key), key, jnp.asarray(0))

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        return settle(state.irl, state.key, state.iteration + 1)

    return over_seeds(Loop(start, step, lambda key: start(key)[0]))
