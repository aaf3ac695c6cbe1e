"""On this machine: one run after the other, or several that share cores and GPUs."""

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from trustirl.bench.work import Done, Work, perform

GPU_MEMORY = 0.9  # share of a GPU's memory that the runs on it divide among themselves


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
    """What tells one of several processes which cores and how much of which GPU are its own."""
    if workers == 1:
        return {}
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    own = (
        cores[place * len(cores) // workers : (place + 1) * len(cores) // workers] or cores[place % len(cores) :][:1]
    )
    told = {"TRUSTIRL_CORES": ",".join(map(str, own))} if own else {}
    present = ",".join(file.name.removeprefix("nvidia") for file in sorted(Path("/dev").glob("nvidia[0-9]*")))
    names = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", present).split(",") if name]
    if names:
        fraction = GPU_MEMORY / -(-workers // len(names))
        told |= {
            "CUDA_VISIBLE_DEVICES": names[place % len(names)],
            "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{fraction:.3f}",
        }
    return told
