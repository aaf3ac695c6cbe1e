"""A notebook trains for days: what a run leaves in its process must not add up."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trustirl.core.compiling import MANY_MAPPINGS

RUNS = 20
ONE_RUN = 2500  # mappings


@pytest.mark.slow
def test_runs_leave_nothing_that_adds_up(tmp_path: Path, tell: Callable[[str], None]) -> None:
    command = [sys.executable, "-m", "tests.runs.leak", str(tmp_path / "run"), str(RUNS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    history = json.loads(done.stdout.splitlines()[-1])
    held = {name: np.array([row[name] for row in history]) for name in history[0]}
    early, late = slice(2, RUNS // 2), slice(RUNS // 2, None)
    assert held["mappings"].max() < MANY_MAPPINGS + ONE_RUN
    assert (np.diff(held["mappings"]) < 0).any()  # it was needed, and done
    for name in ("threads", "python_threads", "files"):
        assert held[name][late].max() <= held[name][early].max(), name
    assert held["mib"][late].max() < 1.15 * held["mib"][early].max()
    last = {name: int(column[-1]) for name, column in held.items()}
    tell(f"after {RUNS} runs in one process: {last}, at most {held['mappings'].max()} mappings")
