"""Small files that stand for very much are refused before anybody reads them; see `tests.demos.bombs`."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.demos.bombs import BOMBS

MOST_SECONDS, MOST_MIB = 1.0, 200


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__)
def test_a_small_file_takes_neither_time_nor_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bomb: Callable[[Path], Path]
) -> None:
    """In a process of its own: its memory is the loader's."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    command = [sys.executable, "-m", "tests.demos.bombs", str(bomb(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (told,) = json.loads(done.stdout.splitlines()[-1])
    assert told["said"].startswith("refused: "), told
    assert told["seconds"] < MOST_SECONDS, told
    assert told["mib"] < MOST_MIB, told
