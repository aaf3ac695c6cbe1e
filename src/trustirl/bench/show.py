"""What a person sees of a bench: a table of its jobs, live on a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from rich.table import Table
from rich.text import Text

from trustirl.bench.estimate import last_row, progress, seconds_left
from trustirl.bench.plan import Job
from trustirl.bench.work import State, state_of
from trustirl.core.errors import InputError
from trustirl.core.files import read_form


def job_state(job: Job, out: Path) -> State:
    """Finished when all its runs are, new when none has begun."""
    states = {state_of(out / part.run) for part in job.parts}
    return states.pop() if len(states) == 1 else "unfinished"


def planned_rows(jobs: Sequence[Job], out: Path) -> list[tuple[str, ...]]:
    """What a dry run tells of each job."""
    rows: list[tuple[str, ...]] = [("Job", "State", "Seeds", "Steps", "Runs", "Memory", "Time left")]
    for job in jobs:
        seconds, measured = seconds_left(job, jobs, out)
        time = duration(seconds) if measured else f"~{duration(seconds)} (rough)"
        state = job_state(job, out)
        rows.append(
            (
                job.name,
                state,
                str(job.asked.seeds),
                f"{job.experiment.steps:,}",
                str(len(job.parts)),
                f"{job.memory / 2**20:,.0f} MiB",
                "" if state == "finished" else time,
            )
        )
    return rows


def live_table(jobs: Sequence[Job], out: Path) -> Table:
    """How far each job is."""
    table = Table("Job", "Done", "Return", "Seconds", box=None)
    for job in jobs:
        share = sum(progress(job, out / part.run) * part.seeds for part in job.parts) / job.asked.seeds
        rows = [row for part in job.parts if (row := last_row(out / part.run))]
        returns = [row.return_mean for row in rows if row.return_mean is not None]
        told = (
            f"{mean(returns):,.2f}" if returns else "",
            f"{max(row.seconds for row in rows):,.0f}" if rows else "",
        )
        failed = (out / "failures" / f"{job.name}.json").exists()
        table.add_row(Text(job.name, "red" if failed else ""), "failed" if failed else f"{share:.0%}", *told)
    return table


@dataclass(frozen=True)
class Summary:
    """What is told of a finished run, of all that its summary.json holds."""

    returns: list[float] | None
    expert_return: float | None
    wall_seconds: float


def finished_line(job: Job, out: Path, number: int, count: int, failure: str = "") -> str:
    """One line for a job that has ended."""
    told = f"[{number}/{count}] {job.name}"
    if failure:
        return f"{told} failed: {failure}"
    if job_state(job, out) != "finished":
        return f"{told} is not finished"
    try:
        summaries: list[Summary] = [read_form(out / part.run / "summary.json", Summary) for part in job.parts]
    except InputError as error:
        return f"{told} failed: {error}"
    seconds = duration(sum(each.wall_seconds for each in summaries))
    returns = [value for summary in summaries for value in summary.returns or ()]
    if not returns:
        return f"{told}: no true reward is known, {seconds}"
    expert = summaries[0].expert_return
    known = "" if expert is None else f" (expert {expert:,.2f})"
    return f"{told}: return {mean(returns):,.2f}{known}, {seconds}"


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
