"""TRIRL: trust region inverse reinforcement learning (Diwan et al. 2026), dual ascent by local policy steps.

Let pi_old be soft-optimal for r_old at temperature a, with soft values V_old: a log pi_old = r_old + g E[V_old(s')] -
V_old. A policy step for r_new that is held near pi_old maximises

    E[sum g^t (r_new - a log pi - a eta log(pi/pi_old))]
        = (1 + eta) E[sum g^t (r - a log pi + g f(s') - f(s))]
    r = (r_new + eta r_old) / (1 + eta),    f = eta/(1 + eta) V_old

Shaping by the potential f changes no best policy. So the step's answer is soft-optimal for r, at the same temperature
a, and its values are (1 + eta) V_r - eta V_old. Correcting the reward to r keeps reward and policy a matched pair
without solving anything to the end. That is the step r_new - r_old shortened by 1 + eta.

    `update_reward`   a step of the reward along the gradient of ell, the dual; its correction; pi_old is held on to
    `improve`         the policy step, for r_old + (1 + eta)(r - r_old), which is r_new

The correction is made in the parameters. What is paid is then read off r and r_old as functions, so that the identity
holds for networks, too, whose mixtures are no networks of that size. Where the MDP is known, 1 + eta doubles until
ell still rises at r along the step: ell is concave, so that it then rose all the way there.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.algorithms.shared import CARTPOLE, FOLLOWER, PENDULUM, REWARD_STEP, SHORT
from trustirl.core.checks import at_least, at_most, positive
from trustirl.core.descend import decaying_adam, descend, toward, trainable
from trustirl.core.errors import InputError
from trustirl.core.measure import Reward, expect
from trustirl.core.records import Algorithm, DrawBatch, ExactSolver, Parts, Solver
from trustirl.core.types import ExpertData, IrlState, Metrics, RewardData, Transition
from trustirl.irl.compose import learned
from trustirl.irl.terms import gap

DOUBLINGS = 20  # of 1 + eta; a step that is not certified then is not made


@dataclass(frozen=True)
class TrirlConfig:
    """Settings of the reward step and of the trust region."""

    reward_step: float = 1.0
    """Step size of the first reward update, before its correction."""
    decay: float = 0.0
    """The step size falls as (number of steps)^-decay; 0 keeps it constant."""
    weight_decay: float = 0.0
    """Strength of an L2 penalty on the reward's weights."""
    inner_steps: int = 1
    """Optimiser steps per reward update."""
    eta: float = 1.0
    """What the KL divergence from the policy before weighs beside the entropy; steps are shortened by 1 + eta."""

    def __post_init__(self) -> None:
        """Refuse steps that cannot be."""
        positive(self, "reward_step")
        at_least(0, self, "decay", "weight_decay", "eta")
        at_most(1000, self, "eta")
        at_least(1, self, "inner_steps")
        at_most(100_000, self, "inner_steps")


class Step(NamedTuple):
    """The step that led to the present reward."""

    old: PyTree  # the reward before it
    eta: Float[Array, ""]


def trirl(parts: Parts, config: TrirlConfig) -> Algorithm:
    """Put the algorithm together."""
    solver: Solver | ExactSolver = parts.make_solver()
    optimizer = decaying_adam(config.reward_step, config.decay, config.weight_decay)
    if getattr(parts.config, "learn_temperature", False):
        raise InputError("trirl corrects rewards for one temperature: set learn_temperature to False.")

    def init(key: Array, _expert: ExpertData) -> IrlState:
        reward_key, policy_key = jax.random.split(key)
        reward = parts.make_reward(reward_key)
        free = jnp.zeros((), jnp.result_type(float))  # the first policy is held by nothing
        policy = solver.hold(solver.init(policy_key), free)
        return IrlState(policy, reward, optimizer.init(trainable(reward)), Step(reward, free))

    def misfit(reward: Reward, demo: Transition, learner: Transition) -> Float[Array, ""]:
        return -gap(reward, demo, learner)  # -ell_old up to a constant, Equation 5c

    def certified(old: Reward, new: Reward, demo: Transition) -> Float[Array, ""]:
        """The smallest eta tried for which ell still rises along the step after its correction; infinite if none."""
        assert isinstance(solver, ExactSolver)
        mass, value = solver.mdp.mass, solver.optimal_value

        def falling(eta: Array) -> Array:
            at = toward(old, new, 1 / (1 + eta))
            change = lambda pairs: at(pairs) - old(pairs)  # noqa: E731
            ell = lambda t: mass * t * expect(change, demo) - value(lambda pairs: at(pairs) + t * change(pairs))  # noqa: E731
            return ~(jax.grad(ell)(jnp.zeros_like(eta)) >= 0)

        most = (1.0 + config.eta) * 2**DOUBLINGS - 1
        grown = lambda eta: 2 * eta + 1  # noqa: E731
        eta = jax.lax.while_loop(lambda eta: (eta <= most) & falling(eta), grown, jnp.asarray(config.eta, float))
        return jnp.where(eta <= most, eta, jnp.inf)

    def update_reward(state: IrlState, data: RewardData, key: Array) -> tuple[IrlState, Metrics]:
        old = state.reward
        batches = parts.draw(data, config.inner_steps, key)
        new, memory = descend(misfit, optimizer, old, state.optimizer, batches)
        eta = jnp.full_like(state.extra.eta, config.eta)
        if isinstance(solver, ExactSolver):
            eta = certified(old, new, data.demo)
        reward = toward(old, new, 1 / (1 + eta))
        eta = jnp.where(jnp.isfinite(eta), eta, 0.0)  # where the reward stays, so does its best policy
        policy = solver.hold(state.policy, eta)
        return replace(state, policy=policy, reward=reward, optimizer=memory, extra=Step(old, eta)), {"eta": eta}

    def improve(state: IrlState, draw: DrawBatch | None, key: Array) -> tuple[IrlState, Metrics]:
        step: Step = state.extra

        def proposed(pairs: Transition) -> Float[Array, "..."]:
            before = step.old(pairs)
            return before + (1 + step.eta) * (state.reward(pairs) - before)

        policy, metrics = solver.improve(state.policy, draw, proposed, key)  # type: ignore[arg-type]
        return replace(state, policy=policy), metrics

    return Algorithm(solver, init, improve, update_reward, learned, learned)


# The step that is left after the correction is that of the other methods.
TWICE = {"reward_step": 2e-3, "clone_start": 0}  # and the policy before is what policies are held near
ENTRY = Entry(
    name="trirl",
    config=TrirlConfig,
    build=trirl,
    reference="Diwan, Tateo, Mower, Bou Ammar, Peters and Arenz 2026, Trust Region Inverse Reinforcement Learning",
    worlds=("exact", "simulator"),
    defaults=Defaults(
        FOLLOWER | REWARD_STEP | TWICE,
        {"CartPole-v1": CARTPOLE | {"reward_step": 6e-4}, "Pendulum-v1": PENDULUM | SHORT},
    ),
    compare={"TRIRL": {}},
)
