"""Kinds of rewards: what reward.json tells of each, and how it is built again from that.

A new kind is a card, here, and its entry in `KINDS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree
from msgspec import Meta

from trustirl.core.errors import InputError
from trustirl.core.files import Size
from trustirl.core.spaces import Finite, Spaces, Termination
from trustirl.core.trees import check_sizes
from trustirl.nets.agent_rewards import LogRatioReward, ValueReward, log_ratio_reward, value_reward
from trustirl.nets.critics import DiscreteQEnsemble, QEnsemble
from trustirl.nets.mlp import MLP
from trustirl.nets.policies import ACTORS, Head, head_of
from trustirl.nets.rewards import (
    NetworkReward,
    RewardInputs,
    RewardKind,
    blank_network_reward,
    expected_reward_factory,
    reward_factory,
)
from trustirl.rewards.reward import LearnedReward
from trustirl.rollouts.spaces import SpacesCard

Count = Annotated[int, Meta(ge=0, lt=2**31)]


@runtime_checkable
class Card(Protocol):
    """reward.json: plain values that say how the arrays beside it become rewards."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def seeds(self) -> int:
        """How many rewards are stored, one per seed."""

    def check(self, arrays: Mapping[str, np.ndarray], where: Path) -> None:
        """Refuse numbers that the arrays cannot have: building anything of that size would fill the memory."""

    def make(self, key: Array) -> PyTree:
        """A reward of this structure, whatever its numbers."""

    def reward(self, function: PyTree) -> LearnedReward:
        """One seed's reward as people use it."""


@dataclass(frozen=True, kw_only=True)
class TableCard:
    """A reward of the exact world: a table of its states or transitions, or a model on their features."""

    format_version: Literal[1] = 1
    kind: RewardKind
    reward_inputs: RewardInputs
    states: Size
    actions: Size
    features: Count
    width: Size
    depth: Size
    seeds: Size
    transitions: Count = 0  # where these are rewarded, and how many may follow each state and action
    successors: Count = 0

    def check(self, arrays: Mapping[str, np.ndarray], where: Path) -> None:
        """A linear reward or a network keeps the features of all that it rewards, a table a number for it."""
        check_sizes(arrays, where, self.seeds, **self._sizes)
        stored = sum(array.size for array in arrays.values())
        needed = self._rows * max(1, self._features) + self.states * self.actions * self.successors
        if self.seeds * needed > stored or (self._expected and not self.transitions * self.successors):
            raise InputError(f"{where} tells of other states or features than are stored beside it; restore it.")

    def make(self, key: Array) -> PyTree:
        """With features of zero."""
        blank = np.zeros((self._rows, self._features))
        if self._expected:
            follow = np.zeros((self.states, self.actions, self.successors))
            return expected_reward_factory(self.kind, blank, follow.astype(int), follow, **self._sizes)(key)
        action_inputs = self.reward_inputs == "state-action"
        return reward_factory(self.kind, blank, self.actions, action_inputs, **self._sizes)(key)

    def reward(self, function: PyTree) -> LearnedReward:
        """A reward of numbered states."""
        return LearnedReward(function, Finite(self.states, self.actions))

    @property
    def _expected(self) -> bool:
        return self.reward_inputs == "transition"

    @property
    def _rows(self) -> int:
        return self.transitions if self._expected else self.states

    @property
    def _features(self) -> int:
        return 0 if self.kind == "table" else self.features

    @property
    def _sizes(self) -> dict[str, int]:
        """Of the network, where there is one."""
        return {"width": self.width, "depth": self.depth} if self.kind == "mlp" else {"width": 1, "depth": 1}


@dataclass(frozen=True, kw_only=True)
class NetworkCard:
    """A reward of a Gymnasium task."""

    format_version: Literal[1] = 1
    kind: Literal["network"] = "network"
    spaces: SpacesCard
    seeds: Size
    reward_inputs: RewardInputs
    width: Size
    depth: Size
    bound: Annotated[float, Meta(gt=0)]
    discount: Annotated[float, Meta(ge=0, lt=1)]
    termination: Termination

    def check(self, arrays: Mapping[str, np.ndarray], where: Path) -> None:
        """The network's first layer has all inputs, and a flag."""
        self.spaces.check(where)
        check_sizes(arrays, where, self.seeds, self.depth, width=self.width, inputs=self._inputs)
        if not np.all(arrays.get(".std", 1) > 0):
            raise InputError(f"{where} tells of a network beside which deviations are not positive; restore it.")

    def make(self, key: Array) -> PyTree:
        """With observations that are not standardised."""
        blank = np.zeros(self._inputs, np.float32)
        actions = self.spaces.action_dim if self.spaces.discrete else 0
        return blank_network_reward(blank, blank, actions, self.reward_inputs, self.width, self.depth, self.bound)(
            key
        )

    def reward(self, function: PyTree) -> LearnedReward:
        """In mode T2, an end is paid with all that the absorbing state earns after it."""
        end_share = self.discount / (1 - self.discount) if self.termination == "T2" else 0.0
        return LearnedReward(function, self.spaces.spaces, end_share)

    @property
    def _inputs(self) -> int:
        obs, action = self.spaces.obs_dim, self.spaces.action_dim
        return obs + {"state": 0, "state-action": action, "transition": obs}[self.reward_inputs]


@dataclass(frozen=True, kw_only=True)
class ValuesCard:
    """A reward that is read off the values of an agent on a Gymnasium task (`ValueReward`)."""

    format_version: Literal[1] = 1
    kind: Literal["values"] = "values"
    spaces: SpacesCard
    seeds: Size
    critics: Size
    width: Size
    depth: Size
    layer_norm: bool
    discount: Annotated[float, Meta(ge=0, lt=1)]
    head: Head = "gaussian"  # of the policy, which continuous actions have

    def check(self, arrays: Mapping[str, np.ndarray], where: Path) -> None:
        """The critic's first layer has all observations, its parameters have a row for each member."""
        self.spaces.check(where)
        sizes = {"critics": self.critics, "width": self.width}
        spaces = {"obs_dim": self.spaces.obs_dim, "action_dim": self.spaces.action_dim}
        check_sizes(arrays, where, self.seeds, self.depth, **sizes, **spaces)

    def make(self, key: Array) -> PyTree:
        """With observations that are not standardised."""
        spaces = self.spaces
        sizes = spaces.obs_dim, spaces.action_dim, self.width, self.depth
        critic = (DiscreteQEnsemble if spaces.discrete else QEnsemble)(*sizes, self.critics, key, self.layer_norm)
        actor = None if spaces.discrete else ACTORS[self.head](*sizes, key)
        return value_reward(critic, actor, 1.0, *_unscaled(spaces), self.discount)

    def reward(self, function: PyTree) -> LearnedReward:
        """An end is worth nothing."""
        return LearnedReward(function, self.spaces.spaces)


@dataclass(frozen=True, kw_only=True)
class LogRatioCard:
    """A reward that is read off a policy of continuous actions (`LogRatioReward`)."""

    format_version: Literal[1] = 1
    kind: Literal["log-ratio"] = "log-ratio"
    spaces: SpacesCard
    seeds: Size
    width: Size
    depth: Size
    scale: Annotated[float, Meta(gt=0, le=1e6)]
    head: Head

    def check(self, arrays: Mapping[str, np.ndarray], where: Path) -> None:
        """The policy's first layer has all observations."""
        self.spaces.check(where)
        if self.spaces.discrete:
            raise InputError(f"{where} tells of a log-ratio of discrete actions, whose density is none; restore it.")
        spaces = {"obs_dim": self.spaces.obs_dim, "action_dim": self.spaces.action_dim}
        check_sizes(arrays, where, self.seeds, self.depth, width=self.width, **spaces)

    def make(self, key: Array) -> PyTree:
        """With observations that are not standardised."""
        actor = ACTORS[self.head](self.spaces.obs_dim, self.spaces.action_dim, self.width, self.depth, key)
        return log_ratio_reward(actor, *_unscaled(self.spaces), self.scale)

    def reward(self, function: PyTree) -> LearnedReward:
        """An end is worth nothing."""
        return LearnedReward(function, self.spaces.spaces)


def card_of(stacked: PyTree, spaces: Spaces, discount: float, termination: Termination) -> Card:
    """What reward.json tells of the rewards of all seeds of a Gymnasium task; sizes are those of their arrays."""
    seeds = len(jax.tree.leaves(eqx.filter(stacked, eqx.is_array))[0])
    told: dict[str, Any] = {"spaces": SpacesCard.of(spaces), "seeds": seeds}
    if isinstance(stacked, NetworkReward):
        network = stacked.network
        told |= {"width": network.width_size, "depth": network.depth, "bound": stacked.bound}
        return NetworkCard(**told, reward_inputs=stacked.reward_inputs, discount=discount, termination=termination)
    if isinstance(stacked, ValueReward):
        nets, head = stacked.critic.nets, head_of(stacked.actor)
        told |= _sizes(nets) | {"critics": nets.layers[0].weight.shape[1], "layer_norm": bool(nets.norms)}
        return ValuesCard(**told, discount=stacked.discount, head=head)
    if isinstance(stacked, LogRatioReward):
        told |= _sizes(stacked.actor.net)
        return LogRatioCard(**told, scale=stacked.scale, head=head_of(stacked.actor))
    raise InputError(f"a {type(stacked).__name__} cannot be saved: it has no card in rewards/kinds.py.")


def _sizes(net: MLP) -> dict[str, Any]:
    return {"width": net.layers[0].out_features, "depth": len(net.layers) - 1}


def _unscaled(spaces: SpacesCard) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(spaces.obs_dim, np.float32), np.ones(spaces.obs_dim, np.float32)


KINDS: dict[str, type[Card]] = {
    "table": TableCard,
    "linear": TableCard,
    "mlp": TableCard,
    "network": NetworkCard,
    "values": ValuesCard,
    "log-ratio": LogRatioCard,
}
