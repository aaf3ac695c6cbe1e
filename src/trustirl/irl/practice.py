"""The sampler of simulators: environments are stepped on the host, updates are made on the device."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from trustirl.core.buffer import Buffer, add, draw, empty_buffer
from trustirl.core.checks import at_least, at_most, positive
from trustirl.core.compiling import compiled_training
from trustirl.core.errors import InputError
from trustirl.core.measure import concat, expect, sample
from trustirl.core.records import Algorithm, DrawBatch, Sampler, Turned
from trustirl.core.types import ExpertData, IrlState, Metrics, RewardData, Transition
from trustirl.core.weights import rest_weight, step_weight
from trustirl.core.words import count
from trustirl.irl.loop import split, strongly_typed, three_keys
from trustirl.irl.terms import gap


@dataclass(frozen=True)
class Schedule:
    """How experience is gathered and what the policy makes of it."""

    steps_per_iteration: int = 5000
    """Environment steps per seed and iteration."""
    envs: int = 5
    """Environments per seed."""
    rounds: int = 10
    """Times per iteration that collecting and updating take turns."""
    update_ratio: float = 1.0
    """Policy updates per environment step."""
    batch: int = 256
    """Pairs per policy minibatch."""
    warmup: int = 1000
    """Random steps per seed before the first update."""
    replay: int | None = None
    """Most steps per seed that are remembered; by default all."""

    def __post_init__(self) -> None:
        """Refuse a schedule that cannot be kept."""
        at_least(1, self, "steps_per_iteration", "envs", "rounds", "batch", "warmup")
        positive(self, "update_ratio")
        at_most(10_000, self, "envs")
        at_most(1000, self, "update_ratio")
        at_most(1_000_000, self, "batch")
        if self.steps_per_iteration % (self.rounds * self.envs):
            raise InputError(
                f"steps_per_iteration must be a multiple of rounds x envs = {self.rounds * self.envs}, got "
                f"{self.steps_per_iteration}."
            )
        if self.replay is not None and self.replay < self.least_replay:
            raise InputError(
                f"replay must hold an iteration's {count(self.steps_per_iteration, 'step')} and the "
                f"{count(self.warmup, 'random one')} of warmup, so at least {self.least_replay}, got {self.replay}."
            )

    @property
    def least_replay(self) -> int:
        """What is remembered at once must fit."""
        return max(self.steps_per_iteration, self.random_steps)

    @property
    def random_steps(self) -> int:
        """Of the warm-up, in which every environment makes as many."""
        return self.envs * max(1, self.warmup // self.envs)

    @property
    def whole(self) -> int:
        """Environment steps per seed of an iteration, all purposes together."""
        return self.steps_per_iteration

    @property
    def updates(self) -> int:
        """Policy updates per round."""
        return max(1, round(self.update_ratio * self.steps_per_iteration / self.rounds))


@dataclass(frozen=True)
class Plan(Schedule):
    """The same where a reward is learned too: an iteration begins with its update."""

    reward_batch: int = 1000
    """Expert pairs, and as many of the learner's, per reward minibatch."""
    reference: int = 256
    """Expert pairs, and as many of the learner's, on which drift is measured."""
    past_share: float = 0.0
    """Share of the learner's pairs in the reward step that are drawn from all steps it remembers."""
    extra_steps: int = 0
    """Further steps per seed and iteration with the improved policy, which only the reward update sees."""
    demo_share: float = 0.0
    """Share of demonstrated steps in a policy minibatch."""
    demo_fade: int | None = None
    """Own steps after which SAC's policy no longer improves at demonstrated states, where from then on the critic
    learns alone; until then ever less. None: it always does."""
    discounted: bool = False
    """Weigh step t by discount^t in the reward step (the paper's occupancy) instead of equally."""

    def __post_init__(self) -> None:
        """Refuse a plan that cannot be carried out."""
        super().__post_init__()
        at_least(1, self, "reward_batch", "reference")
        at_most(1_000_000, self, "reward_batch", "reference")
        if self.demo_fade is not None:
            at_least(1, self, "demo_fade")
        if self.extra_steps < 0 or self.extra_steps % self.envs:
            raise InputError(f"extra_steps must be a multiple of envs = {self.envs}, got {self.extra_steps}.")
        for name in ("demo_share", "past_share"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise InputError(f"{name} must lie in [0, 1), got {getattr(self, name)}.")
        if self.past_share and self.discounted:
            raise InputError(
                "past steps are remembered without their times, which discounted needs: set past_share to 0."
            )

    @property
    def whole(self) -> int:
        """Environment steps per seed of an iteration, all purposes together."""
        return self.steps_per_iteration + self.extra_steps


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

    def fresh(self, iteration: int, purpose: Literal["train", "reward"]) -> None:
        """Start new episodes whose seeds derive from the run's seeds, the iteration and the purpose."""

    def collect(self, actor: PyTree | None, steps: int) -> PyTree:
        """Go on for `steps` steps in every environment; `actor` is that of all seeds, without one at random.

        Returns arrays [steps, seeds, envs, ...], for a learner of rewards `Steps`. Noise derives from the run's
        seeds, the iteration, the purpose and the calls since `fresh`.
        """


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
    learner: Learner, expert: Any, collector: Collector, schedule: Schedule, capacity: int, example: Transition
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

    begun = eqx.filter_jit(eqx.filter_vmap(made, in_axes=(eqx.if_array(0), None)))

    def practise(
        irl: IrlState, replay: Buffer, keys: Sequence[Array], iteration: int
    ) -> tuple[IrlState, Buffer, list[PyTree], Metrics]:
        collector.fresh(iteration, "train")
        if iteration == 0:
            first = _by_seed(collector.collect(None, schedule.random_steps // schedule.envs))
            replay = remember(replay, jax.tree.map(jnp.asarray, first))
        acting, gathered = irl.policy, []
        metrics: Metrics = {}
        # A thread of its own, since a GPU's work is handed to it kernel by kernel, which keeps the caller busy.
        with ThreadPoolExecutor(1) as device:
            latest: Future[tuple[IrlState, Metrics]] | None = None
            for update_keys in keys:
                steps = _by_seed(collector.collect(learner.actor(acting), per_env))
                gathered.append(steps)
                if latest is not None:
                    irl, metrics = latest.result()
                acting = irl.policy
                replay = remember(replay, jax.tree.map(jnp.asarray, steps))
                latest = device.submit(updated, irl, replay, update_keys, expert)
            assert latest is not None
            irl, metrics = latest.result()
        return irl, replay, gathered, metrics

    return Rounds(lambda keys: begun(keys, expert), practise, made)


def begun_by(rounds: Rounds, turn: Callable[..., Turned]) -> Callable[[Array, Any], Turned]:
    """The beginning of a sampler that practises: networks and an empty replay, then a turn."""
    return lambda keys, turn_keys: turn(*rounds.initial(keys), turn_keys, jnp.zeros(len(keys), int))


def policy_minibatches(replay: Buffer, shown: Transition, plan: Plan, marked: bool = False) -> DrawBatch:
    """What the policy learns from: its own steps, and its share of demonstrated ones, which may be marked."""
    policy_too = None if plan.demo_fade is None else jnp.maximum(0.0, 1.0 - replay.added / plan.demo_fade)
    own = lambda key: draw(replay, key, plan.batch)  # noqa: E731
    return mixed(own, shown, round(plan.demo_share * plan.batch), policy_too, marked)


def mixed(
    draw: DrawBatch,
    shown: Transition,
    count: int,
    policy_too: Float[Array, ""] | None = None,
    marked: bool = False,
) -> DrawBatch:
    """Minibatches in which `count` rows are demonstrated steps.

    What a policy has not found yet it can learn from whoever has: off-policy learning takes steps from anywhere, and
    the reward labels them like any others. But what other actions would be worth there the critic can only guess:
    `policy_too` is the chance with which such a row is the policy's as well as the critic's, by default always.
    """
    if not count or not len(shown.weight):
        return draw

    def draw_both(key: Array) -> Transition:
        own_key, shown_key = jax.random.split(key)
        index = jax.random.randint(shown_key, (count,), 0, len(shown.weight))
        join = lambda own, demo: jnp.concatenate([own[count:], demo[index]])  # noqa: E731
        both = jax.tree.map(join, draw(own_key), shown)
        nowhere = jnp.zeros(len(both.weight), bool)
        if marked:
            both = replace(both, expert=nowhere.at[-count:].set(True))
        if policy_too is None:
            return both
        watched = jax.random.uniform(jax.random.fold_in(shown_key, 0), (count,)) >= policy_too
        return replace(both, critic_only=nowhere.at[-count:].set(watched))

    return draw_both


class Weighing(NamedTuple):
    """How steps of episodes become a measure."""

    horizon: int
    discount: float
    discounted: bool  # weigh step t by discount^t
    absorb: bool  # an end is followed by the absorbing state's share (termination mode T2)

    @property
    def rate(self) -> float | None:
        """The discount, None where steps weigh the same."""
        return self.discount if self.discounted else None


def episode_measure(steps: Steps, weighing: Weighing) -> Transition:
    """Steps of episodes as a measure, in which an end is followed by the absorbing state's share."""
    time = steps.time.astype(jnp.float32)
    weight, rest = step_weight(time, weighing.rate), rest_weight(time, weighing.horizon, weighing.rate)
    pairs = Transition(steps.obs, steps.action, weight, steps.next_obs, steps.terminated)
    return weighted(pairs, jnp.where(steps.terminated, rest, 0.0) if weighing.absorb else None)


def weighted(pairs: Transition, rest: Array | None = None) -> Transition:
    """Weighted steps as a measure; `rest` is what the absorbing state weighs after each."""
    no = jnp.zeros(pairs.weight.shape, bool)
    real = replace(pairs, absorbing=no)
    if rest is None:
        return real
    nothing = jax.tree.map(jnp.zeros_like, pairs)
    return concat(real, replace(nothing, weight=rest, absorbing=~no))


def acted(pairs: Transition) -> Array:
    """What the pairs weigh, nothing where one stands for the state after an end: nobody acts there."""
    return pairs.weight if pairs.absorbing is None else jnp.where(pairs.absorbing, 0.0, pairs.weight)


def with_past(learner: Transition, past: Transition, share: float) -> Transition:
    """Give this share of what the learner's steps weigh to its past ones; what follows an end stays its own.

    A reward forgets what the learner no longer does, and may come to pay for it: the answer to the average of all
    policies so far does not (fictitious play).
    """
    given = share * acted(learner)
    before = weighted(replace(past, weight=jnp.full_like(past.weight, given.sum() / len(past.weight))))
    return concat(replace(learner, weight=learner.weight - given), before)


def simulator_sampler(
    algorithm: Algorithm,
    expert: ExpertData,
    collector: Collector,
    plan: Plan,
    weighing: Weighing,
    capacity: int,
    example: Transition,
    needs: Collection[str] = (),
) -> Sampler:
    """Rounds of practice, then the measures of what was collected, of which `example` is a row.

    Algorithms that need `expert rows` find these marked in minibatches. For those that need `episodes` the extra
    steps are one episode in each environment, and reward data keep their axes.
    """
    solver, whole_episodes = algorithm.solver, "episodes" in needs

    def improve(irl: IrlState, replay: Buffer, expert: ExpertData, key: Array) -> tuple[IrlState, Metrics]:
        assert expert.rows is not None
        return algorithm.improve(irl, policy_minibatches(replay, expert.rows, plan, "expert rows" in needs), key)

    learner = Learner(algorithm.init, improve, solver.actor, experience)
    rounds = rounds_of_practice(learner, expert, collector, plan, capacity, example)

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
        return RewardData(demo, own, reference, episodes=None if episodes is None else experience(episodes)), metrics

    measures = eqx.filter_jit(eqx.filter_vmap(measured, in_axes=(None, *[eqx.if_array(0)] * 5)))

    def turn(irl: IrlState, replay: Buffer, keys: Array, iterations: Array) -> Turned:
        iteration = int(iterations[0])
        *round_keys, measure_keys = split(keys, plan.rounds + 1)
        irl, replay, gathered, metrics = rounds.practise(irl, replay, round_keys, iteration)
        if plan.extra_steps:
            collector.fresh(iteration, "reward")
            gathered.append(_by_seed(collector.collect(solver.actor(irl.policy), plan.extra_steps // plan.envs)))
        together = jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts, axis=1)), *gathered)
        flat = jax.tree.map(lambda x: x.reshape(len(x), -1, *x.shape[3:]), together)
        episodes = jax.tree.map(lambda x: jnp.asarray(x.swapaxes(1, 2)), gathered[-1]) if whole_episodes else None
        data, told = measures(expert, irl, flat, episodes, replay, measure_keys)
        return irl, replay, data, metrics | told

    def blank(key: Array) -> tuple[IrlState, Buffer, RewardData | None]:
        irl, replay = rounds.made(key)

        def seen(*axes: int) -> Steps:
            rows = jax.tree.map(lambda x: jnp.zeros((*axes, *x.shape[1:]), x.dtype), example)
            time = jnp.zeros(axes, jnp.int32)
            return Steps(rows.obs, rows.action, rows.next_obs, rows.terminated, time)

        episodes = seen(plan.envs, plan.extra_steps // plan.envs) if whole_episodes else None
        data, _ = measured(expert, irl, seen(plan.whole), episodes, replay, key)
        return irl, replay, data

    return Sampler(three_keys, begun_by(rounds, turn), turn, blank)


def _flat(steps: PyTree) -> Any:
    """Steps of one seed, [steps, envs, ...], as rows."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), steps)


def experience(steps: Steps) -> Transition:
    """Rows for the replay: everything a policy update reads, and no reward."""
    weight = jnp.ones(steps.terminated.shape, jnp.float32)
    return Transition(steps.obs, steps.action, weight, steps.next_obs, steps.terminated)


def _by_seed(steps: PyTree) -> Any:
    """[steps, seeds, envs, ...] with the seed axis first, where vmap wants it."""
    return jax.tree.map(lambda x: np.ascontiguousarray(np.moveaxis(x, 1, 0)), steps)
