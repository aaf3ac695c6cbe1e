"""Rewards in a folder: reward.safetensors, their numbers, and reward.json, the card. Loading executes no code."""

from dataclasses import asdict
from pathlib import Path

import equinox as eqx
import jax
from jaxtyping import PyTree

from trustirl.core.errors import InputError
from trustirl.core.files import fitting, read_arrays, read_json, write_arrays, write_json
from trustirl.core.trees import tree_from_arrays, tree_to_arrays
from trustirl.rewards.kinds import KINDS, Card
from trustirl.rewards.reward import LearnedReward, precision_of


def save_rewards(folder: Path, stacked: PyTree, card: Card) -> None:
    """Write the rewards of all seeds and the card that says how to rebuild them."""
    write_arrays(folder / "reward.safetensors", tree_to_arrays(stacked))
    write_json(folder / "reward.json", asdict(card))


def load_reward(path: str | Path) -> LearnedReward:
    """Read the first seed's reward of a run."""
    return load_rewards(path)[0]


def load_rewards(path: str | Path) -> list[LearnedReward]:
    """Read the rewards of all seeds of a run."""
    card_file, file = Path(path) / "reward.json", Path(path) / "reward.safetensors"
    card, arrays = read_card(card_file), read_arrays(file)
    card.check(arrays, card_file)
    with precision_of(arrays):
        like = eqx.filter_eval_shape(card.make, jax.random.key(0))
        parts = [{name: array[seed, ...] for name, array in arrays.items()} for seed in range(card.seeds)]
        return [card.reward(tree_from_arrays(like, part, file)) for part in parts]


def read_card(file: Path) -> Card:
    """What reward.json tells, checked."""
    told = read_json(file)
    kind = str(told.get("kind"))
    if kind not in KINDS:
        raise InputError(f"{file} tells of a kind of reward, {kind!r:.60}, that is not known here; restore it.")
    older = told.pop("action_inputs", None)  # what there was before rewards of transitions
    if isinstance(older, bool):
        told.setdefault("reward_inputs", "state-action" if older else "state")
    card: Card = fitting(told, str(file), KINDS[kind])
    return card
