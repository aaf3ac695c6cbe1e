"""Gathers run folders and bench folders into rows to compare; what cannot be read is kept with its reason."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from trustirl.core.errors import InputError
from trustirl.core.files import read_form, read_json
from trustirl.evaluation.stats import Stability, normalised, share_falling
from trustirl.report.films import Films, films_of
from trustirl.report.runs import LARGEST, Numbers, RunFiles, read_run

NOT_SETTINGS = ("algorithm", "task", "world", "seeds", "first_seed", "demos")
IN_RUNS = re.compile(r"runs/(?!\.{1,2}\Z)[^/\\\0]+")
MOST_DIFFERENCES = 4  # settings that a label can name before it stops being one


@dataclass(frozen=True)
class Recorded:
    """What is read of a job in bench.json."""

    name: str
    label: str
    runs: list[str]
    command: str = ""


@dataclass(frozen=True)
class Bench:
    """What is read of bench.json."""

    jobs: list[Recorded]
    suite: str = "bench"


@dataclass(frozen=True)
class Failure:
    """A run that cannot be counted, and why."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class Row:
    """One algorithm on one task: all its seeds, from one folder or several."""

    label: str
    task: str
    name: str
    command: str
    runs: tuple[RunFiles, ...]
    films: Films = ()

    @property
    def seeds(self) -> tuple[int, ...]:
        """In the order of every other array of this row."""
        return tuple(chain.from_iterable(run.seeds for run in self.runs))

    @property
    def returns(self) -> Numbers:
        """The last policy's mean true return, per seed."""
        return np.concatenate([run.summary.returns for run in self.runs])

    @property
    def paid(self) -> bool:
        """Whether the task has a true reward that is known."""
        return all(run.paid for run in self.runs)

    @property
    def expert(self) -> float:
        """The expert's return, NaN if unknown."""
        return self.runs[0].summary.expert_return

    @property
    def random(self) -> float:
        """The return of random actions, NaN if unknown."""
        return self.runs[0].summary.random_return

    @property
    def scores(self) -> Numbers:
        """Returns on the scale from random actions to the expert, per seed."""
        return normalised(self.returns, self.random, self.expert)

    @property
    def clock(self) -> str:
        """The metric that its curves are drawn over."""
        return self.runs[0].clock

    @property
    def env_steps(self) -> dict[str, int]:
        """Every step that an environment took, by purpose, over all seeds."""
        purposes = dict.fromkeys(chain.from_iterable(run.summary.env_steps for run in self.runs))
        return {name: sum(run.summary.env_steps.get(name, 0) for run in self.runs) for name in purposes}

    @property
    def wall_seconds(self) -> float:
        """Of all folders together, as if one had followed the other."""
        return math.fsum(run.summary.wall_seconds for run in self.runs)

    @property
    def updates_per_second(self) -> float:
        """Updates of all folders over their time."""
        updates = sum(run.summary.updates_per_second * run.summary.wall_seconds for run in self.runs)
        return updates / self.wall_seconds if self.wall_seconds > 0 else math.nan

    @property
    def versions(self) -> str:
        """The environment's and the simulator's version; in the exact world ours."""
        manifest = self.runs[0].manifest
        simulator, all_versions = manifest.get("task_versions"), manifest.get("versions")
        if isinstance(simulator, dict) and simulator:
            return ", ".join(f"{name} {version}" for name, version in simulator.items())
        return f"trustirl {all_versions.get('trustirl')}" if isinstance(all_versions, dict) else "versions unknown"

    def column(self, key: str) -> Numbers:
        """A metric as [seeds, evaluations], with NaN where a folder has no such evaluation."""
        iterations = [run.metrics.columns["iteration"][0] for run in self.runs]
        every = np.unique(np.concatenate(iterations))
        whole = np.full((len(self.seeds), every.size), math.nan)
        first = 0
        for run, own in zip(self.runs, iterations, strict=True):
            whole[first : first + len(run.seeds), np.searchsorted(every, own)] = run.metrics.columns[key]
            first += len(run.seeds)
        return whole

    def courses(self) -> list[Stability]:
        """How steadily each seed learned."""
        return [course for run in self.runs for course in run.courses(run.cost)]

    def falls(self) -> Numbers:
        """The share of evaluations at which the objective fell, or where that is unknown the likelihood."""
        exact, estimated = self.column("ell"), self.column("log_likelihood")
        return np.array([share_falling(seed) for seed in np.where(np.isfinite(exact), exact, estimated)])


@dataclass(frozen=True, eq=False)
class Study:
    """What there is to compare, and what is missing from it."""

    title: str
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]

    @property
    def labels(self) -> list[str]:
        """Algorithms, in the order in which they were given."""
        return list(dict.fromkeys(row.label for row in self.rows))

    @property
    def tasks(self) -> list[str]:
        """Tasks, in the order in which they were given."""
        return list(dict.fromkeys(row.task for row in self.rows))

    def row(self, label: str, task: str) -> Row | None:
        """The row of an algorithm on a task, if it has one."""
        return next((row for row in self.rows if (row.label, row.task) == (label, task)), None)

    def of_task(self, task: str) -> list[Row]:
        """All rows of a task."""
        return [row for row in self.rows if row.task == task]

    def common(self) -> dict[str, list[Row]]:
        """The rows of every algorithm on the tasks that all of them finished and on which a score has a meaning.

        An algorithm must not gain by having failed on a hard task.
        """
        shared = [task for task in self.tasks if len(self._scored(task)) == len(self.labels)]
        return {
            label: [row for row in self.rows if row.label == label and row.task in shared] for label in self.labels
        }

    def _scored(self, task: str) -> list[Row]:
        return [row for row in self.of_task(task) if np.isfinite(row.scores).all()]


def is_run(path: Path) -> bool:
    """Whether a folder is, or was going to be, a run."""
    return (path / "config.json").is_file() or (path / "manifest.json").is_file()


def is_bench(path: Path) -> bool:
    """Whether a folder holds what `trustirl bench` made."""
    return (path / "bench.json").is_file()


def read_study(paths: Sequence[Path]) -> Study:
    """Read runs and benches; only a path that is neither is refused, a run that is damaged becomes a failure."""
    paths = list({path.resolve(): path for path in map(Path, paths)}.values())
    for path in paths:
        if not is_run(path) and not is_bench(path):
            raise InputError(
                f"{path} holds neither a run nor a bench; give folders of `trustirl train` or `trustirl bench`."
            )
    found = list(chain.from_iterable(_bench(path) if is_bench(path) else _row(path.name, [path]) for path in paths))
    rows = _merge(_label([entry for entry in found if isinstance(entry, Row)]))
    suites = [read_form(path / "bench.json", Bench).suite for path in paths if is_bench(path)]
    return Study(", ".join(suites), tuple(rows), tuple(entry for entry in found if isinstance(entry, Failure)))


def run_folders(path: Path) -> list[Path]:
    """The folders of all runs at a path, finished or not."""
    return [path / run for job in _jobs(path) for run in job.runs] if is_bench(path) else [path]


def _bench(folder: Path) -> Iterator[Row | Failure]:
    """The jobs of a bench; one with several folders has its seeds split over them."""
    for job in _jobs(folder):
        failed = folder / "failures" / f"{Path(job.name).name}.json"
        yield from _row(job.name, [folder / run for run in job.runs], job.label, job.command, _reason(failed))


def _jobs(folder: Path) -> list[Recorded]:
    """All jobs; their runs lie beside bench.json: no page shows other files, and no film is drawn elsewhere."""
    file = folder / "bench.json"
    bench: Bench = read_form(file, Bench)
    for run in chain.from_iterable(job.runs for job in bench.jobs):
        if not IN_RUNS.fullmatch(run):
            raise InputError(f"{file} names the run {run!r}, which is not in {folder / 'runs'}; restore that file.")
    return bench.jobs


def _row(
    name: str, folders: Sequence[Path], label: str = "", command: str = "", reason: str = ""
) -> Iterator[Row | Failure]:
    """The row of one job as far as it can be read, and what cannot; a plain run has no label yet."""
    runs: list[RunFiles] = []
    for folder in folders:
        try:
            run = _finished(folder)
            taken = set(run.seeds) & {seed for other in runs for seed in other.seeds}
            if taken:
                raise InputError(
                    f"{folder} repeats seed {min(taken)} of another folder of this row; remove one of them."
                )
            runs.append(run)
        except (InputError, OSError) as error:
            yield Failure(name, reason or str(error))
    if runs:
        command = command or str(runs[0].manifest.get("command", ""))
        yield Row(label, runs[0].task, name, command, tuple(runs), films_of(folders))


def _finished(folder: Path) -> RunFiles:
    if not is_run(folder):
        raise InputError(f"{folder} holds no run; it has not begun or was removed.")
    if not (folder / "summary.json").exists():
        raise InputError(f"{folder} is not finished; continue it with `trustirl resume {folder}`.")
    run = read_run(folder)
    if run.left_out:
        raise InputError(
            f"{folder} recorded {', '.join(run.left_out)} beyond ±{LARGEST:g}, which cannot be compared; train it "
            "again with smaller steps."
        )
    return run


def _label(rows: list[Row]) -> list[Row]:
    """Name plain runs after their algorithm, and after the settings in which runs on the same task differ.

    Runs that stepped no environment are told apart from those of the same algorithm that did.
    """
    worlds: dict[str, set[str]] = {}
    for row in rows:
        worlds.setdefault(row.runs[0].algorithm, set()).add(row.runs[0].world.name)

    def method(row: Row) -> str:
        first = row.runs[0]
        apart = first.world.name == "offline" and len(worlds[first.algorithm]) > 1
        return f"{first.algorithm} offline" if apart else first.algorithm

    alike: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        if not row.label:
            alike.setdefault((method(row), row.task), []).append(_settings(row))
    differing: dict[str, dict[str, set[str]]] = {}  # by method and setting, the values to tell apart
    for (one, _), settings in alike.items():
        for name in set(chain.from_iterable(settings)):
            values = {each.get(name, "unset") for each in settings}
            if len(values) > 1:
                differing.setdefault(one, {}).setdefault(name, set()).update(values)

    def named(row: Row) -> Row:
        one, settings = method(row), _settings(row)
        told = {name: settings.get(name, "unset") for name in sorted(differing.get(one, ()))}
        told = {name: value for name, value in told.items() if value in differing[one][name]}
        text = (
            row.name if len(told) > MOST_DIFFERENCES else ", ".join(f"{name} {value}" for name, value in told.items())
        )
        return replace(row, label=f"{one} ({text})" if text else one)

    return [row if row.label else named(row) for row in rows]


def _merge(rows: list[Row]) -> list[Row]:
    """One row for each algorithm and task: other seeds of it join, what repeats its seeds is told apart by name."""
    merged: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row.label, row.task)
        if key in merged and _settings(row) == _settings(merged[key]) and not set(row.seeds) & set(merged[key].seeds):
            merged[key] = replace(merged[key], runs=merged[key].runs + row.runs)
            continue
        count = 1
        while key in merged:
            count += 1
            key = (f"{row.label} ({row.name})" + (f" {count}" if count > 2 else ""), row.task)
        merged[key] = replace(row, label=key[0])
    return list(merged.values())


def _settings(row: Row) -> dict[str, str]:
    """Everything that was set, by its own name (no setting's name occurs twice), with what was demonstrated."""
    run = row.runs[0]

    def flat(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for name, value in values.items():
            if isinstance(value, dict):
                yield from flat(value)
            elif name not in NOT_SETTINGS:
                yield name, value if isinstance(value, str) else json.dumps(value)

    return dict(flat(run.config)) | {"demos": str(run.manifest.get("demo_hash", ""))[:8]}


def _reason(file: Path) -> str:
    """Why a job failed, as far as its file can be read."""
    try:
        return str(read_json(file).get("error", "the job failed")) if file.is_file() else ""
    except InputError as error:
        return f"the job failed, and {error}"
