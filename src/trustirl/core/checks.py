"""What settings must be, told in one sentence before any work begins."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from trustirl.core.errors import InputError

KINDS: dict[type, tuple[Any, str]] = {
    bool: (bool, "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "a text"),
    dict: (Mapping, "a mapping of names to values"),
    list: ((list, tuple), "a list of names"),
}


def of_kind(kind: type, name: str, value: Any) -> Any:
    """The value as a plain one of this kind; 2 is a number too, 2.0 no whole one, and NumPy's are welcome."""
    wide, called = KINDS[kind]
    if not isinstance(value, wide) or isinstance(value, bool) != (kind is bool):
        raise InputError(f"{name} must be {called}, got {value!r}.")
    return kind(value)


def counts(least: int, **given: Any) -> list[Any]:
    """The counts as plain numbers, unless one is smaller or no whole number; None is one that was not given."""
    plain = [None if count is None else of_kind(int, name, count) for name, count in given.items()]
    for name, count in zip(given, plain, strict=True):
        if count is not None and count < least:
            raise InputError(f"{name} must be at least {least}, got {count}.")
    return plain


def at_least(least: int | float, settings: Any, *names: str) -> None:
    """Refuse the settings of these names that are smaller, or no finite number."""
    for name in names:
        value = getattr(settings, name)
        if not least <= value < math.inf:
            raise InputError(f"{name} must be at least {least:g}, got {value}.")


def at_most(most: int | float, settings: Any, *names: str) -> None:
    """Refuse the settings of these names that are larger, and would fill memory or overflow before they helped."""
    for name in names:
        value = getattr(settings, name)
        if value > most:
            raise InputError(f"{name} must be at most {most:,}, got {value}.")


def positive(settings: Any, *names: str) -> None:
    """Refuse the settings of these names that are not positive and finite."""
    for name in names:
        value = getattr(settings, name)
        if not 0 < value < math.inf:
            raise InputError(f"{name} must be positive and finite, got {value}.")
