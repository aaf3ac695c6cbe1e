"""From questions to runs: everything checked before anything runs, and seeds split where memory is short."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from trustirl.bench.suites import Question, Suite
from trustirl.core.errors import InputError, unknown_setting
from trustirl.core.files import fitting, read_json
from trustirl.demos.formats.minari import is_minari, local_root
from trustirl.training.asking import train_question
from trustirl.training.train import question, setting_groups
from trustirl.worlds.job import Experiment
from trustirl.worlds.memory import MOST, free_bytes
from trustirl.worlds.world import WORLDS, world_of

FORMAT = 1
NOT_ASKED = ("out", "overwrite")
MOST_LETTERS = 180  # of a job's name: its files add some, and file systems take 255
MOST_RUNS = 1000  # of a job


@dataclass(frozen=True)
class Part:
    """Some seeds of a job, and the folder of their run."""

    run: str  # relative to the bench's folder
    first_seed: Annotated[int, Meta(ge=0)]
    seeds: Annotated[int, Meta(ge=1)]

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.run.rpartition("/")[2]


@dataclass(frozen=True)
class Recorded:
    """What bench.json must say of every job; the rest is its question."""

    name: str
    label: str
    command: str
    runs: list[str]
    parts: Annotated[tuple[Part, ...], Meta(min_length=1)]


@dataclass(frozen=True)
class Record:
    """What bench.json must say."""

    jobs: list[Recorded]


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


def plan(
    suite: Suite, out: Path, workers: int = 1, only: Sequence[str] = (), modules: Sequence[str] = ()
) -> list[Job]:
    """The jobs of a suite that are wanted, checked; what the folder's bench.json has decided stays.

    Tasks may be looked up in the `modules`, and in no others: a suite's file must not choose what is imported.
    """
    before = recorded(suite, out)
    for name, times in Counter(entry.name for entry in suite.questions).items():
        if times > 1:
            raise InputError(f"{suite.name} has two jobs that would be called {name!r}; give them different labels.")
        if len(name) > MOST_LETTERS:
            raise InputError(
                f"{suite.name} has a job whose name has {len(name)} letters, {name[:40]!r}...; at most "
                f"{MOST_LETTERS} make a folder, so give it a shorter label."
            )
    jobs = []
    for entry in chosen(suite.questions, only):
        try:
            _check_harmless(entry, modules)
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
    if content.get("format") != FORMAT:
        raise InputError(f"{file} was written by another version of trustirl; choose another --out.")
    if content.get("suite") != suite.name:
        raise InputError(
            f"{out} holds the suite {content.get('suite')!r:.60}, not {suite.name!r}; choose another --out."
        )
    names = {entry.name for entry in suite.questions}
    for job in fitting(content, str(file), Record).jobs:
        named = _named(job.name, [(part.first_seed, part.seeds) for part in job.parts])
        if job.name in names and (job.parts != named or job.runs != [part.run for part in named]):
            # A run is written, and what it held is removed: that must not happen anywhere else.
            raise InputError(
                f"{file} says that {job.name} is not in {out / 'runs'}; restore it, or choose another --out."
            )
    return {job["name"]: job for job in content["jobs"] if job["name"] in names}


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
    if asked.offline:
        words += _option("offline", True)
    seeds = part or asked
    words += _option("seeds", seeds.seeds)
    if seeds.first_seed:
        words += _option("first_seed", seeds.first_seed)
    # Nobody waits for a single run of many: what is drawn for those who do is left out, unless it is asked for.
    looked_at = world_of(asked.algorithm, asked.task, asked.offline).looked_at
    groups = setting_groups(asked.algorithm, asked.task).values() if looked_at else ()
    quiet = {name: vars(default)[name] for default in groups for name in looked_at if name in vars(default)}
    for name, value in (quiet | dict(asked.overrides)).items():
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
    groups = setting_groups(asked.algorithm, asked.task, offline=asked.offline)
    known = {name for default in groups.values() for name in asdict(default)}
    for name in asked.overrides:
        if name not in known:
            raise unknown_setting(asked.algorithm, name, known)
    told = train_question(command_line(asked))
    experiment = question(**{name: value for name, value in told.items() if name not in NOT_ASKED})
    need = WORLDS[experiment.world].check(experiment)
    if before is None:
        return Job(asked, experiment, need, _parts(asked, need, workers))
    parts = fitting(before, f"{asked.name} in bench.json", Recorded).parts
    job = Job(asked, experiment, need, parts)
    now = job.record()
    before = asdict(Question("", "")) | before  # an older version did not know every key
    changed = [name for name in now if before.get(name) != now[name] and name != "command"]
    if changed:
        raise InputError(f"the folder holds another answer ({', '.join(changed)} changed); choose another --out.")
    ends = [asked.first_seed, *(part.first_seed + part.seeds for part in parts)]
    if [part.first_seed for part in parts] != ends[:-1] or ends[-1] != asked.first_seed + asked.seeds:
        raise InputError("the seeds of its runs in bench.json are not those asked for; restore it.")
    return job


def _check_harmless(asked: Question, modules: Sequence[str]) -> None:
    """Refuse to import or to download what only the suite names."""
    # Environments may take another one's id, and Gymnasium imports what stands before a colon of that, too.
    texts = [text for text in _texts(asked.task_args) if ":" in text and not Path(text).is_absolute()]
    named = [asked.task.rpartition(":")[0], *(text.partition(":")[0] for text in texts)]
    for module in filter(None, named):
        if module not in modules:
            raise InputError(
                f"its task or task_args name the module {module!r}, and no file may choose what is imported; if you "
                f"trust it, add --import {module} to the command."
            )
    kind, _, dataset = asked.demos.partition(":")
    if kind == "minari" and not any(is_minari(root / dataset) for root in (Path(), local_root())):
        raise InputError(f"{asked.demos} is not in {local_root()}, and a bench downloads nothing; get it first.")


def _texts(value: Any) -> Iterator[str]:
    """Every text in the arguments of a task."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


def _parts(asked: Question, need: int, workers: int) -> tuple[Part, ...]:
    free = free_bytes() if need else None
    fits = asked.seeds if free is None else int(MOST * free / workers // need)
    if fits < 1:
        raise InputError(
            f"the replay of one seed needs {need / 2**30:.1f} GiB and {(free or 0) / workers / 2**30:.1f} GiB are "
            "free for it; use fewer steps or workers, or override replay."
        )
    count = -(-asked.seeds // fits)
    if count > MOST_RUNS:
        raise InputError(f"memory for {fits} seeds at once makes {count:,} runs of it; ask for fewer seeds.")
    bounds = [asked.first_seed + asked.seeds * part // count for part in range(count + 1)]
    return _named(asked.name, [(first, end - first) for first, end in pairwise(bounds)])


def _named(job: str, seeds: Sequence[tuple[int, int]]) -> tuple[Part, ...]:
    """The parts of a job: each first seed and number of seeds with its folder."""
    if len(seeds) == 1:
        return (Part(f"runs/{job}", *seeds[0]),)
    return tuple(Part(f"runs/{job}-seeds-{first}-{first + count - 1}", first, count) for first, count in seeds)
