"""Every algorithm by name: one file each here, and those that other packages register."""

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from trustirl.algorithms.entry import NAME, ActionKind, Defaults, Entry, WorldName
from trustirl.core.errors import InputError, unknown_name
from trustirl.core.words import printable

__all__ = ["ALGORITHMS", "MODULES", "ActionKind", "Defaults", "Entry", "WorldName", "register"]

GROUP = "trustirl.algorithms"
NAMES = (
    "trro",
    "piro",
    "ml-irl",
    "mce",
    "bc",
    "gail",
    "dac",
    "airl",
    "mm",
    "filter",
    "hype",
    "sqil",
    "iq-learn",
    "ls-iq",
    "csil",
    "p2il",
    "f-irl",
    "trirl",
)
CLONING = "bc"  # what other methods are compared with: no reward, and no environment
MODULES = {name: name.replace("-", "_") for name in NAMES}
TAKEN = {*MODULES, "expert"}  # an expert is trained, too, and its runs are called so


class Algorithms(Mapping[str, Entry]):
    """Entries by name. Each is imported when it is asked for; names are known without."""

    def __init__(self) -> None:
        """Nobody has registered anything yet."""
        self.registered: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        """The entry; InputError where another package's cannot be used."""
        if name in MODULES:
            ours: Entry = import_module(f"{__name__}.{MODULES[name]}").ENTRY
            return ours
        return self.registered[name] if name in self.registered else _loaded(_installed()[name])

    def __contains__(self, name: object) -> bool:
        """Whether there is such an algorithm, as far as its name tells."""
        return name in MODULES or name in self.registered or name in _installed()

    def __iter__(self) -> Iterator[str]:
        """All names."""
        return iter((*MODULES, *self.registered, *_installed()))

    def __len__(self) -> int:
        """How many there are."""
        return len(list(iter(self)))

    def find(self, name: str) -> Entry:
        """The entry; an unknown name is refused, with the near ones."""
        if name not in self:
            raise unknown_name("algorithm", name, self)
        return self[name]

    def usable(self) -> Iterator[Entry]:
        """All entries but those that cannot be used, of which a sentence on stderr tells."""
        for name in self:
            try:
                yield self[name]
            except InputError as error:
                _warn(str(error))

    def trained_in(self, *worlds: WorldName) -> list[str]:
        """The names of all that can be trained in one of these worlds."""
        return [entry.name for entry in self.usable() if set(worlds) & set(entry.worlds)]


ALGORITHMS = Algorithms()


def register(entry: object) -> None:
    """Add an algorithm for this process; for every command, and for processes of a bench, use an entry point."""
    if not isinstance(entry, Entry):
        raise InputError(f"an algorithm is registered as a trustirl.algorithms.Entry, got {entry!r:.60}.")
    if entry.name in ALGORITHMS or entry.name in TAKEN:
        raise InputError(f"the name {entry.name!r} is taken by another algorithm; choose another one.")
    ALGORITHMS.registered[entry.name] = entry


@cache
def _installed() -> dict[str, EntryPoint]:
    """Entry points of installed packages, by name; each name counts once, and ours are ours."""
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        taken = point.name in TAKEN or found.get(point.name, point) != point
        if taken or not NAME.fullmatch(point.name):
            why = "is taken" if taken else "is none for an algorithm"
            _warn(f"{point.value} is left out: the name {point.name!r} {why}; rename its entry point.")
        else:
            found[point.name] = point
    return found


@cache
def _loaded(point: EntryPoint) -> Entry:
    try:
        entry = point.load()
    except Exception as error:  # what another package raises is its own business
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"the algorithm {point.name!r} cannot be loaded from {point.value} ({why:.300}); mend or remove the "
            "package that brings it."
        ) from error
    if not isinstance(entry, Entry) or entry.name != point.name:
        raise InputError(
            f"the entry point {point.name!r} must lead to a trustirl.algorithms.Entry of that name, and "
            f"{point.value} is {entry!r:.80}; mend or remove the package that brings it."
        )
    return entry


def _warn(sentence: str) -> None:
    print(f"trustirl: {printable(sentence)}", file=sys.stderr)
