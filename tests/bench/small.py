"""A small bench that tests share."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from trustirl.cli.main import main

GRID = """
name = "grid"
[defaults]
task = "gridworld"
task_args = {size = 3}
seeds = 2
steps = 3
"""
TWO = (
    GRID
    + """
[[jobs]]
algorithm = "piro"
[[jobs]]
algorithm = "ml-irl"
overrides = {reward_step = 0.05}
label = "small step"
"""
)
LONG = (
    GRID
    + """
[[jobs]]
algorithm = "piro"
steps = 1500
[[jobs]]
algorithm = "ml-irl"
"""
)
ONCE = ("wall_seconds", "updates_per_second", "practice_seconds")  # what no two runs share


def trustirl(*arguments: object) -> int:
    """Run in this process; the exit code."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def started(*arguments: object) -> subprocess.Popen[str]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "trustirl", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def table(out: Path) -> list[dict[str, Any]]:
    """The rows of results.json without seconds."""
    rows = json.loads((out / "results.json").read_text())
    return [{name: value for name, value in row.items() if name not in ONCE} for row in rows]


def suite(folder: Path, text: str, name: str = "grid.toml") -> Path:
    """A suite's file."""
    file = folder / name
    file.write_text(text)
    return file
