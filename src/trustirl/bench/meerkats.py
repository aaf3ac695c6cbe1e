"""The paper's study of real animals, `trustirl bench meerkats --table FILE`: what meerkats do next, and where.

The world is `World.from_table`'s, with the settings `MEERKATS`; nothing here is special to it but these, and the
names of the files of the official split. Every method answers the same questions as the controls, which learn no
reward.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

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
    Policy,
    controls,
    folds,
    held_out,
    in_sample,
    itself,
    judged,
    learnt,
    places,
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
CLOSED = "places closed"
DEALS = 5  # of the films into five folds


@dataclass(frozen=True)
class Method:
    """An algorithm, its reward, and its settings, where they are not its own."""

    algorithm: str
    reward: RewardKind = "table"
    inputs: RewardInputs = "state-action"
    updates: int = 300
    settings: Mapping[str, Any] = field(default_factory=dict)
    deals: int = DEALS
    """Of the films into five folds; 1 where each of them takes long."""
    carried: bool = False
    """Whether its reward is also taken to the other camera, and to films where some places were never entered."""
    previous: bool = False

    @property
    def kind(self) -> str:
        """The class of rewards in a word or two."""
        return "state-only" if self.inputs == "state" else "network" if self.reward == "mlp" else self.reward


STEADY = {"reward_step": 0.3, "decay": 0.7, "inner_steps": 10}  # steps that grow small enough to come to rest
SLOW = {"reward_step": 0.03, "inner_steps": 1}  # a discriminator that runs ahead goes in circles
METHODS: tuple[Method, ...] = (
    Method("piro", updates=400, settings=STEADY | {"reward_step": 0.4}, carried=True),
    Method("ml-irl", settings=STEADY),
    Method("trirl", updates=60),
    Method("mm", settings=STEADY),
    Method("mce", updates=120, deals=1),
    Method("trro", updates=120, settings={"minorizer": "curvature"}, deals=1),
    Method("gail", settings=SLOW),
    Method("airl", settings=SLOW),
    Method("piro", "linear", updates=200, deals=1, carried=True),
    Method("piro", inputs="state", updates=200, deals=1),
    Method("piro", "mlp", updates=120, settings={"reward_step": 0.01, "inner_steps": 3}, deals=1),
    Method("piro", updates=60, settings={"reward_step": 1.0, "decay": 0.7, "target": 2.0}, deals=1, previous=True),
)


def split_of(steps: Steps) -> dict[str, list[Part]]:
    """Every split by its name; of the folds, the first five are the first deal."""
    strata = stratum_of(steps.groups, CAMERA)
    cameras = sorted(set(strata))
    films = {camera: [g for g, s in zip(steps.groups, strata, strict=True) if s == camera] for camera in cameras}
    return {
        "in-sample": [in_sample(steps)],
        "official": [held_out(steps, "official", OFFICIAL)],
        FOLDS: list(folds(steps, strata, 5, DEALS)),
        OTHER: [held_out(steps, OTHER, groups) for groups in films.values()],
    }


def run_meerkats(
    table: str, out: Path, only: Sequence[str] = (), told: Callable[[str], None] = print
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
        for row in _rows(steps, previous, only, done):
            told(f"{row['algorithm']} ({row['reward']}{', previous action' if previous else ''}), {row['split']}")
            rows.append(row | known)
            out.parent.mkdir(parents=True, exist_ok=True)
            write_json(out, rows)
    return rows


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["algorithm"], row["reward"], row["previous"], row["split"]


class World(NamedTuple):
    """A part, what it is learned from, and the world counted from that."""

    part: Part
    learn: Steps
    kernel: Kernel


def _rows(steps: Steps, previous: bool, only: Sequence[str], done: set[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """One for each method and split, without those that are there."""
    worlds = {name: [World(part, *learnt(steps, part)) for part in parts] for name, parts in split_of(steps).items()}
    plain = {"reward": "none", "previous": previous}
    for split, here in worlds.items():
        for name, control in controls(steps).items():
            row = {"algorithm": name, "split": split} | plain
            if _key(row) not in done:
                policies = [control(world.learn, world.kernel) for world in here]
                yield row | _told(_predicted(steps, here, policies))
        row = {"algorithm": "the other windows", "split": split} | plain
        if _key(row) not in done and split != "in-sample":
            yield row | _told(itself(world.learn, steps.part(world.part.judge)) for world in here)
    row = {"algorithm": "tabular cloning", "split": CLOSED} | plain
    if _key(row) not in done and not previous:
        yield row | _told(_closed(steps, worlds[FOLDS], [counted_policy(w.learn, w.kernel) for w in worlds[FOLDS]]))
    for method in METHODS:
        row = {"algorithm": method.algorithm, "reward": method.kind, "previous": previous}
        wanted = not only or any(part in f"{method.algorithm}/{method.kind}" for part in only)
        if previous == method.previous and wanted and _key(row | {"split": FOLDS}) not in done:
            yield from _fitted(row, method, steps, worlds)


def _fitted(
    row: dict[str, Any], method: Method, steps: Steps, worlds: Mapping[str, Sequence[World]]
) -> Iterator[dict[str, Any]]:
    """What the policies predict, and what the rewards do where they are taken to; all are learned by one program."""
    began, wanted = time.process_time(), dict(worlds)
    wanted[FOLDS] = worlds[FOLDS][: 5 * method.deals]
    if not method.carried:
        del wanted[OTHER]
    with double_precision():
        found = fit_many(
            ALGORITHMS[method.algorithm],
            method.settings,
            [question(world.learn, world.kernel) for here in wanted.values() for world in here],
            steps.features(),
            method.updates,
            method.reward,
            method.inputs,
        )
    row |= {"updates": method.updates, "settings": dict(method.settings)}
    row |= {"cpu_seconds": round(time.process_time() - began, 1)}  # of all splits together
    first = 0
    for split, here in wanted.items():
        mine = slice(first, first := first + len(here))
        policies, rewards = np.exp(found.log_prob[mine]), found.reward[mine]
        yield row | {"split": split} | _told(_predicted(steps, here, policies))
        if split == OTHER:
            there = [
                World(world.part, world.learn, counted(steps.part(world.part.judge), seen=steps)) for world in here
            ]
            answers = map(solved, (world.kernel for world in there), rewards)
            yield row | {"split": f"{OTHER}, solved there"} | _told(_predicted(steps, there, answers))
        if split == FOLDS and method.carried:
            yield row | {"split": CLOSED} | _told(_closed(steps, here, list(policies)))
            yield (
                row
                | {"split": f"{CLOSED}, solved again"}
                | _told(_closed(steps, here, list(policies), list(rewards)))
            )


def _predicted(steps: Steps, worlds: Sequence[World], policies: Iterable[Policy]) -> Iterator[Measures]:
    for world, policy in zip(worlds, policies, strict=True):
        yield judged(policy, world.kernel, steps.part(world.part.judge))


def _closed(
    steps: Steps, worlds: Sequence[World], policies: Sequence[Policy], rewards: Sequence[Policy] | None = None
) -> Iterator[Measures]:
    """Film by film, with the places that were never entered there closed: nobody can move to them.

    A policy shares out among its other actions what it gave to these; a reward is solved for again.
    """
    for number, (world, policy) in enumerate(zip(worlds, policies, strict=True)):
        for film in np.unique(steps.group[world.part.judge]):
            judge = steps.part(world.part.judge[steps.group[world.part.judge] == film])
            kernel = closed(world.kernel, judge)
            if rewards is not None:
                yield judged(solved(kernel, rewards[number]), kernel, judge)
                continue
            left = np.where(kernel.allowed, policy, 0.0)
            yield judged(left / left.sum(axis=1, keepdims=True), kernel, judge)


def closed(kernel: Kernel, seen: Steps) -> Kernel:
    """The world without moves to places where these steps never are."""
    place, allowed = places(seen), kernel.allowed.copy()
    entered = np.zeros(int(place.max()) + 1, bool)
    entered[place[seen.obs]] = True
    entered[place[seen.after * (1 if seen.before is None else len(seen.actions))]] = True
    allowed[:, seen.behaviours :] &= entered
    return kernel._replace(allowed=allowed)


def solved(kernel: Kernel, reward: Policy) -> Policy:
    """The best policy for a reward in a world."""
    with double_precision():
        return np.exp(np.asarray(_solve(table_mdp(kernel, DISCOUNT, 1.0), jnp.asarray(reward)).log_prob))


_solve = jax.jit(solve)


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
