"""Reads and checks the files of one run."""

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from trustirl.core.errors import InputError
from trustirl.core.files import read_arrays, read_text
from trustirl.core.worlds import WorldFacts, world_in
from trustirl.evaluation.stats import Stability, stability
from trustirl.report.places import Story, read_story

Numbers = NDArray[np.float64]
Parsed = TypeVar("Parsed")

MOST_METRICS = 2**30  # bytes
METRICS = ("env_steps", "return_mean", "return_std", "ell", "log_likelihood", "gap", "drift", "mu", "seconds")
SOLVER_METRICS = ("q", "entropy", "critic_loss", "temperature", "reward_scale")
OTHERWISE_TOLD = ("seed", "return_min", "return_max", "actor_loss", "suboptimality")  # recorded, and not drawn
OTHER = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")  # metrics of an algorithm's own that can be drawn
MOST_OTHERS = 12
PURPOSES = ("train", "reward", "evaluation")
LARGEST, SMALLEST = 1e100, 1e-100  # the squares of what lies between, and their sums, are finite
MEND = "train the run again or restore the file"


@dataclass(frozen=True)
class Picture:
    """How the states are laid out: a grid of `shape`, or a plain list when `shape` is None."""

    shape: tuple[int, int] | None
    target: int | None


@dataclass(frozen=True, eq=False)
class Metrics:
    """Columns [seeds, evaluations], with NaN where the run wrote null or nothing yet."""

    columns: dict[str, Numbers]
    others: tuple[str, ...] = ()  # columns of an algorithm's own

    def last(self, key: str) -> Numbers:
        """The value at each seed's last evaluation, NaN for a seed that had none."""
        written = np.isfinite(self.columns["iteration"])
        rows = [column[there] for column, there in zip(self.columns[key], written, strict=True)]
        return np.array([row[-1] if row.size else math.nan for row in rows])

    def recorded(self, key: str) -> bool:
        """Whether the run wrote any number for `key`."""
        return bool(np.isfinite(self.columns[key]).any())


@dataclass(frozen=True, eq=False)
class Summary:
    """The run in a few numbers; arrays hold one value per seed, and what is not known is NaN."""

    returns: Numbers
    expert_return: float
    demo_return: float
    random_return: float
    reward_correlation: Numbers
    ell: Numbers
    ell_expert: float
    env_steps: dict[str, int]
    wall_seconds: float
    updates_per_second: float
    practice_seconds: dict[str, float]  # in all, of stepping environments and of policy updates; or nothing


@dataclass(frozen=True, eq=False)
class Maps:
    """Values per state: the learner's are [seeds, states], all others [states].

    The expert is the soft-optimal policy of the task's true reward, where there is one. What was demonstrated is its
    exact occupancy, unless episodes were given or sampled: then their visits are known, too.
    """

    true_reward: Numbers | None
    recovered_reward: Numbers
    expert_visits: Numbers | None
    learner_visits: Numbers
    demo_visits: Numbers | None
    sampled_recovered_reward: Numbers | None


@dataclass(frozen=True, eq=False)
class Comparison:
    """Likelihood per iteration of other algorithms, each from the run's own first iteration on."""

    curves: tuple[tuple[str, Numbers], ...]
    sampled_episodes: int | None


@dataclass(frozen=True, eq=False)
class Certificate:
    """The certified step and guaranteed gain for each error delta."""

    delta: Numbers
    step: Numbers
    gain: Numbers
    largest_delta: float
    constant: float
    occupancy_gap: float


@dataclass(frozen=True, eq=False)
class Known:
    """What can be told where the MDP is known."""

    picture: Picture
    maps: Maps
    comparison: Comparison | None
    certificate: Certificate | None


@dataclass(frozen=True, eq=False)
class RunFiles:
    """What a report shows of a run, checked; while it is not finished, its summary tells what the metrics know."""

    algorithm: str
    task: str
    seeds: tuple[int, ...]
    config: dict[str, Any]
    manifest: dict[str, Any]
    world: WorldFacts
    metrics: Metrics
    summary: Summary
    finished: bool
    steps: int
    learns_reward: bool
    known: Known | None = None
    story: Story | None = None
    left_out: tuple[str, ...] = field(default=(), kw_only=True)  # names of numbers too large to be drawn or compared

    @property
    def paid(self) -> bool:
        """Whether the task has a true reward that is known."""
        return self.known is None or self.known.maps.true_reward is not None

    @property
    def others(self) -> tuple[str, ...]:
        """The metrics that no other part of its page draws."""
        solver = () if self.world.samples else filter(self.metrics.recorded, SOLVER_METRICS)
        return (*solver, *self.metrics.others)

    @property
    def clock(self) -> str:
        """The metric that horizontal axes count."""
        return self.world.clock

    @property
    def cost(self) -> str:
        """The metric that says how long something took to learn."""
        return self.world.cost

    def courses(self, measured_in: str) -> list[Stability]:
        """How steadily each seed learned."""
        curves = zip(self.metrics.columns[measured_in], self.metrics.columns["return_mean"], strict=True)
        expert, random = self.summary.expert_return, self.summary.random_return
        return [stability(steps, returns, expert, random) for steps, returns in curves]


@dataclass(frozen=True)
class _Record:
    """A JSON object that knows where it was read, so that every complaint can name the place."""

    place: str
    values: dict[str, Any]

    def fail(self, key: str, wanted: str) -> NoReturn:
        raise InputError(f"{self.place}: {key!r} must be {wanted}; {MEND}.")

    def text(self, key: str) -> str:
        value = self.values.get(key)
        return value if isinstance(value, str) and value else self.fail(key, "a text that is not empty")

    def number(self, key: str) -> float:
        value = self.values.get(key)
        return float(value) if _is_finite(value) else self.fail(key, "a finite number")

    def whole(self, key: str) -> int:
        value = self.values.get(key)
        return value if type(value) is int and 0 <= value < 2**53 else self.fail(key, "a whole number, 0 or more")

    def flag(self, key: str) -> bool | None:
        value = self.values.get(key)
        return value if value is None or isinstance(value, bool) else self.fail(key, "true or false")

    def number_or_nan(self, key: str) -> float:
        return math.nan if self.values.get(key) is None else self.number(key)

    def items(self, key: str) -> list[Any]:
        value = self.values.get(key)
        return value if isinstance(value, list) and value else self.fail(key, "a list that is not empty")

    def numbers(self, key: str, count: int | None = None, nullable: bool = False) -> Numbers:
        values = self.items(key)
        if not all(_is_finite(value) or (nullable and value is None) for value in values):
            self.fail(key, "a list of finite numbers")
        if count is not None and len(values) != count:
            self.fail(key, f"a list of {count} numbers (it has {len(values)})")
        return np.array([math.nan if value is None else value for value in values], dtype=np.float64)

    def record(self, key: str) -> "_Record":
        value, place = self.values.get(key), f"{self.place}, {key!r}"
        return _Record(place, value) if isinstance(value, dict) else self.fail(key, "an object")

    def records(self, key: str) -> "list[_Record]":
        numbered = _Record(f"{self.place}, {key!r}", {str(i): v for i, v in enumerate(self.items(key))})
        return [numbered.record(i) for i in numbered.values]


def read_run(path: Path) -> RunFiles:
    """Read the run in folder `path`; raise InputError naming the file that is missing or wrong."""
    run = _read(Path(path))
    numbers = run.metrics.columns | _numbers_of(run.summary)
    left_out = tuple(name for name, values in numbers.items() if (np.abs(values) > LARGEST).any())
    summary: dict[str, Any] = {
        name: drawable(values) if isinstance(values, np.ndarray) else float(drawable(np.array(values)))
        for name, values in _numbers_of(run.summary).items()
    }
    columns = {name: drawable(column) for name, column in run.metrics.columns.items()}
    metrics = replace(run.metrics, columns=columns)
    parts: dict[str, Any] = {"metrics": metrics, "summary": replace(run.summary, **summary)}
    return replace(run, **parts, left_out=left_out)


def drawable(values: Numbers) -> Numbers:
    """What is too large to be squared becomes unknown, what is too small to be divided by becomes nothing."""
    size = np.abs(values)
    return np.where(size > LARGEST, math.nan, np.where(size < SMALLEST, 0.0, values))


def _numbers_of(summary: Summary) -> dict[str, Any]:
    return {name: value for name, value in vars(summary).items() if isinstance(value, (float, np.ndarray))}


def _read(folder: Path) -> RunFiles:
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} holds no config.json; give the folder of a run of `trustirl train`.")
    config = _read_json(folder / "config.json")
    manifest = _read_json(folder / "manifest.json")
    seeds = _seeds(manifest)
    shared: dict[str, Any] = {
        "algorithm": config.text("algorithm"),
        "task": config.text("task"),
        "seeds": seeds,
        "config": config.values,
        "manifest": manifest.values,
    }
    summary_file, metrics_file = folder / "summary.json", folder / "metrics.jsonl"
    world = world_in(config.values, config.place)
    if world.expectations:
        maps = _maps(folder / "maps.safetensors", len(seeds))
        record, paid = _read_json(summary_file), maps.true_reward is not None
        metrics = _metrics(metrics_file, seeds, required=("return_mean", "ell") if paid else ("ell",))
        known = Known(
            picture=_picture(record.record("picture"), maps.recovered_reward.shape[1]),
            maps=maps,
            comparison=_if_present(folder / "comparison.json", _comparison),
            certificate=_if_present(folder / "certificate.json", _certificate),
        )
        summary, steps = _exact_summary(record, len(seeds), paid), int(metrics.last("iteration")[0])
        return RunFiles(
            **shared,
            world=world,
            metrics=metrics,
            summary=summary,
            finished=True,
            steps=steps,
            learns_reward=world.learns_reward,
            known=known,
            story=read_story(folder),
        )
    finished = summary_file.exists()
    told = _read_json(summary_file) if finished else None
    learned = told.flag("learns_reward") if told else None
    metrics = _metrics(metrics_file, seeds, required=("env_steps",), growing=not finished)
    summary = _summary(told, len(seeds)) if told else _summary_so_far(metrics)
    return RunFiles(
        **shared,
        world=world,
        metrics=metrics,
        summary=summary,
        finished=finished,
        steps=config.whole("steps"),
        learns_reward=world.learns_reward if learned is None else learned,
    )


def _is_finite(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _parse(text: str, place: str) -> _Record:
    try:
        value = json.loads(text)
        if "\\ud" in text.lower():  # perhaps half of a character, which nothing could be written with
            value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place} is not valid JSON or was cut short ({error}); {MEND}.") from error
    if not isinstance(value, dict):
        raise InputError(f"{place} must hold a JSON object; {MEND}.")
    return _Record(place, value)


def _read_json(path: Path) -> _Record:
    return _parse(read_text(path), str(path))


def _if_present(path: Path, parse: Callable[[_Record], Parsed | None]) -> Parsed | None:
    return parse(_read_json(path)) if path.exists() else None


def _seeds(manifest: _Record) -> tuple[int, ...]:
    seeds = manifest.items("seeds")
    if not all(type(seed) is int for seed in seeds) or len(set(seeds)) != len(seeds):
        manifest.fail("seeds", "a list of different whole numbers")
    return tuple(seeds)


def _metrics(path: Path, seeds: tuple[int, ...], required: tuple[str, ...], growing: bool = False) -> Metrics:
    text = read_text(path, MOST_METRICS)
    if growing:
        text = text[: text.rfind("\n") + 1]  # a last line without its end is still being written
    rows: dict[int, dict[int, _Record]] = {seed: {} for seed in seeds}
    for number, line in enumerate(text.splitlines(), start=1):
        row = _parse(line, f"{path}, line {number}")
        seed, iteration = row.whole("seed"), row.whole("iteration")
        if seed not in rows or iteration in rows[seed]:
            row.fail("seed", f"one of {list(seeds)} with each iteration once")
        rows[seed][iteration] = row
    iterations = sorted({iteration for of_seed in rows.values() for iteration in of_seed})
    if not growing and (not iterations or any(len(of_seed) != len(iterations) for of_seed in rows.values())):
        raise InputError(f"{path} must hold the same iterations for each of the seeds {list(seeds)}; {MEND}.")

    absent = len(seeds) * len(iterations) - sum(map(len, rows.values()))

    def column(key: str) -> Numbers:
        needed = key in required or key == "iteration"
        values = [[of[i].values.get(key) if i in of else None for i in iterations] for of in rows.values()]
        kinds = Counter(map(type, chain.from_iterable(values)))
        if kinds.keys() <= {float, int, NoneType} and kinds[NoneType] <= (absent if needed else math.inf):
            with suppress(OverflowError):
                array = np.array(values, dtype=np.float64)
                if np.isfinite(array).sum() + kinds[NoneType] == array.size:
                    return array
        read = _Record.number if needed else _Record.number_or_nan  # finds the line that is wrong
        return np.array([[read(of[i], key) if i in of else math.nan for i in iterations] for of in rows.values()])

    known = ("iteration", *METRICS, *SOLVER_METRICS)
    others = _others(chain.from_iterable(of_seed.values() for of_seed in rows.values()), {*known, *OTHERWISE_TOLD})
    return Metrics({key: column(key) for key in (*known, *others)}, others)


def _others(records: Iterable[_Record], known: Container[str]) -> tuple[str, ...]:
    """The names of further columns of numbers, the first ones; whatever else stands in a row is passed over."""
    numbers: dict[str, bool] = {}
    for record in records:
        for key, value in record.values.items():
            if key not in known and numbers.get(key, True):
                numbers[key] = OTHER.fullmatch(key) is not None and (value is None or _is_finite(value))
    return tuple(key for key, good in numbers.items() if good)[:MOST_OTHERS]


def _summary(record: _Record, seeds: int, paid: bool = True) -> Summary:
    return Summary(
        returns=record.numbers("returns", seeds) if paid else np.full(seeds, math.nan),
        reward_correlation=np.full(seeds, math.nan),
        ell=np.full(seeds, math.nan),
        ell_expert=math.nan,
        env_steps=_env_steps(record),
        **{key: record.number_or_nan(key) for key in ("expert_return", "demo_return", "random_return")},
        **{key: record.number(key) for key in ("wall_seconds", "updates_per_second")},
        practice_seconds=_practice_seconds(record),
    )


def _practice_seconds(record: _Record) -> dict[str, float]:
    """Older runs, and those without environments, have none."""
    if record.values.get("practice_seconds") is None:
        return {}
    spent = record.record("practice_seconds")
    return {key: spent.number(key) for key in ("practice", "stepping", "updating")}


def _exact_summary(record: _Record, seeds: int, paid: bool) -> Summary:
    """Where no true reward is known, nothing can be compared with it."""
    summary = replace(_summary(record, seeds, paid), ell=record.numbers("ell", seeds))
    if not paid:
        return summary
    record.number("expert_return")  # the exact world always knows it
    correlation = record.numbers("reward_correlation", seeds, nullable=True)
    return replace(summary, reward_correlation=correlation, ell_expert=record.number("ell_expert"))


def _summary_so_far(metrics: Metrics) -> Summary:
    seconds, steps = metrics.last("seconds"), metrics.last("env_steps")
    return Summary(
        returns=metrics.last("return_mean"),
        reward_correlation=np.full(len(seconds), math.nan),
        ell=np.full(len(seconds), math.nan),
        ell_expert=math.nan,
        **dict.fromkeys(("expert_return", "demo_return", "random_return", "updates_per_second"), math.nan),
        env_steps={"train": int(np.nansum(steps))},
        wall_seconds=float(np.fmax.reduce(seconds)),
        practice_seconds={},
    )


def _env_steps(record: _Record) -> dict[str, int]:
    """Steps by purpose; a plain number, as older runs wrote, is what training took."""
    if type(record.values.get("env_steps")) is int:
        return {"train": record.whole("env_steps")}
    by_purpose = record.record("env_steps")
    return {key: by_purpose.whole(key) for key in PURPOSES}


def _picture(record: _Record, states: int) -> Picture:
    if record.text("kind") not in ("grid", "list"):
        record.fail("kind", "'grid' or 'list'")
    if record.text("kind") == "list":
        return Picture(None, None)
    target = None if record.values.get("target") is None else record.whole("target")
    if target is not None and target >= states:
        record.fail("target", f"a state below {states}")
    shape = record.numbers("shape", count=2)
    rows, columns = int(shape[0]), int(shape[1])
    if (rows, columns) != tuple(shape) or min(rows, columns) < 1 or rows * columns != states:
        record.fail("shape", f"two whole numbers whose product is {states}, the states in maps.safetensors")
    return Picture((rows, columns), target)


def _maps(path: Path, seeds: int) -> Maps:
    if not path.is_file():
        raise InputError(f"{path} is missing; this report needs a finished run in the exact world.")
    arrays = {key: np.asarray(value, dtype=np.float64) for key, value in read_arrays(path).items()}
    paid = "true_reward" in arrays
    states = arrays["true_reward"].size if paid else arrays.get("recovered_reward", np.empty(0)).size // seeds

    def array(key: str, *shape: int) -> Numbers:
        value = arrays.get(key)
        if value is None or value.shape != shape or value.size == 0 or not (np.abs(value) <= LARGEST).all():
            raise InputError(f"{path}: {key!r} must be numbers of shape {list(shape)} between ±{LARGEST:g}; {MEND}.")
        if "visits" in key and ((value < 0).any() or (value.sum(axis=-1) <= 0).any()):
            raise InputError(f"{path}: {key!r} must hold no negative number and not only zeros; {MEND}.")
        return value

    def if_there(key: str) -> Numbers | None:
        return array(key, states) if key in arrays else None

    return Maps(
        true_reward=if_there("true_reward"),
        recovered_reward=array("recovered_reward", seeds, states),
        expert_visits=array("expert_visits", states) if paid else None,
        learner_visits=array("learner_visits", seeds, states),
        demo_visits=if_there("demo_visits") if paid else array("demo_visits", states),
        sampled_recovered_reward=if_there("sampled_recovered_reward"),
    )


def _comparison(record: _Record) -> Comparison:
    curves = record.records("curves")
    sampled = record.record("sampled").whole("episodes") if record.values.get("sampled") is not None else None
    return Comparison(tuple((curve.text("label"), drawable(curve.numbers("ell"))) for curve in curves), sampled)


def _certificate(record: _Record) -> Certificate | None:
    delta = record.numbers("delta")
    step, gain = (record.numbers(key, delta.size) for key in ("step", "gain"))
    largest, constant, gap = (record.number(key) for key in ("largest_delta", "constant", "occupancy_gap"))
    told = np.concatenate([delta, step, gain, [largest, constant, gap]])
    return Certificate(delta, step, gain, largest, constant, gap) if (np.abs(told) <= LARGEST).all() else None
