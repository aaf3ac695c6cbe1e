"""One run of a bench, done by whoever an executor finds: a process that can be repeated at any time."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from trustirl.bench.storage import at_hand
from trustirl.irl.store import RunFolder

State = Literal["finished", "unfinished", "new"]
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


def perform(
    out: str,
    run: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    stop: threading.Event | None = None,
) -> str:
    """Make a run in a process of its own, from its checkpoint if there is one; returns why it failed, or nothing."""
    with at_hand(out, run) as (folder, log, mirror):
        state = state_of(folder)
        if state == "finished":
            return ""
        begin = [*arguments, "--out", str(folder), "--overwrite"]
        command = ["resume", str(folder)] if state == "unfinished" else begin
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "trustirl.bench.worker", *command],
                stdin=subprocess.PIPE,  # closed when we end: see worker.py
                stdout=output,
                stderr=output,
                env=os.environ | dict(environment or {}),
                start_new_session=True,  # whoever stops us decides how the run is stopped
            )
            _wait(process, mirror, stop)
        return "" if process.returncode == 0 else _sentence(process.returncode, log)


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
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if said.startswith("trustirl: "):
        return said.removeprefix("trustirl: ")
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"the process {ended}" + (f" and said last: {said}" if said else " and said nothing")
