"""On Ray: its tasks start the same processes, here or on a cluster, and are tried again when their worker dies."""

import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from trustirl.bench.local import SHARED_GPU
from trustirl.bench.work import Done, Work, perform
from trustirl.core.errors import InputError

TRIES_AGAIN = 3
ANSWER_WITHIN = 5.0  # seconds


def run_on_ray(works: Sequence[Work], workers: int | None, address: str | None) -> Iterator[Done]:
    """One task per run, with an equal share of the cluster's cores and GPUs for each of the `workers`."""
    ray = connect(workers, address)
    try:
        share = resources(ray.nodes(), workers)
        fraction = share["num_gpus"]
        told = SHARED_GPU if 0 < fraction < 1 else {}
        task = ray.remote(perform).options(max_retries=TRIES_AGAIN, **share)
        waiting = {task.remote(work.out, work.run, list(work.arguments), told): work for work in works}
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            try:
                failure = ray.get(done)
            except ray.exceptions.RayError as error:
                failure = f"Ray gave up: {' '.join(str(error).split())[:300]}"
            yield waiting.pop(done), failure
    finally:
        ray.shutdown()


def connect(workers: int | None, address: str | None) -> Any:
    """Ray, connected to a cluster that answers, or started on this machine."""
    if address is not None:
        _check_answers(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise InputError("--executor ray needs Ray: pip install 'trustirl[ray]'.") from None
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        ray.init(num_cpus=max(cores, workers or 1), include_dashboard=False, **quiet)
        return ray
    try:
        ray.init(address=address, **quiet)
    except Exception as error:  # Ray raises many kinds
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"Ray at {address} cannot be used: {reason or type(error).__name__}") from None
    return ray


def resources(nodes: Sequence[dict[str, Any]], workers: int | None) -> dict[str, float]:
    """Cores and GPUs of one task: without a number of workers one per GPU or, where there is none, per machine."""
    alive = [node["Resources"] for node in nodes if node.get("Alive", True)]
    machines = [machine for machine in alive if machine.get("GPU")] or alive
    gpus = sum(int(machine.get("GPU", 0)) for machine in machines)
    cores = [int(machine.get("CPU", 0)) for machine in machines]
    count = workers or gpus or len(machines)
    own = max(1, min(sum(cores) // count, max(cores)))
    return {"num_cpus": float(own), "num_gpus": min(1.0, int(100 * gpus / count) / 100)}


def _check_answers(address: str) -> None:
    """Ray itself would wait for minutes."""
    if address == "auto":
        return
    place = urlsplit(address if "://" in address else f"ray://{address}")
    try:
        port = place.port
    except ValueError:
        port = None
    if not place.hostname or port is None:
        raise InputError(f"a Ray address is HOST:PORT, ray://HOST:PORT or auto, got {address!r}.")
    try:
        socket.create_connection((place.hostname, port), ANSWER_WITHIN).close()
    except OSError as error:
        raise InputError(f"no Ray answers at {address} ({error.strerror or error}); is the cluster up?") from None
