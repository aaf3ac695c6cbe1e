"""How long jobs will take: by what the same folder has measured, or else by a rough rule."""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trustirl.bench.plan import Job, Part
from trustirl.bench.work import state_of, tail
from trustirl.core.errors import InputError
from trustirl.core.files import parse_json
from trustirl.worlds.world import WORLDS

STARTING = 20.0  # seconds to load and to compile
TAIL = 8192  # bytes at the end of metrics.jsonl that hold its last rows


@dataclass(frozen=True)
class LastRow:
    """What progress is told from."""

    iteration: int
    env_steps: int
    seconds: float
    return_mean: float | None = None


def last_row(run: Path) -> LastRow | None:
    """The newest whole row of a run's metrics, if there is one that can be read."""
    lines = tail(run / "metrics.jsonl", TAIL).split(b"\n")[:-1]
    if not lines:
        return None
    with suppress(InputError):
        row: LastRow = parse_json(lines[-1], "the last row", LastRow)
        return row
    return None


def progress(job: Job, run: Path) -> float:
    """The share of a run that is done."""
    if state_of(run) == "finished":
        return 1.0
    row = last_row(run)
    if row is None:
        return 0.0
    world = WORLDS[job.experiment.world]
    done = row.env_steps if world.facts.samples else row.iteration * world.each(job.experiment)
    return min(1.0, done / job.experiment.steps)


def seconds_left(job: Job, jobs: Sequence[Job], out: Path) -> tuple[float, bool]:
    """Seconds that a job still needs, and whether that was measured."""
    left = [(part, 1 - progress(job, out / part.run)) for part in job.parts]
    left = [(part, share) for part, share in left if state_of(out / part.run) != "finished"]
    measured = _measured(job, [job, *jobs], out)
    rate = rough_seconds(job) if measured is None else measured
    return math.fsum(rate * part.seeds * share for part, share in left), measured is not None or not left


def rough_seconds(job: Job) -> float:
    """Seconds per seed by a rule of thumb."""
    experiment = job.experiment
    return WORLDS[experiment.world].seconds(experiment) + STARTING / experiment.seeds


def _measured(job: Job, jobs: Sequence[Job], out: Path) -> float | None:
    """Seconds per seed of the first run that did the same work."""
    for other in jobs:
        if (other.experiment.task, other.experiment.algorithm) != (job.experiment.task, job.experiment.algorithm):
            continue
        for part in other.parts:
            seconds = _whole_seconds(other, part, out)
            if seconds is not None:
                return seconds / part.seeds * job.experiment.steps / other.experiment.steps
    return None


def _whole_seconds(job: Job, part: Part, out: Path) -> float | None:
    row, done = last_row(out / part.run), progress(job, out / part.run)
    return row.seconds / done if row and done > 0 else None
