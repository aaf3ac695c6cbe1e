"""Many fits of one algorithm in worlds of one shape, compiled once: parts of a table, or samples of its groups."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from trustirl.algorithms import Entry
from trustirl.core.mdp import MDP
from trustirl.core.types import ExpertData, Transition
from trustirl.irl.known_mdp import exact_parts, exact_sampler
from trustirl.irl.loop import make_loop, seed_keys
from trustirl.nets.rewards import RewardInputs, RewardKind, reward_factory
from trustirl.rl.exact import exact_solver

SUBOPTIMALITY = 1e-8  # of policies: far below what any of the measures can show


class Fits(NamedTuple):
    """What each fit came to."""

    log_prob: Float[np.ndarray, "fits states actions"]
    reward: Float[np.ndarray, "fits states actions"]


class Question(NamedTuple):
    """A world, and how often each pair was demonstrated in it."""

    mdp: MDP
    demonstrated: Float[np.ndarray, "states actions"]


def fit_many(
    entry: Entry,
    settings: Mapping[str, Any],
    questions: Sequence[Question],
    features: Float[np.ndarray, "states features"],
    updates: int,
    reward: RewardKind = "table",
    inputs: RewardInputs = "state-action",
) -> Fits:
    """Fit them one after the other; the last policy and reward of each."""
    states, actions = questions[0].demonstrated.shape
    make_reward = reward_factory(reward, features, actions, inputs == "state-action")
    make_potential = reward_factory(reward, features, actions, False)

    def fit(given: tuple[MDP, Array]) -> tuple[Array, Array]:
        mdp, demonstrated = given
        parts = exact_parts(exact_solver(mdp, 0, SUBOPTIMALITY), make_reward, make_potential)
        algorithm = entry.build(parts, entry.config(**settings))
        demo: Transition = mdp.pairs(demonstrated)
        sampler = exact_sampler(algorithm, ExpertData(demo, states * actions), mdp, lambda *_: {})
        loop = make_loop(algorithm, sampler, updates)
        state, _ = loop.start(seed_keys(1))
        moving, still = eqx.partition(state, eqx.is_array)

        def one(now: PyTree, _: None) -> tuple[PyTree, None]:
            return eqx.filter(loop.step(eqx.combine(now, still))[0], eqx.is_array), None

        state = eqx.combine(jax.lax.scan(one, moving, length=updates)[0], still)
        assert algorithm.kept is not None
        kept = jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, algorithm.kept(state.irl))
        return state.irl.policy.log_prob[0], mdp.table(kept(mdp.pairs()))

    stacked = jax.tree.map(lambda *x: jnp.stack(x), *[question.mdp for question in questions])
    demonstrated = jnp.stack([jnp.asarray(question.demonstrated) for question in questions])
    found = jax.jit(lambda *given: jax.lax.map(fit, given))(stacked, demonstrated)
    return Fits(*map(np.asarray, found))
