"""What kinds of world there are; a run names its own in config.json, and what is true of it stands here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trustirl.core.errors import InputError

WorldName = Literal["exact", "simulator", "offline", "fixed reward", "learned reward"]


@dataclass(frozen=True)
class WorldFacts:
    """What reports, benches and the command line need to know of a kind of world."""

    name: WorldName
    counted: str
    """What the `steps` of a run are, in a word or two."""
    clock: str
    """The column of metrics.jsonl that curves are drawn over."""
    cost: str
    """The column that says how long something took to learn."""
    expectations: bool = False
    """Returns are expectations, known without playing."""
    learns_reward: bool = True
    """Where a run's summary does not say whether one is learned."""
    samples: bool = True
    """Policies learn from steps of an environment."""
    pays_truth: bool = False
    """Policies learn from the task's own reward."""


FACTS: Mapping[str, WorldFacts] = {
    facts.name: facts
    for facts in (
        WorldFacts("exact", "reward updates", "iteration", "iteration", expectations=True, samples=False),
        WorldFacts("simulator", "steps", "env_steps", "env_steps"),
        WorldFacts("offline", "updates", "iteration", "env_steps", learns_reward=False, samples=False),
        WorldFacts("fixed reward", "steps", "env_steps", "env_steps", learns_reward=False, pays_truth=True),
        WorldFacts("learned reward", "steps", "env_steps", "env_steps", learns_reward=False),
    )
}


def world_in(config: Mapping[str, Any], where: str) -> WorldFacts:
    """The world of a run; runs from before it was named tell it by groups of settings that no others have."""
    name = config.get("world")
    if "world" not in config:
        sampled = "fixed reward" if config.get("algorithm") == "expert" else "simulator"
        name = sampled if "plan" in config else "offline" if "offline" in config else "exact"
    if not isinstance(name, str) or name not in FACTS:
        raise InputError(f"{where}: 'world' must be one of {', '.join(FACTS)}; restore the file.")
    return FACTS[name]
