"""What demonstrations say of the environment that made them: data, never code to run."""

import ast
import contextlib
import json
from collections.abc import Mapping
from typing import Any

LONGEST_TEXT = 1000


def env_arguments(provenance: Mapping[str, Any]) -> dict[str, Any] | None:
    """The arguments that the environment was made with; None where nothing is said that can be read."""
    told = provenance.get("env_kwargs")
    plain = _literal(told) if isinstance(told, str) else told
    return plain if isinstance(plain, dict) else None


def _literal(text: str) -> Any:
    """A value that was written down as JSON or as Python's literal; anything else is nothing."""
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return read(text[:LONGEST_TEXT])
    return None
