"""Reward functions r(s) and r(s, a): a table, a linear model, a network.

Each is a pytree that maps a `Transition` to one reward per pair. `action_inputs` decides whether the action counts.
"""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trustirl.core.types import Transition

RewardKind = Literal["table", "linear", "mlp"]
WIDTH, DEPTH = 64, 2


class TableReward(eqx.Module):
    """One number per state, or per state and action."""

    table: Float[Array, " states"] | Float[Array, "states actions"]

    def __call__(self, batch: Transition) -> Float[Array, "..."]:
        """Look the pairs up."""
        return self.table[batch.obs] if self.table.ndim == 1 else self.table[batch.obs, batch.action]


class FeatureReward(eqx.Module):
    """A model on fixed features of the state, joined with a one-hot action where the action counts."""

    model: Callable[[Array], Array]
    features: Float[Array, "states features"]
    actions: int = eqx.field(static=True)  # 0: the reward sees the state alone

    def __call__(self, batch: Transition) -> Float[Array, "..."]:
        """Apply the model to each pair."""
        inputs = jax.lax.stop_gradient(self.features)[batch.obs]  # features are data, never trained
        if self.actions:
            one_hot = jax.nn.one_hot(batch.action, self.actions, dtype=inputs.dtype)
            inputs = jnp.concatenate([inputs, one_hot], axis=-1)
        flat = jax.vmap(self.model)(inputs.reshape(-1, inputs.shape[-1]))
        return flat.reshape(inputs.shape[:-1])


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
