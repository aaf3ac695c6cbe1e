"""The command line, `trustirl COMMAND ...`. Exit codes: 0 success, 2 bad input, 3 numerical failure."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Annotated

import tyro

from trustirl.algorithms import ALGORITHMS
from trustirl.asking import asked, train_question
from trustirl.bench_commands import bench_command
from trustirl.core.errors import TrustIRLError, unknown_name
from trustirl.core.machine import installed
from trustirl.demo_commands import demos_command
from trustirl.doctor import doctor_command
from trustirl.experiment import expert_groups, resume, train, train_expert
from trustirl.film import add_film
from trustirl.parsing import parse as _parse
from trustirl.report import report
from trustirl.report.study import run_folders
from trustirl.run import Run

USAGE = f"""\
usage: trustirl COMMAND ...

  train ALGO --task TASK   learn a reward and a policy from demonstrations (add --help for its settings)
  expert TASK              train an expert on the true reward and record its demonstrations
  resume RUN               continue an interrupted run
  report PATH... -o FILE   compare runs and benches (add --help); report RUN alone draws its page again
  bench SUITE              run many experiments, here or on a cluster, and compare them (add --help)
  demos COMMAND            list, inspect, convert or record demonstrations (add --help)
  doctor [--json]          say what is installed, what does not go together, and whether learning works

  ALGO is one of: {", ".join(ALGORITHMS)}"""


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
    """Draw a run's page again, or compare runs and benches."""

    paths: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of runs, or of benches. A single run gives its own page, anything else a comparison."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Where to write; of a single run or bench, its own report.html if not given."""
    format: str | None = None
    """html: the page; md or latex: its tables; csv: a line for each seed; png: the curves. Without it, as the
    ending of FILE says."""
    films: bool = False
    """Also draw film strips of expert and learner into the folders of the runs, for a comparison to show; plays an
    episode of each, where its task can be rendered."""


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
        "bench": bench_command,
        "doctor": doctor_command,
    }
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
    elif arguments[0] == "--version":
        print(f"trustirl {installed('trustirl') or '(run from its sources, not installed)'}")
    elif arguments[0] not in commands:
        raise unknown_name("command", arguments[0], commands)
    else:
        commands[arguments[0]](arguments[1:])


def _train(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return
    _announce(train(**train_question(arguments)))


def _expert(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return
    task, *rest = arguments
    run = train_expert(task, **asked(ExpertQuestion, expert_groups(task), rest, f"trustirl expert {task}"))
    _announce(run)
    print(f"demonstrations: {run.path / 'demos.npz'} (return {run.summary['demo_return']:.2f})")


def _resume(arguments: list[str]) -> None:
    _announce(resume(_parse(ResumeOptions, arguments, "trustirl resume").run))


def _report(arguments: list[str]) -> None:
    options = _parse(ReportOptions, arguments, "trustirl report")
    if options.films:
        for folder in chain.from_iterable(map(run_folders, options.paths)):
            if problem := add_film(folder):
                print(f"trustirl: {problem}", file=sys.stderr)
    print(report(options.paths, options.out, options.format))


def _announce(run: Run) -> None:
    summary = run.summary
    expert = summary["expert_return"]
    text = f"return {mean(summary['returns']):.2f}" + ("" if expert is None else f" (expert {expert:.2f})")
    if "ell" in summary:
        text += f", reward correlation {mean(summary['reward_correlation']):.3f}"
        text += f", ell {mean(summary['ell']):.4f} (true reward {summary['ell_expert']:.4f})"
    print(text)
    print(f"page: {run.path / 'report.html'}")
