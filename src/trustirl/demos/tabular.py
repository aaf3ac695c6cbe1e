"""Demonstrations of an exact task as a measure."""

import jax.numpy as jnp
import numpy as np

from trustirl.core.errors import DemoError
from trustirl.core.mdp import MDP
from trustirl.core.types import Transition
from trustirl.core.words import count as counted
from trustirl.demos.checks import place
from trustirl.demos.schema import Demos

MOST_NAMED = 3  # impossible steps


def tabular_measure(demos: Demos, mdp: MDP) -> Transition:
    """A discounted measure: step t weighs discount^t.

    Steps that cannot happen are refused: no policy could take them, and the objective would grow without bound by
    paying for them.
    """
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
    _check_possible(demos, mdp)
    weight = demos.discount_weights(float(mdp.discount))
    return Transition(
        jnp.asarray(demos.observations, jnp.int32), jnp.asarray(demos.actions, jnp.int32), jnp.asarray(weight)
    )


def _check_possible(demos: Demos, mdp: MDP) -> None:
    """Refuse demonstrations of a step to a state that the task never leads to."""
    steps, after = demos.successors()
    pairs = demos.observations[steps], demos.actions[steps]
    leads = (np.asarray(mdp.successors)[pairs] == after[:, None]) & (np.asarray(mdp.probabilities)[pairs] > 0)
    bad = np.flatnonzero(~leads.any(axis=1))
    if not bad.size:
        return
    kinds, first = np.unique(np.stack([*pairs, after], axis=1)[bad], axis=0, return_index=True)
    named = [kinds[kind] for kind in np.argsort(first)[:MOST_NAMED]]
    told = ", ".join(f"from state {s} by action {a} to state {s_next}" for s, a, s_next in named)
    more = f" and {len(kinds) - len(named):,} more" if len(kinds) > len(named) else ""
    raise DemoError(
        f"the demos hold {counted(len(kinds), 'transition')} that cannot happen in the task: {told}{more} (first at "
        f"{place(int(steps[bad[0]]), demos.episode_ends)}); were they made for another task, or with other task_args?"
    )
