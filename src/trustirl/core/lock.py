"""One writer per folder."""

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from trustirl.core.errors import InputError

fcntl: Any
msvcrt: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
try:
    import msvcrt
except ImportError:  # anywhere else
    msvcrt = None

NAME = ".lock"
BEYOND = 2**30  # Windows lets nobody read what is locked, so the byte that is lies behind the text
NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # what a link points to would be emptied


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder, or say which process does; a lock ends with its process, however that ended.

    The lock is the system's, the file only carries it and says whose it is. On a file system without locks, the
    process that the file names holds the folder as long as it lives.
    """
    file = folder / NAME
    handle = _locked(file)
    try:
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        yield
    finally:
        with suppress(PermissionError):
            file.unlink(missing_ok=True)  # before the lock ends, so that nobody else's is removed
        os.close(handle)
        if msvcrt is not None:  # Windows removes no file that is open: neither ours before, nor another's now
            with suppress(PermissionError):
                file.unlink(missing_ok=True)


def _locked(file: Path) -> int:
    while True:
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | NO_LINK, 0o644)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise InputError(f"{file} is a link, which a lock never is; remove it.") from None
        try:
            _lock(handle, file)
        except BaseException:
            os.close(handle)
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(file)):
                return handle
        os.close(handle)  # whoever held it removed it between our two calls


def _lock(handle: int, file: Path) -> None:
    pid, host = _holder(handle)
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            raise _refusal(file, pid, host) from None
        except OSError:  # a file system without locks
            pass
    elif msvcrt is not None:
        try:
            os.lseek(handle, BEYOND, os.SEEK_SET)
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            return
        except OSError:
            raise _refusal(file, pid, host) from None
    if pid is not None and (host != socket.gethostname() or _alive(pid)):
        raise _refusal(file, pid, host)


def _holder(handle: int) -> tuple[int | None, str]:
    try:
        os.lseek(handle, 0, os.SEEK_SET)
        told = json.loads(os.read(handle, 1000))
        return int(told["pid"]), str(told["host"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, ""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _refusal(file: Path, pid: int | None, host: str) -> InputError:
    whose = "another process" if pid is None else f"process {pid} on {host}"
    return InputError(f"{whose} is working in {file.parent}; wait until it ends, or choose another folder.")
