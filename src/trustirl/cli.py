"""The command line, `trustirl COMMAND ...`. Exit codes: 0 success, 2 bad input, 3 numerical failure."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, make_dataclass, replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import tyro

from trustirl.algorithms import ALGORITHMS
from trustirl.core.errors import InputError, TrustIRLError, unknown_name
from trustirl.demo_commands import demos_command
from trustirl.demos.schema import DemoChoice
from trustirl.doctor import doctor_command
from trustirl.experiment import Preset, expert_groups, resume, setting_groups, train, train_expert
from trustirl.parsing import parse as _parse
from trustirl.report.page import write_report
from trustirl.run import Run
from trustirl.worlds.job import Groups

USAGE = f"""\
usage: trustirl COMMAND ...

  train ALGO --task TASK   learn a reward and a policy from demonstrations (add --help for its settings)
  expert TASK              train an expert on the true reward and record its demonstrations
  resume RUN               continue an interrupted run
  report RUN [-o FILE]     draw a run's page again
  demos COMMAND            list, inspect, convert or record demonstrations (add --help)
  doctor [--json]          say what is installed, what does not go together, and whether learning works

  ALGO is one of: {", ".join(ALGORITHMS)}"""


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
    steps: int | None = None
    """Environment steps per seed; in the exact world, where nothing is sampled, reward updates."""
    out: Path | None = None
    """Folder of the run; runs/TASK-ALGO if not given."""
    preset: Preset = "tuned"
    """smoke: just enough to see it work; paper: the paper's values; tuned: ours."""
    overwrite: bool = False
    """Replace a run that --out already holds."""


@dataclass(frozen=True)
class ExpertQuestion:
    """The expert."""

    task_args: tuple[str, ...] = ()
    """Parameters of the task as name=value, for example enable_wind=true."""
    seeds: int = 1
    """Independent repetitions, run at once; the best of them in the last evaluation is the expert."""
    steps: int | None = None
    """Environment steps per seed; the task's preset if not given."""
    out: Path | None = None
    """Folder of the run, with demos.npz and card.json; runs/TASK-expert if not given."""
    overwrite: bool = False
    """Replace a run that --out already holds."""


@dataclass(frozen=True)
class ResumeOptions:
    """Continue an interrupted run."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""


@dataclass(frozen=True)
class ReportOptions:
    """Draw a run's page again."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Where to write the page; the run's own report.html if not given."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code; a user's mistake is one line, never a traceback."""
    try:
        with _flushed():
            _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except TrustIRLError as error:
        print(f"trustirl: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("trustirl: interrupted; continue with `trustirl resume RUN`.", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # whoever read, as `head` does, has left; what is still unsaid must not complain at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


@contextmanager
def _flushed() -> Iterator[None]:
    """Have everything said before the end, where a complaint could no longer be caught."""
    try:
        yield
    finally:
        sys.stdout.flush()


def _dispatch(arguments: list[str]) -> None:
    commands: dict[str, Callable[[list[str]], None]] = {
        "train": _train,
        "expert": _expert,
        "resume": _resume,
        "report": _report,
        "demos": demos_command,
        "doctor": doctor_command,
    }
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
    elif arguments[0] == "--version":
        print(f"trustirl {version('trustirl')}")
    elif arguments[0] not in commands:
        raise unknown_name("command", arguments[0], commands)
    else:
        commands[arguments[0]](arguments[1:])


def _train(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return
    name, *rest = arguments
    groups = dict(setting_groups(name, _task_in(rest)))
    if "exact" in groups:
        groups["exact"] = replace(groups["exact"], compare=True)  # at the command line, people want to look
    _announce(train(name, **_asked(TrainOptions, groups, rest, f"trustirl train {name}")))


def _expert(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return
    task, *rest = arguments
    run = train_expert(task, **_asked(ExpertQuestion, expert_groups(task), rest, f"trustirl expert {task}"))
    _announce(run)
    print(f"demonstrations: {run.path / 'demos.npz'} (return {run.summary['demo_return']:.2f})")


def _asked(question: type[Any], groups: Groups, arguments: list[str], program: str) -> dict[str, Any]:
    """The question and every setting, as keyword arguments."""
    parts = [(group, type(default), field(default=default)) for group, default in groups.items()]
    parsed = _parse(make_dataclass("Asked", [("question", question), *parts]), arguments, program)
    options = vars(parsed.question) | {"task_args": dict(map(_name_and_value, parsed.question.task_args))}
    for group in groups:
        options |= vars(getattr(parsed, group))
    return options


def _task_in(arguments: list[str]) -> str:
    """The task decides which settings there are, so it is looked up before parsing."""
    following = dict(pairwise(arguments))
    joined = [text.removeprefix("--task=") for text in arguments if text.startswith("--task=")]
    return next(iter(joined), following.get("--task", "gridworld"))


def _resume(arguments: list[str]) -> None:
    _announce(resume(_parse(ResumeOptions, arguments, "trustirl resume").run))


def _report(arguments: list[str]) -> None:
    options = _parse(ReportOptions, arguments, "trustirl report")
    print(write_report(options.run, options.out))


def _announce(run: Run) -> None:
    summary = run.summary
    expert = summary["expert_return"]
    text = f"return {mean(summary['returns']):.2f}" + ("" if expert is None else f" (expert {expert:.2f})")
    if "ell" in summary:
        text += f", reward correlation {mean(summary['reward_correlation']):.3f}"
        text += f", ell {mean(summary['ell']):.4f} (true reward {summary['ell_expert']:.4f})"
    print(text)
    print(f"page: {run.path / 'report.html'}")


def _name_and_value(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"task arguments are written name=value, got {text!r}.")
    try:
        return name, json.loads(value)  # numbers, true, false, null and quoted texts
    except ValueError:
        return name, value
