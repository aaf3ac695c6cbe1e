"""Many trainings at once on one machine, as those in results/ were made: a GPU is faster than one run's environments.

    python benchmarks/together.py benchmarks/paper-mujoco.txt runs --at-once 10 --cores 6

A line of the file is a run: its name, a colon, and what follows `trustirl train`. Runs begin in their order, each
when an earlier one ends, on some of the cores, which neighbours share. A line that begins with # is left out.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path


def runs_of(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Names and arguments."""
    for line in file.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, arguments = line.partition(":")
            yield name.strip(), shlex.split(arguments)


def main() -> None:
    """Start runs while there is room, and say when each begins and ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path, help="folder of the run folders")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--cores", type=int, default=6, help="cores of one run")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    cores, began = sorted(os.sched_getaffinity(0)), time.monotonic()
    waiting = list(runs_of(options.file))
    running: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}

    def say(*words: object) -> None:
        print(f"{time.monotonic() - began:6.0f} s", *words, flush=True)

    while waiting or running:
        for place, (name, process) in list(running.items()):
            if process.poll() is not None:
                say(name, "ended" if process.returncode == 0 else f"failed: see {options.out / name}.log")
                del running[place]
        while waiting and len(running) < options.at_once:
            (name, arguments), place = waiting.pop(0), min(set(range(options.at_once)) - set(running))
            first = place * len(cores) // options.at_once
            own = {cores[(first + step) % len(cores)] for step in range(options.cores)}
            command = [sys.executable, "-m", "trustirl", "train", *arguments, "--out", str(options.out / name)]
            with (options.out / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            os.sched_setaffinity(process.pid, own)  # before it starts threads and environments
            running[place] = name, process
            say(name, "begins")
        time.sleep(1)


if __name__ == "__main__":
    main()
