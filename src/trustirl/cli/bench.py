"""The command `trustirl bench SUITE`."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.live import Live

from trustirl.bench.bench import alone, opened, run_bench
from trustirl.bench.local import run_locally
from trustirl.bench.on_ray import run_on_ray
from trustirl.bench.on_slurm import run_on_slurm
from trustirl.bench.plan import Job, plan
from trustirl.bench.show import finished_line, live_table, planned_rows
from trustirl.bench.storage import is_url
from trustirl.bench.suites import find_suite
from trustirl.bench.work import Executor
from trustirl.cli.showing import print_rows
from trustirl.cli.tables import meerkats_command
from trustirl.core.checks import counts
from trustirl.core.errors import InputError, Interrupted, TrustIRLError
from trustirl.core.words import printable
from trustirl.training.parsing import parse


@dataclass(frozen=True)
class BenchOptions:
    """Run a suite of experiments; repeated, the command goes on where it was stopped."""

    suite: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SUITE")]
    """smoke, paper-mujoco, sensitivity, ablation, cartpole-c or termination; a .toml file (docs/bench.md); or
    meerkats, which has options of its own (docs/tables.md)."""
    out: str | None = None
    """Folder for everything, or a URL that fsspec understands; runs/bench-SUITE if not given."""
    executor: Literal["local", "ray", "submitit"] = "local"
    """Who does the work: processes here, Ray, or Slurm through submitit."""
    workers: int | None = None
    """How many runs at once; one if not given, with Ray one per GPU or machine."""
    address: str | None = None
    """Of a Ray cluster: HOST:PORT, ray://HOST:PORT or auto; without it, Ray is started here."""
    only: tuple[str, ...] = ()
    """Parts or patterns of job names, for example Hopper or 'CartPole*'; the others are left alone."""
    modules: Annotated[tuple[str, ...], tyro.conf.arg(name="import")] = ()
    """Python modules that the suite's tasks, written module:Id, may be looked up in; it imports no others."""
    dry_run: bool = False
    """Say what would be done, how much memory it needs and how long it takes, and do nothing."""


class JobsFailed(TrustIRLError):
    """Some jobs failed; the others are done."""


def bench_command(arguments: list[str]) -> None:
    """Plan, run, and say what came of it."""
    if arguments[:1] == ["meerkats"]:
        meerkats_command(arguments[1:])
        return
    options = parse(BenchOptions, arguments, "trustirl bench")
    counts(1, workers=options.workers)
    if options.address is not None and options.executor != "ray":
        raise InputError("--address is that of a Ray cluster; add --executor ray.")
    suite = find_suite(options.suite)
    out = options.out or f"runs/bench-{suite.name}"
    out = out.rstrip("/") if is_url(out) else str(Path(out).absolute())
    with opened(out) as folder:
        with _modest():
            here = (options.workers or 1) if options.executor == "local" else 1
            jobs = plan(suite, folder, here, options.only, options.modules)
        if options.dry_run:
            print_rows(planned_rows(jobs, folder))
            return
        try:
            with _stoppable(), alone(folder), _shown(jobs, folder) as told:
                failed = run_bench(suite, jobs, folder, out, _executor(options), told)
        except KeyboardInterrupt:
            raise Interrupted("stopped, and what had begun was saved; repeat the command to go on.") from None
        page = f"{out}/report.html"
        if failed:
            reasons = "; ".join(f"{name}: {why.rstrip('.')}" for name, why in failed.items())
            raise JobsFailed(f"{len(failed)} of {len(jobs)} jobs failed ({reasons}); the others are in {page}.")
        print(f"page: {page}")


@contextmanager
def _modest() -> Iterator[None]:
    """Look at a GPU without taking its memory, which the runs will want."""
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    before = os.environ.get(name)
    os.environ.setdefault(name, "false")
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM stops as Ctrl-C does: what runs is saved. Only the main thread can listen."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _shown(jobs: Sequence[Job], folder: Path) -> Iterator[Callable[[Job, str], None]]:
    """All jobs live on a terminal, a line per job that ends elsewhere."""
    console, ended = Console(stderr=True), 0

    def told(job: Job, failure: str) -> None:
        nonlocal ended
        ended += 1
        line = printable(finished_line(job, folder, ended, len(jobs), failure))
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    if not console.is_terminal:
        yield told
        return
    with Live(get_renderable=lambda: live_table(jobs, folder), console=console, refresh_per_second=1, transient=True):
        yield told


def _executor(options: BenchOptions) -> Executor:
    return {
        "local": partial(run_locally, workers=options.workers or 1),
        "ray": partial(run_on_ray, workers=options.workers, address=options.address),
        "submitit": partial(run_on_slurm, workers=options.workers),
    }[options.executor]
