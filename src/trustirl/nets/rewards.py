"""Reward functions r(s), r(s, a) and r(s, s'): a table, a linear model, a network.

Each is a pytree that maps a `Transition` to one reward per pair.
"""

from collections.abc import Callable
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from trustirl.core.errors import InputError
from trustirl.core.observations import Goal
from trustirl.core.types import Transition
from trustirl.nets.mlp import CONSTANT, scales

RewardKind = Literal["table", "linear", "mlp"]
RewardInputs = Literal["state", "state-action", "transition"]
WIDTH, DEPTH = 64, 2


class TableReward(eqx.Module):
    """One number per state, or per state and action."""

    table: Float[Array, " states"] | Float[Array, "states actions"]

    @property
    def needs(self) -> tuple[str, ...]:
        """What it must be given beside the state."""
        return () if self.table.ndim == 1 else ("action",)

    def __call__(self, batch: Transition) -> Float[Array, "..."]:
        """Look the pairs up."""
        return self.table[batch.obs] if self.table.ndim == 1 else self.table[batch.obs, batch.action]


class FeatureReward(eqx.Module):
    """A model on fixed features of the state, joined with a one-hot action where the action counts."""

    model: Callable[[Array], Array]
    features: Float[Array, "states features"]
    actions: int = eqx.field(static=True)  # 0: the reward sees the state alone

    @property
    def needs(self) -> tuple[str, ...]:
        """What it must be given beside the state."""
        return ("action",) if self.actions else ()

    def __call__(self, batch: Transition) -> Float[Array, "..."]:
        """Apply the model to each pair."""
        inputs = jax.lax.stop_gradient(self.features)[batch.obs]  # features are data, never trained
        if self.actions:
            one_hot = jax.nn.one_hot(batch.action, self.actions, dtype=inputs.dtype)
            inputs = jnp.concatenate([inputs, one_hot], axis=-1)
        flat = jax.vmap(self.model)(inputs.reshape(-1, inputs.shape[-1]))
        return flat.reshape(inputs.shape[:-1])


class ExpectedReward(eqx.Module):
    """A reward r(s, s') where it is known what may follow: r(s, a) is its mean over that."""

    model: TableReward | FeatureReward  # of transitions, which are numbered as states are elsewhere
    numbers: Int[Array, "states actions successors"]
    probabilities: Float[Array, "states actions successors"]
    needs: ClassVar[tuple[str, ...]] = ("action",)

    def __call__(self, batch: Transition) -> Float[Array, "..."]:
        """Average over what may follow each pair."""
        number = self.numbers[batch.obs, batch.action]
        chance = jax.lax.stop_gradient(self.probabilities)[batch.obs, batch.action]  # known, never trained
        return jnp.sum(chance * self.model(Transition(number, jnp.zeros_like(number), chance)), axis=-1)


class NetworkReward(eqx.Module):
    """A network on what `reward_inputs` names, standardised, and softly bounded so that no gradient dies.

    `absorbing` pairs (the state after an end) have an input of their own: a flag, with all other inputs zero.
    """

    network: eqx.nn.MLP
    mean: Float[Array, " inputs"]
    std: Float[Array, " inputs"]
    actions: int = eqx.field(static=True)  # number of discrete actions; 0: continuous ones
    reward_inputs: RewardInputs = eqx.field(static=True)
    bound: float = eqx.field(static=True)

    @property
    def needs(self) -> tuple[str, ...]:
        """What it must be given beside the observation."""
        further: dict[RewardInputs, tuple[str, ...]] = {"state-action": ("action",), "transition": ("next_obs",)}
        return further.get(self.reward_inputs, ())

    def __call__(self, batch: Transition) -> Float[Array, "..."]:
        """Rewards of any leading shape."""
        return self.of(self.inputs(batch))

    def inputs(self, batch: Transition) -> Float[Array, "*batch inputs"]:
        """What the network sees of each pair; a loss may ask how rewards change with it."""
        shape = batch.weight.shape
        parts = [batch.obs]
        if self.reward_inputs == "state-action":
            parts.append(jax.nn.one_hot(batch.action, self.actions) if self.actions else batch.action)
        elif self.reward_inputs == "transition":
            parts.append(_next_obs(batch))
        inputs = jnp.concatenate([part.astype(jnp.float32).reshape(*shape, -1) for part in parts], axis=-1)
        mean, std = jax.lax.stop_gradient((self.mean, self.std))
        inputs = jnp.clip((inputs - mean) / std, -10.0, 10.0)
        ended = jnp.zeros(shape, jnp.float32) if batch.absorbing is None else batch.absorbing.astype(jnp.float32)
        return jnp.concatenate([inputs * (1 - ended[..., None]), ended[..., None]], axis=-1)

    def of(self, inputs: Float[Array, "*batch inputs"]) -> Float[Array, "*batch"]:
        """Rewards of what the network sees."""
        flat = jax.vmap(self.network)(inputs.reshape(-1, inputs.shape[-1]))
        return self.bound * jnp.tanh(flat.reshape(inputs.shape[:-1]) / self.bound)


def _next_obs(batch: Transition) -> Array:
    if batch.next_obs is None:
        raise InputError(
            "a reward of transitions depends on what followed each step; give transitions with next_obs."
        )
    return batch.next_obs


def network_reward_factory(
    demo: Transition,
    actions: int,
    reward_inputs: RewardInputs,
    width: int,
    depth: int,
    bound: float,
    goal: Goal | None = None,
) -> Callable[[Array], NetworkReward]:
    """A function of a key that makes a network reward, standardised by the demonstrations' own statistics.

    It is zero everywhere at first. A random one is large where learners start, many deviations of the demonstrations
    away from them, and would be followed there until enough updates have undone it. `goal` is where position and goal
    are among the observations.
    """
    parts = [np.asarray(demo.obs, np.float32)]
    if reward_inputs == "state-action":
        action = np.asarray(demo.action)
        parts.append(np.eye(actions, dtype=np.float32)[action] if actions else action.astype(np.float32))
    elif reward_inputs == "transition":
        parts.append(np.asarray(_next_obs(demo), np.float32))
    data = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
    mean = data.mean(axis=0)
    std = scales(data.std(axis=0), mean)
    constant = data.std(axis=0, dtype=np.float64) <= CONSTANT  # in float32 neither moment of such a column is exact
    mean[constant], std[constant] = data[0, constant], 1.0
    if actions and reward_inputs == "state-action":  # one-hot inputs are on a scale already
        mean[-actions:], std[-actions:] = 0.0, 1.0
    if goal is not None:
        size = parts[0].shape[1]
        for first in (0, size) if reward_inputs == "transition" else (0,):
            goal.on_one_scale(mean[first : first + size], std[first : first + size], parts[0])

    return blank_network_reward(mean, std, actions, reward_inputs, width, depth, bound)


def blank_network_reward(
    mean: Float[np.ndarray, " inputs"],
    std: Float[np.ndarray, " inputs"],
    actions: int,
    reward_inputs: RewardInputs,
    width: int,
    depth: int,
    bound: float,
) -> Callable[[Array], NetworkReward]:
    """A function of a key that makes a network reward of zero, on inputs of these statistics."""

    def make(key: Array) -> NetworkReward:
        network = eqx.nn.MLP(len(mean) + 1, "scalar", width, depth, jax.nn.relu, dtype=jnp.float32, key=key)
        last = lambda net: (net.layers[-1].weight, net.layers[-1].bias)  # noqa: E731
        network = eqx.tree_at(last, network, replace_fn=jnp.zeros_like)
        return NetworkReward(network, jnp.asarray(mean), jnp.asarray(std), actions, reward_inputs, bound)

    return make


def reward_factory(
    kind: RewardKind,
    features: Float[np.ndarray, "states features"],
    actions: int,
    action_inputs: bool,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Callable[[Array], TableReward | FeatureReward]:
    """A function of a key that makes a small random reward of the kind asked for."""
    states = len(features)
    table_shape = (states, actions) if action_inputs else (states,)
    inputs = features.shape[1] + (actions if action_inputs else 0)

    def make(key: Array) -> TableReward | FeatureReward:
        if kind == "table":
            return TableReward(0.01 * jax.random.normal(key, table_shape))
        if kind == "linear":
            model: Callable[[Array], Array] = eqx.nn.Linear(inputs, "scalar", use_bias=False, key=key)
        else:
            model = eqx.nn.MLP(inputs, "scalar", width, depth, jax.nn.tanh, key=key)
        return FeatureReward(model, jnp.asarray(features), actions if action_inputs else 0)

    return make


def numbered_transitions(
    successors: Int[np.ndarray, "states actions successors"], features: Float[np.ndarray, "states features"]
) -> tuple[Int[np.ndarray, "states actions successors"], Float[np.ndarray, "transitions both"]]:
    """A number for each state and its successor, and the features of both for each number."""
    states = len(successors)
    unique, numbers = np.unique(np.arange(states)[:, None, None] * states + successors, return_inverse=True)
    before, after = np.divmod(unique, states)
    return numbers.reshape(successors.shape), np.concatenate([features[before], features[after]], axis=1)


def expected_reward_factory(
    kind: RewardKind,
    features: Float[np.ndarray, "transitions both"],
    numbers: Int[np.ndarray, "states actions successors"],
    probabilities: Float[np.ndarray, "states actions successors"],
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Callable[[Array], ExpectedReward]:
    """A function of a key that makes a small random reward of numbered transitions."""
    make_model = reward_factory(kind, features, 0, False, width, depth)
    return lambda key: ExpectedReward(make_model(key), jnp.asarray(numbers, jnp.int32), jnp.asarray(probabilities))
