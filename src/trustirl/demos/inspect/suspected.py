"""What looks wrong with demonstrations.

Nothing here decides anything: a finding is a sentence for a person, who knows the data.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Bool

from trustirl.core.words import count
from trustirl.demos.checks import LARGEST, pieces
from trustirl.demos.inspect.seen import Finding, Inspection, Severity, action_bounds, columns

MOST_NAMED = 8  # columns or episodes that a sentence names
MOST_CHOICES = 1000  # beyond so many values, whole numbers are measurements and not choices
REPEATED, AT_BOUNDS = 0.05, 0.2  # shares that are worth a sentence
HUGE = 1e6  # float32, in which networks compute, then has a resolution of about a tenth
# Observation sizes that changed between versions; other tasks kept theirs.
SIZES = {
    **dict.fromkeys(("Ant-v2", "Ant-v3"), 111),
    "Ant-v4": 27,
    "Ant-v5": 105,
    "Humanoid-v4": 376,
    "Humanoid-v5": 348,
}


def suspect(seen: Inspection) -> tuple[Finding, ...]:
    """Everything that looks wrong."""
    return tuple(finding for check in CHECKS for finding in check(seen))


def _observation_size(seen: Inspection) -> Iterator[Finding]:
    """The classic one: demonstrations of another version of the environment."""
    named = str(seen.demos.provenance.get("env_id", ""))
    task, size = seen.task, len(seen.observations.low)
    name, expected = (named, SIZES.get(named)) if task is None else (task.name, task.obs_dim)
    if expected is not None and expected != size:
        others = [other for other, columns in SIZES.items() if columns == size]
        hint = f", as {' and '.join(others)} have" if others else ""
        yield Finding(
            "problem",
            "observations",
            f"There {'is' if size == 1 else 'are'} {count(size, 'observation column')}{hint}, but {name} has "
            f"{expected}: use the version that made the demonstrations, or leave the surplus columns out.",
        )


def _action_kind(seen: Inspection) -> Iterator[Finding]:
    task, actions = seen.task, seen.demos.actions
    if task is None:
        return
    if actions.shape[1:] != task.action_shape:
        yield Finding(
            "problem",
            "actions",
            f"An action has the shape {actions.shape[1:]} and {task.name} wants {task.action_shape}: were the "
            "demonstrations made for another task, or with other arguments of it?",
        )
    elif task.discrete and actions.dtype.kind == "f":
        yield Finding(
            "problem",
            "actions",
            f"Actions are {actions.dtype} and {task.name} takes whole numbers: if they are, say so by "
            "Demos.with_discrete_actions() and save them.",
        )


def _outside_actions(seen: Inspection) -> Iterator[Finding]:
    outside, task = seen.outside, seen.task
    if outside is None or task is None or not outside.entries.any():
        return
    if task.discrete:
        last = task.action_start + task.action_dim - 1
        yield Finding(
            "problem",
            "actions",
            f"{count(outside.entries.sum(), 'action is', 'actions are')} not among {task.action_start}..{last}, "
            f"which {task.name} has: were the demonstrations made for another task, or do they count from another "
            "number?",
        )
        return
    size = seen.demos.actions.size
    yield Finding(
        "warning",
        f"action {_listed(outside.entries > 0, 'column')}",
        f"{outside.entries.sum():,} of {size:,} action entries ({outside.entries.sum() / size:.1%}) "
        f"{'lies' if outside.entries.sum() == 1 else 'lie'} outside the action space of {task.name}, by up to "
        f"{outside.beyond.max():.3g}: they were not clipped; training clips them (--strict refuses), and the "
        "recorded rewards may belong to the raw ones.",
    )


def _actions_at_bounds(seen: Inspection) -> Iterator[Finding]:
    bounds = action_bounds(seen)
    if bounds is None:
        return
    flat = seen.demos.actions.reshape(len(seen.demos.actions), -1)
    there = sum(((rows == bounds[0]) | (rows == bounds[1])).sum(axis=0) for _, rows in pieces(flat))
    share = np.asarray(there) / len(flat)
    if share.mean() > AT_BOUNDS:
        yield Finding(
            "warning",
            f"action {_listed(share > AT_BOUNDS, 'column')}",
            f"{share.mean():.0%} of the action entries lie exactly at a bound: either the expert pushes as hard as "
            "it can, or its actions were clipped before they were saved; if you have the raw ones, compare.",
        )


def _unused_actions(seen: Inspection) -> Iterator[Finding]:
    actions, task = seen.demos.actions, seen.task
    if actions.dtype.kind == "f" or actions.ndim != 1:
        return
    if task is not None and task.discrete:
        first, count = task.action_start, task.action_dim
    else:
        first, last = int(seen.actions.low[0]), int(seen.actions.high[0])
        count = last - first + 1
    if count > MOST_CHOICES:
        return
    taken = np.zeros(count, bool)
    for _, rows in pieces(actions):
        choices = rows.astype(np.int64) - first
        taken[choices[(choices >= 0) & (choices < count)]] = True
    if not taken.all():
        yield Finding(
            "warning",
            "actions",
            f"{_listed(~taken, 'Action', first)} never {'occurs' if (~taken).sum() == 1 else 'occur'}: the expert "
            "may have no use for them, or actions were numbered otherwise when they were recorded.",
        )


def _limits_as_ends(seen: Inspection) -> Iterator[Finding]:
    """Time limits that were written down as terminal states."""
    demos, task, lived = seen.demos, seen.task, seen.demos.lifetimes()
    limit = int(lived[0]) if task is None else task.horizon
    suspect = demos.terminated & (lived == limit)
    if task is None and not (len(demos) > 1 and limit > 1 and suspect.all()):
        return
    if suspect.any():
        whose = "the same length" if task is None else f"the time limit of {task.name}"
        yield Finding(
            "problem",
            _listed(suspect, "episode"),
            f"{_count(suspect)} marked as terminated after exactly {count(limit, 'step')}, {whose}: a time limit is "
            "no terminal state, and a learner would take it for one; mark them as truncated (timeouts) instead.",
        )


def _early_cuts(seen: Inspection) -> Iterator[Finding]:
    demos, task, lived = seen.demos, seen.task, seen.demos.lifetimes()
    if task is None or demos.times is not None:  # with steps left out, nobody knows the last one
        return
    cut = ~demos.terminated & (lived < task.horizon)
    if cut.any():
        lost = cut.all() and len(np.unique(lived)) > 1
        mend = (
            "none is marked as terminated, so the marks may be lost: restore them (terminals)"
            if lost
            else "if a terminal state ended them, mark it; if they were cut, nothing need be done"
        )
        yield Finding(
            "warning" if lost else "note",
            _listed(cut, "episode"),
            f"{_count(cut)} over before the time limit of {count(task.horizon, 'step')} without a terminal state: "
            f"{mend}.",
        )
    if (lived > task.horizon).any():
        yield Finding(
            "problem",
            _listed(lived > task.horizon, "episode"),
            f"{_count(lived > task.horizon)} longer than the time limit of {count(task.horizon, 'step')}: train with "
            f"--task-args max_episode_steps={lived.max()}, or restore ends that are missing.",
        )


def _odd_lengths(seen: Inspection) -> Iterator[Finding]:
    short = seen.demos.lengths() == 1
    if short.any():
        yield Finding(
            "warning",
            _listed(short, "episode"),
            f"{_count(short)} one step long: check where episodes end, or leave them out.",
        )


def _missing_steps(seen: Inspection) -> Iterator[Finding]:
    demos = seen.demos
    gaps = demos.lifetimes() != demos.lengths()
    if gaps.any():
        yield Finding(
            "note",
            _listed(gaps, "episode"),
            f"{_count(gaps)} without some of {'its' if gaps.sum() == 1 else 'their'} steps, as after subsampling: "
            "times are known, so discounts stay right.",
        )


def _wrong_successors(seen: Inspection) -> Iterator[Finding]:
    """Next observations that do not come next: rows out of order, or ends that are missing."""
    demos = seen.demos
    if demos.next_observations is None or demos.times is not None:
        return
    obs, scale = demos.observations.reshape(len(demos.observations), -1), 1e-3 * (1e-3 + seen.observations.std)
    wrong = np.zeros(len(obs), bool)
    for first, rows in pieces(demos.next_observations.reshape(len(obs), -1)[:-1]):
        here = slice(first, first + len(rows))
        wrong[here] = (np.abs(np.subtract(rows, obs[1:][here], dtype=np.float64)) > scale).any(axis=1)
    wrong[demos.episode_ends - 1] = False
    if wrong.any():
        bad = np.logical_or.reduceat(wrong, demos.episode_ends - demos.lengths())
        yield Finding(
            "problem",
            _listed(bad, "episode"),
            f"{wrong.sum():,} of {len(obs):,} next observations are not the observation of the next row: rows are "
            "out of order, or ends of episodes are missing; sort by episode and time, and mark the ends.",
        )


def _constant(seen: Inspection) -> Iterator[Finding]:
    if len(seen.demos.actions) < 2:
        return
    for name, found in (("observation", seen.observations), ("action", seen.actions)):
        still = found.low == found.high
        if still.any():
            # Simulators often report parts that cannot move; an action that nobody uses is stranger.
            severity: Severity = "note" if name == "observation" and not still.all() else "warning"
            yield Finding(
                severity,
                f"{name} {_listed(still, 'column')}",
                f"{still.sum()} of {count(len(still), f'{name} column')} never "
                f"{'changes' if still.sum() == 1 else 'change'}: a sensor may be dead or the column unused; nothing "
                "can be learned from them.",
            )


def _repeated_rows(seen: Inspection) -> Iterator[Finding]:
    """Observations that stand still; whole numbers are states of a small world, where that is nothing strange."""
    demos = seen.demos
    if demos.observations.dtype.kind != "f" or len(demos.observations) < 2:
        return
    flat = demos.observations.reshape(len(demos.observations), -1)
    same = np.zeros(len(flat), bool)
    for first, rows in pieces(flat[1:]):
        same[first : first + len(rows)] = (rows == flat[first : first + len(rows)]).all(axis=1)
    same[demos.episode_ends - 1] = False
    within = len(flat) - len(demos)
    if within and same.sum() > REPEATED * within:
        bad = np.logical_or.reduceat(same, demos.episode_ends - demos.lengths())
        yield Finding(
            "warning",
            _listed(bad, "episode"),
            f"{same.sum() / within:.0%} of the observations equal the one before: rows may have been written twice, "
            "or sensors read less often than actions are taken; keep one of each.",
        )


def _copied_episodes(seen: Inspection) -> Iterator[Finding]:
    demos = seen.demos
    if demos.observations.dtype.kind != "f":
        return
    spans = list(zip(demos.episode_ends - demos.lengths(), demos.episode_ends, strict=True))
    starts = [(end - start, demos.observations[start].tobytes()) for start, end in spans]
    alike = Counter(starts)  # whoever starts like nobody else is no copy, and need not be read
    known: dict[bytes, int] = {}
    original_of: dict[int, int] = {}
    for episode, (start, end) in enumerate(spans):
        if alike[starts[episode]] > 1:
            digest = hashlib.blake2b(digest_size=16)
            for array in (demos.observations, demos.actions):
                digest.update(np.ascontiguousarray(array[start:end]).reshape(-1).view(np.uint8).data)
            original = known.setdefault(digest.digest(), episode)
            if original != episode:
                original_of[episode] = original
    if original_of:
        copies = np.isin(np.arange(len(demos)), list(original_of))
        copy, original = next(iter(original_of.items()))
        yield Finding(
            "warning",
            _listed(copies, "episode"),
            f"{_count(copies)} copied exactly from another ({copy} from {original}, for example): leave "
            "copies out, unless they are to count twice.",
        )


def _odd_rewards(seen: Inspection) -> Iterator[Finding]:
    rewards = seen.demos.rewards
    if rewards is None:
        return
    paid = columns(rewards)
    low, high, mean, std = (float(value[0]) for value in (paid.low, paid.high, paid.mean, paid.std))
    if low == high == 0:
        yield Finding(
            "note", "rewards", "All rewards are 0: if they are not known, leave them out; returns then say so too."
        )
    standard = len(rewards) >= 100 and abs(mean) < 0.02 and abs(std - 1) < 0.02
    scaled = (low, high) in ((0, 1), (-1, 1)) and np.unique(rewards[:1000]).size > 20
    if standard or scaled:
        kind = "mean 0 and deviation 1" if standard else f"the range from {low:g} to {high:g}"
        yield Finding(
            "warning",
            "rewards",
            f"Rewards have {kind}, as if they had been normalised: returns then cannot be compared with those of the "
            "environment; give the raw ones.",
        )


def _huge_observations(seen: Inspection) -> Iterator[Finding]:
    found = seen.observations
    most = np.maximum(np.abs(found.low), np.abs(found.high))
    if (most > LARGEST).any():
        yield Finding(
            "problem",
            f"observation {_listed(most > LARGEST, 'column')}",
            f"Observations reach {most.max():.3g}, and networks can learn from numbers up to {LARGEST:.0g}: rescale "
            "such columns, or leave out the episodes in which a sensor failed.",
        )
    elif (most > HUGE).any():
        yield Finding(
            "warning",
            f"observation {_listed(most > HUGE, 'column')}",
            f"Observations reach {most.max():.3g}, where float32 loses what is behind the point: rescale such "
            "columns, or look for a sensor's error value.",
        )


CHECKS: tuple[Callable[[Inspection], Iterator[Finding]], ...] = (
    _observation_size,
    _action_kind,
    _outside_actions,
    _limits_as_ends,
    _early_cuts,
    _wrong_successors,
    _odd_lengths,
    _repeated_rows,
    _copied_episodes,
    _actions_at_bounds,
    _unused_actions,
    _odd_rewards,
    _huge_observations,
    _constant,
    _missing_steps,
)


def _listed(chosen: Bool[np.ndarray, " places"], noun: str, first: int = 0) -> str:
    """`column 3`, `episodes 0-4, 7`: neighbours as ranges, and not too many of them."""
    places = np.flatnonzero(chosen)
    runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    names = [f"{run[0] + first}" + (f"-{run[-1] + first}" if len(run) > 1 else "") for run in runs]
    rest = sum(len(run) for run in runs[MOST_NAMED:])
    more = f" and {rest} more" if rest else ""
    return f"{noun}{'' if len(places) == 1 else 's'} {', '.join(names[:MOST_NAMED])}{more}"


def _count(chosen: Bool[np.ndarray, " episodes"]) -> str:
    number = int(chosen.sum())
    return f"{number:,} of {count(len(chosen), 'episode')} {'is' if number == 1 else 'are'}"
