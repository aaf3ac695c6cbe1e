"""MCE: maximum causal entropy IRL (Ziebart 2010), solved to its optimum.

The dual of matching the expert's occupancy: maximise ell(r) = <rho_E, r> - f(r), concave for tables and linear
rewards, whose gradient is rho_E - rho_pi. L-BFGS with a line search on the exact ell; no trust region.
"""

from dataclasses import dataclass, replace

import equinox as eqx
import optax
from jaxtyping import Array, Float, PyTree

from trustirl.algorithms.entry import Entry
from trustirl.core.checks import at_least, at_most
from trustirl.core.measure import expect
from trustirl.core.records import Algorithm, ExactSolver, Parts
from trustirl.core.types import IrlState, Metrics, RewardData
from trustirl.irl.compose import explicit


@dataclass(frozen=True)
class MceConfig:
    """Settings of the dual ascent."""

    memory: int = 10
    """Past gradients that L-BFGS remembers."""
    line_search_steps: int = 15
    """Most evaluations of ell per line search."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        at_least(1, self, "memory", "line_search_steps")
        at_most(1000, self, "memory", "line_search_steps")


def mce(parts: Parts, config: MceConfig) -> Algorithm:
    """Put the algorithm together for a known MDP."""
    solver: ExactSolver = parts.make_solver()
    search = optax.scale_by_zoom_linesearch(config.line_search_steps, initial_guess_strategy="one")
    optimizer = optax.lbfgs(memory_size=config.memory, linesearch=search)

    def update_reward(state: IrlState, data: RewardData, _key: Array) -> tuple[IrlState, Metrics]:
        parameters, static = eqx.partition(state.reward, eqx.is_inexact_array)

        def loss(parameters: PyTree) -> Float[Array, ""]:  # -ell, Equation 5a
            reward = eqx.combine(parameters, static)
            return solver.optimal_value(reward) - solver.mdp.mass * expect(reward, data.demo)

        value, gradient = optax.value_and_grad_from_state(loss)(parameters, state=state.optimizer)
        updates, optimizer_state = optimizer.update(
            gradient, state.optimizer, parameters, value=value, grad=gradient, value_fn=loss
        )
        reward = eqx.combine(optax.apply_updates(parameters, updates), static)
        return replace(state, reward=reward, optimizer=optimizer_state), {}

    return explicit(solver, parts.make_reward, optimizer, update_reward)


ENTRY = Entry(
    name="mce",
    config=MceConfig,
    build=mce,
    reference="Ziebart, Bagnell and Dey 2010, Modeling Interaction via the Principle of Maximum Causal Entropy",
    worlds=("exact",),
    actions=("discrete",),
)
