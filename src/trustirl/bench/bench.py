"""A bench from end to end: do what is left, then write the table and the page."""

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trustirl.bench.plan import FORMAT, Job, together
from trustirl.bench.storage import fetch, is_url, store
from trustirl.bench.suites import Suite
from trustirl.bench.work import Executor, Work, is_done, state_of
from trustirl.core.errors import InputError
from trustirl.core.files import write_json
from trustirl.core.lock import held
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
    """Refuse to work where another bench does."""
    folder.mkdir(parents=True, exist_ok=True)
    with held(folder):
        yield


def run_bench(
    suite: Suite,
    jobs: Sequence[Job],
    folder: Path,
    out: str,
    execute: Executor,
    told: Callable[[Job, str], None],
) -> dict[str, str]:
    """Do what is left of the jobs and write what is known of the whole suite; why jobs failed, by their names."""
    (folder / "failures").mkdir(parents=True, exist_ok=True)
    records = together(suite, folder, jobs)
    write_json(folder / "bench.json", {"format": FORMAT, "suite": suite.name, "jobs": records})
    if is_url(out):
        store(folder, out, ["bench.json"])
    left = {
        Work(out, part.run, job.arguments(part)): job
        for job in jobs
        for part in job.parts
        if not is_done(folder / part.run)
    }
    failures: dict[str, str] = {}
    for job in jobs:
        _failure(folder, job.name).unlink(missing_ok=True)  # it is tried again, or was finished nevertheless
    open_parts = Counter(job.name for job in left.values())
    for work, error in execute(list(left)):
        job = left[work]
        if error:
            failures[job.name] = error
            write_json(_failure(folder, job.name), {"error": error})
        if is_url(out):
            fetch(f"{out}/{work.run}", folder / work.run, without="checkpoints")
        open_parts[job.name] -= 1
        if not open_parts[job.name]:
            told(job, failures.get(job.name, ""))
    found, damaged = rows(records, folder)
    for name, why in damaged.items():
        write_json(_failure(folder, name), {"error": why})
    write_json(folder / "results.json", found)
    _write_page(folder)
    if is_url(out):
        store(folder, out, OWN)
    wanted = {job.name for job in jobs}
    return {name: why for name, why in (damaged | failures).items() if name in wanted}


def rows(records: Sequence[dict[str, Any]], folder: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """One row per job of bench.json that is finished; of those that cannot be read, why, by name."""
    found, damaged = [], {}
    for job in records:
        runs = [folder / run for run in job["runs"]]
        if all(state_of(run) == "finished" for run in runs):
            named = {"job": job["name"], "label": job["label"]}
            try:
                row = named | result_row(runs) | {"command": job["command"]}
                json.dumps(row, allow_nan=False)  # what was added up may have become too large for it
                found.append(row)
            except ValueError as error:
                why = str(error).rstrip(".")
                damaged[job["name"]] = f"{why}, or remove its folder, and repeat the command."
    return found, damaged


def _failure(folder: Path, job: str) -> Path:
    return folder / "failures" / f"{job}.json"


def _write_page(folder: Path) -> None:
    from trustirl.report.compare import write_comparison  # draws, which takes a while to load

    write_comparison([folder], folder / "report.html")
