"""Terms of reward objectives, each written once, on weighted batches."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from trustirl.core.measure import Reward, expect
from trustirl.core.types import Transition


def gap(reward: Reward, demo: Transition, learner: Transition) -> Float[Array, ""]:
    """E_E[r] - E_pi[r], per step: (1-g) times the part of ell_old that depends on r (Equation 5c)."""
    return expect(reward, demo) - expect(reward, learner)


def squared_change(reward: Reward, old: Reward, reference: Transition) -> Float[Array, ""]:
    """sum (r - r_old)^2 over the reference pairs: smooth, with a guarantee (theory, section 3)."""
    return jnp.sum((reward(reference) - old(reference)) ** 2)


def drift(reward: Reward, old: Reward, reference: Transition) -> Float[Array, ""]:
    """eps_bar, Equation 8: the L2 norm of the reward's change.

    The root has a kink at r = r_old, where its plain gradient is NaN; here it is 0.
    """
    squared = squared_change(reward, old, reference)
    return jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1.0)), 0.0)


def cross_entropy(logit: Reward, demo: Transition, learner: Transition) -> Float[Array, ""]:
    """A discriminator's loss, E_E[-log D] + E_pi[-log(1 - D)] with D = sigmoid(logit)."""
    expert = expect(lambda pairs: jax.nn.softplus(-logit(pairs)), demo)
    return expert + expect(lambda pairs: jax.nn.softplus(logit(pairs)), learner)


def slope_penalty(
    of: Callable[[Array], Array],
    demo: Float[Array, "batch inputs"],
    learner: Float[Array, "batch inputs"],
    key: Array,
    slope: float = 1.0,
) -> Float[Array, ""]:
    """E[(|d of/dx| - slope)^2] at points drawn evenly between inputs of the expert and of the learner.

    The root has a kink at 0, where its plain gradient is NaN; a small number under it prevents that.
    """
    share = jax.random.uniform(key, (len(demo), 1))
    gradient = jax.vmap(jax.grad(of))(share * demo + (1 - share) * learner)
    return jnp.mean((jnp.sqrt(jnp.sum(gradient**2, axis=-1) + 1e-12) - slope) ** 2)


def penalised(
    misfit: Callable[..., Float[Array, ""]],
    weight: float,
    slope: float = 1.0,
    part: Callable[[Any], Any] = lambda net: net,
) -> Callable[..., Float[Array, ""]]:
    """`misfit(net, *anchors, demo, learner)`, and with a key at the end `weight` times the slope penalty of a part.

    Tables have no slope and go without.
    """

    def loss(net: Any, *given: Any) -> Float[Array, ""]:
        *seen, key = given
        value, smooth = misfit(net, *seen), part(net)
        if not weight or not hasattr(smooth, "inputs"):
            return value
        demo, learner = (smooth.inputs(batch) for batch in seen[-2:])
        return value + weight * slope_penalty(smooth.of, demo, learner, key, slope)

    return loss
