"""The commands `trustirl reward export | compare`."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from trustirl.cli.showing import print_rows
from trustirl.core.errors import unknown_name
from trustirl.evaluation.comparison import SAYS
from trustirl.rewards.export import export
from trustirl.runs.comparing import compare_rewards
from trustirl.training.asking import task_arguments
from trustirl.training.parsing import parse

NONE = "–"
USAGE = """\
usage: trustirl reward COMMAND ...

  export RUN -o FOLDER     write the learned reward of a run as a folder of its own, to be shared
  compare A B|true         how far two learned rewards are apart, or a learned one and the true one"""


@dataclass(frozen=True)
class ExportOptions:
    """Write the learned reward of a run as a folder of its own, to be shared."""

    run: tyro.conf.Positional[Path]
    """Folder of a finished run, or a folder that was exported before."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder to write; RUN-reward if not given."""
    overwrite: bool = False
    """Replace an export that is already there."""


@dataclass(frozen=True)
class CompareOptions:
    """How far two rewards are apart: correlations, EPIC, DARD, STARC, and what policies lose."""

    first: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="A")]
    """Folder of a run, or of an exported reward."""
    second: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="B|true")]
    """Another, or `true`: the task's own reward, which nothing was learned from."""
    task: str | None = None
    """The task, where no run tells it, or where it is module:Id, which no file may choose to import."""
    task_args: tuple[str, ...] = ()
    """Its parameters as name=value."""
    episodes: int = 5
    """Episodes to play on a simulator, with the policy of each run and at random."""
    transitions: int = 1000
    """Steps of them to compare."""
    discount: float = 0.99
    """By which potentials shape rewards on a simulator; known MDPs have their own."""
    json: bool = False
    """For programs: one object, with the value of every seed."""


def reward_command(arguments: list[str]) -> None:
    """Run one of the commands."""
    commands: dict[str, Callable[[list[str]], None]] = {"export": _export, "compare": _compare}
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
    elif arguments[0] not in commands:
        raise unknown_name("command of reward,", arguments[0], commands)
    else:
        commands[arguments[0]](arguments[1:])


def _export(arguments: list[str]) -> None:
    options = parse(ExportOptions, arguments, "trustirl reward export")
    out = options.out or options.run.with_name(f"{options.run.name}-reward")
    for file in export(options.run, out, overwrite=options.overwrite):
        print(file)


def _compare(arguments: list[str]) -> None:
    options = parse(CompareOptions, arguments, "trustirl reward compare")
    found = compare_rewards(
        options.first,
        options.second,
        task=options.task,
        task_args=task_arguments(options.task_args) or None,
        episodes=options.episodes,
        transitions=options.transitions,
        discount=options.discount,
    )
    if options.json:
        print(json.dumps(found.plain(), indent=2))
        return
    print(f"A is {found.first}, B is {found.second}, over {found.steps}.")
    rows = [("Measure", "Mean", "95 % interval", "Each seed", "")]
    for name, measure in found.measures.items():
        between = NONE if measure.low is None else f"{measure.low:.3f} to {measure.high:.3f}"
        each = " ".join(f"{value:.3f}" for value in measure.values)
        rows.append((name, f"{measure.mean:.3f}", between, each, SAYS[name]))
    print_rows(rows)
    for reason in dict.fromkeys(found.missing.values()):
        names = ", ".join(name for name, why in found.missing.items() if why == reason)
        print(f"no {names}: {reason}.")
