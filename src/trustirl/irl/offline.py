"""The sampler where demonstrations are all there is: no environment is stepped."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array

from trustirl.core.measure import expect, sample
from trustirl.core.records import Algorithm, DrawBatch, Sampler, Turned
from trustirl.core.types import ExpertData, IrlState, Transition
from trustirl.irl.loop import sampler_on_device, strongly_typed, two_keys


def offline_sampler(algorithm: Algorithm, expert: ExpertData, batch: int) -> Sampler:
    """Policy steps that see minibatches of what was demonstrated."""
    demo, solver, draw = expert.measure, algorithm.solver, demonstrated(expert, batch)
    done = replace(demo, weight=jnp.where(jnp.arange(len(demo.weight)) < expert.steps, demo.weight, 0.0))

    def one_turn(irl: IrlState, key: Array) -> Turned:
        irl, metrics = algorithm.improve(irl, draw, key)
        actor = solver.actor(irl.policy)
        likelihood = expect(lambda pairs: solver.log_prob(actor, pairs.obs, pairs.action), done)
        return strongly_typed(irl), None, None, metrics | {"log_likelihood": likelihood}

    return sampler_on_device(two_keys, lambda key: algorithm.init(key, expert), one_turn)


def demonstrated(expert: ExpertData, batch: int) -> DrawBatch:
    """Minibatches of demonstrated pairs; where it is known what followed, of such rows, marked as the expert's."""
    rows = expert.rows
    if rows is None:
        return lambda key: sample(expert.measure, batch, key)
    marked = replace(rows, expert=jnp.ones(len(rows.weight), bool))

    def draw(key: Array) -> Transition:
        index = jax.random.randint(key, (batch,), 0, len(marked.weight))
        return jax.tree.map(lambda x: x[index], marked)

    return draw
