"""Flat layouts, by the names of their arrays: ours, D4RL's, Stable-Baselines 2's and il-datasets'.

observations | obs, actions, rewards, next_observations | final_observations, states, times
episode_ends (exclusive) | episode_starts (per step) | terminals and timeouts (per step)
terminated | episode_terminal (per episode), or terminals at the ends
achieved_goal and desired_goal: observations are then the Gymnasium dictionary of a goal task
env_id, env_kwargs, versions, provenance: texts
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from trustirl.core.errors import DemoError
from trustirl.core.observations import flatten
from trustirl.demos.checks import Fields, flags, place

TEXTS = ("env_id", "env_kwargs", "versions", "provenance")
GOALS = ("achieved_goal", "desired_goal")
ENDS = ("episode_ends", "episode_starts", "terminals", "timeouts")
FIELDS = (
    *("observations", "obs", "actions", "rewards", "next_observations", "final_observations", "states", "times"),
    *("terminated", "episode_terminal", *ENDS, *GOALS, *TEXTS, "trustirl_demos"),
)
FORMAT = 1


def understood(arrays: Mapping[str, np.ndarray], path: object, present: Collection[str]) -> Fields:
    """What the arrays of a file mean; `present` are the names of all that it holds."""
    version = arrays.get("trustirl_demos")
    if version is not None and (version.shape or version.dtype.kind not in "iu" or version > FORMAT):
        raise DemoError(f"the demo file {path} has a format that only a newer version of trustirl knows; update.")
    observations = arrays.get("observations", arrays.get("obs"))
    actions = arrays.get("actions")
    if observations is None or actions is None:
        missing = [name for name in ("observations", "actions") if arrays.get(name) is None]
        held = ", ".join(sorted(present)[:20]) or "nothing"
        raise DemoError(
            f"the demo file {path} lacks {' and '.join(missing)}; it holds {held}; if it is a table, name its "
            "columns in Demos.from_table."
        )
    fields: Fields = {name: arrays[name] for name in ("rewards", "states", "times") if name in arrays}
    if all(name in arrays for name in GOALS):
        observations = _with_goals(arrays, observations)
    else:
        successors = ("next_observations", "final_observations")
        fields |= {name: arrays[name] for name in successors if name in arrays}
    if "obs" in arrays and actions.dtype.kind in "iu" and actions.shape[1:] == (1,):
        actions = actions[:, 0]  # Stable-Baselines 2 gives discrete actions an axis of their own
    steps = np.atleast_1d(observations)
    ends = _ends(arrays, steps)
    terminated = arrays.get("terminated", arrays.get("episode_terminal"))
    if terminated is None and "terminals" in arrays and ends is not None:
        terminated = terminated_episodes("terminals", flags("terminals", arrays["terminals"], steps), ends)
    provenance = _provenance({name: str(arrays[name][()]) for name in TEXTS if _is_text(arrays.get(name))})
    fields |= {"observations": observations, "actions": actions, "episode_ends": ends, "terminated": terminated}
    return fields | {"provenance": provenance}


def _with_goals(arrays: Mapping[str, np.ndarray], observations: np.ndarray) -> np.ndarray:
    """Observations of a goal task, flattened as the environment's dictionary is."""
    parts = {name: arrays[name] for name in GOALS} | {"observation": observations}
    for name, rows in parts.items():
        if rows.ndim != 2 or rows.shape[:1] != observations.shape[:1] or rows.dtype.kind != "f":
            raise DemoError(
                f"demo {name} must hold one vector of floats per step, like the observations, got {rows.dtype} of "
                f"shape {rows.shape}."
            )
    return flatten(parts, len(observations))


def _ends(arrays: Mapping[str, np.ndarray], steps: np.ndarray) -> np.ndarray | None:
    if "episode_ends" in arrays:
        return arrays["episode_ends"]
    if "episode_starts" in arrays:
        starts = np.flatnonzero(flags("episode_starts", arrays["episode_starts"], steps))
        if not len(starts) or starts[0] != 0:
            raise DemoError("demo episode_starts must mark step 0, where the first episode starts.")
        return np.append(starts[1:], len(steps))
    if "terminals" in arrays and "timeouts" in arrays:
        over = flags("terminals", arrays["terminals"], steps) | flags("timeouts", arrays["timeouts"], steps)
        ends = np.flatnonzero(over) + 1
        return ends if len(ends) and ends[-1] == len(steps) else np.append(ends, len(steps))  # the last one was cut
    if "terminals" in arrays or "timeouts" in arrays:
        missing = "timeouts" if "terminals" in arrays else "terminals"
        raise DemoError(
            f"the demos lack {missing}, so nobody knows where every episode ends; add them or episode_ends."
        )
    return None


def terminated_episodes(name: str, terminals: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Whether each episode ended in a terminal state; one in the middle of an episode is a contradiction."""
    last = np.zeros(len(terminals), bool)
    if ends.dtype.kind not in "iu" or ends.ndim != 1 or not ((ends > 0) & (ends <= len(terminals))).all():
        return last[: len(ends)] if ends.ndim else last  # the ends are wrong, and will be named
    last[ends - 1] = True
    if (terminals & ~last).any():
        step = int(np.argmax(terminals & ~last))
        raise DemoError(
            f"demo {name} mark {place(step, ends) if step < ends[-1] else f'step {step}'}, which does not end it; "
            "correct them or the episodes."
        )
    return terminals[ends - 1]


def _is_text(array: np.ndarray | None) -> bool:
    return array is not None and array.ndim == 0 and array.dtype.kind == "U"


def _provenance(texts: Mapping[str, str]) -> dict[str, Any]:
    """What texts say of the origin; ours is an object of JSON, others write a sentence."""
    told: dict[str, Any] = {name: text for name, text in texts.items() if name != "provenance"}
    source = texts.get("provenance")
    try:
        content = json.loads(source or "{}")
    except (ValueError, RecursionError):
        content = source
    return told | (content if isinstance(content, dict) else {"source": source})
