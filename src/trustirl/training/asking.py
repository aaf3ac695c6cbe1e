"""Questions to `train` and `train_expert`, as they are written on a command line."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import tyro

from trustirl.algorithms import ALGORITHMS
from trustirl.core.errors import ELSEWHERE, InputError, unknown_setting
from trustirl.demos.schema import DemoChoice
from trustirl.tasks.counting import ACTION_PRIOR, PRIOR
from trustirl.training.parsing import parse
from trustirl.worlds.job import Groups, Preset
from trustirl.worlds.table import SOLVED, World, task_for
from trustirl.worlds.world import world_of


@dataclass(frozen=True)
class TrainOptions:
    """What to learn, from what, and where the run is written."""

    task: str
    """A Gymnasium id such as Hopper-v4, or gridworld, random-mdp, chain, cliff, or mdp (one of your own, with
    --task-args file=FILE.npz)."""
    task_args: tuple[str, ...] = ()
    """Parameters of the task as name=value, for example size=9 slip=0.1, or enable_wind=true."""
    demos: str = "packaged"
    """A file (.npz, .hdf5, .csv, .parquet; docs/demos.md), a Minari folder or minari:ID; or packaged: those that come
    with the package (see `trustirl demos list`) or, on tasks whose MDP is known, the task's own expert."""
    demo_episodes: int | None = None
    """How many demonstration episodes to use."""
    demo_choice: DemoChoice = "first"
    """Which: the first ones of the file, the longest, or those of the highest recorded return."""
    seeds: int = 1
    """Independent repetitions, run at once."""
    first_seed: int = 0
    """Number of the first seed: a repetition depends on its number alone, so its seeds may be run in parts."""
    steps: int | None = None
    """Environment steps per seed; reward updates where the MDP is known and nothing is sampled; gradient steps where
    an algorithm needs no environment. Where something is sampled, only whole iterations are made."""
    out: Path | None = None
    """Folder of the run; runs/TASK-ALGO if not given."""
    preset: Preset = "tuned"
    """smoke: just enough to see it work; paper: the paper's values, on simulators; tuned: ours."""
    offline: bool = False
    """Step no environment but to judge policies: learn from the demonstrations alone."""
    overwrite: bool = False
    """Replace a run that --out already holds."""


@dataclass(frozen=True)
class TableQuestion(TrainOptions):
    """What to learn, from which table, and where the run is written."""

    task: str = "table"
    """Not needed: the table is the task."""
    table: str = ""
    """A table of who did what, where and when: .csv, .tsv, .parquet, or .npz of columns (docs/tables.md)."""
    states: str = ""
    """The columns of the state, between commas, for example zone,neighbours."""
    actions: str = ""
    """The column of what was done."""
    episode: str = ""
    """The columns that together tell tracks apart, for example film,animal."""
    time: str = ""
    """The column of the time, which orders a track; the track is split where it leaps."""
    group: str = ""
    """The column of what is independent, for example film; if not given, the first one of --episode."""
    bins: tuple[str, ...] = ()
    """Of columns of numbers: speed=0.5/2 are edges, neighbours=3 means 0, 1, 2, 3 or more."""
    drop: tuple[str, ...] = ()
    """Rows to leave out, as column=value."""
    moves: str = ""
    """The state column that actions change: a change is the action "move to" its next value."""
    previous: bool = False
    """Let states also hold what was done before."""
    window: int = 0
    """Steps of an episode: tracks are cut into such pieces. 0: whole tracks."""
    gap: float = 0.0
    """A longer time than this between two rows splits a track; 0: one and a half times the shortest."""
    prior: float = PRIOR
    """Pseudo-counts of what follows, spread as what follows at all."""
    action_prior: float = ACTION_PRIOR
    """Pseudo-counts of what is done in a state, spread as what is usually done."""
    mask: bool = True
    """Forbid moves that never happened."""


def _world(options: dict[str, Any]) -> World:
    """The world of a table, out of the options, which keep what else was asked."""
    usual = {entry.name for entry in fields(TrainOptions)}
    given = {entry.name: options.pop(entry.name) for entry in fields(TableQuestion) if entry.name not in usual}
    for name in ("states", "episode"):
        given[name] = [part for part in given[name].split(",") if part]
    given["bins"] = {name: _edges(text) for name, text in (_two(text, "bins", "edges") for text in given["bins"])}
    dropped: dict[str, list[str]] = {}
    for name, value in (_two(text, "rows to drop", "value") for text in given["drop"]):
        dropped.setdefault(name, []).append(value)
    more = {name: options["task_args"].pop(name) for name in SOLVED if name in options["task_args"]}
    return World.from_table(given.pop("table"), **(given | {"drop": dropped} | more))


def _two(text: str, what: str, value: str) -> tuple[str, str]:
    name, equals, rest = text.rpartition("=")
    if not equals or not name:
        raise InputError(f"{what} are written column={value}, got {text!r}.")
    return name, rest


def _edges(text: str) -> int | list[float]:
    """A whole number that stands alone is a count; anything else are edges."""
    try:
        return int(text) if text.isdigit() else [float(edge) for edge in text.split("/")]
    except ValueError:
        raise InputError(f"bins are numbers such as 3 or 0.5/2, got {text!r}.") from None


def train_question(arguments: list[str]) -> dict[str, Any]:
    """What `trustirl train ALGO ...` asks, as keyword arguments of `train`."""
    name, *rest = arguments
    task, preset = _given(rest, "--task", "gridworld"), _given(rest, "--preset", "tuned")
    table = bool(_given(rest, "--table", ""))
    if table:
        task = task_for(name)
    ALGORITHMS.find(name)
    world = world_of(name, task, _said(rest, "offline"))
    known = cast(Preset, preset if preset in get_args(Preset) else "tuned")  # the parser will refuse another one
    groups, steps = world.defaults(name, task, {}, known)
    groups = {group: _looked_at(default, world.looked_at) for group, default in groups.items()}
    of_task = world.arguments(task, {})
    kind = _telling(TableQuestion if table else TrainOptions, steps)
    options = {"algorithm": name} | asked(kind, groups, rest, f"trustirl train {name}", of_task)
    return options | {"task": _world(options)} if table else options


def _telling(question: type[Any], steps: int) -> type[Any]:
    """The same question, whose help says how many steps are made if nothing is asked."""
    told = Annotated[int | None, tyro.conf.arg(help_behavior_hint=f"(default: {steps})")]
    entry, doc = ("steps", told, field(default=None)), {"__doc__": question.__doc__}
    return make_dataclass(question.__name__, [entry], bases=(question,), namespace=doc, frozen=True)


def asked(
    question: type[Any], groups: Groups, arguments: list[str], program: str, of_task: Collection[str] = ()
) -> dict[str, Any]:
    """The question and every setting, as keyword arguments; `of_task` are arguments of the task, if it is exact."""
    known = {entry.name for kind in (question, *map(type, groups.values())) for entry in fields(kind)}
    for name in (text[2:].partition("=")[0].replace("-", "_") for text in arguments if text.startswith("--")):
        if name not in known and (name in ELSEWHERE or name == "device" or name in of_task):
            raise unknown_setting(program.removeprefix("trustirl "), name, known, of_task)
    parts = [(group, type(default), field(default=default)) for group, default in groups.items()]
    parsed = parse(make_dataclass("Asked", [("question", question), *parts]), arguments, program)
    options = vars(parsed.question) | {"task_args": task_arguments(parsed.question.task_args)}
    for group in groups:
        options |= vars(getattr(parsed, group))
    return options


def _looked_at(default: Any, changes: Mapping[str, Any]) -> Any:
    """Defaults as somebody who waits for one run wants them."""
    return replace(default, **{name: changes[name] for name in vars(default) if name in changes})


def _given(arguments: list[str], option: str, default: str) -> str:
    """Task and preset decide which settings there are and what they begin with, so they are looked up first."""
    following = dict(pairwise(arguments))
    joined = [text.removeprefix(f"{option}=") for text in arguments if text.startswith(f"{option}=")]
    return next(iter(joined), following.get(option, default))


def task_arguments(texts: Collection[str]) -> dict[str, Any]:
    """Arguments of a task that were written as name=value."""
    return dict(map(_name_and_value, texts))


def _said(arguments: list[str], option: str) -> bool:
    """Whether a flag is set, the last time that it is named."""
    named = [text for text in arguments if text in (f"--{option}", f"--no-{option}")]
    return bool(named) and named[-1] == f"--{option}"


def _name_and_value(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"task arguments are written name=value, got {text!r}.")
    try:
        return name, json.loads(value)  # numbers, true, false, null and quoted texts
    except ValueError:
        return name, value
