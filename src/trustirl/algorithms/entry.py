"""All that the package knows of an algorithm beside its code."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import Any, Literal, get_args

from trustirl.core.errors import InputError

WorldName = Literal["exact", "simulator", "offline"]
ActionKind = Literal["discrete", "continuous"]
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
LONGEST = 40  # letters of a name, which is also that of folders


@dataclass(frozen=True)
class Defaults:
    """Settings by name where they differ from those of the classes, `steps` among them; the exact world has none."""

    ours: Mapping[str, Any] = field(default_factory=dict)
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Ours once more, for tasks that want others."""
    paper: Mapping[str, Any] | None = None
    """What the algorithm's paper gives, in place of all of ours."""
    offline: Mapping[str, Any] = field(default_factory=dict)
    """Those that differ, of the paper's too, where an algorithm that knows simulators steps none."""

    def of(self, task: str, paper: bool = False) -> Mapping[str, Any]:
        """Those of a task."""
        return (self.paper or {}) if paper else {**self.ours, **self.tasks.get(task, {})}


@dataclass(frozen=True)
class Entry:
    """What an algorithm is called, how it is put together, where it can be trained, and where it comes from."""

    name: str
    config: type[Any]
    """A frozen dataclass of its settings."""
    build: Callable[..., Any]
    """Makes the `Algorithm` of `Parts` and the configuration."""
    reference: str
    """The paper."""
    worlds: tuple[WorldName, ...]
    """Where it can be trained; a simulator's task is stepped wherever that is one of them, unless it is asked not to
    be. Who is trained offline learns in `improve` alone, which then sees demonstrated rows alone."""
    actions: tuple[ActionKind, ...] = ("discrete", "continuous")
    needs: frozenset[str] = frozenset()
    """What else a world must offer, by word."""
    defaults: Defaults = Defaults()
    compare: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings, by label, that the exact world draws beside other algorithms."""

    def __post_init__(self) -> None:
        """Refuse what could not be trained, listed or written to a folder."""
        if not isinstance(self.name, str) or len(self.name) > LONGEST or not NAME.fullmatch(self.name):
            raise InputError(
                f"an algorithm's name is made of up to {LONGEST} small letters, digits and single hyphens, got "
                f"{self.name!r:.60}."
            )
        if not (isinstance(self.config, type) and is_dataclass(self.config)) or not callable(self.build):
            raise InputError(f"{self.name} needs a dataclass as config and a function as build.")
        for what, given, known in (
            ("worlds", self.worlds, get_args(WorldName)),
            ("actions", self.actions, get_args(ActionKind)),
        ):
            if not given or isinstance(given, str) or not set(given) <= set(known):
                raise InputError(f"{what} of {self.name} must be some of {', '.join(known)}, got {given!r:.60}.")
