"""A learned reward as named arrays that plain NumPy can compute with; `rewards/readers` holds what reads them."""

import io
from importlib import resources
from typing import Any

import equinox as eqx
import jax
import numpy as np

from trustirl.core.errors import RewardError
from trustirl.core.spaces import Finite, Spaces
from trustirl.nets.agent_rewards import LogRatioReward, ValueReward
from trustirl.nets.critics import DiscreteQEnsemble
from trustirl.nets.mlp import CONSTANT, MLP
from trustirl.nets.policies import (
    INSIDE,
    LEAST_VARIANCE,
    LOG_STD_MAX,
    LOG_STD_MIN,
    MOST_STD,
    WAVE_HEIGHT,
    GaussianActor,
    StationaryActor,
)
from trustirl.nets.rewards import NetworkReward
from trustirl.rewards.reward import LearnedReward

Arrays = dict[str, Any]


def plain(reward: LearnedReward) -> tuple[Arrays, str]:
    """The arrays, and the name of the reader in `rewards/readers` that computes with them."""
    function, spaces = reward.function, reward.spaces
    if isinstance(spaces, Finite):
        return {"table": reward.table()}, "table"
    if isinstance(function, NetworkReward):
        return _network_reward(function, spaces, reward.end_share), "network"
    if isinstance(function, ValueReward):
        return _values(function) | _actions(spaces) | _standard(function), "agent"
    if isinstance(function, LogRatioReward):
        told = {"scale": function.scale, "inside": np.float32(INSIDE)}
        return told | _policy(function.actor) | _actions(spaces) | _standard(function), "agent"
    raise RewardError(f"a reward of the kind {type(function).__name__} has no reader in plain NumPy.")


def as_npz(arrays: Arrays) -> bytes:
    """The arrays as an .npz file."""
    with io.BytesIO() as file:
        held: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
        np.savez(file, **held)
        return file.getvalue()


def reader(name: str) -> str:
    """The reader's source, which lies beside the arrays."""
    return (resources.files("trustirl.rewards.readers") / f"{name}.py").read_text(encoding="utf-8")


def _network_reward(function: NetworkReward, spaces: Spaces, end_share: float) -> Arrays:
    layers = function.network.layers
    told: Arrays = {"sees": function.reward_inputs, "layers": len(layers), "bound": np.float32(function.bound)}
    told |= {"end_share": np.float32(end_share), "mean": function.mean, "std": function.std} | _actions(spaces)
    if function.actions:
        told["choices"] = np.eye(function.actions, dtype=np.float32)
    for i, layer in enumerate(layers):
        told |= {f"weight{i}": np.atleast_2d(layer.weight), f"bias{i}": layer.bias}
    return told


def _values(function: ValueReward) -> Arrays:
    nets = function.critic.nets
    members = nets.layers[0].weight.shape[0]
    told: Arrays = {
        "critics": members,
        "temperature": function.temperature,
        "discount": np.float32(function.discount),
    }
    for i in range(members):
        member = jax.tree.map(lambda leaf, i=i: leaf[i] if eqx.is_array(leaf) else leaf, nets)
        told |= _network(f"critic{i}", member)
    if not isinstance(function.critic, DiscreteQEnsemble):
        assert function.actor is not None
        told |= _policy(function.actor) | {"noise": function.noise}
    return told


def _policy(actor: GaussianActor | StationaryActor) -> Arrays:
    told = _network("actor", actor.net)
    if isinstance(actor, GaussianActor):
        return told | {"log_std_limits": np.asarray([LOG_STD_MIN, LOG_STD_MAX], np.float32)}
    waves, phases, means, factors = actor.head()
    height = np.float32(WAVE_HEIGHT / np.sqrt(len(phases)))
    limits = {"most_std": np.float32(MOST_STD), "least_variance": np.float32(LEAST_VARIANCE), "wave_height": height}
    return told | limits | {"waves": waves, "phases": phases, "means": means, "factors": factors}


def _network(name: str, net: MLP) -> Arrays:
    told: Arrays = {f"{name}.layers": len(net.layers)}
    for i, layer in enumerate(net.layers):
        told |= {f"{name}.weight{i}": layer.weight, f"{name}.bias{i}": layer.bias}
    for i, norm in enumerate(net.norms):
        told |= {f"{name}.scale{i}": norm.weight, f"{name}.shift{i}": norm.bias}
    return told


def _actions(spaces: Spaces) -> Arrays:
    if spaces.bounds is None:
        return {"action_start": spaces.action_start}
    return dict(zip(("action_low", "action_high"), spaces.bounds, strict=True))


def _standard(function: ValueReward | LogRatioReward) -> Arrays:
    std = np.asarray(function.std)
    return {"mean": np.asarray(function.mean), "std": np.where(std > CONSTANT, std, np.float32(1))}
