"""A fully resolved question (`Experiment`), and the same made ready to run (`Job`), whatever the world."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
from msgspec import Meta

from trustirl.core.checks import of_kind
from trustirl.core.errors import InputError, unknown_name, unknown_setting
from trustirl.core.files import fitting
from trustirl.core.machine import installed
from trustirl.core.types import Metrics, TrainState
from trustirl.core.words import count
from trustirl.core.worlds import WorldName, world_in
from trustirl.demos.schema import DemoChoice, Demos
from trustirl.irl.loop import Loop
from trustirl.rewards.origin import Origin
from trustirl.rollouts.ledger import Ledger

Row = dict[str, Any]
Preset = Literal["smoke", "paper", "tuned"]
COUNTED = ("seed", "iteration", "env_steps", "seconds")  # the columns that training itself writes
Groups = Mapping[str, Any]
"""Default settings by group: frozen dataclasses such as an algorithm's or a solver's configuration."""


@dataclass(frozen=True)
class Experiment:
    """`config.json` holds it and `resume` asks it again."""

    algorithm: str
    task: str
    task_args: dict[str, Any]
    demos: str
    demo_episodes: Annotated[int, Meta(ge=1)] | None
    demo_choice: DemoChoice
    seeds: Annotated[int, Meta(ge=1, le=10_000)]
    steps: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    settings: dict[str, dict[str, Any]]  # every setting by group, for example "algorithm_config"
    world: WorldName
    first_seed: Annotated[int, Meta(ge=0, lt=2**31)] = 0

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
        file = where / "config.json"
        # Runs from before there were such keys are read as well.
        config = {"first_seed": 0, "world": world_in(config, str(file)).name} | dict(config)
        names = {field.name for field in fields(cls)} - {"settings"}
        settings: dict[str, Any] = {name: config.get(name) for name in groups}
        same = config.keys() == names | groups.keys() and all(
            isinstance(settings[name], dict) and settings[name].keys() == {field.name for field in fields(default)}
            for name, default in groups.items()
        )
        if not same:
            raise InputError(f"{file} was written by another version of trustirl; use that version.")
        for name, default in groups.items():
            fitting(settings[name], f"{file}, {name}", type(default))
        experiment: Experiment = fitting(
            {name: config[name] for name in names} | {"settings": settings}, str(file), cls
        )
        return experiment


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
    observe_aside: bool = False  # while training goes on, since other processes do the work
    notes: tuple[str, ...] = ()  # what a user should know before the work begins
    close: Callable[[], None] = lambda: None


def origin_of(experiment: Experiment, path: Path, demos: Demos | None, demo_hash: str) -> Origin:
    """What reward.json tells of the run; without demonstrations the expert was known exactly."""
    told: dict[str, Any] = {}
    if demos is not None:
        told = {"demo_episodes": len(demos), "demo_steps": len(demos.actions)}
        if demos.observations.ndim > 1:
            low, high = demos.observations.min(axis=0), demos.observations.max(axis=0)
            told |= {"obs_low": low.astype(float).ravel().tolist(), "obs_high": high.astype(float).ravel().tolist()}
    return Origin(
        run=path.name,
        algorithm=experiment.algorithm,
        task=experiment.task,
        task_args=experiment.task_args,
        seeds=list(experiment.seed_numbers),
        steps=experiment.steps,
        demos=demo_hash,
        version=installed("trustirl") or "",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        **told,
    )


def columns(metrics: Metrics) -> dict[str, np.ndarray]:
    """What a run records of an iteration: every metric with one number for each seed and a name of its own."""
    given = {name: np.asarray(values) for name, values in metrics.items() if name not in COUNTED}
    return {name: values for name, values in given.items() if values.ndim == 1}


def told_steps(steps: int, iterations: int, each: int, first: int = 0) -> list[str]:
    """Why fewer steps are made than were asked for, if so: `first` ones at random, then whole iterations."""
    made = first + iterations * each
    if made == steps:
        return []
    random = f"{count(first, 'random step')} and " if first else ""
    whole = f"{random}{count(iterations, 'whole iteration')} of {each:,}"
    return [f"of {steps:,} steps {made:,} are made, {whole}; the next iteration would end at {made + each:,}"]


def filled(kinds: Mapping[str, type[Any]], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A dataclass of each kind, with what a preset says of its fields; a name that none has is refused.

    A preset's `steps` are no setting of any part.
    """
    settings = {name: value for name, value in settings.items() if name != "steps"}
    known = {field.name for kind in kinds.values() for field in fields(kind)}
    if unknown := sorted(settings.keys() - known):
        raise unknown_name("setting", unknown[0], known)
    return {
        group: kind(**{field.name: settings[field.name] for field in fields(kind) if field.name in settings})
        for group, kind in kinds.items()
    }


def settle(
    groups: Groups, given: Mapping[str, Any], what: str, asked: Iterable[str] = (), of_task: Iterable[str] = ()
) -> dict[str, dict[str, Any]]:
    """Every setting of every group, with the given ones in place of the defaults.

    Other names are refused; `asked` and `of_task` are what a question has besides, which may have been meant.
    """
    hints = {name: hint for default in groups.values() for name, hint in get_type_hints(type(default)).items()}
    for name in given:
        if name not in hints:
            raise unknown_setting(what, name, [*hints, *asked], of_task)
    fitting = {name: _fitting(name, value, hints[name]) for name, value in given.items()}
    return {
        group: asdict(replace(default, **{name: fitting[name] for name in asdict(default) if name in fitting}))
        for group, default in groups.items()
    }


def _fitting(name: str, value: Any, hint: Any) -> Any:
    """A setting's value as its type has it, if it can be one."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    words = tuple(word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind))
    if value in words or (value is None and type(None) in kinds):
        return value
    if words:
        raise unknown_name(name, str(value), map(str, words))
    (kind,) = set(kinds) - {type(None)}
    return of_kind(kind, name, value)
