"""Files that are either whole or not there, and that hold data only, never code."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from trustirl.core.errors import InputError


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a file atomically: a reader, or a crash, sees the old content or the new, nothing between."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    write_file(path, lambda file: file.write(data))


def write_json(path: Path, content: Any) -> None:
    """JSON for people: indented, and refusing NaN, which is no JSON."""
    write_bytes(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON that we wrote, or say in one sentence why it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; is {path.parent} a finished trustirl run?") from None
    except (OSError, ValueError):
        raise InputError(f"{path} is not readable JSON; restore it or repeat the run with --overwrite.") from None


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Named arrays as safetensors."""
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_bytes(path, safetensors.numpy.save(whole))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read named arrays, or say in one sentence why they cannot be read."""
    try:
        return safetensors.numpy.load_file(path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; is {path.parent} a trustirl run?") from None
    except (SafetensorError, OSError, ValueError):
        raise InputError(f"{path} is damaged or not a safetensors file; restore it or repeat the run.") from None
