"""The commands `trustirl reward export`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from trustirl.core.errors import unknown_name
from trustirl.rewards.export import export
from trustirl.training.parsing import parse

USAGE = """\
usage: trustirl reward COMMAND ...

  export RUN -o FOLDER     write the learned reward of a run as a folder of its own, to be shared"""


@dataclass(frozen=True)
class ExportOptions:
    """Write the learned reward of a run as a folder of its own, to be shared."""

    run: tyro.conf.Positional[Path]
    """Folder of a finished run, or a folder that was exported before."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder to write; RUN-reward if not given."""
    overwrite: bool = False
    """Replace an export that is already there."""


def reward_command(arguments: list[str]) -> None:
    """Run one of the commands."""
    commands: dict[str, Callable[[list[str]], None]] = {"export": _export}
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
