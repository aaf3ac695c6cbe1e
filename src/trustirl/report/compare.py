"""Stands in for the page that compares runs: a plain table of results.json."""

import html
import json
from collections.abc import Sequence
from pathlib import Path

from trustirl.core.files import write_bytes


def write_comparison(paths: Sequence[Path], out: Path, format: str = "html") -> Path:
    """Write the returns of every row."""
    rows = [row for path in paths for row in json.loads((path / "results.json").read_text())]
    cells = "".join(
        f"<tr><td>{html.escape(str(row['job']))}<td>{html.escape(str(row['returns']))}</tr>" for row in rows
    )
    write_bytes(out, f"<!doctype html><meta charset=utf-8><title>{format}</title><table>{cells}</table>".encode())
    return out
