"""What demonstrations must be. Arrays are looked at in pieces, so that checking takes no memory worth mentioning."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from trustirl.core.errors import DemoError
from trustirl.core.words import count

PIECE = 2**20  # entries that are looked at together
LARGEST = 1e15  # float32 holds the squares of numbers up to this, and sums of many of them
Fields = dict[str, Any]
"""Arrays by the names of `checked_fields`' arguments: what every format is read into and written from."""


def checked_fields(
    observations: np.ndarray,
    actions: np.ndarray,
    episode_ends: np.ndarray | None = None,
    terminated: np.ndarray | None = None,
    rewards: np.ndarray | None = None,
    *,
    next_observations: np.ndarray | None = None,
    final_observations: np.ndarray | None = None,
    states: np.ndarray | None = None,
    times: np.ndarray | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Fields:
    """The fields of `Demos`, checked and made read-only. The arrays are taken over, not copied."""
    obs, act = _numbers("observations", observations), _numbers("actions", actions)
    steps = len(obs)
    if len(act) != steps:
        raise DemoError(
            f"demos need one action per observation, got {count(steps, 'observation')} and "
            f"{count(len(act), 'action')}; an observation after the last action belongs in final_observations."
        )
    ends = _ends(episode_ends, steps)
    for name, array in (("observations", obs), ("actions", act)):
        _require_finite(name, array, ends)
    fields: Fields = {"observations": obs, "actions": act, "episode_ends": ends}
    fields["terminated"] = np.zeros(len(ends), bool) if terminated is None else flags("terminated", terminated, ends)
    if rewards is not None:
        rewards = _numbers("rewards", rewards)
        rewards = rewards.astype(np.float64) if rewards.dtype.kind != "f" else rewards
        fields["rewards"] = _per_step("rewards", rewards, (steps,), ends)
    if next_observations is not None:
        known = _numbers("next_observations", next_observations)
        fields["next_observations"] = _per_step("next_observations", known, obs.shape, ends)
    elif final_observations is not None:
        fields["next_observations"] = _successors(obs, ends, _numbers("final_observations", final_observations))
    if states is not None:
        states = _numbers("states", states).astype(np.float64, copy=False)
        fields["states"] = _per_step("states", states, (steps, *states.shape[1:]), ends)
    if times is not None:
        fields["times"] = _times(times, ends)
    for array in fields.values():
        array.setflags(write=False)
    return fields | {"provenance": json_mapping(provenance or {})}


def pieces(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """First row and rows of consecutive pieces of bounded size."""
    rows = max(1, PIECE // max(1, array[:1].size))
    for first in range(0, len(array), rows):
        yield first, array[first : first + rows]


def place(step: int, ends: Int[np.ndarray, " episodes"]) -> str:
    """Where a step is, in words."""
    episode = int(np.searchsorted(ends, step, side="right"))
    return f"step {step - (ends[episode - 1] if episode else 0)} of episode {episode}"


def flags(name: str, array: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Truth values, one for each row of `like`; numbers count if they are all 0 or 1."""
    if array.shape != like.shape[:1]:
        raise DemoError(f"demo {name} must hold {len(like)} truth values, got an array of shape {array.shape}.")
    if array.dtype.kind not in "biuf" or not all(((rows == 0) | (rows == 1)).all() for _, rows in pieces(array)):
        raise DemoError(f"demo {name} must be true or false (or 1 or 0) throughout, got dtype {array.dtype}.")
    return array.astype(bool, copy=False)


def whole_numbers(name: str, array: np.ndarray) -> np.ndarray:
    """A vector of integers as int64."""
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise DemoError(
            f"demo {name} must be a vector of whole numbers of an integer dtype, got {array.dtype} {array.shape}."
        )
    if array.dtype.kind == "u" and array.max(initial=0) > np.iinfo(np.int64).max:
        raise DemoError(f"demo {name} holds {array.max()}, which no count of steps can be.")
    return array.astype(np.int64, copy=False)


def json_mapping(content: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a provenance, as JSON would give it back."""
    try:
        copy = json.loads(json.dumps(dict(content), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise DemoError(f"demo provenance must consist of JSON values: {error}.") from None
    return dict(copy)


def _numbers(name: str, array: np.ndarray) -> np.ndarray:
    """Numbers in this machine's byte order, at least one."""
    if array.dtype.kind == "O":
        raise DemoError(
            f"demo {name} are Python objects, not numbers; give episodes of different lengths as a list of arrays."
        )
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise DemoError(f"demo {name} must be integers or floats of at most 64 bits, got dtype {array.dtype}.")
    if array.ndim == 0 or array.size == 0:
        raise DemoError(f"demo {name} must not be empty, got an array of shape {array.shape}.")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _ends(given: np.ndarray | None, steps: int) -> Int[np.ndarray, " episodes"]:
    if given is None:
        return np.array([steps])
    ends = whole_numbers("episode_ends", given)
    if len(ends) == 0:
        raise DemoError("demo episode_ends must not be empty; leave them out if the steps are one episode.")
    falls = np.flatnonzero((ends[1:] <= ends[:-1]) if ends[0] > 0 else np.array([True]))
    if len(falls):
        episode = int(falls[0]) + (1 if ends[0] > 0 else 0)
        raise DemoError(
            f"demo episode_ends must be rising whole numbers from 1 on, but episode {episode} ends at "
            f"{ends[episode]}; they are exclusive: the end of an episode is the start of the next."
        )
    if ends[-1] != steps:
        raise DemoError(
            f"demo episode_ends must be rising whole numbers, the last one equal to the number of steps, {steps}, "
            f"and it is {ends[-1]}."
        )
    return ends


def _require_finite(name: str, array: np.ndarray, ends: np.ndarray) -> None:
    for first, rows in pieces(array):
        if array.dtype.kind == "f" and not (finite := np.isfinite(rows)).all():
            step = first + int(np.argmin(finite.reshape(len(rows), -1).all(axis=1)))
            where = f"that of episode {step}" if name == "final_observations" else place(step, ends)
            raise DemoError(f"demo {name} must be finite; {where} is not: repair it or leave the episode out.")


def _per_step(name: str, array: np.ndarray, shape: tuple[int, ...], ends: np.ndarray) -> np.ndarray:
    if array.shape != shape:
        raise DemoError(
            f"demo {name} must have one row per step and so the shape {shape}, got {array.shape}; leave them out if "
            "they are not known."
        )
    _require_finite(name, array, ends)
    return array


def _successors(obs: np.ndarray, ends: np.ndarray, final: np.ndarray) -> np.ndarray:
    """The observation after each step, from those of the steps and the last one of each episode."""
    if final.shape != (len(ends), *obs.shape[1:]):
        raise DemoError(
            f"demo final_observations must have one row per episode and so the shape {(len(ends), *obs.shape[1:])}, "
            f"got {final.shape}."
        )
    _require_finite("final_observations", final, ends)
    if not np.can_cast(final.dtype, obs.dtype, "same_kind"):
        raise DemoError(f"demo final_observations are {final.dtype} and observations {obs.dtype}; make them alike.")
    following = np.empty_like(obs)
    following[:-1] = obs[1:]
    following[ends - 1] = final
    return following


def _times(given: np.ndarray, ends: np.ndarray) -> np.ndarray:
    times = whole_numbers("times", given)
    if len(times) != ends[-1]:
        raise DemoError(f"demo times must hold one number per step ({ends[-1]}), got {len(times)}.")
    late = np.ones(len(times), bool)  # whether a step comes after the one before it, or begins an episode
    late[1:] = times[1:] > times[:-1]
    late[ends[:-1]] = True
    if not (late & (times >= 0)).all():
        step = int(np.argmin(late & (times >= 0)))
        raise DemoError(
            f"demo times must count steps from 0 on and rise within an episode; {place(step, ends)} is at "
            f"{times[step]}."
        )
    return times
