"""The sampler of simulators: environments are stepped on the host, updates are made on the device."""

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from trustirl.core.buffer import Buffer, add, draw, empty_buffer
from trustirl.core.compiling import compiled_training
from trustirl.core.measure import concat, expect, sample
from trustirl.core.records import Algorithm, Sampler, Turned
from trustirl.core.types import ExpertData, IrlState, Metrics, RewardData, Transition
from trustirl.irl.loop import split, strongly_typed, three_keys
from trustirl.irl.measures import Steps, Weighing, episode_measure, experience, policy_minibatches, with_past
from trustirl.irl.plan import Plan, Schedule
from trustirl.irl.start import begun_as_clone, pulled
from trustirl.irl.terms import gap


@runtime_checkable
class Collector(Protocol):
    """Environments of all seeds, stepped together on the host."""

    def fresh(self, iteration: int, purpose: Literal["train", "reward"]) -> None:
        """Start new episodes whose seeds derive from the run's seeds, the iteration and the purpose."""

    def collect(self, actor: PyTree | None, steps: int) -> PyTree:
        """Go on for `steps` steps in every environment; `actor` is that of all seeds, without one at random.

        Returns arrays [steps, seeds, envs, ...], for a learner of rewards `Steps`. Noise derives from the run's
        seeds, the iteration, the purpose and the calls since `fresh`.
        """


@dataclass
class Stopwatch:
    """Seconds of practice: of stepping environments, of policy updates beside it, and in all.

    The first iteration, which compiles, is left out.
    """

    stepping: float = 0.0
    updating: float = 0.0
    practice: float = 0.0
    iterations: int = 0

    def add(self, stepping: float, updating: float, practice: float) -> None:
        """Count an iteration."""
        self.iterations += 1
        if self.iterations > 1:
            self.stepping += stepping
            self.updating += updating
            self.practice += practice

    @property
    def seconds(self) -> dict[str, float] | None:
        """For a run's summary, if there was more than the first iteration."""
        spent = {"practice": self.practice, "stepping": self.stepping, "updating": self.updating}
        return {name: round(seconds, 3) for name, seconds in spent.items()} if self.practice else None


class Rounds(NamedTuple):
    """Practice of all seeds: its beginning, and the rounds of an iteration with a key per round and seed."""

    initial: Callable[[Array], tuple[IrlState, Buffer]]
    practise: Callable[[IrlState, Buffer, Sequence[Array], int], tuple[IrlState, Buffer, list[PyTree], Metrics]]
    made: Callable[[Array], tuple[IrlState, Buffer]]
    """`initial` of one seed, not compiled."""


class Learner(NamedTuple):
    """Who practises: functions of one seed, which all see the demonstrations, if there are any."""

    init: Callable[[Array, Any], IrlState]
    improve: Callable[[IrlState, Buffer, Any, Array], tuple[IrlState, Metrics]]
    actor: Callable[[PyTree], PyTree]
    rows: Callable[[PyTree], Transition]
    """Rows of the replay for what was collected."""


def rounds_of_practice(
    learner: Learner,
    expert: Any,
    collector: Collector,
    schedule: Schedule,
    capacity: int,
    example: Transition,
    watch: Stopwatch,
) -> Rounds:
    """Collecting and policy updates in turn; the replay's rows are like `example`.

    While the device makes the updates of one round, the host steps the environments of the next with the policy from
    before them; the policy that acts is therefore one round behind the one that learns.
    """
    per_env = schedule.steps_per_iteration // (schedule.rounds * schedule.envs)

    # Demonstrations as an argument: long ones, as a constant, XLA would add up while it compiles.
    @compiled_training
    @eqx.filter_vmap(in_axes=(*[eqx.if_array(0)] * 3, None))
    def updated(irl: IrlState, replay: Buffer, key: Array, expert: Any) -> tuple[IrlState, Metrics]:
        irl, metrics = learner.improve(irl, replay, expert, key)
        return strongly_typed(irl), metrics

    @eqx.filter_jit(donate="all")
    @eqx.filter_vmap
    def remember(replay: Buffer, steps: PyTree) -> Buffer:
        return add(replay, learner.rows(_flat(steps)))

    def made(key: Array, expert: Any = expert) -> tuple[IrlState, Buffer]:
        return strongly_typed(learner.init(key, expert)), empty_buffer(capacity, example)

    def timed_update(*given: Any) -> tuple[float, tuple[IrlState, Metrics]]:
        begin = time.perf_counter()
        improved = jax.block_until_ready(updated(*given))
        return time.perf_counter() - begin, improved

    begun = eqx.filter_jit(eqx.filter_vmap(made, in_axes=(eqx.if_array(0), None)))

    def practise(
        irl: IrlState, replay: Buffer, keys: Sequence[Array], iteration: int
    ) -> tuple[IrlState, Buffer, list[PyTree], Metrics]:
        begin = time.perf_counter()
        collector.fresh(iteration, "train")
        if iteration == 0:
            first = _by_seed(collector.collect(None, schedule.random_steps // schedule.envs))
            replay = remember(replay, jax.tree.map(jnp.asarray, first))
        acting, gathered = irl.policy, []
        metrics: Metrics = {}
        stepping = updating = 0.0
        # A thread of its own, since a GPU's work is handed to it kernel by kernel, which keeps the caller busy.
        with ThreadPoolExecutor(1) as device:
            latest: Future[tuple[float, tuple[IrlState, Metrics]]] | None = None
            for update_keys in keys:
                stepping -= time.perf_counter()
                steps = _by_seed(collector.collect(learner.actor(acting), per_env))
                stepping += time.perf_counter()
                gathered.append(steps)
                if latest is not None:
                    seconds, (irl, metrics) = latest.result()
                    updating += seconds
                acting = irl.policy
                replay = remember(replay, jax.tree.map(jnp.asarray, steps))
                latest = device.submit(timed_update, irl, replay, update_keys, expert)
            assert latest is not None
            seconds, (irl, metrics) = latest.result()
        watch.add(stepping, updating + seconds, time.perf_counter() - begin)
        return irl, replay, gathered, metrics

    return Rounds(lambda keys: begun(keys, expert), practise, made)


def begun_by(rounds: Rounds, turn: Callable[..., Turned]) -> Callable[[Array, Any], Turned]:
    """The beginning of a sampler that practises: networks and an empty replay, then a turn."""
    return lambda keys, turn_keys: turn(*rounds.initial(keys), turn_keys, jnp.zeros(len(keys), int))


def simulator_sampler(
    algorithm: Algorithm,
    expert: ExpertData,
    collector: Collector,
    plan: Plan,
    weighing: Weighing,
    capacity: int,
    example: Transition,
    watch: Stopwatch,
    needs: Collection[str] = (),
) -> Sampler:
    """Rounds of practice, then the measures of what was collected, of which `example` is a row.

    Algorithms that need `expert rows` find these marked in minibatches. For those that need `episodes` the extra
    steps are one episode of fixed length in each environment, and reward data keep their axes.
    """
    solver, whole_episodes = algorithm.solver, "episodes" in needs

    def improve(irl: IrlState, replay: Buffer, expert: ExpertData, key: Array) -> tuple[IrlState, Metrics]:
        assert expert.rows is not None
        if plan.clone_pull:
            irl = pulled(solver, irl, plan, replay.added)
        return algorithm.improve(irl, policy_minibatches(replay, expert.rows, plan, "expert rows" in needs), key)

    def rows(steps: Steps) -> Transition:
        """Those of episodes that began at demonstrated states teach the policy, and weigh nothing for the reward."""
        pairs = experience(steps)
        if not plan.shown:
            return pairs
        place = jnp.arange(len(pairs.weight)) % plan.envs
        return replace(pairs, weight=jnp.where(place < plan.shown, 0.0, pairs.weight))

    def init(key: Array, expert: ExpertData) -> IrlState:
        irl = algorithm.init(key, expert)
        return begun_as_clone(solver, irl, expert, plan, jax.random.fold_in(key, 0)) if plan.clone_start else irl

    learner = Learner(init, improve, solver.actor, rows)
    rounds = rounds_of_practice(learner, expert, collector, plan, capacity, example, watch)

    def measured(
        expert: ExpertData, irl: IrlState, flat: Steps, episodes: Steps | None, replay: Buffer, key: Array
    ) -> tuple[RewardData | None, Metrics]:
        actor, demo = solver.actor(irl.policy), expert.measure
        done = jnp.where(jnp.arange(len(demo.weight)) < expert.steps, demo.weight, 0.0)
        likelihood = expect(lambda pairs: solver.log_prob(actor, pairs.obs, pairs.action), replace(demo, weight=done))
        metrics: Metrics = {"log_likelihood": likelihood}
        own = episode_measure(flat, weighing)
        if algorithm.paid is not None:
            metrics["gap"] = gap(algorithm.paid(irl), demo, own)
        if algorithm.update_reward is None:
            return None, metrics
        demo_key, own_key = jax.random.split(key)
        reference = concat(sample(demo, plan.reference, demo_key), sample(own, plan.reference, own_key))
        if plan.past_share:
            past = draw(replay, jax.random.fold_in(key, 0), len(flat.terminated))
            own = with_past(own, past, plan.past_share)
        whole = None if episodes is None else episode_measure(episodes, weighing)
        return RewardData(demo, own, reference, episodes=whole), metrics

    measures = eqx.filter_jit(eqx.filter_vmap(measured, in_axes=(None, *[eqx.if_array(0)] * 5)))

    def turn(irl: IrlState, replay: Buffer, keys: Array, iterations: Array) -> Turned:
        iteration = int(iterations[0])
        *round_keys, measure_keys = split(keys, plan.rounds + 1)
        irl, replay, gathered, metrics = rounds.practise(irl, replay, round_keys, iteration)
        counted = jax.tree.map(lambda x: x[:, :, plan.shown :], gathered)
        if plan.extra_steps:
            collector.fresh(iteration, "reward")
            counted.append(_by_seed(collector.collect(solver.actor(irl.policy), plan.extra_steps // plan.envs)))
        flat = jax.tree.map(lambda *parts: jnp.asarray(np.concatenate([*map(_in_rows, parts)], axis=1)), *counted)
        episodes = jax.tree.map(lambda x: jnp.asarray(x.swapaxes(1, 2)), counted[-1]) if whole_episodes else None
        data, told = measures(expert, irl, flat, episodes, replay, measure_keys)
        return irl, replay, data, metrics | told

    def blank(key: Array) -> tuple[IrlState, Buffer, RewardData | None]:
        irl, replay = rounds.made(key)

        def seen(*axes: int) -> Steps:
            rows = jax.tree.map(lambda x: jnp.zeros((*axes, *x.shape[1:]), x.dtype), example)
            time = jnp.zeros(axes, jnp.int32)
            return Steps(rows.obs, rows.action, rows.next_obs, rows.terminated, time)

        episodes = seen(plan.envs, plan.extra_steps // plan.envs) if whole_episodes else None
        data, _ = measured(expert, irl, seen(plan.counted), episodes, replay, key)
        return irl, replay, data

    return Sampler(three_keys, begun_by(rounds, turn), turn, blank)


def _flat(steps: PyTree) -> Any:
    """Steps of one seed, [steps, envs, ...], as rows."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)


def _in_rows(steps: np.ndarray) -> np.ndarray:
    """[seeds, steps, envs, ...] with steps and environments as rows."""
    return steps.reshape(len(steps), -1, *steps.shape[3:])


def _by_seed(steps: PyTree) -> Any:
    """[steps, seeds, envs, ...] with the seed axis first, where vmap wants it."""
    return jax.tree.map(lambda x: np.ascontiguousarray(np.moveaxis(x, 1, 0)), steps)
