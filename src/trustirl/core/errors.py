"""Errors a user can act on. Each message is one sentence: what is wrong and how to mend it."""

import difflib
from collections.abc import Iterable

from trustirl.core.words import printable


class TrustIRLError(Exception):
    """Base of every error we raise on purpose; the command line prints it without a traceback."""

    exit_code = 1

    def __init__(self, sentence: str) -> None:
        """Sentences quote names and texts out of files."""
        super().__init__(printable(sentence))


class InputError(TrustIRLError, ValueError):
    """Bad usage or bad input; nothing has been computed or overwritten yet."""

    exit_code = 2


class DemoError(InputError):
    """Demonstrations that cannot be used as they are; the sentence names the field, the episode and the cure."""


class NumericalError(TrustIRLError, ArithmeticError):
    """A quantity stopped being finite; what was good before it is still on disk."""

    exit_code = 3


class Interrupted(TrustIRLError):
    """Someone asked to stop; the state was saved and can be resumed."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name nobody knows, with the near ones first."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else f"choose from {', '.join(known)}."
    return InputError(f"unknown {kind} {name!r}: {hint}")
