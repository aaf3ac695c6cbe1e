"""What a suite asks: a list of questions, built in or read from TOML."""

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from trustirl.algorithms import ALGORITHMS, MODULES
from trustirl.core.errors import InputError, unknown_name
from trustirl.core.files import read_text

THEORETICAL_C = 111_373.55  # Theorem 1 with CartPole's |A| = 2, R = 1 and discount 0.9
# Columns of the paper's table, then what else there is; those that this version does not have are left out.
COLUMNS: tuple[str, ...] = ("piro", "ml-irl", "bc", "gail", "dac", "airl", "mm", "filter", "hype")
COLUMNS += ("sqil", "iq-learn", "ls-iq", "csil", "p2il", "f-irl")
BUDGETS = {  # longest first, or it runs on alone in the end
    "HalfCheetah-v4": 1_000_000,
    "Humanoid-v4": 500_000,
    "Ant-v4": 400_000,
    "Walker2d-v4": 400_000,
    "Hopper-v4": 300_000,
}
MAZES = ("Large", "Medium", "UMaze")
MOST_BYTES = 2**17  # of a file: a thousand jobs, and of the worst kind two seconds and 100 MiB
MOST_DOTS = 100  # in a line of it: time and memory to read a key grow with the square of its dots
DEEPEST = 20  # lists and tables in one another
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Question:
    """One algorithm on one task with all its seeds; `overrides` are settings by name."""

    algorithm: str
    task: str
    demos: str = "packaged"
    demo_episodes: int | None = None
    demo_choice: str = "first"
    steps: int | None = None
    seeds: int = 5
    first_seed: int = 0
    task_args: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    offline: bool = False

    @property
    def name(self) -> str:
        """What its folder is called."""
        parts = filter(None, (self.task, self.algorithm, "offline" * self.offline, self.label))
        return re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(parts)).strip("-.")


class Suite(NamedTuple):
    """A list of questions."""

    name: str
    questions: tuple[Question, ...]


TYPES: dict[str, tuple[type, str]] = {
    "algorithm": (str, "a text"),
    "task": (str, "a text"),
    "demos": (str, "a text"),
    "demo_episodes": (int, "a whole number"),
    "demo_choice": (str, "a text"),
    "steps": (int, "a whole number"),
    "seeds": (int, "a whole number"),
    "first_seed": (int, "a whole number"),
    "task_args": (dict, "a table"),
    "overrides": (dict, "a table"),
    "label": (str, "a text"),
    "offline": (bool, "true or false"),
}


def find_suite(name: str) -> Suite:
    """A built-in suite, or that of a .toml file."""
    if name.endswith(".toml"):
        return read_suite(Path(name))
    if name not in SUITES:
        known = f"{unknown_name('suite', name, SUITES)}".rstrip(".")
        raise InputError(f"{known}; or name a .toml file.")
    return Suite(name, tuple(SUITES[name]()))


def read_suite(path: Path) -> Suite:
    """A suite of our format: `[[jobs]]`, and `[defaults]` for what they share; relative files are beside it."""
    if not path.exists():
        raise InputError(f"{path} does not exist; name a suite or a .toml file.")
    text = read_text(path, MOST_BYTES)
    if any(line.count(".") > MOST_DOTS for line in text.split("\n")):
        raise InputError(f"{path} has a line with more than {MOST_DOTS} dots; write it as several lines.")
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is no TOML of ours: it is nested too deeply, or has too long a number.") from None
    for key in content.keys() - {"name", "defaults", "jobs"}:
        raise unknown_name(f"key in {path},", key, ("name", "defaults", "jobs"))
    name, defaults, jobs = content.get("name", path.stem), content.get("defaults", {}), content.get("jobs")
    if not isinstance(name, str) or not FOLDER_NAME.fullmatch(name):
        raise InputError(
            f"{path} is called {name!r:.60}, and a suite's folder is called like it: give it a name of at most 100 "
            "letters, digits, '.', '_' and '-' that begins with a letter or digit."
        )
    if not isinstance(defaults, dict) or not isinstance(jobs, list) or not jobs:
        raise InputError(f"{path} must hold at least one [[jobs]] table, and [defaults] as a table if at all.")
    return Suite(name, tuple(_question(defaults, job, number, path) for number, job in enumerate(jobs, 1)))


def _question(defaults: Mapping[str, Any], job: Any, number: int, path: Path) -> Question:
    where = f"job {number} of {path}"
    if not isinstance(job, dict):
        raise InputError(f"{where} must be a table.")
    given = dict(defaults) | job
    _check_plain(given, where)
    for key, value in given.items():
        if key not in TYPES:
            raise unknown_name(f"key in {where},", key, TYPES)
        kind, words = TYPES[key]
        if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
            raise InputError(f"{key} of {where} must be {words}, got {value!r:.60}.")
    for key in ("algorithm", "task"):
        if not given.get(key):
            raise InputError(f"{where} has no {key}; every job needs an algorithm and a task.")
    for key in given.get("task_args", ()):
        if not key.isidentifier():
            raise InputError(f"task_args of {where} must be arguments by name, and {key!r} is no name.")
    question = Question(**given)
    named = question.demos.partition(":")[0] in ("packaged", "minari")
    return question if named else replace(question, demos=str((path.parent / question.demos).resolve()))


def _check_plain(value: Any, where: str, depth: int = 0) -> None:
    """Refuse what bench.json could not hold or a terminal not show; TOML knows more than texts and plain numbers."""
    if isinstance(value, dict | list) and depth < DEEPEST:
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_plain(part, where, depth + 1)
        return
    if isinstance(value, str):
        plain = value.isprintable()
    elif isinstance(value, int):
        plain = -(2**63) <= value < 2**63
    else:
        plain = isinstance(value, float) and math.isfinite(value)
    if plain:
        return
    if isinstance(value, dict | list):
        raise InputError(f"{where} has more than {DEEPEST} lists or tables in one another; make it flatter.")
    told = "too long a whole number" if isinstance(value, int) else f"{value!r:.60}"
    raise InputError(
        f"{where} holds {told}; write texts without control characters, finite numbers of 64 bits, and no dates."
    )


def _smoke() -> Iterable[Question]:
    """Minutes on two cores: does everything work?"""
    for algorithm in ("piro", "ml-irl", "trro", "mce"):
        yield Question(algorithm, "gridworld", steps=100, seeds=2)
    for algorithm in ("piro", "ml-irl"):
        small = {"steps_per_iteration": 1000, "rounds": 5, "evaluate_every": 2, "checkpoint_every": 2}
        cartpole = {"width": 64, "batch": 64, "reward_batch": 256} | small
        yield Question(algorithm, "CartPole-v1", demo_episodes=1, steps=8_000, seeds=3, overrides=cartpole)
        pendulum = {"width": 64, "batch": 64, "reward_width": 64} | small
        yield Question(algorithm, "Pendulum-v1", demo_episodes=10, steps=8_000, seeds=3, overrides=pendulum)


def _paper_mujoco() -> Iterable[Question]:
    """The paper's five MuJoCo rows, and as many of its columns as this version has."""
    for algorithm in filter(MODULES.__contains__, COLUMNS):
        for task, steps in BUDGETS.items():
            offline = "simulator" not in ALGORITHMS[algorithm].worlds
            yield Question(algorithm, task, demo_episodes=1, steps=None if offline else steps)


def _sensitivity() -> Iterable[Question]:
    """PIRO with one setting of its trust region changed at a time; ML-IRL beside it with as many steps per update."""
    varied: dict[str, tuple[Any, ...]] = {
        "target": (0.1, 0.5, 1.0, 4.0, 16.0),
        "x": (1.1, 2.0),
        "y": (1.1, 2.0),
        "inner_steps": (1, 2, 5, 20),
        "penalty": ("squared",),
    }
    changes = {f"{name} {value}": {name: value} for name, values in varied.items() for value in values}
    shared = {label: settings for label, settings in changes.items() if "inner_steps" in settings}
    for task, steps in (("HalfCheetah-v4", 200_000), ("Hopper-v4", 120_000)):
        yield from _changed("piro", task, steps, 3, {"default": {}, **changes})
        yield from _changed("ml-irl", task, steps, 3, {"": {}, **shared})


def _ablation() -> Iterable[Question]:
    """PIRO with one ingredient less at a time."""
    without: dict[str, dict[str, Any]] = {
        "default": {},
        "mu at most 0.075": {"mu_max": 0.075},
        "no narrowing": {"narrowing": 0.0},
        "no backtracking": {"trust": "adaptive"},
        "no past steps": {"past_share": 0.0},
        "temperature 0.2": {"temperature": 0.2},
        "no LayerNorm": {"layer_norm": False},
        "tau 0.005": {"tau": 0.005},
        "no cap": {"cap_values": False},
        "actor as fast as the critic": {"actor_learning_rate": 1e-3},
        "no averaging": {"averaging": 0.0},
        "no demonstrated steps": {"demo_share": 0.0},
        "no fading": {"demo_fade": 10**9},
    }
    for task, steps, seeds in (("HalfCheetah-v4", 200_000, 3), ("Walker2d-v4", 250_000, 2)):
        yield from _changed("piro", task, steps, seeds, without)
        yield from _changed("ml-irl", task, steps, seeds, {"": {}})


def _changed(
    algorithm: str, task: str, steps: int, seeds: int, changes: Mapping[str, Mapping[str, Any]]
) -> Iterable[Question]:
    """Short runs, looked at briefly; a job for each change."""
    for label, settings in changes.items():
        brief = {"evaluation_episodes": 5, **settings}
        yield Question(algorithm, task, demo_episodes=1, steps=steps, seeds=seeds, overrides=brief, label=label)


def _cartpole_c() -> Iterable[Question]:
    """The appendix: the theoretical constant as weight of the penalty, against one that adapts, all else alike."""
    weights = {
        "theoretical C": {"mu": THEORETICAL_C, "mu_min": THEORETICAL_C, "mu_max": THEORETICAL_C},
        "adaptive C": {"mu": 0.075, "mu_min": 0.001, "mu_max": 10.0},
    }
    # What the constant was computed for. At its temperature of 1 entropy, which is paid while the pole stands and not
    # after, can balance it without any reward; at the other temperature entropy is worth next to nothing.
    stated = {"discount": 0.9, "reward_bound": 1.0}
    for temperature in (1.0, 1e-4):
        # With the constant any step lowers L: monotone refuses such steps, adaptive, as in the paper, takes them.
        for trust in ("adaptive", "monotone"):
            for name, weight in weights.items():
                overrides = stated | {"temperature": temperature, "trust": trust} | weight
                label = f"{name}, {trust}, temperature {temperature:g}"
                yield Question("piro", "CartPole-v1", demo_episodes=1, overrides=overrides, label=label)
    yield Question("bc", "CartPole-v1", demo_episodes=1)


def _termination() -> Iterable[Question]:
    """What follows the end of an episode."""
    for task, steps in (("CartPole-v1", None), ("Hopper-v4", BUDGETS["Hopper-v4"])):
        for mode in ("T0", "T2", "T3"):
            yield Question("piro", task, demo_episodes=1, steps=steps, overrides={"termination": mode}, label=mode)


def _robots() -> Iterable[Question]:
    """Mazes and the hand's pen, from few demonstrations and many, beside what a clone and no reward reach."""
    nothing = {"trust": "monotone", "mu": 1e5, "mu_min": 1e5, "mu_max": 1e5}  # every step is refused
    at_random = {"clone_start": 0, "clone_pull": 0.0}
    tasks: dict[str, tuple[int, tuple[int, ...]]] = {f"AntMaze_{maze}Dense-v4": (15, (5, 1)) for maze in MAZES}
    tasks["AdroitHandPen-v1"] = (40, (10,))
    for task, (most, fewer) in tasks.items():
        for algorithm in ("piro", "ml-irl", "gail", "sqil", "csil", "bc"):
            yield _robot(algorithm, task, most)
        yield _robot("piro", task, most, "a reward of zero", nothing)
        yield _robot("piro", task, most, "begun at random", at_random)
        if task.startswith("AntMaze"):
            yield _robot("piro", task, most, "all actions", {"action_margin": None})
        for episodes in fewer:
            for algorithm in ("piro", "ml-irl", "bc"):
                yield _robot(algorithm, task, episodes, f"{episodes} shown")
    for maze in MAZES:  # the paper's own: it sees neither where it is nor where it shall go
        for algorithm in ("piro", "ml-irl", "bc"):
            yield _robot(algorithm, f"AntMaze_{maze}Dense-v4", 1, "blind", task_args={"blind": True})


def _robot(
    algorithm: str,
    task: str,
    episodes: int,
    label: str = "",
    settings: Mapping[str, Any] = MappingProxyType({}),
    task_args: Mapping[str, Any] = MappingProxyType({}),
) -> Question:
    """Of three seeds; demonstrations are files in the folder `demos`, called like their task."""
    file = f"demos/{task}.npz"
    return Question(
        algorithm, task, file, episodes, seeds=3, overrides=dict(settings), label=label, task_args=dict(task_args)
    )


SUITES = {
    "smoke": _smoke,
    "paper-mujoco": _paper_mujoco,
    "sensitivity": _sensitivity,
    "ablation": _ablation,
    "cartpole-c": _cartpole_c,
    "termination": _termination,
    "robots": _robots,
}
assert set(TYPES) == {entry.name for entry in fields(Question)}
