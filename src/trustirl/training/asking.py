"""Questions to `train` and `train_expert`, as they are written on a command line."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field, fields, make_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from trustirl.core.errors import ELSEWHERE, InputError, unknown_setting
from trustirl.demos.schema import DemoChoice
from trustirl.tasks.registry import resolved_arguments
from trustirl.training.parsing import parse
from trustirl.training.train import Preset, setting_groups
from trustirl.worlds.job import Groups


@dataclass(frozen=True)
class TrainOptions:
    """The question."""

    task: str
    """A Gymnasium id such as Hopper-v4, or gridworld, random-mdp, chain or cliff."""
    task_args: tuple[str, ...] = ()
    """Parameters of the task as name=value, for example size=9 slip=0.1, or enable_wind=true."""
    demos: str = "packaged"
    """A file (.npz, .hdf5, .csv, .parquet; docs/demos.md), a Minari folder or minari:ID; or packaged: those that come
    with the package (see `trustirl demos list`) or, on exact tasks, the task's own expert."""
    demo_episodes: int | None = None
    """How many demonstration episodes to use."""
    demo_choice: DemoChoice = "first"
    """Which: the first ones of the file, the longest, or those of the highest recorded return."""
    seeds: int = 1
    """Independent repetitions, run at once."""
    first_seed: int = 0
    """Number of the first seed: a repetition depends on its number alone, so its seeds may be run in parts."""
    steps: int | None = None
    """Environment steps per seed; in the exact world, where nothing is sampled, reward updates; where an
    algorithm needs no environment, gradient steps. Where something is sampled, only whole iterations are made."""
    out: Path | None = None
    """Folder of the run; runs/TASK-ALGO if not given."""
    preset: Preset = "tuned"
    """smoke: just enough to see it work; paper: the paper's values, on simulators; tuned: ours."""
    overwrite: bool = False
    """Replace a run that --out already holds."""


def train_question(arguments: list[str]) -> dict[str, Any]:
    """What `trustirl train ALGO ...` asks, as keyword arguments of `train`."""
    name, *rest = arguments
    task, preset = _given(rest, "--task", "gridworld"), _given(rest, "--preset", "tuned")
    groups = dict(setting_groups(name, task, cast(Preset, preset)))
    of_task: Collection[str] = ()
    if "exact" in groups:
        of_task = resolved_arguments(task)
        groups["exact"] = replace(groups["exact"], compare=True)  # at the command line, people want to look
    return {"algorithm": name} | asked(TrainOptions, groups, rest, f"trustirl train {name}", of_task)


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
    options = vars(parsed.question) | {"task_args": dict(map(_name_and_value, parsed.question.task_args))}
    for group in groups:
        options |= vars(getattr(parsed, group))
    return options


def _given(arguments: list[str], option: str, default: str) -> str:
    """Task and preset decide which settings there are and what they begin with, so they are looked up first."""
    following = dict(pairwise(arguments))
    joined = [text.removeprefix(f"{option}=") for text in arguments if text.startswith(f"{option}=")]
    return next(iter(joined), following.get(option, default))


def _name_and_value(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"task arguments are written name=value, got {text!r}.")
    try:
        return name, json.loads(value)  # numbers, true, false, null and quoted texts
    except ValueError:
        return name, value
