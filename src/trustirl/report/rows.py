"""Finished runs as rows of results.json: the last policy's true returns, all seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trustirl.core.errors import InputError
from trustirl.core.files import fitting
from trustirl.report.runs import LARGEST, RunFiles, read_run

Row = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a row needs of config.json."""

    steps: int
    demo_episodes: int | None


@dataclass(frozen=True)
class Made:
    """What a row needs of manifest.json."""

    device: str
    command: str
    demo_hash: str
    versions: dict[str, Any]
    task_versions: dict[str, Any] = field(default_factory=dict)


def result_row(folders: Sequence[Path]) -> Row:
    """What the seeds of one question came to, whether one run holds them or several."""
    runs = [_ended(folder) for folder in folders]
    first = runs[0]
    config, summary = first.config, first.summary
    made: Made = fitting(first.manifest, f"{folders[0]}/manifest.json", Made)
    asked: Asked = fitting(config, f"{folders[0]}/config.json", Asked)
    courses = [course for run in runs for course in run.courses(run.cost)]
    env_steps = {name: sum(run.summary.env_steps.get(name, 0) for run in runs) for name in summary.env_steps}
    seconds = sum(run.summary.wall_seconds for run in runs)
    updates = sum(run.summary.updates_per_second * run.summary.wall_seconds for run in runs)
    row = {
        "algorithm": first.algorithm,
        "task": first.task,
        "demos": f"sha256 {made.demo_hash}" if made.demo_hash.isalnum() else made.demo_hash,
        "demo_episodes": asked.demo_episodes,
        "steps": asked.steps,
        "returns": [_known(value) for run in runs for value in run.summary.returns.tolist()],
        "expert_return": _known(summary.expert_return),
        "random_return": _known(summary.random_return),
        "drawdown": [_known(course.drawdown) for course in courses],
        "steps_to_90": [_steps(course.steps_to_90) for course in courses],
        "env_steps": env_steps,
        "wall_seconds": round(seconds, 3),
        "updates_per_second": round(updates / seconds, 3) if seconds else None,
        "device": made.device,
        "versions": made.versions | made.task_versions,
        "command": made.command,
        "settings": {
            name: group for name, group in config.items() if isinstance(group, dict) and name != "task_args"
        },
    }
    if first.known:
        for name in ("reward_correlation", "ell"):
            row[name] = [_known(value) for run in runs for value in getattr(run.summary, name)]
        row["ell_expert"] = _known(summary.ell_expert)
    return row


def _ended(folder: Path) -> RunFiles:
    run = read_run(folder)
    if "returns" in run.left_out:
        raise InputError(f"{folder} ended with returns beyond ±{LARGEST:g}; train it again with smaller steps.")
    return run


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _steps(value: float) -> int | None:
    return int(value) if math.isfinite(value) else None
