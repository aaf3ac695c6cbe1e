"""Malformed inputs, made by hypothesis, over every loader; see `tests.demos.fuzz`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.demos.fuzz import LOADERS

COUNT = min(1700, int(os.environ.get("TRUSTIRL_EXAMPLES", "200")))  # per loader: 1,200 or 10,200 in all
MOST_MIB = 500


@pytest.mark.parametrize("loader", LOADERS)
def test_malformed_inputs_are_refused_or_loaded_correctly(loader: str, tell: Callable[[str], None]) -> None:
    """In a process of its own: its memory is the loader's, and a crash is a failed test, not the end of all."""
    command = [sys.executable, "-m", "tests.demos.fuzz", loader, str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COUNT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["peak_mib"] < MOST_MIB
    assert told["refused"] + told["loaded"] >= 0.9 * COUNT
    assert told["refused"] >= COUNT / 2
    assert told["loaded"] > 0  # not everything is refused: the original was good
    tell(
        f"demos from {loader}: {told['refused']} inputs refused, {told['loaded']} loaded, {told['peak_mib']:.0f} MiB"
    )
