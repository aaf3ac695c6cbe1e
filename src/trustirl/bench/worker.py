"""A job's process: runs `trustirl ARGUMENTS`, and ends with whoever started it, however that ended.

It is told by a pipe, its standard input: the system closes the other end of it even after `kill -9`.
"""

import os
import runpy
import threading


def main() -> None:
    """Run the command on the cores that TRUSTIRL_CORES names."""
    threading.Thread(target=_end_with_starter, daemon=True).start()
    cores = os.environ.get("TRUSTIRL_CORES")
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])  # before anyone counts them
    runpy.run_module("trustirl", run_name="__main__", alter_sys=True)


def _end_with_starter() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
