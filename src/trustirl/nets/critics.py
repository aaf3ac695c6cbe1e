"""Action values: ensembles of Q(s, a) for continuous and of Q(s)[a] for finitely many actions."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from trustirl.nets.mlp import MLP, apply_ensemble, ensemble


class QEnsemble(eqx.Module):
    """Q(s, a), one per member."""

    nets: MLP  # every parameter has a leading member axis

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        width: int,
        depth: int,
        members: int,
        key: Array,
        layer_norm: bool = False,
    ):
        """Observation and action enter side by side."""
        self.nets = ensemble(lambda k: MLP(obs_dim + action_dim, 1, width, depth, k, layer_norm), members, key)

    def __call__(
        self, obs: Float[Array, "*batch obs"], action: Num[Array, "*batch actions"]
    ) -> Float[Array, "members *batch"]:
        """The members' values of the pairs."""
        inputs = jnp.concatenate([obs, action.astype(obs.dtype)], axis=-1)
        return apply_ensemble(self.nets, inputs)[..., 0]


class DiscreteQEnsemble(eqx.Module):
    """Q(s)[a], one per member."""

    nets: MLP  # every parameter has a leading member axis

    def __init__(
        self, obs_dim: int, actions: int, width: int, depth: int, members: int, key: Array, layer_norm: bool = False
    ):
        """One output per action."""
        self.nets = ensemble(lambda k: MLP(obs_dim, actions, width, depth, k, layer_norm), members, key)

    def __call__(self, obs: Float[Array, "*batch obs"]) -> Float[Array, "members *batch actions"]:
        """The members' values of all actions."""
        return apply_ensemble(self.nets, obs)
