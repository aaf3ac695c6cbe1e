"""How well policies predict what others of a table did: parts of its groups, measures, and controls.

Groups (films, animals) are never split, since what is done in one is alike. What is predicted is propagated exactly
from where the judged windows start; nothing is sampled.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from trustirl.core.errors import InputError
from trustirl.tasks.counting import ACTION_PRIOR, Kernel, Steps, counted, counted_policy

LEAST = 1e-4  # what a smaller probability of what was done counts as
Policy = Float[np.ndarray, "states actions"]


class Part(NamedTuple):
    """Windows to learn from, and windows to predict."""

    name: str
    learn: Int[np.ndarray, " windows"]
    judge: Int[np.ndarray, " others"]


class Measures(NamedTuple):
    """Distances in percent, but for `nll` in nats: smaller is better everywhere."""

    visits: float
    """L1 between the shares of time at each place."""
    joint: float
    """L1 between the shares of steps from each place to each."""
    flows: float
    """Total variation between the shares of each pair of places among all moves."""
    nll: float
    """Mean negative log-likelihood of what was done."""
    calibration: float
    """How far the chance given to the likeliest action lies from how often it was done, in ten bins."""


def in_sample(steps: Steps) -> Part:
    """All windows for both: what a method can represent, not what it predicts."""
    everything = np.arange(len(steps.ends))
    return Part("in-sample", everything, everything)


def held_out(steps: Steps, name: str, groups: Sequence[str]) -> Part:
    """Some groups, predicted from the others."""
    numbers = [steps.groups.index(group) for group in groups]
    judged = np.isin(steps.group, numbers)
    if not judged.any() or judged.all():
        raise InputError(f"the part {name} must leave groups on both sides.")
    return Part(name, np.flatnonzero(~judged), np.flatnonzero(judged))


def stratum_of(groups: Sequence[str], pattern: str) -> list[str]:
    """What a pattern finds in the name of each group, such as the camera: its first parenthesis."""
    found = [re.search(pattern, group) for group in groups]
    if missing := [group for group, match in zip(groups, found, strict=True) if match is None]:
        raise InputError(f"the pattern {pattern!r} is not found in the group {missing[0]!r}.")
    return [match[1] if match and match.re.groups else (match[0] if match else "") for match in found]


def folds(steps: Steps, strata: Sequence[str], folds: int = 5, repeats: int = 5) -> Iterator[Part]:
    """Cross-validation by group: each stratum is dealt out evenly, anew in every repeat."""
    present = np.unique(steps.group)
    if len(present) < folds:
        raise InputError(f"{folds} folds need as many groups, and there are {len(present)}.")
    for repeat in range(repeats):
        random, hand = np.random.default_rng(repeat), 0
        fold = np.zeros(len(steps.groups), int)
        for stratum in sorted(set(strata)):
            members = [group for group in present if strata[group] == stratum]
            for group in random.permutation(members):
                fold[group], hand = hand % folds, hand + 1
        for number in range(folds):
            judged = fold[steps.group] == number
            yield Part(f"{folds} x {repeats}", np.flatnonzero(~judged), np.flatnonzero(judged))


def places(steps: Steps) -> Int[np.ndarray, " states"]:
    """The place of each state: the value of the column that moves or, without one, the state."""
    states = np.arange(steps.states) // (1 if steps.before is None else len(steps.actions))
    return states if steps.moving is None else np.unravel_index(states, steps.shape)[steps.moving]


def judged(policy: Policy, kernel: Kernel, steps: Steps) -> Measures:
    """What a policy predicts of windows that it may not have seen, in the world as it was counted elsewhere."""
    predicted, moved = predicted_flows(policy, kernel, steps)
    seen, happened = observed_flows(steps)
    chances = policy[steps.obs]
    given = np.maximum(chances[np.arange(len(steps.obs)), steps.action], LEAST)
    return Measures(
        100 * float(np.abs(predicted - seen).sum()),
        100 * float(np.abs(moved - happened).sum()),
        50 * float(np.abs(_moves(moved) - _moves(happened)).sum()),
        float(-np.log(given).mean()),
        100 * _miscalibration(chances, steps.action),
    )


def predicted_flows(policy: Policy, kernel: Kernel, steps: Steps) -> tuple[np.ndarray, np.ndarray]:
    """Shares of places, and of pairs of a place and the next, over the windows' time."""
    place = places(steps)
    count, lists = int(place.max()) + 1, len(kernel.successors)
    to = np.zeros((lists, count))
    np.add.at(to, (np.arange(lists)[:, None], place[kernel.successors]), kernel.probabilities)
    lengths = np.diff(steps.ends, prepend=0)
    now = np.bincount(steps.obs[steps.starts], minlength=steps.states) / len(steps.ends)
    visits, pairs = np.zeros(count), np.zeros((count, count))
    for time in range(int(lengths.max())):
        alive = (lengths > time).sum() / lengths.sum()
        np.add.at(visits, place, alive * now)
        flow = now[:, None] * policy
        begun = np.zeros((count, lists))  # by place, since pairs of states and lists would be too many
        np.add.at(begun, (place[:, None], kernel.which), flow)
        pairs += alive * begun @ to
        chosen = begun.sum(axis=0)
        now = np.zeros(steps.states)
        np.add.at(now, kernel.successors, chosen[:, None] * kernel.probabilities)
    return visits, pairs


def observed_flows(steps: Steps) -> tuple[np.ndarray, np.ndarray]:
    """The same of what happened."""
    place = places(steps)
    count = int(place.max()) + 1
    each = 1 if steps.before is None else len(steps.actions)
    pairs = np.zeros((count, count))
    np.add.at(pairs, (place[steps.obs], place[steps.after * each]), 1 / len(steps.obs))
    return pairs.sum(axis=1), pairs


def _moves(pairs: np.ndarray) -> np.ndarray:
    away = pairs * (1 - np.eye(len(pairs)))
    return away / max(away.sum(), 1e-300)


def _miscalibration(chances: np.ndarray, done: np.ndarray) -> float:
    best = chances.argmax(axis=1)
    sure, right = chances.max(axis=1), best == done
    box = np.minimum((sure * 10).astype(int), 9)
    off = np.bincount(box, sure, 10) - np.bincount(box, right, 10)
    return float(np.abs(off).sum() / len(done))


Control = Callable[[Steps, Kernel], Policy]


def controls(steps: Steps) -> dict[str, Control]:
    """Policies without any reward: whoever learns one must do better than these to show anything."""
    place, actions = places(steps), len(steps.actions)
    by: dict[str, np.ndarray] = {"marginal": np.zeros_like(place), "counted by place": place}
    if steps.before is not None:
        by["counted by the last action"] = np.arange(steps.states) % actions
    known: dict[str, Control] = {
        "uniform": lambda _part, kernel: np.full(kernel.allowed.shape, 1 / actions),
        **{name: _counted_by(which) for name, which in by.items()},
    }
    if steps.moving is not None:
        known["never leaves"] = lambda part, kernel: _staying(counted_policy(part, kernel), part)
    known["tabular cloning"] = counted_policy
    return known


def _counted_by(which: np.ndarray) -> Control:
    def policy(part: Steps, kernel: Kernel) -> Policy:
        times = np.zeros((int(which.max()) + 1, len(part.actions)))
        np.add.at(times, (which[part.obs], part.action), 1.0)
        usual = np.bincount(part.action, minlength=len(part.actions)) + ACTION_PRIOR / len(part.actions)
        given = np.where(kernel.allowed, (times + ACTION_PRIOR * usual / usual.sum())[which], 0.0)
        shares: Policy = given / given.sum(axis=1, keepdims=True)
        return shares

    return policy


def _staying(policy: Policy, steps: Steps) -> Policy:
    kept = policy.copy()
    kept[:, steps.behaviours :] = 0.0
    return kept / kept.sum(axis=1, keepdims=True)


def itself(learn: Steps, judge: Steps) -> Measures:
    """How far the windows to learn from lie from those to predict, as a prediction by nothing but themselves."""
    (visits, pairs), (seen, happened) = observed_flows(learn), observed_flows(judge)
    moves = 50 * float(np.abs(_moves(pairs) - _moves(happened)).sum())
    return Measures(
        100 * float(np.abs(visits - seen).sum()), 100 * float(np.abs(pairs - happened).sum()), moves, np.nan, np.nan
    )


def learnt(steps: Steps, part: Part) -> tuple[Steps, Kernel]:
    """The part to learn from and the world counted from it; which moves can happen is told by the whole table."""
    some = steps.part(part.learn)
    return some, counted(some, seen=steps)
