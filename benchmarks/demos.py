"""How long a large set of demonstrations takes to load and to index, and what memory it needs at most.

The question is 10 million transitions of 17 + 6 float32 numbers in one .npz, stored and compressed. Each measurement
is made in a process of its own; the peak counts everything in it, the interpreter too.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

OBSERVATION, ACTION, EPISODE = 17, 6, 1000


def write(path: Path, steps: int, compressed: bool) -> None:
    """Random demonstrations: noise compresses as badly as real floats do."""
    from trustirl import Demos

    rng = np.random.default_rng(0)
    observations = rng.standard_normal((steps, OBSERVATION), np.float32)
    actions = rng.standard_normal((steps, ACTION), np.float32)
    ends = np.append(np.arange(EPISODE, steps, EPISODE), steps)
    Demos.from_numpy(observations, actions, ends).save(path, compressed)


def load(path: Path) -> dict[str, Any]:
    """Seconds to load and to index, and peak memory over the arrays' size."""
    from trustirl import Demos

    begin = time.perf_counter()
    demos = Demos.load(path)
    loaded = time.perf_counter()
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    arrays = sum(array.nbytes for array in (demos.observations, demos.actions, demos.episode_ends, demos.terminated))
    middle = len(demos) // 2
    return {
        "load_seconds": loaded - begin,
        "array_mib": arrays / 2**20,
        "peak_over_arrays": peak / arrays,
        "episode_us": 1e6 * _seconds(lambda: demos[middle]),
        "slice_us": 1e6 * _seconds(lambda: demos[middle : middle + 100]),
        "hundred_anywhere_ms": 1e3 * _seconds(lambda: demos[np.arange(0, len(demos), max(1, len(demos) // 100))]),
    }


def _seconds(call: Callable[[], object], repeats: int = 20) -> float:
    call()
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begin) / repeats


def main() -> None:
    """Print one line per way of writing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--child", nargs=2, metavar=("TASK", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        task, file = options.child
        if task == "load":
            print(json.dumps(load(Path(file))))
        else:
            write(Path(file), options.steps, task == "compressed")
        return
    print(f"demonstrations: {options.steps:,} transitions of {OBSERVATION} + {ACTION} float32 from .npz")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("stored", "compressed"):
            file = Path(folder) / f"{kind}.npz"
            _child(kind, file, options.steps)
            row = json.loads(_child("load", file, options.steps))
            print(
                f"  {kind:10}  load {row['load_seconds']:6.2f} s   arrays {row['array_mib']:.0f} MiB   "
                f"peak {row['peak_over_arrays']:.2f} x   episode {row['episode_us']:.0f} us   "
                f"100 episodes {row['slice_us']:.0f} us   100 scattered {row['hundred_anywhere_ms']:.1f} ms"
            )


def _child(task: str, file: Path, steps: int) -> str:
    command = [sys.executable, __file__, "--steps", str(steps), "--child", task, str(file)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
