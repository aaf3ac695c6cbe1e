"""Demonstrations from arrays in memory: flat, padded, or a list of episodes. Everything is copied."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trustirl.core.errors import DemoError
from trustirl.core.observations import flatten
from trustirl.core.words import count
from trustirl.demos.checks import Fields, whole_numbers


def from_arrays(
    observations: Any,
    actions: Any,
    *,
    episode_ends: Any = None,
    lengths: Any = None,
    terminated: Any = None,
    rewards: Any = None,
    next_observations: Any = None,
    final_observations: Any = None,
    states: Any = None,
    provenance: Mapping[str, Any] | None = None,
) -> Fields:
    """See `Demos.from_numpy`."""
    observations, next_observations, final_observations = map(
        _without_names, (observations, next_observations, final_observations)
    )
    per_step = {"observations": observations, "actions": actions}
    known = {"rewards": rewards, "next_observations": next_observations, "states": states}
    per_step |= {name: content for name, content in known.items() if content is not None}
    if lengths is not None:
        if episode_ends is not None:
            raise DemoError("demos take episode_ends (flat arrays) or lengths (padded arrays), not both.")
        padded = {name: as_array(name, content) for name, content in per_step.items()}
        arrays, final = join_episodes(_unpadded(padded, as_array("lengths", lengths)))
    elif episode_ends is None and _are_episodes(observations, actions):
        arrays, final = join_episodes({name: _listed(name, content) for name, content in per_step.items()})
    else:
        arrays, final = {name: as_array(name, content) for name, content in per_step.items()}, None
        if episode_ends is not None:
            arrays["episode_ends"] = as_array("episode_ends", episode_ends)
    if final_observations is not None:
        final = as_array("final_observations", final_observations)
    if terminated is not None:
        arrays["terminated"] = as_array("terminated", terminated)
    return arrays | {"final_observations": final, "provenance": provenance}


def _without_names(observations: Any) -> Any:
    """Dictionaries of arrays as single arrays, flattened like those of an environment; all else as it is."""
    if isinstance(observations, list | tuple) and observations and isinstance(observations[0], Mapping):
        return [_without_names(episode) for episode in observations]
    if not isinstance(observations, Mapping):
        return observations
    parts = {name: as_array(str(name), part) for name, part in observations.items()}
    axes = max(part.ndim for part in parts.values()) - 1 if parts else 0
    shapes = {part.shape[:axes] for part in parts.values()}
    if axes < 1 or len(shapes) != 1 or any(part.dtype.kind not in "biuf" for part in parts.values()):
        told = ", ".join(f"{name} {part.dtype} {part.shape}" for name, part in parts.items()) or "nothing"
        raise DemoError(
            f"a dictionary of demo observations must hold numbers, with one row per step in each part, got {told}."
        )
    (shape,) = shapes
    return flatten(parts, math.prod(shape)).reshape(*shape, -1)


def as_array(name: str, content: Any) -> np.ndarray:
    """A copy of anything that NumPy can make one array of."""
    try:
        return np.array(content)
    except (ValueError, TypeError, OverflowError) as error:
        raise DemoError(
            f"demo {name} cannot be made one array ({str(error).rstrip('.')}); give episodes of different lengths as "
            "a list of arrays."
        ) from None


def join_episodes(episodes: Mapping[str, Sequence[np.ndarray]]) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """One array per field, with `episode_ends`, of arrays per episode; and the final observations.

    These come from observations that have one row more than there are actions, as rollouts often do.
    """
    lengths = [len(rows) if rows.ndim else 0 for rows in episodes["actions"]]
    if not lengths or not all(lengths):
        raise DemoError(
            f"demo episode {lengths.index(0) if lengths else 0} has no actions; leave empty episodes out."
        )
    for name, parts in episodes.items():
        if len(parts) != len(lengths):
            raise DemoError(
                f"demo {name} hold {count(len(parts), 'episode')} and actions {len(lengths)}; they must agree."
            )
    pairs = zip(episodes["observations"], lengths, strict=True)
    surplus = {len(rows) - length for rows, length in pairs if rows.ndim}
    final, joined = None, dict(episodes)
    if surplus == {1}:
        final = _joined("final_observations", [rows[-1:] for rows in episodes["observations"]])
        joined["observations"] = [rows[:-1] for rows in episodes["observations"]]
    for name, parts in joined.items():
        for episode, (rows, length) in enumerate(zip(parts, lengths, strict=True)):
            if rows.ndim == 0 or len(rows) != length:
                raise DemoError(
                    f"demo {name} of episode {episode} have {count(len(rows), 'row') if rows.ndim else 'no rows'} "
                    f"and its actions {length}; give one per step (observations may have one more, in every episode)."
                )
    arrays = {name: _joined(name, parts) for name, parts in joined.items()}
    return arrays | {"episode_ends": np.cumsum(lengths)}, final


def _are_episodes(observations: Any, actions: Any) -> bool:
    """Whether these are lists of arrays of one episode each, and not of one step each.

    Vectors are single steps, unless they are integers that pair off with as many actions: states of a tabular task.
    """
    if not all(
        isinstance(content, list | tuple) and content and all(isinstance(rows, np.ndarray) for rows in content)
        for content in (observations, actions)
    ):
        return False
    if any(rows.ndim == 0 for rows in (*observations, *actions)):
        return False
    if all(rows.ndim == 1 for rows in observations):
        whole = all(rows.dtype.kind in "iu" for rows in observations)
        return whole and [len(rows) for rows in observations] == [len(rows) for rows in actions]
    return True


def _listed(name: str, content: Any) -> list[np.ndarray]:
    if not isinstance(content, list | tuple):
        raise DemoError(f"demo {name} must be a list with one array per episode, like the observations.")
    return [as_array(name, rows) for rows in content]


def _unpadded(padded: Mapping[str, np.ndarray], lengths: np.ndarray) -> dict[str, list[np.ndarray]]:
    counts = whole_numbers("lengths", lengths)
    for name, array in padded.items():
        if array.ndim < 2 or len(array) != len(counts):
            raise DemoError(
                f"demo {name} with lengths must be padded to [{count(len(counts), 'episode')}, time, ...], got "
                f"{array.shape}; for flat arrays give episode_ends=numpy.cumsum(lengths) instead."
            )
    time = padded["actions"].shape[1]
    if not ((counts >= 1) & (counts <= time)).all():
        episode = int(np.argmin((counts >= 1) & (counts <= time)))
        raise DemoError(
            f"demo lengths must lie between 1 and {time}; that of episode {episode} is {counts[episode]}."
        )
    more = int(padded["observations"].shape[1] == time + 1)  # the observation after the last action
    return {
        name: [rows[: count + more * (name == "observations")] for rows, count in zip(array, counts, strict=True)]
        for name, array in padded.items()
    }


def _joined(name: str, parts: Sequence[np.ndarray]) -> np.ndarray:
    for episode, rows in enumerate(parts):
        if rows.shape[1:] != parts[0].shape[1:] or rows.dtype.kind != parts[0].dtype.kind:
            raise DemoError(
                f"demo {name} of episode {episode} are {rows.dtype} of shape {rows.shape[1:]} per step and those of "
                f"episode 0 {parts[0].dtype} of {parts[0].shape[1:]}; they must agree."
            )
    return np.concatenate(parts)
