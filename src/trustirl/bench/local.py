"""On this machine: one run after the other, or several that share cores and GPUs."""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from trustirl.bench.work import Done, Work, perform

# Replays differ in size: let each run on a GPU take the memory that it needs, which the plan has checked.
SHARED_GPU = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
NEIGHBOURS = 4  # runs on a GPU wait for it in turn: the cores of so many shares are open to each


def run_locally(works: Sequence[Work], workers: int) -> Iterator[Done]:
    """Every run in a process of its own; being stopped, let them save."""
    places: SimpleQueue[int] = SimpleQueue()
    for place in range(workers):
        places.put(place)
    stop = threading.Event()

    def one(work: Work) -> Done:
        place = places.get()
        try:
            return work, perform(*work, share(place, workers), stop)
        finally:
            places.put(place)

    with ThreadPoolExecutor(workers) as pool:
        try:
            for done in as_completed([pool.submit(one, work) for work in works]):
                yield done.result()
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def share(place: int, workers: int) -> dict[str, str]:
    """What tells one of several processes which cores and which GPU it may use."""
    if workers == 1:
        return {}
    present = ",".join(file.name.removeprefix("nvidia") for file in sorted(Path("/dev").glob("nvidia[0-9]*")))
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", present).split(",") if name]
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    reach = min(NEIGHBOURS, workers) if names else 1
    first, end = (number * len(cores) // workers for number in (place, place + reach))
    own = [cores[index % len(cores)] for index in range(first, max(end, first + 1))] if cores else []
    told = {"TRUSTIRL_CORES": ",".join(map(str, own))} if own else {}
    if names:
        told |= {"CUDA_VISIBLE_DEVICES": names[place % len(names)]} | SHARED_GPU
    return told
