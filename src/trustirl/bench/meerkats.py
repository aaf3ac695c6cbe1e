"""The paper's study of real animals, `trustirl bench meerkats --table FILE`: what meerkats do next, and where.

The world is `World.from_table`'s, with the settings `MEERKATS`; nothing here is special to it but these, and the
names of the files of the official split. Every method answers the same questions as the controls, which learn no
reward.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trustirl.algorithms import ALGORITHMS
from trustirl.core.errors import InputError
from trustirl.core.files import file_hash, read_form, write_json
from trustirl.core.machine import installed
from trustirl.core.precision import double_precision
from trustirl.nets.rewards import RewardInputs, RewardKind
from trustirl.rl.exact import occupancy, solve
from trustirl.tasks.counting import Kernel, Reading, Steps, asked, counted, counted_policy, read_steps
from trustirl.tasks.from_table import DISCOUNT, table_mdp
from trustirl.worlds.many import Question, fit_many
from trustirl.worlds.validation import (
    Measures,
    Part,
    controls,
    folds,
    held_out,
    in_sample,
    itself,
    judged,
    learnt,
    stratum_of,
)

MEERKATS: Mapping[str, Any] = {
    "states": ["zone", "close_neighbours", "distant_neighbours"],
    "actions": "behaviour",
    "episode": ["file_idx", "animal_id"],
    "time": "time",
    "bins": {"close_neighbours": 3, "distant_neighbours": 3},
    "drop": {"behaviour": "None"},
    "moves": "zone",
    "window": 30,
    "gap": 1.0,
}
CAMERA = r"_(C\d+)_"
OFFICIAL = ("22-10-20_C2_20.csv", "22-11-07_C3_03.csv")
OTHER = "other camera"
FOLDS = "folds"
REPEATED = ("in-sample", "official", FOLDS)


@dataclass(frozen=True)
class Method:
    """An algorithm, its reward, and its settings, where they are not its own."""

    algorithm: str
    reward: RewardKind = "table"
    inputs: RewardInputs = "state-action"
    updates: int = 150
    settings: Mapping[str, Any] = field(default_factory=dict)
    splits: Sequence[str] = REPEATED
    previous: bool = False

    @property
    def kind(self) -> str:
        """The class of rewards in a word or two."""
        return "state-only" if self.inputs == "state" else "network" if self.reward == "mlp" else self.reward


SLOW = REPEATED[:2]  # for methods that solve the world many times for each reward update
ADVERSARY = {"reward_step": 0.03, "inner_steps": 20}
METHODS: tuple[Method, ...] = (
    Method("piro", splits=(*REPEATED, OTHER)),
    Method("ml-irl", updates=300, settings={"inner_steps": 10}),
    Method("mce", updates=120, splits=SLOW),
    Method("trro", updates=120, settings={"minorizer": "curvature"}, splits=SLOW),
    Method("gail", updates=200, settings=ADVERSARY),
    Method("airl", updates=200, settings=ADVERSARY),
    Method("mm", updates=300, settings=ADVERSARY),
    Method("piro", inputs="state", splits=(*REPEATED, OTHER)),
    Method("piro", "linear", splits=(*REPEATED, OTHER)),
    Method("piro", "mlp", settings={"reward_step": 0.01}, splits=(*SLOW, OTHER)),
    Method("piro", updates=60, settings={"reward_step": 0.5}, splits=SLOW, previous=True),
)


def split_of(steps: Steps, repeats: int = 5) -> dict[str, list[Part]]:
    """Every split by its name."""
    strata = stratum_of(steps.groups, CAMERA)
    cameras = sorted(set(strata))
    films = {camera: [g for g, s in zip(steps.groups, strata, strict=True) if s == camera] for camera in cameras}
    return {
        "in-sample": [in_sample(steps)],
        "official": [held_out(steps, "official", OFFICIAL)],
        FOLDS: list(folds(steps, strata, 5, repeats)),
        OTHER: [held_out(steps, OTHER, groups) for groups in films.values()],
    }


def run_meerkats(
    table: str, out: Path, repeats: int = 5, only: Sequence[str] = (), told: Callable[[str], None] = print
) -> list[dict[str, Any]]:
    """Fit, judge and write a row for each method and split; rows that `out` holds already stay as they are."""
    file = asked(table)
    rows: list[dict[str, Any]] = list(read_form(out, list[dict[str, Any]])) if out.exists() else []
    known = {
        "task": "meerkats",
        "table_sha256": file_hash(file),
        "versions": {name: installed(name) for name in ("trustirl", "jax", "numpy")},
    }
    if any(row["table_sha256"] != known["table_sha256"] for row in rows):
        raise InputError(f"{out} holds rows of another table; choose another --out.")
    done = {_key(row) for row in rows}
    for previous in (False, True):
        steps = read_steps(file, Reading.of(dict(MEERKATS) | {"previous": previous}))
        splits = split_of(steps, repeats)
        for row in _rows(steps, splits, previous, only, done):
            told(f"{row['algorithm']} ({row['reward']}{', previous action' if previous else ''}), {row['split']}")
            rows.append(row | known)
            out.parent.mkdir(parents=True, exist_ok=True)
            write_json(out, rows)
    return rows


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["algorithm"], row["reward"], row["previous"], row["split"]


def _rows(
    steps: Steps, splits: Mapping[str, list[Part]], previous: bool, only: Sequence[str], done: set[tuple[Any, ...]]
) -> Iterator[dict[str, Any]]:
    """One for each method and split, without those that are there."""
    for split, parts in splits.items():
        worlds = [(part, *learnt(steps, part)) for part in parts]
        for name, control in controls(steps).items():
            row = {"algorithm": name, "reward": "none", "previous": previous, "split": split}
            if _key(row) not in done:
                yield row | _told(judged(control(learn, k), k, steps.part(part.judge)) for part, learn, k in worlds)
        row = {"algorithm": "the other windows", "reward": "none", "previous": previous, "split": split}
        if _key(row) not in done and split != "in-sample":
            yield row | _told(itself(learn, steps.part(part.judge)) for part, learn, _ in worlds)
        for method in METHODS:
            row = {"algorithm": method.algorithm, "reward": method.kind, "previous": previous, "split": split}
            name = "/".join((method.algorithm, method.kind, split, *(("previous",) if previous else ())))
            wanted = not only or any(part in name for part in only)
            if previous == method.previous and split in method.splits and wanted and _key(row) not in done:
                yield from _fitted(row, method, steps, worlds, split == OTHER)


def _fitted(
    row: dict[str, Any],
    method: Method,
    steps: Steps,
    worlds: Sequence[tuple[Part, Steps, Kernel]],
    carried: bool,
) -> Iterator[dict[str, Any]]:
    """What the policies predict; and, to another camera, what the rewards do in the world that was counted there."""
    began = time.process_time()
    with double_precision():
        questions = [question(learn, kernel) for _, learn, kernel in worlds]
        found = fit_many(
            ALGORITHMS[method.algorithm],
            method.settings,
            questions,
            steps.features(),
            method.updates,
            method.reward,
            method.inputs,
        )
    row |= {"updates": method.updates, "settings": dict(method.settings)}
    seconds = {"cpu_seconds": round(time.process_time() - began, 1)}
    given = zip(np.exp(found.log_prob), worlds, strict=True)
    yield row | seconds | _told(judged(policy, kernel, steps.part(part.judge)) for policy, (part, _, kernel) in given)
    if not carried:
        return
    answers = []
    for table, (part, _, _) in zip(found.reward, worlds, strict=True):
        there = steps.part(part.judge)
        kernel = counted(there, seen=steps)
        with double_precision():
            answer = jax.jit(solve)(table_mdp(kernel, DISCOUNT, 1.0), jnp.asarray(table))
        answers.append(judged(np.exp(np.asarray(answer.log_prob)), kernel, there))
    yield row | {"split": f"{OTHER}, solved there"} | _told(answers)


def question(learn: Steps, kernel: Kernel) -> Question:
    """A world, and the exact visits of what was counted in it."""
    mdp = table_mdp(kernel, DISCOUNT, 1.0)
    policy = counted_policy(learn, kernel)
    return Question(mdp, np.asarray(jax.jit(occupancy)(mdp, jnp.log(jnp.maximum(policy, 1e-300)))))


def _told(found: Iterable[Measures]) -> dict[str, Any]:
    """Of every part, so that means and deviations can be computed again; null where a measure is none."""
    columns = zip(*found, strict=True)
    return {
        name: [None if np.isnan(value) else round(float(value), 4) for value in column]
        for name, column in zip(Measures._fields, columns, strict=True)
    }
