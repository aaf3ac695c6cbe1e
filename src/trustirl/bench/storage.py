"""Where a bench keeps its files: a folder, or a URL for fsspec, whose runs are made in scratch folders."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trustirl.core.errors import InputError
from trustirl.core.files import parse_json, read_bytes
from trustirl.runs.folder import Pointer

POINTER = "checkpoints/latest.json"
MARK = "summary.json"  # says that a run is finished, so everything else is there before it


def is_url(out: str) -> bool:
    """Whether files travel."""
    return "://" in out


def file_system(url: str) -> tuple[Any, str]:
    """A file system and the path of the URL in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise InputError("URLs need fsspec: pip install 'trustirl[ray]', or give --out a folder.") from None
    try:
        system, root = url_to_fs(url, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise InputError(f"{url} cannot be opened: {error}.") from None
    return system, str(root).rstrip("/")


@contextmanager
def at_hand(out: str, run: str) -> Iterator[tuple[Path, Path, Callable[[], None]]]:
    """A local folder for a run and a file for what its process says; calling the third mirrors new checkpoints."""
    if not is_url(out):
        folder, logs = Path(out) / run, Path(out) / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        yield folder, logs / f"{folder.name}.log", lambda: None
        return
    with tempfile.TemporaryDirectory(prefix="trustirl-", ignore_cleanup_errors=True) as scratch:
        folder, log, url = Path(scratch) / run, Path(scratch) / "log", f"{out}/{run}"
        fetch(url, folder)
        seen = _pointer(folder)

        def mirror() -> None:
            nonlocal seen
            now = _pointer(folder)
            if now != seen and store_run(folder, url):
                seen = now

        try:
            yield folder, log, mirror
        finally:
            if folder.exists():
                store_run(folder, url)
            if log.exists():
                system, root = file_system(out)
                system.makedirs(f"{root}/logs", exist_ok=True)
                system.put_file(str(log), f"{root}/logs/{folder.name}.log")


def fetch(url: str, folder: Path, without: str | None = None) -> None:
    """Copy everything below a URL, except what lies in folders called `without`."""
    system, root = file_system(url)
    if not system.exists(root):
        return
    for path in system.find(root):
        name = str(path).removeprefix(root).lstrip("/")
        if not _is_inside(name):
            raise InputError(f"{url} holds {name!r}, which is no name of a file in a folder; remove that object.")
        if without is None or without not in Path(name).parts:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            system.get_file(path, str(folder / name))


def store(folder: Path, url: str, names: list[str]) -> None:
    """Copy files and folders of a folder to a URL."""
    system, root = file_system(url)
    for name in names:
        if (folder / name).exists():
            whole = folder / name
            for file in [whole] if whole.is_file() else [file for file in whole.rglob("*") if file.is_file()]:
                _put(system, file, f"{root}/{file.relative_to(folder).as_posix()}")


def store_run(folder: Path, url: str) -> bool:
    """Copy a run, also one that goes on, so that what the URL holds can be resumed at any moment.

    Checkpoints come first, then the pointer that names them, and what it no longer names goes last. False if the run
    had moved on meanwhile; then the pointer stays where it was.
    """
    system, root = file_system(url)
    pointer = _pointer(folder)
    files = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    hidden = ("checkpoints/", ".")  # and files that are being written
    plain = [name for name in files if not name.startswith(hidden) and "/." not in name]
    named: set[str] = set()
    if pointer:
        told: Pointer = parse_json(pointer, str(folder / POINTER), Pointer)
        named = {f"checkpoints/{file}" for file in told.files()}
    try:
        for name in named:
            if not system.exists(f"{root}/{name}"):
                _put(system, folder / name, f"{root}/{name}")
        for name in plain:
            if name != MARK:
                _put(system, folder / name, f"{root}/{name}")
    except FileNotFoundError:
        return False
    if pointer:
        system.pipe_file(f"{root}/{POINTER}", pointer)
        for path in (*system.find(f"{root}/checkpoints"), *system.find(f"{root}/programs")):
            if str(path).removeprefix(root).lstrip("/") not in {POINTER, *named, *plain}:
                system.rm_file(path)
    if MARK in plain:
        _put(system, folder / MARK, f"{root}/{MARK}")
    return True


def _pointer(folder: Path) -> bytes:
    file = folder / POINTER
    return read_bytes(file) if file.exists() else b""


def _is_inside(name: str) -> bool:
    """Whether a relative name stays in its folder, wherever it is copied to."""
    path = Path(name)
    return bool(path.parts) and not path.anchor and ".." not in path.parts and "\0" not in name


def _put(system: Any, file: Path, path: str) -> None:
    system.makedirs(path.rpartition("/")[0], exist_ok=True)
    system.put_file(str(file), path)
