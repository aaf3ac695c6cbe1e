"""The commands `trustirl train | expert | resume | evaluate | report`."""

import json
import sys
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import numpy as np
import tyro

from trustirl.cli.showing import print_rows
from trustirl.core.words import count
from trustirl.evaluation.stats import iqm, normalised
from trustirl.report import report
from trustirl.report.study import run_folders
from trustirl.runs.film import add_film
from trustirl.runs.run import Evaluation, Run, load
from trustirl.training.asking import asked, train_question
from trustirl.training.parsing import parse
from trustirl.training.train import resume, setting_groups, train, train_expert
from trustirl.worlds.world import EXPERT


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
    """Folder of the run; on a GPU a run of your own, for it also keeps the compiled programs that are run again."""
    task: str | None = None
    """The task once more, if the run's was module:Id, which no file may choose to import."""


@dataclass(frozen=True)
class EvaluateOptions:
    """Play new episodes with the policies of a finished run, and tell their true returns."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    episodes: int = 10
    """Episodes per seed, played without noise; they start otherwise than those of the run's own evaluations."""
    seed: int = 0
    """Decides which episodes are played: with another number they start otherwise."""
    task: str | None = None
    """The task once more, if the run's was module:Id, which no file may choose to import."""
    json: bool = False
    """For programs: one object, with the return of every episode."""


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
    run = train_expert(task, **asked(ExpertQuestion, setting_groups(EXPERT, task), rest, f"trustirl expert {task}"))
    _announce(run)
    print(f"demonstrations: {run.path / 'demos.npz'} (return {run.summary['demo_return']:.2f})")


def resume_command(arguments: list[str]) -> None:
    """Continue an interrupted run."""
    options = parse(ResumeOptions, arguments, "trustirl resume")
    _announce(resume(options.run, options.task))


def evaluate_command(arguments: list[str]) -> None:
    """Play new episodes, and tell what they earned beside the expert; of an exact run, what is known already."""
    options = parse(EvaluateOptions, arguments, "trustirl evaluate")
    run = load(options.run)
    exact = run.world.expectations and run.summary["returns"] is not None
    if exact:
        seen = Evaluation(np.asarray(run.summary["returns"])[:, None], env_steps=0)
    else:
        seen = run.evaluate(options.episodes, seed=options.seed, task=options.task)
    seeds = [run.config.get("first_seed", 0) + place for place in range(len(seen.returns))]
    if options.json:
        told = {"run": str(run.path), "exact": exact, "seeds": seeds, "returns": seen.returns.tolist()}
        told |= {} if seen.success is None else {"success": np.nan_to_num(seen.success).tolist()}
        levels = {name: run.summary.get(name) for name in ("expert_return", "random_return")}
        print(json.dumps(told | levels | {"env_steps": seen.env_steps}, indent=2))
        return
    cells = [tuple(f"{value:,.2f}" for value in (x.mean(), x.std(), x.min(), x.max())) for x in seen.returns]
    rows = [(str(seed), *row) for seed, row in zip(seeds, cells, strict=True)]
    rows = [("Seed", "Mean", "Deviation", "Worst", "Best"), *rows]
    print_rows([row[:2] for row in rows] if exact else rows)
    if seen.success is not None:
        each = " ".join(f"{rate:.2f}" for rate in np.nan_to_num(seen.success).mean(axis=1))
        print(f"share of episodes with success, by seed: {each}")
    print(f"inter-quartile mean over seeds: {_beside_expert(seen.returns.mean(axis=1), run.summary)}")
    played = f"{count(seen.returns.shape[1], 'new episode')} per seed, {count(seen.env_steps, 'environment step')}"
    print("exact expectations, no episode was played" if exact else played)


def _beside_expert(returns: np.ndarray, summary: dict[str, Any]) -> str:
    expert, random = summary.get("expert_return"), summary.get("random_return")
    text = f"{iqm(returns):,.2f}" + ("" if expert is None else f" (expert {expert:,.2f})")
    if expert is not None and random is not None and expert > random:
        text += f", score {iqm(normalised(returns, random, expert)):.3f} (random actions 0, the expert 1)"
    return text


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
    told = {
        "return": ("returns", "expert_return", "expert", 2),
        "reward correlation": ("reward_correlation", "", "", 3),
        "ell": ("ell", "ell_expert", "true reward", 4),
    }
    parts = []
    for word, (name, level, whose, digits) in told.items():
        if summary.get(name) is not None:
            beside = "" if summary.get(level) is None else f" ({whose} {summary[level]:.{digits}f})"
            parts.append(f"{word} {mean(summary[name]):.{digits}f}{beside}")
    print(", ".join(parts))
    print(f"page: {run.path / 'report.html'}")
