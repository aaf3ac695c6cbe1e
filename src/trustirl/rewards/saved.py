"""Rewards in a folder: reward.safetensors, their numbers; reward.json, the card; reward.md, the same for people.

Loading executes no code, and needs neither Gymnasium nor a simulator.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Num, PyTree

from trustirl.core.errors import RewardError, told_as
from trustirl.core.files import fitting, read_arrays, read_json, write_arrays, write_bytes, write_json
from trustirl.core.trees import tree_from_arrays, tree_to_arrays
from trustirl.rewards.kinds import KINDS, Card
from trustirl.rewards.model_card import model_card
from trustirl.rewards.origin import Origin, Paid
from trustirl.rewards.reward import LearnedReward, Rewards, precision_of

FORMAT_VERSION = 1
FILES = ("reward.safetensors", "reward.json", "reward.md")


class Shown(NamedTuple):
    """Demonstrated steps, as people call rewards with them, and what each weighs."""

    obs: Num[np.ndarray, "steps ..."]
    action: Num[np.ndarray, "steps ..."]
    next_obs: Num[np.ndarray, "steps ..."] | None = None
    weight: Float[np.ndarray, " steps"] | None = None


def save_rewards(
    folder: Path, stacked: PyTree, card: Card, origin: Origin | None = None, shown: Shown | None = None
) -> None:
    """Write the rewards of all seeds, the card that says how to rebuild them, and where they come from."""
    write_arrays(folder / "reward.safetensors", tree_to_arrays(stacked))
    write_json(folder / "reward.json", asdict(card))
    if origin is not None:
        rewards = load_rewards(folder)
        told = origin if shown is None else replace(origin, paid=_paid(rewards, shown))
        write_json(folder / "reward.json", asdict(card) | {"origin": asdict(told)})
        write_model_card(folder)


def write_model_card(folder: Path) -> None:
    """reward.md, from what the other two files hold."""
    text = model_card(load_rewards(folder), str(read_json(folder / "reward.json").get("kind")))
    write_bytes(folder / "reward.md", text.encode())


def load_reward(path: str | Path) -> LearnedReward:
    """Read the first seed's reward of a run, or of a folder that `trustirl reward export` wrote."""
    return load_rewards(path)[0]


@told_as(RewardError)
def load_rewards(path: str | Path) -> Rewards:
    """Read the rewards of all seeds of a run; called, they are their mean."""
    card_file, file = Path(path) / "reward.json", Path(path) / "reward.safetensors"
    card, origin = read_card(card_file)
    arrays = read_arrays(file)
    card.check(arrays, card_file)
    _check_finite(arrays, file)
    with precision_of(arrays):
        like = eqx.filter_eval_shape(card.make, jax.random.key(0))
        parts = [{name: array[seed, ...] for name, array in arrays.items()} for seed in range(card.seeds)]
        rewards = Rewards(card.reward(tree_from_arrays(like, part, file)) for part in parts)
    if origin is not None and len(origin.seeds) != card.seeds:
        raise RewardError(f"{card_file} names {len(origin.seeds)} seeds and holds {card.seeds}; restore it.")
    for reward, seed in zip(rewards, range(card.seeds) if origin is None else origin.seeds, strict=True):
        reward.origin, reward.seed = origin, seed
    return rewards


def read_card(file: Path) -> tuple[Card, Origin | None]:
    """What reward.json tells, checked; cards from before it told where a reward comes from do not."""
    told = read_json(file)
    version = told.get("format_version", FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise RewardError(
            f"{file} has format {version!r:.20}, this version reads {FORMAT_VERSION}; use the trustirl that wrote it."
        )
    kind = str(told.get("kind"))
    if kind not in KINDS:
        raise RewardError(f"{file} tells of a kind of reward, {kind!r:.60}, that is not known here; restore it.")
    older = told.pop("action_inputs", None)  # what there was before rewards of transitions
    if isinstance(older, bool):
        told.setdefault("reward_inputs", "state-action" if older else "state")
    origin = told.pop("origin", None)
    card: Card = fitting(told, str(file), KINDS[kind])
    return card, None if origin is None else fitting(origin, f"{file}, origin", Origin)


def _check_finite(arrays: Mapping[str, np.ndarray], file: Path) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise RewardError(f"{file} holds numbers in {name} that are not finite; restore it.")


def _paid(rewards: Rewards, shown: Shown) -> Paid | None:
    """For a demonstrated step, by each seed's reward; None where it is not known what followed, which must be."""
    if "next_obs" in rewards.needs and shown.next_obs is None:
        return None
    weight = np.ones(len(shown.obs)) if shown.weight is None else np.asarray(shown.weight, float)
    taken = weight > 0
    obs, action, weight = shown.obs[taken], shown.action[taken], weight[taken]
    values = rewards.each(obs, action, None if shown.next_obs is None else shown.next_obs[taken], False)
    ends = [reward.end for reward in rewards]
    low, high = values.min(axis=1), values.max(axis=1)
    return Paid(
        mean=np.average(values, axis=1, weights=weight).tolist(), low=low.tolist(), high=high.tolist(), end=ends
    )
