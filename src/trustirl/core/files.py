"""Files that are either whole or not there, and that hold data only, never code."""

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from trustirl.core.errors import InputError

MOST_TEXT = 64 * 2**20  # bytes of a text file that we read whole: a hundred times what the largest run writes
MOST_ARRAYS = 64 * 2**30
Size = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]  # how many of something a file tells of


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a file atomically: a reader, or a crash, sees the old content or the new, nothing between.

    A file that is replaced keeps its mode; a new one gets what the user's umask allows.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            os.chmod(temporary, stat.S_IMODE(os.stat(path).st_mode))
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    write_file(path, lambda file: file.write(data))


def write_json(path: Path, content: Any) -> None:
    """JSON for people: indented, and refusing NaN, which is no JSON."""
    write_bytes(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def open_file(path: Path, most: int) -> BinaryIO:
    """Open a regular file of at most `most` bytes: a pipe would wait for ever, a huge file fill the memory."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for somebody to write into it.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; is {path.parent} a trustirl run?") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}).") from None
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and status.st_size <= most:
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISREG(status.st_mode):
        raise InputError(f"{path} has {status.st_size:,} bytes, and at most {most:,} are read; restore it.")
    raise InputError(f"{path} is not a regular file; restore it or name another.")


def read_bytes(path: Path, most: int = MOST_TEXT) -> bytes:
    """All of a regular file, or one sentence that says why it cannot be read."""
    with open_file(path, most) as file:
        try:
            return file.read()
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror or error}).") from None


def read_text(path: Path, most: int = MOST_TEXT) -> str:
    """A text in UTF-8, read like `read_bytes`."""
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text in UTF-8; restore it.") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that we wrote."""
    return dict(read_form(path, dict[str, Any]))


def read_form(path: Path, form: Any) -> Any:
    """Read JSON of a known form: a dataclass, a list of such, or any other type that msgspec understands."""
    return parse_json(read_bytes(path), str(path), form)


def parse_json(data: bytes | str, place: str, form: Any) -> Any:
    """JSON of a known form, or one sentence that names the place and what is wrong there."""
    try:
        return msgspec.json.decode(data, type=form)
    except msgspec.ValidationError as error:
        raise InputError(f"{place} does not hold what it should ({_told(error)}); restore it.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{place} is damaged, cut short or no JSON ({_told(error)}); restore it.") from None


def fitting(content: Any, place: str, form: Any) -> Any:
    """Values that were read already, as `form` describes them."""
    try:
        return msgspec.convert(content, form)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"{place} does not hold what it should ({_told(error)}); restore it.") from None


def _told(error: Exception) -> str:
    return str(error).rstrip(".").replace("`", "")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> str:
    """Named arrays as safetensors; returns the file's SHA-256."""
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    data = safetensors.numpy.save(whole)
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def file_hash(path: Path) -> str:
    """The SHA-256 of a regular file."""
    digest = hashlib.sha256()
    with open_file(path, MOST_ARRAYS) as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read named arrays, or say in one sentence why they cannot be read."""
    open_file(path, MOST_ARRAYS).close()
    try:
        return safetensors.numpy.load_file(path)
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, OverflowError):
        raise InputError(f"{path} is damaged or not a safetensors file; restore it or repeat the run.") from None
