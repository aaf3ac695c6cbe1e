"""A world of one's own, made from a table of who did what, where and when."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from trustirl.algorithms import ALGORITHMS
from trustirl.core.precision import double_precision
from trustirl.demos.formats.columns import Source, read_columns, write_columns
from trustirl.demos.schema import Demos
from trustirl.tasks.counting import ACTION_PRIOR, PRIOR, Kernel, Reading, Steps, columns_of, counted, read_steps
from trustirl.tasks.exact import ExactTask
from trustirl.tasks.from_table import DISCOUNT, Known, question, table_task
from trustirl.tasks.table_env import ENV_ID, TableEnv

KNOWN = "table"
SOLVED = ("discount", "temperature")  # what only the known world asks


def task_for(algorithm: str) -> str:
    """The task that an algorithm learns on: the known world, if it can, or the environment."""
    return KNOWN if "exact" in ALGORITHMS.find(algorithm).worlds else ENV_ID


class Question(NamedTuple):
    """What `train` is asked of a world."""

    task: str
    task_args: dict[str, Any]
    demos: Demos | str


class World:
    """States, actions and transitions counted from a table, which demonstrates in it; give it to `train` as the task.

    `steps` are what the table says, `kernel` what was counted, `notes` what it cannot say.
    """

    def __init__(self, source: Source, arguments: Mapping[str, Any]) -> None:
        """See `from_table`."""
        self.source, self.arguments = source, dict(arguments)
        self.how = Reading.of(arguments)
        self.steps: Steps = read_steps(source, self.how)
        kernel = counted(self.steps, self.arguments["prior"])
        self.kernel: Kernel = kernel if arguments["mask"] else kernel._replace(allowed=np.ones_like(kernel.allowed))

    @classmethod
    def from_table(
        cls,
        source: Source,
        *,
        states: str | Sequence[str],
        actions: str,
        episode: str | Sequence[str] = (),
        time: str = "",
        group: str = "",
        bins: Mapping[str, Any] | None = None,
        drop: Mapping[str, Any] | None = None,
        moves: str = "",
        previous: bool = False,
        window: int = 0,
        gap: float = 0.0,
        prior: float = PRIOR,
        action_prior: float = ACTION_PRIOR,
        mask: bool = True,
        discount: float = DISCOUNT,
        temperature: float = 1.0,
    ) -> "World":
        """Count a world from a .csv, .tsv, .parquet or .npz file, a DataFrame or a mapping of names to arrays.

        A row is what somebody did at a time: `states` are the columns of where and how things stood, `actions` that
        of what was done, `episode` those that tell tracks apart, and `time` orders a track, which is split where it
        leaps by more than `gap`. `bins` make categories of numbers, {"speed": [0.5, 2]} by edges, {"neighbours": 3}
        as 0, 1, 2, 3 or more; `drop` leaves rows out, {"behaviour": "None"}. `moves` names the state column that
        actions change: a change becomes the action "move to" its next value, and with `mask` moves that never
        happened are forbidden. With `previous`, a state holds what was done before. `window` cuts tracks into
        episodes of so many steps. `prior` are the pseudo-counts of what follows, `action_prior` those of what is
        done, `group` is the column of what is independent.
        """
        listed: dict[str, Any] = {"states": [states] if isinstance(states, str) else list(states)}
        listed["episode"] = [episode] if isinstance(episode, str) else list(episode)
        plain: dict[str, Any] = {
            "actions": actions,
            "time": time,
            "group": group,
            "bins": dict(bins or {}),
            "drop": dict(drop or {}),
        }
        plain |= {"moves": moves, "previous": previous, "window": window, "gap": gap, "mask": mask}
        plain |= {"prior": prior, "action_prior": action_prior}
        return cls(source, listed | plain | {"discount": discount, "temperature": temperature})

    @cached_property
    def task(self) -> ExactTask:
        """The same as a task of the exact world."""
        with double_precision():
            numbers = (self.arguments[name] for name in ("prior", "action_prior", *SOLVED))
            return table_task(self.steps, self.kernel, *numbers)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was read, and what the data cannot say, in sentences without their full stops."""
        known: Known = self.task.table
        return known.notes

    @property
    def demos(self) -> Demos:
        """The table as demonstrations, in numbers of states and actions."""
        assert self.task.shown is not None
        return self.task.shown

    def env(self) -> gym.Env:
        """The same as a Gymnasium environment, which pays nothing; windows end after `task.horizon` steps."""
        return gym.wrappers.TimeLimit(TableEnv(self.steps, self.kernel), self.task.horizon)

    def __repr__(self) -> str:
        """In a line."""
        steps = self.steps
        return f"World({steps.states:,} states, {len(steps.actions)} actions, {len(steps.ends):,} episodes)"

    def question(self, algorithm: str, folder: Path, more: Mapping[str, Any]) -> Question:
        """How an algorithm is trained here: in the known world, if it can be, or by steps of the environment.

        A table in memory is written to the run's folder, which then needs nothing else.
        """
        file = self.source
        if not isinstance(file, str | Path):
            file = folder / "table.npz"
            folder.mkdir(parents=True, exist_ok=True)
            write_columns(file, read_columns(self.source, columns_of(self.how)))
        asked = question(self.arguments | dict(more) | {"file": str(file)})
        if task_for(algorithm) == KNOWN:
            return Question(KNOWN, asked, "packaged")
        asked = {name: value for name, value in asked.items() if name not in SOLVED}
        return Question(ENV_ID, asked | {"max_episode_steps": self.task.horizon}, self.seen())

    def seen(self) -> Demos:
        """The demonstrations as the environment shows them: which value each column has, in ones and noughts."""
        features, demos = self.steps.features().astype(np.float32), self.demos
        following = features[np.asarray(demos.next_observations)]
        return Demos.from_numpy(
            features[demos.observations],
            demos.actions,
            demos.episode_ends,
            next_observations=following,
            provenance=demos.provenance,
        )
