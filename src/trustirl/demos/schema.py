"""Demonstrations: an immutable set of episodes of aligned (s_t, a_t) pairs."""

import hashlib
import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Num
from numpy.typing import ArrayLike

from trustirl.core.errors import InputError
from trustirl.core.files import write_bytes
from trustirl.core.mdp import MDP
from trustirl.core.types import Transition

DemoChoice = Literal["first", "longest", "best"]


@dataclass(frozen=True)
class Demos:
    """Steps of all episodes one after another; `episode_ends` are exclusive, so the last one is the length."""

    observations: Num[np.ndarray, "steps ..."]
    actions: Num[np.ndarray, "steps ..."]
    episode_ends: Int[np.ndarray, " episodes"]
    terminated: Bool[np.ndarray, " episodes"]  # the episode ended in a terminal state, not at a time limit
    rewards: Float[np.ndarray, " steps"] | None = None  # for information only: training never reads them

    @classmethod
    def from_numpy(
        cls,
        observations: ArrayLike,
        actions: ArrayLike,
        episode_ends: ArrayLike | None = None,
        terminated: ArrayLike | None = None,
        rewards: ArrayLike | None = None,
    ) -> "Demos":
        """Check arrays and make them demonstrations; without `episode_ends` they are one episode.

        `terminated` says of each episode whether a terminal state ended it (default: none did). `rewards` are kept
        for information: from them comes the expert's return, and training never reads them.
        """
        obs, act = np.array(observations), np.array(actions)
        ends = np.array([len(obs)] if episode_ends is None and obs.ndim else episode_ends)
        for name, array in (("observations", obs), ("actions", act), ("episode_ends", ends)):
            if array.dtype.kind not in "iuf":
                raise InputError(f"demo {name} must be numbers, got dtype {array.dtype}.")
            if array.ndim == 0 or len(array) == 0:
                raise InputError(f"demo {name} must not be empty.")
            if not np.isfinite(array).all():
                raise InputError(f"demo {name} must be finite; row {np.argwhere(~np.isfinite(array))[0][0]} is not.")
        if len(obs) != len(act):
            raise InputError(f"demos need one action per observation, got {len(obs)} and {len(act)}.")
        if ends.dtype.kind == "f" or ends.ndim != 1 or np.any(np.diff(ends, prepend=0) <= 0) or ends[-1] != len(obs):
            raise InputError(
                f"demo episode_ends must be rising whole numbers, the last one equal to the {len(obs)} steps."
            )
        final = np.zeros(len(ends), bool) if terminated is None else np.array(terminated, bool)
        if final.shape != ends.shape:
            raise InputError(
                f"demo terminated must hold one truth value per episode ({len(ends)}), got {final.shape}."
            )
        paid = None if rewards is None else np.array(rewards, float)
        if paid is not None and (paid.shape != (len(obs),) or not np.isfinite(paid).all()):
            raise InputError(f"demo rewards must be one finite number per step ({len(obs)}), got {paid.shape}.")
        for array in (obs, act, ends, final, *([] if paid is None else [paid])):
            array.setflags(write=False)
        return cls(obs, act, ends, final, paid)

    @classmethod
    def from_npz(cls, path: str | os.PathLike[str]) -> "Demos":
        """Read `observations`, `actions` and, if present, `episode_ends` from a NumPy archive."""
        if not Path(path).is_file():
            raise InputError(f"the demo file {path} does not exist; give the path of an .npz file.")
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {key: archive[key] for key in archive.files}
        except (ValueError, OSError, zipfile.BadZipFile, EOFError, AttributeError, TypeError):
            raise InputError(f"the demo file {path} is not a readable .npz archive of plain arrays.") from None
        missing = {"observations", "actions"} - arrays.keys()
        if missing:
            raise InputError(
                f"the demo file {path} lacks {' and '.join(sorted(missing))}; it holds {sorted(arrays)}."
            )
        ends, terminated = arrays.get("episode_ends"), arrays.get("terminated")
        if (
            terminated is None and ends is not None and "terminals" in arrays
        ):  # one flag per step, as D4RL writes them
            terminated = arrays["terminals"][np.clip(ends - 1, 0, len(arrays["terminals"]) - 1)]
        return cls.from_numpy(arrays["observations"], arrays["actions"], ends, terminated, arrays.get("rewards"))

    def save_npz(self, path: Path) -> None:
        """Write what `from_npz` reads."""
        buffer = io.BytesIO()
        arrays: dict[str, Any] = {
            "observations": self.observations,
            "actions": self.actions,
            "episode_ends": self.episode_ends,
            "terminated": self.terminated,
        }
        if self.rewards is not None:
            arrays["rewards"] = self.rewards
        np.savez_compressed(buffer, **arrays)
        write_bytes(path, buffer.getvalue())

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self.episode_ends)

    def take(self, episodes: int, choice: DemoChoice = "first") -> "Demos":
        """So many episodes: the first ones, the longest, or those of the highest return, in the order of the data."""
        if not 1 <= episodes <= len(self):
            raise InputError(f"asked for {episodes} demo episodes of {len(self)}; choose between 1 and {len(self)}.")
        lengths = np.diff(self.episode_ends, prepend=0)
        merit = {"first": np.zeros(len(self)), "longest": lengths, "best": self.returns()}[choice]
        if merit is None:
            raise InputError("these demos hold no rewards, so nobody knows the best; take the first or the longest.")
        chosen = np.sort(np.argsort(-merit, kind="stable")[:episodes])
        steps = np.isin(np.repeat(np.arange(len(self)), lengths), chosen)
        return Demos(
            self.observations[steps],
            self.actions[steps],
            np.cumsum(lengths[chosen]),
            self.terminated[chosen],
            None if self.rewards is None else self.rewards[steps],
        )

    def returns(self) -> Float[np.ndarray, " episodes"] | None:
        """The true return of each episode, where the rewards are known."""
        if self.rewards is None:
            return None
        return np.add.reduceat(self.rewards, np.concatenate([[0], self.episode_ends[:-1]]))

    def time_in_episode(self) -> Int[np.ndarray, " steps"]:
        """t of each step, counted from its own episode's start."""
        starts = np.concatenate([[0], self.episode_ends[:-1]])
        return np.arange(len(self.observations)) - np.repeat(starts, np.diff(self.episode_ends, prepend=0))

    def content_hash(self) -> str:
        """SHA-256 of the data, their dtypes and shapes."""
        digest = hashlib.sha256()
        for array in (self.observations, self.actions, self.episode_ends, self.terminated):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def tabular_measure(demos: Demos, mdp: MDP) -> Transition:
    """Demonstrations of an exact task as a discounted measure: step t weighs discount^t."""
    for name, array, count in (
        ("state", demos.observations, mdp.states),
        ("action", demos.actions, mdp.actions),
    ):
        if array.ndim != 1 or array.dtype.kind == "f":
            raise InputError(
                f"demos of a tabular task hold one {name} number per step, got {array.dtype} {array.shape}."
            )
        if array.min() < 0 or array.max() >= count:
            row = int(np.argmax((array < 0) | (array >= count)))
            raise InputError(
                f"demo step {row} has {name} {array[row]}, but the task has {name}s 0..{count - 1}; "
                "were the demos made for another task or size?"
            )
    weight = np.asarray(mdp.discount) ** demos.time_in_episode()
    return Transition(
        jnp.asarray(demos.observations, jnp.int32), jnp.asarray(demos.actions, jnp.int32), jnp.asarray(weight)
    )
