"""The commands `trustirl train | expert | resume | report`."""

import sys
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Annotated

import tyro

from trustirl.asking import asked, train_question
from trustirl.experiment import expert_groups, resume, train, train_expert
from trustirl.film import add_film
from trustirl.parsing import parse
from trustirl.report import report
from trustirl.report.study import run_folders
from trustirl.run import Run


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


def train_command(arguments: list[str]) -> None:
    """Learn from demonstrations."""
    _announce(train(**train_question(arguments)))


def expert_command(arguments: list[str]) -> None:
    """Train an expert on the true reward."""
    task, *rest = arguments
    run = train_expert(task, **asked(ExpertQuestion, expert_groups(task), rest, f"trustirl expert {task}"))
    _announce(run)
    print(f"demonstrations: {run.path / 'demos.npz'} (return {run.summary['demo_return']:.2f})")


def resume_command(arguments: list[str]) -> None:
    """Continue an interrupted run."""
    _announce(resume(parse(ResumeOptions, arguments, "trustirl resume").run))


def report_command(arguments: list[str]) -> None:
    """Draw a run's page again, or compare runs and benches."""
    options = parse(ReportOptions, arguments, "trustirl report")
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
