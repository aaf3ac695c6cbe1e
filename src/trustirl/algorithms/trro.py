"""TRRO: trust region reward optimization (the paper's Section 4), with certificates that can be checked.

Maximise a lower bound of ell that touches it at theta_old (minorize, then maximise). Three bounds:

    paper       ell_old - C eps, Theorem 1. Its maximiser is theta_old itself: the reward never moves.
    quadratic   ell_old - (sqrt(delta) + (osc/2) sqrt(K/2))^2, theory sections 3 and 4: moves, no line search.
    curvature   the exact second derivative along the step proposes, the exact ell disposes (backtracking).
"""

from dataclasses import dataclass, replace
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from trustirl.algorithms.entry import Entry
from trustirl.core.checks import at_least, at_most
from trustirl.core.measure import expect
from trustirl.core.records import Algorithm, ExactSolver, Parts
from trustirl.core.types import IrlState, Metrics, RewardData
from trustirl.irl.certificates import paper_constant, quadratic_error, smoothness
from trustirl.irl.compose import explicit
from trustirl.irl.terms import gap

# The best step within a sup-norm ball follows the sign of the gradient; the exact ell can afford L-BFGS.
DIRECTIONS = {
    "paper": optax.scale_by_sign,
    "quadratic": optax.scale_by_sign,
    "curvature": optax.scale_by_lbfgs,
}


@dataclass(frozen=True)
class TrroConfig:
    """Settings of the minorize-maximise step."""

    minorizer: Literal["paper", "quadratic", "curvature"] = "quadratic"
    """Which lower bound of ell is maximised."""
    halvings: int = 40
    """A step that the bound does not certify is halved at most this often; then the reward stays."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        at_least(0, self, "halvings")
        at_most(1000, self, "halvings")


def trro(parts: Parts, config: TrroConfig) -> Algorithm:
    """Put the algorithm together for a known MDP."""
    solver: ExactSolver = parts.make_solver()
    mdp = solver.mdp
    everywhere = mdp.pairs()
    optimizer = DIRECTIONS[config.minorizer]()
    constant = smoothness(mdp.temperature, mdp.discount)

    def update_reward(state: IrlState, data: RewardData, _key: Array) -> tuple[IrlState, Metrics]:
        old, static = eqx.partition(state.reward, eqx.is_inexact_array)
        delta = state.policy.suboptimality

        def surrogate(parameters: PyTree) -> Float[Array, ""]:  # ell_old up to a constant, Equation 5c
            return mdp.mass * gap(eqx.combine(parameters, static), data.demo, data.learner)

        def rewards(parameters: PyTree) -> Float[Array, " pairs"]:
            return eqx.combine(parameters, static)(everywhere)

        def likelihood(parameters: PyTree) -> Float[Array, ""]:  # ell, Equation 5a
            reward = eqx.combine(parameters, static)
            return mdp.mass * expect(reward, data.demo) - solver.optimal_value(reward)

        descent = jax.tree.map(jnp.negative, jax.grad(surrogate)(old))
        ascent, optimizer_state = optimizer.update(descent, state.optimizer, old)
        direction = jax.tree.map(jnp.negative, ascent)
        slope = -optax.tree.vdot(descent, direction)
        _, velocity = jax.jvp(rewards, (old,), (direction,))

        def first_step() -> Float[Array, ""]:
            """The bound's maximiser along the direction, were the reward linear in its parameters."""
            if config.minorizer == "paper":
                return 1.0 / jnp.max(jnp.abs(velocity))
            if config.minorizer == "curvature":
                return slope / solver.curvature(state.policy, mdp.table(velocity))
            unit = quadratic_error(velocity, constant)
            return (slope - 2 * jnp.sqrt(delta * unit)) / (2 * unit)

        def guaranteed_gain(step: Float[Array, ""]) -> Float[Array, ""]:
            """What the bound promises ell will gain; for `curvature`, what it gains beyond Armijo's share."""
            new = optax.tree.add_scale(old, step, direction)
            if config.minorizer == "curvature":
                return likelihood(new) - likelihood(old) - 1e-4 * step * slope
            promised = surrogate(new) - surrogate(old)
            change = rewards(new) - rewards(old)
            if config.minorizer == "paper":
                largest = jnp.max(jnp.abs(rewards(new)))
                return promised - paper_constant(mdp.actions, largest, mdp.discount) * jnp.max(jnp.abs(change))
            return promised - quadratic_error(change, constant, delta)

        # Below this gain, rounding decides: at an optimum there is nothing left to certify.
        visible = jnp.finfo(velocity.dtype).eps * mdp.mass * jnp.max(jnp.abs(rewards(old)))

        def uncertified(carry: tuple[Array, Array, Array]) -> Array:
            step, gain, halvings = carry
            return ~(gain > 0) & (halvings < config.halvings) & (step * slope > visible)

        def halve(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            step, _, halvings = carry
            return step / 2, guaranteed_gain(step / 2), halvings + 1

        proposed = first_step()
        step, gain, _ = jax.lax.while_loop(uncertified, halve, (proposed, guaranteed_gain(proposed), jnp.asarray(0)))
        step = jnp.where(gain > 0, step, 0.0)
        reward = eqx.combine(optax.tree.add_scale(old, step, direction), static)
        metrics = {"certified_gain": jnp.maximum(gain, 0.0)}
        return replace(state, reward=reward, optimizer=optimizer_state), metrics

    return explicit(solver, parts.make_reward, optimizer, update_reward)


ENTRY = Entry(
    name="trro",
    config=TrroConfig,
    build=trro,
    reference="Trust Region Reward Optimization and Proximal Inverse Reward Optimization, arXiv 2509.23135",
    worlds=("exact",),
    actions=("discrete",),
    compare={
        "TRRO quadratic": {"minorizer": "quadratic"},
        "TRRO curvature": {"minorizer": "curvature"},
        "TRRO paper (C from Theorem 1)": {"minorizer": "paper"},
    },
)
