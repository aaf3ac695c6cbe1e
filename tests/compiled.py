"""One program for a whole computation: outside of it each operation is one of its own, and compiles for 15 ms."""

from collections.abc import Callable
from typing import Any

import equinox as eqx


@eqx.filter_jit
def compiled(function: Callable[..., Any], *given: Any) -> Any:
    """What `function(*given)` returns; arrays are traced, everything else is part of the program."""
    return function(*given)
