"""From questions to runs: everything checked before anything runs, and seeds split where memory is short."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

from trustirl.asking import train_question
from trustirl.bench.suites import Question, Suite
from trustirl.core.errors import InputError, unknown_name
from trustirl.core.files import read_json
from trustirl.experiment import is_exact, question, replay_bytes_per_seed, setting_groups
from trustirl.worlds.job import Experiment
from trustirl.worlds.memory import MOST, free_bytes

FORMAT = 1
NOT_ASKED = ("out", "overwrite")


@dataclass(frozen=True)
class Part:
    """Some seeds of a job, and the folder of their run."""

    run: str  # relative to the bench's folder
    first_seed: int
    seeds: int

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.run.rpartition("/")[2]


@dataclass(frozen=True)
class Job:
    """A question, fully resolved, and the runs that answer it."""

    asked: Question
    experiment: Experiment
    bytes_per_seed: int
    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        """Unique in its suite."""
        return self.asked.name

    @property
    def memory(self) -> int:
        """Bytes of the largest part's replay."""
        return self.bytes_per_seed * max(part.seeds for part in self.parts)

    def arguments(self, part: Part | None = None) -> tuple[str, ...]:
        """The command line of a part, or of the whole job, after `trustirl`."""
        return ("train", *command_line(self.asked, part))

    def record(self) -> dict[str, Any]:
        """What bench.json says of it."""
        head = {name: getattr(self.asked, name) for name in ("name", "algorithm", "task", "label")}
        runs = {"runs": [part.run for part in self.parts], "parts": [asdict(part) for part in self.parts]}
        asked = asdict(self.asked) | {"steps": self.experiment.steps}
        return head | {"command": shlex.join(("trustirl", *self.arguments()))} | runs | asked


def plan(suite: Suite, out: Path, workers: int = 1, only: Sequence[str] = ()) -> list[Job]:
    """The jobs of a suite that are wanted, checked; what the folder's bench.json has decided stays."""
    before = recorded(suite, out)
    names = [entry.name for entry in suite.questions]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{suite.name} has two jobs that would be called {name!r}; give them different labels.")
    jobs = []
    for entry in chosen(suite.questions, only):
        try:
            jobs.append(_job(entry, before.get(entry.name), workers))
        except InputError as error:
            raise InputError(f"job {entry.name!r} of {suite.name}: {error}") from None
    return jobs


def recorded(suite: Suite, out: Path) -> dict[str, dict[str, Any]]:
    """The jobs of an earlier call by name; another suite's folder is refused."""
    file = out / "bench.json"
    if not file.exists():
        return {}
    content = read_json(file)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{file} was written by another version of trustirl; choose another --out.")
    if content.get("suite") != suite.name:
        raise InputError(f"{out} holds the suite {content.get('suite')!r}, not {suite.name!r}; choose another --out.")
    return {job["name"]: job for job in content["jobs"]}


def together(suite: Suite, out: Path, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """What bench.json says of these jobs and of those that earlier calls knew, in the suite's order."""
    known = recorded(suite, out) | {job.name: job.record() for job in jobs}
    return [known[entry.name] for entry in suite.questions if entry.name in known]


def chosen(asked: Sequence[Question], patterns: Sequence[str]) -> list[Question]:
    """The questions whose name contains, or matches, one of the patterns; all if there are none."""
    if not patterns:
        return list(asked)
    found = [
        entry for entry in asked if any(text in entry.name or fnmatchcase(entry.name, text) for text in patterns)
    ]
    if not found:
        some = ", ".join(entry.name for entry in asked[:8]) + (", ..." if len(asked) > 8 else "")
        raise InputError(f"--only {' '.join(patterns)} matches no job; there are {some}.")
    return found


def command_line(asked: Question, part: Part | None = None) -> list[str]:
    """The arguments of `trustirl train` that ask a question, or let some seeds answer it."""
    words = [asked.algorithm, "--task", asked.task]
    if asked.task_args:
        words += ["--task-args", *(f"{name}={_written(value)}" for name, value in asked.task_args.items())]
    words += ["--demos", asked.demos]
    for name in ("demo_episodes", "demo_choice", "steps"):
        value = getattr(asked, name)
        if value is not None and value != "first":
            words += _option(name, value)
    seeds = part or asked
    words += _option("seeds", seeds.seeds)
    if seeds.first_seed:
        words += _option("first_seed", seeds.first_seed)
    settings = dict(asked.overrides)
    if is_exact(asked.task):
        settings = {"compare": False} | settings
    for name, value in settings.items():
        words += _option(name, value)
    return words


def _option(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    text = str(value)
    return [f"--{flag}={text}"] if text.startswith("-") else [f"--{flag}", text]


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _job(asked: Question, before: dict[str, Any] | None, workers: int) -> Job:
    # Names first: their complaint is kinder than the parser's, which then checks every value as on a command line.
    known = {name for default in setting_groups(asked.algorithm, asked.task).values() for name in asdict(default)}
    for name in asked.overrides:
        if name not in known:
            raise unknown_name(f"setting of {asked.algorithm},", name, known)
    told = train_question(command_line(asked))
    experiment = question(**{name: value for name, value in told.items() if name not in NOT_ASKED})
    need = replay_bytes_per_seed(experiment)
    if before is None:
        return Job(asked, experiment, need, tuple(_parts(asked, need, workers)))
    job = Job(asked, experiment, need, tuple(Part(**part) for part in before["parts"]))
    now = job.record()
    before = asdict(Question("", "")) | before  # an older version did not know every key
    changed = [name for name in now if before.get(name) != now[name] and name != "command"]
    if changed:
        raise InputError(f"the folder holds another answer ({', '.join(changed)} changed); choose another --out.")
    return job


def _parts(asked: Question, need: int, workers: int) -> list[Part]:
    free = free_bytes() if need else None
    fits = asked.seeds if free is None else int(MOST * free / workers // need)
    if fits < 1:
        raise InputError(
            f"the replay of one seed needs {need / 2**30:.1f} GiB and {(free or 0) / workers / 2**30:.1f} GiB are "
            "free for it; use fewer steps or workers, or override replay."
        )
    count = -(-asked.seeds // fits)
    bounds = [asked.first_seed + asked.seeds * part // count for part in range(count + 1)]
    if count == 1:
        return [Part(f"runs/{asked.name}", asked.first_seed, asked.seeds)]
    return [Part(f"runs/{asked.name}-seeds-{first}-{end - 1}", first, end - first) for first, end in pairwise(bounds)]
