"""The only loop: reward step, policy step, fresh measures; all seeds at once, compiled once."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from trustirl.core.measure import Reward
from trustirl.core.records import Algorithm, Sampler
from trustirl.core.types import IrlState, Metrics, RewardData, TrainState
from trustirl.irl.terms import drift, gap

Observe = Callable[[PyTree, Reward], Metrics]
"""Reads a policy and its reward for the record (true returns, ell); training never sees what it returns."""


def seed_keys(seeds: int, first: int = 0) -> Array:
    """One key per seed; adding seeds leaves the first ones as they were."""
    return jax.vmap(jax.random.key)(jnp.arange(first, first + seeds))


class Loop(NamedTuple):
    """The loop's functions: `start(key)`, `step(state)`, and `blank(key)`, a state's shapes without its work."""

    start: Callable[[Array], tuple[TrainState, Metrics]]
    step: Callable[[TrainState], tuple[TrainState, Metrics]]
    blank: Callable[[Array], TrainState]


def make_loop(algorithm: Algorithm, sampler: Sampler, observe: Observe, updates: int) -> Loop:
    """Each state is a matched pair: its policy was improved for its reward (Algorithm 3, line 3).

    A step updates the reward with that policy's measures (lines 4-10) and then improves the policy again; `updates`
    of them make a run.
    """

    def settle(irl: IrlState, key: Array) -> tuple[IrlState, RewardData, Metrics]:
        policy_key, sample_key = jax.random.split(key)
        irl, metrics = algorithm.improve(irl, None, policy_key)
        data = sampler.collect(irl.policy, sample_key)
        metrics = metrics | observe(irl.policy, irl.reward) | {"gap": gap(irl.reward, data.demo, data.learner)}
        return irl, data, metrics

    def start(key: Array) -> tuple[TrainState, Metrics]:
        key, init_key, settle_key = jax.random.split(key, 3)
        irl, data, metrics = settle(algorithm.init(init_key), settle_key)
        return strongly_typed(TrainState(irl, data, key, jnp.asarray(0))), metrics

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        key, reward_key, settle_key = jax.random.split(state.key, 3)
        data = state.data._replace(progress=state.iteration / updates)
        irl, reward_metrics = algorithm.update_reward(state.irl, data, reward_key)
        moved = {"drift": drift(irl.reward, state.irl.reward, state.data.reference)}
        irl, data, metrics = settle(irl, settle_key)
        state = TrainState(irl, data, key, state.iteration + 1)
        return strongly_typed(state), moved | reward_metrics | metrics

    return Loop(start, step, lambda key: eqx.filter_eval_shape(start, key)[0])


def over_seeds(loop: Loop) -> Loop:
    """Both functions over a leading seed axis, compiled; a step that would compile a second time is an error."""
    step = eqx.debug.assert_max_traces(eqx.filter_vmap(loop.step), max_traces=1)
    start = eqx.filter_vmap(loop.start)
    return Loop(eqx.filter_jit(start), eqx.filter_jit(step), lambda keys: eqx.filter_eval_shape(start, keys)[0])


def iterate(
    loop: Loop, keys: Array, iterations: int, state: TrainState | None = None
) -> Iterator[tuple[TrainState, Metrics]]:
    """Yield the state of all seeds and their metrics, at the start and after each reward update.

    `loop` is a compiled one. Given a `state`, go on from there.
    """
    if state is None:
        state, metrics = loop.start(keys)
        yield state, metrics
    for _ in range(int(state.iteration[0]), iterations):
        state, metrics = loop.step(state)
        yield state, metrics


def strongly_typed(state: PyTree) -> Any:
    """Weak types (of Python scalars inside optimisers) would make the second step compile anew."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype) if eqx.is_array(x) else x, state)
