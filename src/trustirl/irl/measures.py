"""What was collected as measures, as rows of a replay, and as minibatches."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trustirl.core.buffer import Buffer, draw
from trustirl.core.measure import Reward, concat
from trustirl.core.records import DrawBatch
from trustirl.core.types import Transition
from trustirl.core.weights import rest_weight, step_weight
from trustirl.irl.plan import Plan


class Steps(NamedTuple):
    """What a collector returns: arrays [steps, seeds, envs, ...]; no reward among them."""

    obs: Any
    action: Any
    next_obs: Any
    terminated: Any
    time: Any


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


def after_steps(of: Reward, pairs: Transition) -> Float[Array, "..."]:
    """What a function of states is worth after each step: nothing where the episode ended, and after that."""
    assert pairs.next_obs is not None
    assert pairs.terminated is not None
    ended = pairs.terminated if pairs.absorbing is None else pairs.terminated | pairs.absorbing
    return jnp.where(ended, 0.0, of(replace(pairs, obs=pairs.next_obs, next_obs=None, absorbing=None)))


def with_past(learner: Transition, past: Transition, share: float) -> Transition:
    """Give this share of what the learner's steps weigh to its past ones; what follows an end stays its own.

    A reward forgets what the learner no longer does, and may come to pay for it: the answer to the average of all
    policies so far does not (fictitious play).
    """
    given = share * acted(learner)
    before = weighted(replace(past, weight=past.weight * (given.sum() / jnp.maximum(past.weight.sum(), 1))))
    return concat(replace(learner, weight=learner.weight - given), before)


def experience(steps: Steps) -> Transition:
    """Rows for the replay: everything a policy update reads, and no reward."""
    weight = jnp.ones(steps.terminated.shape, jnp.float32)
    return Transition(steps.obs, steps.action, weight, steps.next_obs, steps.terminated)


def policy_minibatches(replay: Buffer, shown: Transition, plan: Plan, marked: bool = False) -> DrawBatch:
    """What the policy learns from: its own steps, and its share of demonstrated ones, which may be marked."""
    policy_too = None if plan.demo_fade is None else jnp.maximum(0.0, 1.0 - replay.added / plan.demo_fade)
    still = None if plan.demo_half_life is None else 0.5 ** (replay.added / plan.demo_half_life)
    own = lambda key: draw(replay, key, plan.batch)  # noqa: E731
    return mixed(own, shown, round(plan.demo_share * plan.batch), policy_too, marked, still)


def mixed(
    draw: DrawBatch,
    shown: Transition,
    count: int,
    policy_too: Float[Array, ""] | None = None,
    marked: bool = False,
    still: Float[Array, ""] | None = None,
) -> DrawBatch:
    """Minibatches in which `count` rows are demonstrated steps, or each of them with the chance `still`.

    What a policy has not found yet it can learn from whoever has: off-policy learning takes steps from anywhere, and
    the reward labels them like any others. But what other actions would be worth there the critic can only guess:
    `policy_too` is the chance with which such a row is the policy's as well as the critic's, by default always.
    """
    if not count or not len(shown.weight):
        return draw

    def draw_both(key: Array) -> Transition:
        own_key, shown_key = jax.random.split(key)
        index = jax.random.randint(shown_key, (count,), 0, len(shown.weight))
        taken = jnp.ones(count, bool)
        if still is not None:
            taken = jax.random.uniform(jax.random.fold_in(shown_key, 1), (count,)) < still

        def join(own: Array, demo: Array) -> Array:
            last = demo[index] if still is None else jax.vmap(jnp.where)(taken, demo[index], own[:count])
            return jnp.concatenate([own[count:], last])

        both = jax.tree.map(join, draw(own_key), shown)
        nowhere = jnp.zeros(len(both.weight), bool)
        if marked:
            both = replace(both, expert=nowhere.at[-count:].set(taken))
        if policy_too is None:
            return both
        watched = jax.random.uniform(jax.random.fold_in(shown_key, 0), (count,)) >= policy_too
        return replace(both, critic_only=nowhere.at[-count:].set(watched & taken))

    return draw_both
