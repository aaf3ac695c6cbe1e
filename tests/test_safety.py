"""Loading data never executes code, and writes are atomic."""

import os
import re
from pathlib import Path

import pytest

from trustirl.core.files import write_bytes

SOURCE = Path(__file__).parents[1] / "src"
FORBIDDEN = re.compile(
    r"\bpickle\b|cloudpickle|jsonpickle|allow_pickle\s*=\s*True|torch\.load|(?<![\w.])eval\(|(?<![\w.])exec\("
)


def test_nothing_in_the_package_can_execute_what_it_loads() -> None:
    found = [
        f"{file.name}:{number}: {line.strip()}"
        for file in SOURCE.rglob("*.py")
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if FORBIDDEN.search(line)
    ]
    assert not found


def test_a_write_that_fails_leaves_the_old_file_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file.json"
    write_bytes(file, b"old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_bytes(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]
