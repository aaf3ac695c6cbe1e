"""On Slurm, through submitit: an array of tasks, each of which starts the same process as everywhere."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trustirl.bench.storage import is_url
from trustirl.bench.work import Done, Work, perform
from trustirl.core.errors import InputError

HOURS = 72  # most for one task; SBATCH_ variables choose partition, account and the like


def run_on_slurm(works: Sequence[Work], workers: int | None, cluster: str | None = None) -> Iterator[Done]:
    """At most `workers` tasks at once; a task that Slurm ended is submitted again when the command is repeated."""
    try:
        import submitit
    except ImportError:
        raise InputError("--executor submitit needs submitit: pip install 'trustirl[slurm]'.") from None
    if not works:
        return
    out = works[0].out
    if is_url(out):
        raise InputError("--executor submitit writes to a folder that all machines share; give --out a path.")
    executor: Any = submitit.AutoExecutor(folder=Path(out) / "logs" / "submitit", cluster=cluster)
    executor.update_parameters(timeout_min=60 * HOURS, name="trustirl")
    if workers and executor.cluster == "slurm":
        executor.update_parameters(slurm_array_parallelism=workers)
    with executor.batch():
        submitted = [executor.submit(perform, *work[:2], list(work.arguments)) for work in works]
    waiting = dict(zip(submitted, works, strict=True))
    for task in submitit.helpers.as_completed(submitted):
        failed = task.exception()
        yield (
            waiting[task],
            task.result() if failed is None else f"Slurm gave up: {' '.join(str(failed).split())[-200:]}",
        )
