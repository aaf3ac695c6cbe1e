"""Kinds of rewards: what reward.json tells of each, and how it is built again from that.

A new kind is a card, here, and its entry in `KINDS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, PyTree
from msgspec import Meta

from trustirl.core.errors import InputError
from trustirl.core.files import Size
from trustirl.core.trees import check_sizes
from trustirl.nets.rewards import (
    RewardInputs,
    RewardKind,
    blank_network_reward,
    expected_reward_factory,
    reward_factory,
)
from trustirl.rewards.reward import Finite, LearnedReward
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
    termination: Literal["T0", "T2", "T3"]

    def check(self, arrays: Mapping[str, np.ndarray], where: Path) -> None:
        """The network's first layer has all inputs, and a flag."""
        self.spaces.check(where)
        check_sizes(arrays, where, self.seeds, self.depth, width=self.width, inputs=self._inputs)

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


KINDS: dict[str, type[Card]] = {"table": TableCard, "linear": TableCard, "mlp": TableCard, "network": NetworkCard}
