"""A learned reward as an ONNX model, which runtimes of many languages compute."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from trustirl.core.errors import RewardError
from trustirl.core.machine import install_command
from trustirl.core.spaces import Finite
from trustirl.core.types import Transition
from trustirl.rewards.reward import LearnedReward

PACKAGES = ("jax2onnx", "onnxruntime")
AGREES = 1e-5  # relative to the largest reward of the rows that are compared, where that is above 1
GIVEN = ("observation", "action", "next_observation", "terminated")


def check_installed() -> None:
    """Refuse to begin without the packages of the extra."""
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        raise RewardError(f"an ONNX model needs {' and '.join(missing)}: run {install_command('onnx')}.")


def onnx_model(reward: LearnedReward) -> bytes:
    """The model's file, once onnxruntime has computed with it what the reward pays."""
    check_installed()
    import jax2onnx

    inputs = _inputs(reward)
    model: bytes = jax2onnx.to_onnx(
        _program(reward, list(inputs)),
        inputs=[jax.ShapeDtypeStruct(("B", *shape), kind) for shape, kind in inputs.values()],
        input_names=list(inputs),
        output_names=["reward"],
        model_name="reward",
    ).SerializeToString()
    for rows in (1, 5):  # one row and several: a model may have learned the size of the batch it was traced with
        _check(model, reward, rows)
    return model


def _check(model: bytes, reward: LearnedReward, rows: int) -> None:
    """Refuse a model that pays otherwise, or in another shape."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    session = onnxruntime.InferenceSession(model, options)
    given = _drawn(reward, rows)
    (paid,) = session.run(None, given)
    expected = np.asarray(reward(*map(given.get, GIVEN)))
    if paid.shape != expected.shape or not np.abs(paid - expected).max() <= AGREES * max(1.0, np.abs(expected).max()):
        raise RewardError("the ONNX model does not pay what the reward does; export it as numpy, and tell us of it.")


def _drawn(reward: LearnedReward, rows: int) -> dict[str, Any]:
    """Transitions at random, of the model's types."""
    random, spaces = np.random.default_rng(0), reward.spaces
    given: dict[str, Any] = {}
    for name, (shape, kind) in _inputs(reward).items():
        drawn: Any = random.normal(size=(rows, *shape))
        if isinstance(spaces, Finite):
            drawn = random.integers(spaces.states if name == "observation" else spaces.actions, size=rows)
        elif name == "action" and spaces.discrete:
            drawn = spaces.action_start + random.integers(spaces.action_dim, size=rows)
        elif name == "action":
            low, high = (np.asarray(bound) for bound in spaces.bounds or ())
            drawn = low + (high - low) * random.random((rows, *shape))
        given[name] = (drawn > 0 if kind is np.bool_ else drawn).astype(kind)
    return given


class _Norm(eqx.Module):
    """LayerNorm in plain operations: jax2onnx has none for ensembles."""

    weight: Any
    bias: Any
    eps: float = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        centred = x - jnp.mean(x)
        return self.weight * centred / jnp.sqrt(jnp.mean(centred**2) + self.eps) + self.bias


def _with_plain_norms(function: Any) -> Any:
    def plain(leaf: Any) -> Any:
        return _Norm(leaf.weight, leaf.bias, leaf.eps) if isinstance(leaf, eqx.nn.LayerNorm) else leaf

    return jax.tree.map(plain, function, is_leaf=lambda leaf: isinstance(leaf, eqx.nn.LayerNorm))


def _inputs(reward: LearnedReward) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Names, shapes of one, and types of what the model is given."""
    spaces = reward.spaces
    if isinstance(spaces, Finite):
        return {"observation": ((), np.int32), "action": ((), np.int32)}
    given: dict[str, tuple[tuple[int, ...], Any]] = {"observation": ((spaces.obs_dim,), np.float32)}
    if "action" in reward.needs:
        given["action"] = (spaces.action_shape, np.int32 if spaces.discrete else np.float32)
    if "next_obs" in reward.needs:
        given["next_observation"] = ((spaces.obs_dim,), np.float32)
    if "terminated" in reward.needs or reward.end_share:
        given["terminated"] = ((), np.bool_)
    return given


def _program(reward: LearnedReward, names: list[str]) -> Callable[..., Array]:
    """The reward as a pure function of what people give, which JAX can trace."""
    spaces, function, end = reward.spaces, _with_plain_norms(reward.function), reward.end
    if isinstance(spaces, Finite):
        table = jnp.asarray(reward.table(), jnp.float32).ravel()
        return lambda observation, action: table[observation * spaces.actions + action]

    def pay(*values: Array) -> Array:
        given: Mapping[str, Array] = dict(zip(names, values, strict=True))
        obs, action = given["observation"], given.get("action")
        zeros = obs[:, 0] * 0.0
        if action is not None and spaces.discrete:
            action = action - spaces.action_start
        elif action is not None:
            low, high = (jnp.asarray(bound) for bound in spaces.bounds or ())
            action = 2 * (jnp.clip(action, low, high) - low) / (high - low) - 1
        acted = zeros if action is None else action
        batch = Transition(obs, acted, zeros, given.get("next_observation"), given.get("terminated"))
        paid = function(batch)
        if reward.end_share:
            paid = paid + jnp.where(given["terminated"], jnp.float32(end), 0.0)
        return paid

    return pay
