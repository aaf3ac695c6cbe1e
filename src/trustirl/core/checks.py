"""Numbers that settings must be, told in one sentence before any work begins."""

import math
from typing import Any

from trustirl.core.errors import InputError


def at_least(least: int | float, settings: Any, *names: str) -> None:
    """Refuse the settings of these names that are smaller, or no finite number."""
    for name in names:
        value = getattr(settings, name)
        if not least <= value < math.inf:
            raise InputError(f"{name} must be at least {least:g}, got {value}.")


def positive(settings: Any, *names: str) -> None:
    """Refuse the settings of these names that are not positive and finite."""
    for name in names:
        value = getattr(settings, name)
        if not 0 < value < math.inf:
            raise InputError(f"{name} must be positive and finite, got {value}.")
