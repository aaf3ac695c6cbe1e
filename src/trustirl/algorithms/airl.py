"""AIRL: adversarial inverse reinforcement learning (Fu, Luo and Levine 2018; their Algorithm 1).

    D = exp f / (exp f + pi),    f(s, a, s') = g(s) + discount * phi(s') - phi(s)

    line 4   `update_reward`   D's step: its logit is f - log pi(a|s) under the present policy, for both sides
    line 6   `improve`         the paper's reward log D - log(1 - D) = f - log pi, that is f, and entropy of weight 1;
                               since entropy weighs its temperature in the solver, temperature * f is paid there

Shaping changes no best policy and takes up what depends on the dynamics, so that g is the reward that is kept. phi is
0 at the end of an episode and after it, or to survive would itself pay; nobody acts there, so log pi is 0, too.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from trustirl.algorithms.entry import Defaults, Entry
from trustirl.algorithms.shared import DISCRIMINATED, FOLLOWER, SMALL, AdversaryConfig
from trustirl.core.descend import decaying_adam
from trustirl.core.errors import InputError
from trustirl.core.measure import Reward
from trustirl.core.records import Algorithm, Parts
from trustirl.core.types import IrlState, Transition
from trustirl.irl.compose import explicit, reward_step
from trustirl.irl.terms import cross_entropy, penalised
from trustirl.nets.policies import INSIDE


@dataclass(frozen=True)
class AirlConfig(AdversaryConfig):
    """Settings of the discriminator's step; the penalty is on g."""


class Shaped(eqx.Module):
    """f: the reward g, and the potential by which it is shaped."""

    g: PyTree
    phi: PyTree


def airl(parts: Parts, config: AirlConfig) -> Algorithm:
    """Put the algorithm together."""
    solver, settings, after = parts.make_solver(), parts.config, parts.after
    assert after is not None
    if getattr(settings, "learn_temperature", False):
        raise InputError("the paper's entropy has a fixed weight: set learn_temperature to False.")
    optimizer = decaying_adam(config.reward_step, 0.0, config.weight_decay)

    def shaped(f: Shaped, pairs: Transition) -> Float[Array, "..."]:
        return f.g(pairs) + settings.discount * after(f.phi, pairs) - where_acted(pairs, f.phi(pairs))

    def misfit(f: Shaped, actor: PyTree, demo: Transition, learner: Transition) -> Float[Array, ""]:
        def logit(pairs: Transition) -> Float[Array, "..."]:
            action = pairs.action  # on the border, the density may be infinite
            if jnp.issubdtype(action.dtype, jnp.floating):
                action = jnp.clip(action, -INSIDE, INSIDE)
            return shaped(f, pairs) - where_acted(pairs, solver.log_prob(actor, pairs.obs, action))

        return cross_entropy(logit, demo, learner)

    loss = penalised(misfit, config.penalty, part=lambda f: f.g)
    present = lambda state: (solver.actor(state.policy),)  # noqa: E731
    update_reward = reward_step(parts.draw, loss, optimizer, config.inner_steps, present)

    def make(key: Array) -> Shaped:
        assert parts.make_potential is not None
        g_key, phi_key = jax.random.split(key)
        return Shaped(parts.make_reward(g_key), parts.make_potential(phi_key))

    def paid(state: IrlState) -> Reward:
        return lambda pairs: settings.temperature * shaped(state.reward, pairs)

    return explicit(solver, make, optimizer, update_reward, paid=paid, kept=lambda state: state.reward.g)


def where_acted(pairs: Transition, values: Float[Array, "..."]) -> Float[Array, "..."]:
    """The values; nothing after an end."""
    return values if pairs.absorbing is None else jnp.where(pairs.absorbing, 0.0, values)


# Those of the authors' robot, but for their TRPO, whose place SAC takes; old steps stand for their old iterations.
AUTHORS: dict[str, Any] = {"steps_per_iteration": 10_000, "inner_steps": 10, "reward_batch": 32, "past_share": 0.5}
AUTHORS |= {"reward_inputs": "state", "reward_width": 32, "width": 32, "temperature": 1.0, "penalty": 0.0}
AUTHORS |= {"termination": "T0"}
# Also on CartPole-v1, where other discriminators see actions: shaping tells what followed them.
STATES: dict[str, Any] = {"reward_inputs": "state"}
TASKS = {task: settings | STATES for task, settings in DISCRIMINATED.items()}
OURS: dict[str, Any] = FOLLOWER | SMALL | {"past_share": 0.5} | STATES
ENTRY = Entry(
    name="airl",
    config=AirlConfig,
    build=airl,
    reference="Fu, Luo and Levine 2018, Learning Robust Rewards with Adversarial Inverse Reinforcement Learning",
    worlds=("exact", "simulator"),
    defaults=Defaults(OURS, TASKS, AUTHORS),
)
