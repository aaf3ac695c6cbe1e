"""A fully resolved question (`Experiment`), and the same made ready to run (`Job`), whatever the world."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from trustirl.core.errors import InputError, unknown_name
from trustirl.core.types import Metrics, TrainState
from trustirl.demos.schema import DemoChoice
from trustirl.irl.loop import Loop
from trustirl.rollouts.ledger import Ledger

Row = dict[str, Any]
Groups = Mapping[str, Any]
"""Default settings by group: frozen dataclasses such as an algorithm's or a solver's configuration."""


@dataclass(frozen=True)
class Experiment:
    """`config.json` holds it and `resume` asks it again."""

    algorithm: str
    task: str
    task_args: dict[str, Any]
    demos: str
    demo_episodes: int | None
    demo_choice: DemoChoice
    seeds: int
    steps: int
    settings: dict[str, dict[str, Any]]  # every setting by group, for example "algorithm_config"
    first_seed: int = 0

    @property
    def seed_numbers(self) -> range:
        """The seeds by number; those of a run that was split go on where its first part ends."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def config(self) -> dict[str, Any]:
        """What config.json says: the groups stand beside the rest."""
        plain = asdict(self)
        return plain | plain.pop("settings")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], groups: Groups, where: Path) -> "Experiment":
        """The experiment of a run folder, if this version knows exactly its settings."""
        config = {"first_seed": 0} | dict(config)  # runs from before there was such a setting
        names = {field.name for field in fields(cls)} - {"settings"}
        wanted = names | groups.keys()
        settings: dict[str, Any] = {name: config.get(name) for name in groups}
        same = config.keys() == wanted and all(
            isinstance(settings[name], dict) and settings[name].keys() == {field.name for field in fields(default)}
            for name, default in groups.items()
        )
        if not same:
            raise InputError(f"{where}/config.json was written by another version of trustirl; use that version.")
        return cls(**{name: config[name] for name in names}, settings=settings)


class Job(NamedTuple):
    """What running an experiment needs to know of its world."""

    loop: Loop
    iterations: int  # reward updates, where there are any
    evaluate_every: int
    checkpoint_every: int
    ledger: Ledger
    observe: Callable[[TrainState, Metrics], Mapping[str, np.ndarray]]  # columns with one value per seed
    finish: Callable[[TrainState, list[Row], float, Path], None]  # writes what is known only at the end
    facts: dict[str, Any]  # for the manifest: what was used
    notes: tuple[str, ...] = ()  # what a user should know before the work begins
    close: Callable[[], None] = lambda: None


def filled(kinds: Mapping[str, type[Any]], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A dataclass of each kind, with what the settings say of its fields."""
    return {
        group: kind(**{field.name: settings[field.name] for field in fields(kind) if field.name in settings})
        for group, kind in kinds.items()
    }


def settle(groups: Groups, given: Mapping[str, Any], what: str) -> dict[str, dict[str, Any]]:
    """Every setting of every group, with the given ones in place of the defaults."""
    known = {field.name for default in groups.values() for field in fields(default)}
    for name in given:
        if name not in known:
            raise unknown_name(f"setting of {what},", name, known)
    for default in groups.values():
        for name, hint in get_type_hints(type(default)).items():
            if name in given and (words := _words(hint)) and given[name] not in words:
                raise unknown_name(name, str(given[name]), map(str, words))
    return {
        group: asdict(replace(default, **{name: given[name] for name in asdict(default) if name in given}))
        for group, default in groups.items()
    }


def _words(hint: Any) -> tuple[Any, ...]:
    """The values among which a setting of such a type chooses; nothing if it is no choice."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) is UnionType or get_origin(hint) is Union:
        parts = [(None,) if part is type(None) else _words(part) for part in get_args(hint)]
        return tuple(word for part in parts for word in part) if all(parts) else ()
    return ()
