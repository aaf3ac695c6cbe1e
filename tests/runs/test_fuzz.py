"""Damaged run files, made by hypothesis, for everything that opens a run; see `tests.runs.fuzz`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

COUNT = 2 * int(os.environ.get("TRUSTIRL_EXAMPLES", "1000"))  # 2,000 files or, by `make test-all`, 10,000
MOST_MIB = 500
MOST_SECONDS = 5


@pytest.mark.parametrize("names", ["", pytest.param("reward", marks=pytest.mark.slow)])
def test_damaged_run_files_are_refused_or_opened(names: str, tell: Callable[[str], None]) -> None:
    """In a process of its own: its memory is what opening takes, and a crash is a failed test, not the end of all.

    Damaged rewards are refused by a `RewardError`, among all files and in a test of their own.
    """
    command = [sys.executable, "-m", "tests.runs.fuzz", str(COUNT), names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COUNT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["peak_mib"] < MOST_MIB
    assert told["slowest_seconds"] < MOST_SECONDS
    assert told["refused"] + told["loaded"] >= COUNT
    assert told["refused"] >= COUNT / 2
    assert told["loaded"] > 0  # not everything is refused: the original was good
    tell(
        f"run files {names}: refused {told['refused']} times, opened {told['loaded']} times, slowest "
        f"{told['slowest_seconds']} s, {told['peak_mib']} MiB"
    )
