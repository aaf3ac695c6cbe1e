"""Many small runs in one process: python -m tests.runs.leak FOLDER COUNT.

The last line printed is JSON: memory mappings, threads, open files and memory (MiB) after every run.
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import trustirl as ti
from tests.control.small import SETTINGS

ASKED: dict[str, Any] = SETTINGS | {"demo_episodes": 1, "steps": 300, "backend": "sync"}


def held() -> dict[str, int]:
    """What this process holds now."""
    own = Path("/proc/self")
    status = dict(line.split(":", 1) for line in (own / "status").read_text().splitlines())
    return {
        "mappings": (own / "maps").read_bytes().count(b"\n"),
        "threads": int(status["Threads"]),
        "python_threads": threading.active_count(),
        "files": len(list((own / "fd").iterdir())),
        "mib": int(status["VmRSS"].split()[0]) // 1024,
    }


def main(folder: str, count: int) -> None:
    """Train again and again; only the first page has its drawings, which take longest of all."""
    history = []
    for number in range(count):
        if number == 1:
            Figure.savefig = lambda _, file, **options: file.write("<svg></svg>")  # type: ignore[method-assign]
        ti.train("piro", "CartPole-v1", "packaged", out=folder, overwrite=True, **ASKED)
        history.append(held())
    print(json.dumps(history))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
