"""A bench from end to end: do what is left, then write the table and the page."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trustirl.bench.plan import FORMAT, Job, together
from trustirl.bench.storage import fetch, is_url, store
from trustirl.bench.suites import Suite
from trustirl.bench.work import Executor, Work, state_of
from trustirl.core.errors import InputError
from trustirl.core.files import read_json, write_json
from trustirl.report.rows import result_row

OWN = ["bench.json", "results.json", "report.html", "failures"]  # what is no run


@contextmanager
def opened(out: str) -> Iterator[Path]:
    """The bench's folder, of a URL a copy without checkpoints; nobody else may work in it meanwhile."""
    if is_url(out):
        with tempfile.TemporaryDirectory(prefix="trustirl-") as scratch:
            fetch(out, Path(scratch), without="checkpoints")
            yield Path(scratch)
        return
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; choose another --out folder.")
    yield folder


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Refuse to work where another bench does; the lock goes with the process that holds it."""
    try:
        import fcntl
    except ImportError:  # not everywhere
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"another `trustirl bench` works in {folder}; wait for it or choose another --out."
            ) from None
        yield


def run_bench(
    suite: Suite,
    jobs: Sequence[Job],
    folder: Path,
    out: str,
    execute: Executor,
    told: Callable[[Job], None],
) -> list[str]:
    """Do what is left of the jobs and write what is known of the whole suite; the names of those that failed."""
    (folder / "failures").mkdir(parents=True, exist_ok=True)
    records = together(suite, folder, jobs)
    write_json(folder / "bench.json", {"format": FORMAT, "suite": suite.name, "jobs": records})
    if is_url(out):
        store(folder, out, ["bench.json"])
    left = {
        Work(out, part.run, job.arguments(part)): job
        for job in jobs
        for part in job.parts
        if state_of(folder / part.run) != "finished"
    }
    for job in {job.name: job for job in left.values()}.values():
        _failure(folder, job).unlink(missing_ok=True)  # it is tried again
    open_parts = {job.name: sum(other is job for other in left.values()) for job in left.values()}
    for work, error in execute(list(left)):
        job = left[work]
        if error:
            write_json(_failure(folder, job), {"error": error})
        if is_url(out):
            fetch(f"{out}/{work.run}", folder / work.run, without="checkpoints")
        open_parts[job.name] -= 1
        if not open_parts[job.name]:
            told(job)
    write_json(folder / "results.json", rows(records, folder))
    _write_page(folder)
    if is_url(out):
        store(folder, out, OWN)
    return [job.name for job in jobs if _failure(folder, job).exists()]


def rows(records: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """One row per job of bench.json that is finished."""
    found = []
    for job in records:
        runs = [folder / run for run in job["runs"]]
        if all(state_of(run) == "finished" for run in runs):
            named = {"job": job["name"], "label": job["label"]}
            found.append(named | result_row(runs) | {"command": job["command"]})
    return found


def failure_of(folder: Path, name: str) -> str:
    """Why a job failed."""
    return str(read_json(folder / "failures" / f"{name}.json")["error"])


def _failure(folder: Path, job: Job) -> Path:
    return folder / "failures" / f"{job.name}.json"


def _write_page(folder: Path) -> None:
    from trustirl.report.compare import write_comparison  # draws, which takes a while to load

    write_comparison([folder], folder / "report.html")
