"""The compiled inner loop: one optimiser step per stacked minibatch."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree


def trainable(net: PyTree) -> PyTree:
    """The part of a network that an optimiser may move."""
    return eqx.filter(net, eqx.is_inexact_array)


def descend(
    loss: Callable[..., Float[Array, ""]],
    optimizer: optax.GradientTransformation,
    net: PyTree,
    optimizer_state: PyTree,
    batches: PyTree,
    *anchors: Any,
) -> tuple[PyTree, PyTree]:
    """Minimise `loss(net, *anchors, *batch)`, one step per leading index of `batches`.

    The anchors stay what they are for the whole round; that is what makes a trust region a trust region.
    """
    parameters, static = eqx.partition(net, eqx.is_inexact_array)  # a scan carries arrays only

    def step(carry: tuple[PyTree, PyTree], batch: PyTree) -> tuple[tuple[PyTree, PyTree], None]:
        parameters, optimizer_state = carry
        gradient = jax.grad(lambda p: loss(eqx.combine(p, static), *anchors, *batch))(parameters)
        updates, optimizer_state = optimizer.update(gradient, optimizer_state, parameters)
        return (optax.apply_updates(parameters, updates), optimizer_state), None

    (parameters, optimizer_state), _ = jax.lax.scan(step, (parameters, optimizer_state), batches)
    return eqx.combine(parameters, static), optimizer_state


def fitted(
    loss: Callable[..., Float[Array, ""]],
    optimizer: optax.GradientTransformation,
    net: PyTree,
    rows: PyTree,
    updates: int,
    batch: int,
    key: Array,
) -> Any:
    """Minimise `loss(net, old, rows)` on minibatches, in rounds of up to a hundred during which `old` stays.

    The rounds are of one length, so that a few updates may be left out.
    """
    count, rounds = len(jax.tree.leaves(rows)[0]), -(-updates // 100)
    together = updates // rounds

    def some(carry: tuple[PyTree, PyTree], key: Array) -> tuple[tuple[PyTree, PyTree], None]:
        index = jax.random.randint(key, (together, batch), 0, count)
        batches = jax.tree.map(lambda x: x[index], rows)
        return descend(loss, optimizer, *carry, (batches,), carry[0]), None

    (net, _), _ = jax.lax.scan(some, (net, optimizer.init(trainable(net))), jax.random.split(key, rounds))
    return net


def toward(old: PyTree, new: PyTree, share: Float[Array, ""]) -> Any:
    """The network that lies this share of the way from `old` to `new`, in its parameters."""
    start, static = eqx.partition(old, eqx.is_inexact_array)
    moved = jax.tree.map(lambda x, y: x + share.astype(x.dtype) * (y - x), start, trainable(new))
    return eqx.combine(moved, static)


def shorten(net: PyTree, old: PyTree, acceptable: Callable[[PyTree], Array]) -> PyTree:
    """Halve the step from `old` to `net` until it is acceptable; where no length is, stay at `old`."""
    first = jnp.asarray(1.0, jnp.float32)
    tiny = 2.0**-30
    share = jax.lax.while_loop(lambda s: (s > tiny) & ~acceptable(toward(old, net, s)), lambda s: s / 2, first)
    return toward(old, net, jnp.where(share > tiny, share, 0.0))


def decaying_adam(step_size: float, decay: float, weight_decay: float = 0.0) -> optax.GradientTransformation:
    """Adam with step size / (number of steps)^decay: the decaying step of Zeng et al. (2022).

    The weight decay is the gradient of an L2 penalty on what `decays` marks.
    """
    return _decaying_weights(optax.adam(_decaying(step_size, decay)), weight_decay)


def decaying_sign(step_size: float, decay: float, weight_decay: float = 0.0) -> optax.GradientTransformation:
    """The same along the gradient's sign: steps of that size in every entry."""
    step = optax.chain(optax.scale_by_sign(), optax.scale_by_learning_rate(_decaying(step_size, decay)))
    return _decaying_weights(step, weight_decay)


def _decaying(step_size: float, decay: float) -> optax.Schedule:
    return lambda count: step_size / (1.0 + count) ** decay


def _decaying_weights(step: optax.GradientTransformation, weight_decay: float) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(weight_decay, decays), step) if weight_decay else step


def decays(net: PyTree) -> PyTree:
    """True at the weights of linear layers and at tables; False at biases, norms, statistics and fixed features.

    Shapes would not tell: features are a matrix, a table of states is none, and an ensemble's biases have two axes.
    """

    def marked(path: Any, node: Any) -> Any:
        if isinstance(node, eqx.nn.Linear):
            return eqx.tree_at(lambda layer: layer.weight, jax.tree.map(lambda _: False, node), True)
        return getattr(path[-1], "name", "") == "table"

    return jax.tree_util.tree_map_with_path(marked, net, is_leaf=lambda node: isinstance(node, eqx.nn.Linear))
