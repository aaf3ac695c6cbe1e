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
from trustirl.demos.checks import flags, place
from trustirl.demos.schema import Demos, checked

TEXTS = ("env_id", "env_kwargs", "versions", "provenance")
GOALS = ("achieved_goal", "desired_goal")
ENDS = ("episode_ends", "episode_starts", "terminals", "timeouts")
FIELDS = (
    *("observations", "obs", "actions", "rewards", "next_observations", "final_observations", "states", "times"),
    *("terminated", "episode_terminal", *ENDS, *GOALS, *TEXTS, "trustirl_demos"),
)
FORMAT = 1


def from_fields(fields: Mapping[str, np.ndarray], path: object, present: Collection[str]) -> Demos:
    """Demonstrations of named arrays, which are taken over; `present` are the names of all that the file holds."""
    version = fields.get("trustirl_demos")
    if version is not None and (version.shape or version.dtype.kind not in "iu" or version > FORMAT):
        raise DemoError(f"the demo file {path} has a format that only a newer version of trustirl knows; update.")
    observations = fields.get("observations", fields.get("obs"))
    actions = fields.get("actions")
    if observations is None or actions is None:
        missing = [name for name in ("observations", "actions") if fields.get(name) is None]
        held = ", ".join(sorted(present)[:20]) or "nothing"
        raise DemoError(
            f"the demo file {path} lacks {' and '.join(missing)}; it holds {held}; if it is a table, name its "
            "columns in Demos.from_table."
        )
    parts = {name: fields[name] for name in ("rewards", "states", "times") if name in fields}
    if all(name in fields for name in GOALS):
        observations = _with_goals(fields, observations)
    else:
        successors = ("next_observations", "final_observations")
        parts |= {name: fields[name] for name in successors if name in fields}
    if "obs" in fields and actions.dtype.kind in "iu" and actions.shape[1:] == (1,):
        actions = actions[:, 0]  # Stable-Baselines 2 gives discrete actions an axis of their own
    steps = np.atleast_1d(observations)
    ends = _ends(fields, steps)
    terminated = fields.get("terminated", fields.get("episode_terminal"))
    if terminated is None and "terminals" in fields and ends is not None:
        terminated = terminated_episodes("terminals", flags("terminals", fields["terminals"], steps), ends)
    provenance = _provenance({name: str(fields[name][()]) for name in TEXTS if _is_text(fields.get(name))})
    return checked(
        observations=observations,
        actions=actions,
        episode_ends=ends,
        terminated=terminated,
        **parts,
        provenance=provenance,
    )


def _with_goals(fields: Mapping[str, np.ndarray], observations: np.ndarray) -> np.ndarray:
    """Observations of a goal task, flattened as the environment's dictionary is."""
    parts = {name: fields[name] for name in GOALS} | {"observation": observations}
    for name, rows in parts.items():
        if rows.ndim != 2 or rows.shape[:1] != observations.shape[:1] or rows.dtype.kind != "f":
            raise DemoError(
                f"demo {name} must hold one vector of floats per step, like the observations, got {rows.dtype} of "
                f"shape {rows.shape}."
            )
    return flatten(parts, len(observations))


def _ends(fields: Mapping[str, np.ndarray], steps: np.ndarray) -> np.ndarray | None:
    if "episode_ends" in fields:
        return fields["episode_ends"]
    if "episode_starts" in fields:
        starts = np.flatnonzero(flags("episode_starts", fields["episode_starts"], steps))
        if not len(starts) or starts[0] != 0:
            raise DemoError("demo episode_starts must mark step 0, where the first episode starts.")
        return np.append(starts[1:], len(steps))
    if "terminals" in fields and "timeouts" in fields:
        over = flags("terminals", fields["terminals"], steps) | flags("timeouts", fields["timeouts"], steps)
        ends = np.flatnonzero(over) + 1
        return ends if len(ends) and ends[-1] == len(steps) else np.append(ends, len(steps))  # the last one was cut
    if "terminals" in fields or "timeouts" in fields:
        missing = "timeouts" if "terminals" in fields else "terminals"
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
