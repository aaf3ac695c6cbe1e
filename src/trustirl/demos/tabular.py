"""Demonstrations of an exact task as a measure."""

import jax.numpy as jnp

from trustirl.core.errors import DemoError
from trustirl.core.mdp import MDP
from trustirl.core.types import Transition
from trustirl.demos.checks import place
from trustirl.demos.schema import Demos


def tabular_measure(demos: Demos, mdp: MDP) -> Transition:
    """A discounted measure: step t weighs discount^t."""
    for name, array, count in (
        ("state", demos.observations, mdp.states),
        ("action", demos.actions, mdp.actions),
    ):
        if array.ndim != 1 or array.dtype.kind == "f":
            raise DemoError(
                f"demos of a tabular task hold one {name} number per step, got {array.dtype} {array.shape}."
            )
        if array.min() < 0 or array.max() >= count:
            step = int(((array < 0) | (array >= count)).argmax())
            raise DemoError(
                f"{place(step, demos.episode_ends)} of the demos has {name} {array[step]}, but the task has {name}s "
                f"0..{count - 1}; were the demos made for another task or size?"
            )
    weight = demos.discount_weights(float(mdp.discount))
    return Transition(
        jnp.asarray(demos.observations, jnp.int32), jnp.asarray(demos.actions, jnp.int32), jnp.asarray(weight)
    )
