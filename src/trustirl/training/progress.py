"""How far a run is: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from trustirl.core.words import count
from trustirl.report.words import duration
from trustirl.worlds.job import Experiment, Job, Row

QUIET_SECONDS = 15  # at least, between two lines


@contextmanager
def progress(experiment: Experiment, job: Job, path: Path) -> Iterator[Callable[[int, list[Row] | None], None]]:
    """A bar on a terminal; elsewhere, in notebooks and logs, a line now and then."""
    console, began, start = Console(stderr=True), time.perf_counter(), job.ledger.train
    what = f"{experiment.algorithm} on {experiment.task}"
    seeds, rounds = count(experiment.seeds, "seed"), count(job.iterations, "iteration")
    print(f"trustirl: {what}, {seeds}, {rounds}, in {path}.", file=sys.stderr)

    def speed() -> str:
        each = (job.ledger.train - start) / (time.perf_counter() - began)
        return f"  {each:,.0f} steps/s" if each else ""

    if not console.is_terminal:
        yield _lines(job.iterations, speed)
        return
    columns = (
        TextColumn(what),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}  {task.fields[numbers]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        line = bar.add_task("train", total=job.iterations, numbers="compiling")

        def show(iteration: int, rows: list[Row] | None) -> None:
            bar.update(line, completed=iteration)
            if rows:
                bar.update(line, numbers=_in_words(rows) + speed())

        yield show


def _lines(iterations: int, speed: Callable[[], str]) -> Callable[[int, list[Row] | None], None]:
    """Tells an evaluation where nothing was told for a while, and how long the rest takes."""
    told, second = time.perf_counter(), -1
    began = told

    def show(iteration: int, rows: list[Row] | None) -> None:
        nonlocal told, second, began
        now = time.perf_counter()
        if second < 0 < iteration:  # by then everything is compiled
            second, began = iteration, now
        if rows and now - told > QUIET_SECONDS:
            left = ""
            if 0 <= second < iteration:
                left = f"  {duration((now - began) / (iteration - second) * (iterations - iteration))} left"
            numbers = f"{_in_words(rows)}{speed()}{left}"
            print(f"trustirl: iteration {iteration} of {iterations}  {numbers}", file=sys.stderr)
            told = now

    return show


def _in_words(rows: list[Row]) -> str:
    """Means over the seeds, as far as there are any."""
    told = {"return": "return_mean", "ell": "ell", "gap": "gap", "drift": "drift", "mu": "mu"}
    means = {word: [row[name] for row in rows if row.get(name) is not None] for word, name in told.items()}
    return "  ".join(f"{word} {np.mean(values):.4g}" for word, values in means.items() if values)
