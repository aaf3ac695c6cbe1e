"""One run of a bench, done by whoever an executor finds: a process that can be repeated at any time."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from trustirl.bench.storage import at_hand
from trustirl.core.errors import InputError, TrustIRLError
from trustirl.core.files import MOST_ARRAYS, open_file
from trustirl.runs.folder import RunFolder

State = Literal["finished", "unfinished", "new"]
LAST_WORDS = 2**16  # bytes at the end of a log in which its last line is looked for
LOOK_EVERY = 0.5  # seconds between two looks at a running process


class Work(NamedTuple):
    """A run to be made: plain texts, so that it can be sent anywhere."""

    out: str  # the bench's folder or URL
    run: str  # relative to it
    arguments: tuple[str, ...]  # of `trustirl`


Done = tuple[Work, str]
"""Work, and the sentence that says why it failed, empty if it did not."""
Executor = Callable[[Sequence[Work]], Iterator[Done]]
"""Does all of it and tells of each as it ends."""


def state_of(run: Path) -> State:
    """How far a run is; what has no checkpoint must begin anew."""
    if (run / "summary.json").exists():
        return "finished"
    return "unfinished" if RunFolder(run).has_checkpoint() else "new"


def is_done(run: Path) -> bool:
    """Whether nothing is left to do: a process may have ended before it had drawn the page of a finished run."""
    return state_of(run) == "finished" and (run / "report.html").exists()


def perform(
    out: str,
    run: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> str:
    """Make a run in a process of its own, from its checkpoint if there is one; returns why it failed, or nothing."""
    try:
        return _performed(out, run, arguments, environment or {}, stop)
    except TrustIRLError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or run}: {error.strerror or error}"


def _performed(
    out: str, run: str, arguments: Sequence[str], environment: Mapping[str, str], stop: threading.Event | None
) -> str:
    with at_hand(out, run) as (folder, log, mirror):
        if is_done(folder):
            return ""
        command = _command(state_of(folder), folder, arguments)
        log.unlink(missing_ok=True)  # it may be a link or a pipe
        with log.open("xb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "trustirl.bench.worker", *command],
                stdin=subprocess.PIPE,  # closed when we end: see worker.py
                stdout=output,
                stderr=output,
                env=os.environ | dict(environment),
                start_new_session=True,  # whoever stops us decides how the run is stopped
            )
            with process:  # where what follows fails, its standard input is closed and it ends
                _wait(process, mirror, stop)
        return "" if process.returncode == 0 else _sentence(process.returncode, log)


def _command(state: State, folder: Path, arguments: Sequence[str]) -> list[str]:
    if state == "new":
        return [*arguments, "--out", str(folder), "--overwrite"]
    if state == "finished":
        return ["report", str(folder)]  # only its page is missing
    task = arguments[arguments.index("--task") + 1]
    # A module is imported for it, which a run's own files must not decide.
    return ["resume", str(folder), *(["--task", task] if ":" in task else [])]


def tail(file: Path, most: int) -> bytes:
    """The end of a file that may be growing; nothing where it cannot be read."""
    with suppress(InputError, OSError), open_file(file, MOST_ARRAYS) as content:
        content.seek(max(0, content.seek(0, os.SEEK_END) - most))
        return content.read(most)
    return b""


def _wait(process: subprocess.Popen[bytes], mirror: Callable[[], None], stop: threading.Event | None) -> None:
    asked = False
    while True:
        try:
            process.wait(LOOK_EVERY)
            return
        except subprocess.TimeoutExpired:
            mirror()
        if stop is not None and stop.is_set() and not asked:
            process.terminate()  # it finishes its iteration and saves
            asked = True


def _sentence(code: int, log: Path) -> str:
    """The last thing that a failed process said."""
    lines = tail(log, LAST_WORDS).decode(errors="replace").split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if said.startswith("trustirl: "):
        return said.removeprefix("trustirl: ")
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"the process {ended}" + (f" and said last: {said}" if said else " and said nothing")
