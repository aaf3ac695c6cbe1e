"""The loop's two functions where experience is sampled: environments on the host, updates on the device."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from trustirl.core.buffer import Buffer, add, draw, empty_buffer
from trustirl.core.measure import concat, sample
from trustirl.core.records import Algorithm, Solver
from trustirl.core.types import IrlState, Metrics, RewardData, TrainState, Transition
from trustirl.irl.loop import Loop, strongly_typed
from trustirl.irl.terms import drift, gap


@dataclass(frozen=True)
class Plan:
    """How experience is gathered and used."""

    steps_per_iteration: int = 5000
    """Environment steps per seed between two reward updates."""
    envs: int = 5
    """Environments per seed."""
    rounds: int = 10
    """Times per iteration that collecting and updating take turns."""
    batch: int = 256
    """Pairs per policy minibatch."""
    reward_batch: int = 256
    """Expert pairs, and as many of the learner's, per reward minibatch; drift is measured on as many."""
    warmup: int = 1000
    """Random steps per seed before the first update."""
    discounted: bool = False
    """Weigh step t by discount^t in the reward step (the paper's occupancy) instead of equally."""


class Steps(NamedTuple):
    """What a collector returns: arrays [steps, seeds, envs, ...]; no reward among them."""

    obs: Any
    action: Any
    next_obs: Any
    terminated: Any
    time: Any


@runtime_checkable
class Collector(Protocol):
    """Environments of all seeds, stepped together on the host."""

    def fresh(self, iteration: int) -> None:
        """Start new episodes whose seeds derive from the run's seeds and the iteration."""

    def collect(self, act: Callable[[np.ndarray], np.ndarray] | None, steps: int) -> Steps:
        """Go on for `steps` steps in every environment; without `act`, at random."""


class Weighing(NamedTuple):
    """How steps of episodes become a measure."""

    horizon: int
    discount: float
    discounted: bool  # weigh step t by discount^t
    absorb: bool  # an end is followed by the absorbing state's share (termination mode T2)


def episode_measure(obs: Array, action: Array, terminated: Array, time: Array, weighing: Weighing) -> Transition:
    """Steps of episodes, expert's or learner's, as a measure.

    An episode that ended after step t spends the rest of its time in the absorbing state: horizon - t - 1 steps, or
    discount^(t+1)/(1-discount) of discounted mass.
    """
    horizon, discount, discounted, absorb = weighing
    time = time.astype(jnp.float32)
    weight = discount**time if discounted else jnp.ones_like(time)
    real = Transition(obs, action, weight, absorbing=jnp.zeros(time.shape, bool))
    if not absorb:
        return real
    rest = discount ** (time + 1) / (1 - discount) if discounted else jnp.maximum(horizon - time - 1, 0.0)
    after = Transition(
        jnp.zeros_like(obs),
        jnp.zeros_like(action),
        jnp.where(terminated, rest, 0.0),
        absorbing=jnp.ones(time.shape, bool),
    )
    return concat(real, after)


def control_loop(
    algorithm: Algorithm,
    solver: Solver,
    collector: Collector,
    demo: Transition,
    plan: Plan,
    weighing: Weighing,
    capacity: int,
) -> Loop:
    """Loop functions over all seeds: a reward step, then rounds of collecting and policy updates in turn.

    While the device makes the updates of one round, the host steps the environments of the next with the policy from
    before them; the policy that acts is therefore one round behind the one that learns.
    """
    per_env = plan.steps_per_iteration // (plan.rounds * plan.envs)
    host = jax.devices("cpu")[0]

    @eqx.filter_jit
    @eqx.filter_vmap
    def update_reward(irl: IrlState, data: RewardData, key: Array) -> tuple[IrlState, Metrics]:
        new, metrics = algorithm.update_reward(irl, data, key)
        return strongly_typed(new), metrics | {"drift": drift(new.reward, irl.reward, data.reference)}

    @eqx.filter_jit
    @eqx.filter_vmap
    def improve(irl: IrlState, replay: Buffer, key: Array) -> tuple[IrlState, Metrics]:
        irl, metrics = algorithm.improve(irl, lambda k: draw(replay, k, plan.batch), key)
        return strongly_typed(irl), metrics

    @eqx.filter_jit
    @eqx.filter_vmap
    def measures(steps: Steps, reward: PyTree, key: Array) -> tuple[RewardData, Metrics]:
        flat = _flat(steps)
        learner = episode_measure(flat.obs, flat.action, flat.terminated, flat.time, weighing)
        demo_key, learner_key = jax.random.split(key)
        expert, own = sample(demo, plan.reward_batch, demo_key), sample(learner, plan.reward_batch, learner_key)
        metrics = {"gap": gap(reward, demo, learner)}
        return RewardData(demo, learner, concat(expert, own)), metrics

    @eqx.filter_jit(donate="all")
    @eqx.filter_vmap
    def remember(replay: Buffer, steps: Steps) -> Buffer:
        return add(replay, _experience(steps))

    @jax.jit
    def act(agent: PyTree, obs: Array, keys: Array, step: Array) -> Array:
        return jax.vmap(lambda one, rows, key: solver.act(one, rows, jax.random.fold_in(key, step)))(agent, obs, keys)

    def actor(agent: PyTree, keys: Array) -> Callable[[np.ndarray], np.ndarray]:
        """The policy on the host's own processor, so that acting need not wait for the device's queue."""
        agent, keys = jax.device_put((agent, keys), host)
        steps = itertools.count()
        return lambda obs: np.asarray(act(agent, obs, keys, next(steps)))

    def practise(
        irl: IrlState, replay: Buffer | None, keys: Array, iteration: int
    ) -> tuple[IrlState, Buffer, RewardData, Metrics]:
        collector.fresh(iteration)
        if replay is None:
            first = _by_seed(collector.collect(None, max(1, plan.warmup // plan.envs)))
            replay = eqx.filter_jit(eqx.filter_vmap(lambda steps: empty_buffer(capacity, _experience(steps))))(first)
            replay = remember(replay, first)
        acting, gathered = irl.policy, []
        for round_keys in jax.vmap(lambda key: jax.random.split(key, plan.rounds), out_axes=1)(keys):
            act_keys, update_keys = jax.vmap(jax.random.split, out_axes=1)(round_keys)
            steps = _by_seed(collector.collect(actor(acting, act_keys), per_env))
            gathered.append(steps)
            replay = remember(replay, jax.tree.map(jnp.asarray, steps))
            acting = irl.policy
            irl, metrics = improve(irl, replay, update_keys)
        whole = jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts, axis=1)), *gathered)
        data, measured = measures(whole, irl.reward, act_keys)
        return irl, replay, data, metrics | measured

    def start(keys: Array) -> tuple[TrainState, Metrics]:
        keys, init_keys, practice_keys = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(keys)
        irl = eqx.filter_jit(eqx.filter_vmap(lambda key: strongly_typed(algorithm.init(key))))(init_keys)
        irl, replay, data, metrics = practise(irl, None, practice_keys, 0)
        return TrainState(irl, data, keys, jnp.zeros(len(keys), int), replay), metrics

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        keys, reward_keys, practice_keys = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(state.key)
        irl, moved = update_reward(state.irl, state.data, reward_keys)
        iteration = int(state.iteration[0]) + 1
        irl, replay, data, metrics = practise(irl, state.replay, practice_keys, iteration)
        return TrainState(irl, data, keys, state.iteration + 1, replay), moved | metrics

    return Loop(start, step)


def _flat(steps: Steps) -> Steps:
    """Steps of one seed, [steps, envs, ...], as rows."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)


def _experience(steps: Steps) -> Transition:
    """Rows for the replay: everything a policy update reads, and no reward."""
    flat = _flat(steps)
    weight = jnp.ones(flat.terminated.shape, jnp.float32)
    return Transition(flat.obs, flat.action, weight, flat.next_obs, flat.terminated)


def _by_seed(steps: Steps) -> Steps:
    """[steps, seeds, envs, ...] with the seed axis first, where vmap wants it."""
    return jax.tree.map(lambda x: np.ascontiguousarray(np.moveaxis(x, 1, 0)), steps)
