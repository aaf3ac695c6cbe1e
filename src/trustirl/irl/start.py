"""A policy that begins as a clone of the demonstrations, and a pull towards the clone that fades.

While it lasts, the policy pays w (log pi - log clone) temperatures beside what it gets for its entropy, where w
falls linearly with the steps that the learner has made. In expectation that is w KL(pi || clone), whose gradient
leads from where the critic guesses back to where demonstrations went.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Integer, PyTree

from trustirl.core.descend import fitted
from trustirl.core.errors import InputError
from trustirl.core.records import Solver
from trustirl.core.types import ExpertData, IrlState, Transition
from trustirl.irl.plan import Plan
from trustirl.nets.policies import INSIDE
from trustirl.rl.config import SolverConfig

STEP = 1e-3  # of Adam


def check_start(name: str, agent: PyTree, discrete: bool, config: SolverConfig) -> None:
    """Refuse a start from a clone where there is no place for it; `agent` is a method's first one."""
    if discrete:
        raise InputError(
            "clone_start is for continuous actions: a policy of discrete ones is its values; set it to 0."
        )
    if agent.prior is not None:
        raise InputError(f"{name} holds its policy near another one already: set clone_start to 0.")
    if config.learn_temperature:
        raise InputError(
            "clone_pull is counted in temperatures, which must not move: set learn_temperature to False."
        )


def begun_as_clone(solver: Solver, irl: IrlState, expert: ExpertData, plan: Plan, key: Array) -> IrlState:
    """The state with a policy that was fitted to the demonstrated actions, held near itself as the plan says."""
    shown = jax.tree.map(lambda rows: rows[: expert.steps], expert.measure)
    shown = replace(shown, action=jnp.clip(shown.action, -INSIDE, INSIDE))

    def misfit(actor: PyTree, _: PyTree, pairs: Transition) -> Float[Array, ""]:
        return -jnp.mean(solver.log_prob(actor, pairs.obs, pairs.action))

    clone = fitted(misfit, optax.adam(STEP), solver.actor(irl.policy), shown, plan.clone_start, plan.batch, key)
    assert solver.begin_with is not None
    agent = solver.begin_with(irl.policy, clone)
    if plan.clone_pull:
        agent = solver.hold(agent, jnp.float32(plan.clone_pull), clone)
    return replace(irl, policy=agent)


def pulled(solver: Solver, irl: IrlState, plan: Plan, steps: Integer[Array, ""]) -> IrlState:
    """The state with the pull that is left after so many own steps."""
    left = jnp.maximum(0.0, 1.0 - steps / plan.clone_fade)
    return replace(irl, policy=solver.hold(irl.policy, plan.clone_pull * left, irl.policy.prior))
