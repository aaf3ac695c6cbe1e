"""The commands `trustirl demos list | inspect | convert | record`."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.text import Text

from trustirl.cli.showing import print_rows
from trustirl.core.errors import DemoError, InputError, unknown_name
from trustirl.core.machine import install_command
from trustirl.core.words import count, printable
from trustirl.demos.inspect import Inspection, amount, described, facts, inspect
from trustirl.demos.origin import env_arguments
from trustirl.demos.schema import DemoChoice, Demos, find_demos
from trustirl.demos.sources import Named, elsewhere_names, named_demos
from trustirl.report.demos import write_demo_page
from trustirl.runs.run import Run, load
from trustirl.tasks.gym import ControlTask, make_control_task
from trustirl.training.parsing import parse

USAGE = """\
usage: trustirl demos COMMAND ...

  list                             what can be loaded by name
  inspect SPEC [-o PAGE.html]      what demonstrations hold, and what looks wrong with them
  convert SPEC OUT                 write them as OUT.npz, or as the Minari dataset minari:ID
  record TASK -o FILE.npz          let the policy of a run (--run RUN), or chance (--random), demonstrate

  SPEC is what `trustirl train --demos` takes: a file, a Minari folder, minari:ID or packaged:TASK"""
Spec = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SPEC")]
COLOURS = {"problem": "bold red", "warning": "yellow", "note": "cyan"}


@dataclass(frozen=True)
class ListOptions:
    """What can be loaded by name."""

    json: bool = False
    """For programs: one list of objects."""


@dataclass(frozen=True)
class InspectOptions:
    """What demonstrations hold, and what looks wrong with them."""

    spec: Spec
    """A file, a Minari folder, minari:ID or packaged:TASK."""
    task: str | None = None
    """The Gymnasium id to compare with; the environment that the demonstrations name if not given."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Draw a page and write it here."""
    json: bool = False
    """For programs: one object."""


@dataclass(frozen=True)
class ConvertOptions:
    """Write demonstrations as .npz, or as a Minari dataset."""

    spec: Spec
    """A file, a Minari folder, minari:ID or packaged:TASK."""
    out: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """A file that ends in .npz, or minari:ID."""
    episodes: int | None = None
    """How many episodes to keep; all if not given."""
    choice: DemoChoice = "first"
    """Which: the first ones, the longest, or those of the highest recorded return."""
    env_id: str | None = None
    """The environment that made them, where they do not say."""
    overwrite: bool = False
    """Replace a file that is already there."""


@dataclass(frozen=True)
class RecordOptions:
    """Let a policy demonstrate."""

    task: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
    """A Gymnasium id."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """A file that ends in .npz."""
    run: Path | None = None
    """Folder of a finished run, whose policy acts."""
    random: bool = False
    """Act by chance instead."""
    episodes: int = 10
    """How many episodes to record."""
    seed: int = 0
    """Episode i starts from seed + i."""
    stochastic: bool = False
    """Draw actions from the policy instead of taking the likeliest."""
    overwrite: bool = False
    """Replace a file that is already there."""


def demos_command(arguments: list[str]) -> None:
    """Run one of the commands."""
    commands: dict[str, Callable[[list[str]], None]] = {
        "list": _list,
        "inspect": _inspect,
        "convert": _convert,
        "record": _record,
    }
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
    elif arguments[0] not in commands:
        raise unknown_name("command of demos,", arguments[0], commands)
    else:
        commands[arguments[0]](arguments[1:])


def _list(arguments: list[str]) -> None:
    options = parse(ListOptions, arguments, "trustirl demos list")
    found = named_demos()
    if options.json:
        print(json.dumps([asdict(entry) for entry in found], indent=2))
        return
    if found:
        print_rows([("Name", "Task", "Episodes", "Steps", "Return"), *map(_cells, found)])
    else:
        print("Nothing: no demonstrations come with this version, and there are no local Minari datasets.")
    if others := elsewhere_names():
        print(f"Those of {', '.join(others)} come with {install_command('demos')}.")


def _cells(entry: Named) -> tuple[str, ...]:
    numbers = ("" if number is None else f"{number:,}" for number in (entry.episodes, entry.steps))
    return entry.name, entry.task or "", *numbers, "" if entry.mean_return is None else f"{entry.mean_return:,.1f}"


def _inspect(arguments: list[str]) -> None:
    options = parse(InspectOptions, arguments, "trustirl demos inspect")
    demos = find_demos(options.spec, options.task)
    task, about = _compared(demos, options.task)
    seen = inspect(demos, task)
    page = write_demo_page(seen, options.out, options.spec, about) if options.out else None
    if options.json:
        told = {"source": options.spec, **described(seen), "about_task": about or None}
        print(json.dumps(told | {"page": None if page is None else str(page)}, indent=2, allow_nan=False))
        return
    print_rows(facts(seen, options.spec, about), heading=False)
    _show_findings(seen)
    if page is not None:
        print(f"page: {page}")


def _compared(demos: Demos, given: str | None) -> tuple[ControlTask | None, str]:
    """The task to compare with or, where demonstrations name one that cannot be made, why not."""
    if given is not None:
        return make_control_task(given), ""
    named = demos.provenance.get("env_id")
    if not isinstance(named, str):
        return None, "unknown, so the action space is not compared; name it by --task"
    if ":" in named:  # what a file names is data: the module before the colon would be imported
        return None, f"{named}, which is not made because a file names it; say --task {named} if you trust it"
    try:
        return make_control_task(named, _harmless(env_arguments(demos.provenance))), ""
    except Exception as error:  # a constructor may raise anything on arguments that a file gives
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        return None, f"{named}, not compared: {reason}"


def _harmless(arguments: dict[str, Any] | None) -> dict[str, Any]:
    """Switches and numbers among the arguments that a file gives; texts could name files or code."""
    return {name: value for name, value in (arguments or {}).items() if isinstance(value, bool | int | float)}


def _convert(arguments: list[str]) -> None:
    options = parse(ConvertOptions, arguments, "trustirl demos convert")
    dataset = options.out.removeprefix("minari:") if options.out.startswith("minari:") else None
    if dataset is None:
        _require_free(Path(options.out), options.overwrite)
    elif options.overwrite:
        raise DemoError("Minari datasets have versions and are not overwritten; choose the next one, as in NAME-v1.")
    demos = find_demos(options.spec)
    if options.episodes is not None:
        demos = demos.take(options.episodes, options.choice)
    if options.env_id is not None:
        demos = replace(demos, provenance=dict(demos.provenance) | {"env_id": options.env_id})
    if dataset is None:
        demos.save(options.out)
    else:
        demos.save_minari(dataset, options.env_id)
    _say_written(demos, options.out)


def _record(arguments: list[str]) -> None:
    options = parse(RecordOptions, arguments, "trustirl demos record")
    if options.random == (options.run is not None):
        raise InputError("somebody has to act: give --run RUN, or --random, and not both.")
    _require_free(options.out, options.overwrite)
    run = None if options.run is None else load(options.run)
    # A run that learned this very task learned it with these arguments.
    arguments_of_task = run.config.get("task_args") if run and run.config.get("task") == options.task else None
    task = make_control_task(options.task, arguments_of_task)
    policy, told = (None, "random actions") if run is None else _policy(run, task, options.stochastic)
    env = task.make()
    try:
        env.action_space.seed(options.seed)
        acting = policy or (lambda _: env.action_space.sample())
        demos = Demos.record(acting, env, options.episodes, options.seed)
    finally:
        env.close()
    demos = replace(demos, provenance=dict(demos.provenance) | {"policy": told})
    demos.save(options.out)
    _say_written(demos, str(options.out))


def _policy(run: Run, task: ControlTask, stochastic: bool) -> tuple[Callable[[Any], Any], str]:
    """The policy of a run as a function of the observation, and what to say of it."""
    run.check_task(task)

    def act(observation: Any) -> Any:
        return run.policy.predict(observation, deterministic=not stochastic)[0]

    return act, f"{run.config.get('algorithm')} ({run.path.name}), {'drawn' if stochastic else 'likeliest'} actions"


def _require_free(path: Path, overwrite: bool) -> None:
    if path.suffix != ".npz":
        raise DemoError(f"demonstrations are written to a file that ends in .npz, or as minari:ID, not to {path}.")
    if path.exists() and not overwrite:
        raise DemoError(f"{path} already exists; say --overwrite to replace it.")
    if not path.parent.is_dir():
        raise DemoError(f"there is no folder {path.parent} to write to; make it first.")


def _say_written(demos: Demos, where: str) -> None:
    returns = demos.returns()
    mean = "" if returns is None else f", mean return {amount(returns.mean())}"
    print(f"{where}: {count(len(demos), 'episode')}, {count(len(demos.actions), 'step')}{mean}")


def _show_findings(seen: Inspection) -> None:
    console = Console(soft_wrap=True)
    if not seen.findings:
        print("Nothing looks wrong.")
    for finding in seen.findings:
        console.print(
            Text(finding.severity, COLOURS[finding.severity] if console.is_terminal else ""),
            Text(printable(f"{finding.where}: {finding.sentence}")),
        )
