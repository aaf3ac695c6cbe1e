"""The commands `trustirl reward inspect | export | compare | transfer`."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from trustirl.cli.showing import print_rows
from trustirl.core.errors import unknown_name
from trustirl.core.words import count
from trustirl.evaluation.comparison import SAYS
from trustirl.report.transfer import HEAD
from trustirl.rewards.export import Format, export
from trustirl.runs.comparing import compare_rewards
from trustirl.runs.inspecting import inspect_reward
from trustirl.tasks.changed import changes_of
from trustirl.training.asking import task_arguments
from trustirl.training.parsing import parse
from trustirl.training.transfer import transfer

NONE = "–"
USAGE = """\
usage: trustirl reward COMMAND ...

  inspect RUN [-o FILE]    draw a page: what the reward wants, which inputs move it, where its seeds disagree
  export RUN -o FOLDER     write the learned reward of a run as a folder of its own, also as arrays or ONNX (--format)
  compare A B|true         how far two learned rewards are apart, or a learned one and the true one
  transfer RUN             train fresh policies on the frozen reward, in its task or in changed dynamics"""


@dataclass(frozen=True)
class InspectOptions:
    """Draw a page on what the learned reward of a run wants."""

    run: tyro.conf.Positional[Path]
    """Folder of a finished run."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Where to write the page; reward.html in the run's folder if not given."""
    episodes: int = 3
    """Episodes to play on a simulator, with the policy and at random."""
    map: tuple[str, str] | None = None
    """Two inputs to draw a map of, by the names that the page gives them; those that matter most if not given."""
    task: str | None = None
    """The task once more, if the run's was module:Id, which no file may choose to import."""


@dataclass(frozen=True)
class ExportOptions:
    """Write the learned reward of a run as a folder of its own, to be shared."""

    run: tyro.conf.Positional[Path]
    """Folder of a finished run, or a folder that was exported before."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder to write; RUN-reward if not given."""
    format: Format = "safetensors"
    """What is written beside reward.safetensors, of one seed: numpy, an .npz with a reader that needs NumPy alone; or
    onnx, a model for other runtimes."""
    seed: int | None = None
    """Which seed's; the first one's if not given."""
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


@dataclass(frozen=True)
class TransferOptions:
    """Train fresh policies on the frozen reward of a run, and play beside all that needs no such reward."""

    run: tyro.conf.Positional[Path]
    """Folder of a finished run on a simulator."""
    task: str | None = None
    """The task to learn; the run's own if not given."""
    task_args: tuple[str, ...] = ()
    """Its parameters as name=value, for example enable_wind=true."""
    changes: str | None = None
    """Changes of a MuJoCo robot's dynamics, for example gravity=3.71,wind=-10 (docs/measuring.md)."""
    seeds: int | None = None
    """Fresh policies; as many as the run has rewards if not given."""
    steps: int | None = None
    """Environment steps of each; the run's own if not given."""
    bc_steps: int | None = None
    """Gradient steps of behavioural cloning; its default if not given."""
    episodes: int = 100
    """Episodes that everybody plays."""
    out: Path | None = None
    """Folder for the runs, transfer.json and transfer.html; RUN-transfer if not given."""
    overwrite: bool = False
    """Replace runs that are there; otherwise they are kept, and go on where they were stopped."""
    json: bool = False
    """For programs: one object, with the return of every episode."""


def reward_command(arguments: list[str]) -> None:
    """Run one of the commands."""
    commands: dict[str, Callable[[list[str]], None]] = {
        "inspect": _inspect,
        "export": _export,
        "compare": _compare,
        "transfer": _transfer,
    }
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
    elif arguments[0] not in commands:
        raise unknown_name("command of reward,", arguments[0], commands)
    else:
        commands[arguments[0]](arguments[1:])


def _inspect(arguments: list[str]) -> None:
    options = parse(InspectOptions, arguments, "trustirl reward inspect")
    print(inspect_reward(options.run, options.out, task=options.task, episodes=options.episodes, inputs=options.map))


def _export(arguments: list[str]) -> None:
    options = parse(ExportOptions, arguments, "trustirl reward export")
    out = options.out or options.run.with_name(f"{options.run.name}-reward")
    for file in export(options.run, out, options.format, options.seed, options.overwrite):
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


def _transfer(arguments: list[str]) -> None:
    options = parse(TransferOptions, arguments, "trustirl reward transfer")
    asked = task_arguments(options.task_args)
    if options.changes:
        asked |= {"change": changes_of(options.changes)}
    found = transfer(
        options.run,
        options.task,
        task_args=asked or None,
        seeds=options.seeds,
        steps=options.steps,
        bc_steps=options.bc_steps,
        episodes=options.episodes,
        out=options.out,
        overwrite=options.overwrite,
    )
    if options.json:
        print(json.dumps(found.plain(), indent=2))
        return
    print_rows([("", *HEAD), *found.rows()])
    print(f"{found.task}: the same {count(found.episodes, 'episode')} for all but random actions")
    print(f"page: {(options.out or options.run.with_name(f'{options.run.name}-transfer')) / 'transfer.html'}")
