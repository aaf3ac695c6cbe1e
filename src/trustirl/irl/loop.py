"""The only loop: reward step, policy step, fresh measures; all seeds at once, compiled once, whatever the world."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from trustirl.core.records import Algorithm, Sampler, Turned
from trustirl.core.types import IrlState, Metrics, RewardData, TrainState
from trustirl.irl.terms import drift


def seed_keys(seeds: int, first: int = 0) -> Array:
    """One key per seed; adding seeds leaves the first ones as they were."""
    return jax.vmap(jax.random.key)(jnp.arange(first, first + seeds))


class Loop(NamedTuple):
    """The loop's functions: `start(keys)`, `step(state)`, and `blank(keys)`, a state's shapes without its work."""

    start: Callable[[Array], tuple[TrainState, Metrics]]
    step: Callable[[TrainState], tuple[TrainState, Metrics]]
    blank: Callable[[Array], TrainState]


def make_loop(algorithm: Algorithm, sampler: Sampler, updates: int) -> Loop:
    """Each state is a matched pair: its policy was improved for its reward (Algorithm 3, line 3).

    A step updates the reward with that policy's measures (lines 4-10) and then improves the policy again; `updates`
    of them make a run.
    """

    @eqx.filter_jit
    @eqx.filter_vmap
    def update_reward(
        irl: IrlState, data: RewardData, replay: PyTree, iteration: Array, key: Array
    ) -> tuple[IrlState, Metrics]:
        assert algorithm.update_reward is not None
        seen = data._replace(progress=iteration / updates, replay=replay)
        new, metrics = algorithm.update_reward(irl, seen, key)
        if algorithm.paid is not None:
            metrics = {"drift": drift(algorithm.paid(new), algorithm.paid(irl), data.reference)} | metrics
        return strongly_typed(new), metrics

    def start(keys: Array) -> tuple[TrainState, Metrics]:
        keys, init_keys, turn_keys = sampler.split(keys, True)
        assert init_keys is not None
        irl, replay, data, metrics = sampler.begin(init_keys, turn_keys)
        return TrainState(irl, data, keys, jnp.zeros(len(keys), int), replay), metrics

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        keys, reward_keys, turn_keys = sampler.split(state.key, False)
        irl = state.irl
        moved: Metrics = {}
        if algorithm.update_reward is not None:
            irl, moved = update_reward(irl, state.data, state.replay, state.iteration, reward_keys)
        iteration = state.iteration + 1
        irl, replay, data, metrics = sampler.turn(irl, state.replay, turn_keys, iteration)
        return TrainState(irl, data, keys, iteration, replay), moved | metrics

    def blank(keys: Array) -> TrainState:
        def one(key: Array) -> TrainState:
            irl, replay, data = sampler.blank(key)
            return TrainState(irl, data, key, jnp.zeros((), int), replay)

        return eqx.filter_eval_shape(eqx.filter_vmap(one), keys)

    return Loop(start, step, blank)


def as_one_program(loop: Loop) -> Loop:
    """The loop of a world that lies on the device, compiled whole; a step that would compile again is an error."""
    step = eqx.debug.assert_max_traces(loop.step, max_traces=1)
    return Loop(eqx.filter_jit(loop.start), eqx.filter_jit(step), loop.blank)


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


def sampler_on_device(
    split: Callable[[Array, bool], Any],
    init: Callable[[Array], IrlState],
    one_turn: Callable[[IrlState, Array], Turned],
) -> Sampler:
    """The sampler of a world in which nothing is stepped, of functions of one seed."""

    @eqx.filter_vmap
    def begin(key: Array, turn_key: Array) -> Turned:
        return one_turn(init(key), turn_key)

    def turn(irl: IrlState, _: None, keys: Array, _iteration: Array) -> Turned:
        return eqx.filter_vmap(one_turn)(irl, keys)

    return Sampler(split, begin, turn, lambda key: one_turn(init(key), key)[:3])


def three_keys(keys: Array, _first: bool) -> tuple[Array, Array, Array]:
    """Where a reward is learned: the next keys, those of the start or the reward step, those of the turn."""
    keys, other, turn = split(keys, 3)
    return keys, other, turn


def two_keys(keys: Array, first: bool) -> tuple[Array, Array | None, Array]:
    """Where none is learned, a reward step needs no key."""
    keys, start = split(keys, 2) if first else (keys, None)
    keys, turn = split(keys, 2)
    return keys, start, turn


def split(keys: Array, count: int) -> Array:
    """Several keys of each seed: [count, seeds]."""
    return jax.vmap(lambda key: jax.random.split(key, count), out_axes=1)(keys)


def strongly_typed(state: PyTree) -> Any:
    """Weak types (of Python scalars inside optimisers) would make the second step compile anew."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype) if eqx.is_array(x) else x, state)
