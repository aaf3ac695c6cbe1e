"""Files from outside: nothing they claim is believed before it has been compared with what is there."""

import csv
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trustirl.core.errors import DemoError
from trustirl.core.machine import install_command

FREE_BYTES = 64 * 2**20  # a file may hold this much, however small it is
MOST_EXPANSION = 100  # beyond that, so many bytes per byte of the file; real demonstrations stay below 20
# What parsers say about damaged bytes, as fuzzing shows; anything else is our mistake, and must be seen.
DAMAGE = (
    OSError,
    EOFError,
    ValueError,  # also what is no UTF-8 or no JSON, and most of Arrow's
    RuntimeError,  # h5py's, what Arrow says of types it cannot read, and the RecursionError of nested JSON
    KeyError,  # h5py's, where a name leads nowhere
    TypeError,  # h5py's, where NumPy has no such type
    OverflowError,
    MemoryError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
    csv.Error,
)


def existing_file(path: str | os.PathLike[str], kind: str) -> Path:
    """The path of an ordinary file."""
    file = Path(path)
    if file.is_dir():
        raise DemoError(f"{path} is a directory and not {kind}; give the path of the file in it.")
    if not file.exists():
        raise DemoError(f"the demo file {path} does not exist; give the path of {kind}.")
    if not file.is_file():
        raise DemoError(f"{path} is not an ordinary file; copy the demos to {kind}.")
    return file


def require_plausible(path: Path, claimed: int, size: int) -> None:
    """Refuse a file that claims far more content than it can hold, before memory is asked for it."""
    if claimed > max(FREE_BYTES, MOST_EXPANSION * size):
        raise DemoError(
            f"the demo file {path} has {size} bytes and claims to hold {claimed}; it is damaged or was made to "
            "exhaust memory, so write it again from the data."
        )


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn what a parser says about damaged bytes into a `DemoError`."""
    try:
        yield
    except DemoError:
        raise
    except DAMAGE as error:
        reason = " ".join(str(error).split()).rstrip(".")[:200] or type(error).__name__
        raise DemoError(
            f"the demo file {path} is damaged or not {kind} ({reason}); restore it or write it again."
        ) from None


def missing_package(kind: str, extra: str) -> DemoError:
    """The error for a format whose package is not installed."""
    return DemoError(f"reading or writing {kind} needs more packages: run {install_command(extra)}.")
