"""Demonstrations that look like a walker's, with a defect or two, and their page."""

from pathlib import Path
from typing import Any

import numpy as np

from trustirl.demos import Demos
from trustirl.demos.inspect import inspect
from trustirl.report.demos import write_demo_page

DEMO_FIGURES = ("returns", "lengths", "observations", "actions", "courses", "states")


def synthetic_demos(episodes: int = 3, size: int = 6, **changes: Any) -> Demos:
    random = np.random.default_rng(0)
    lengths = 120 + 10 * np.arange(episodes) % 70
    time = np.concatenate([np.arange(length) for length in lengths])[:, None]
    waves = np.sin(time / (3 + np.arange(size)) + random.normal(size=size)) * (1 + np.arange(size) % 7)
    given = {
        "observations": waves + 0.1 * random.normal(size=waves.shape),
        "actions": np.clip(1.5 * np.cos(time / (4 + np.arange(2))), -1, 1),
        "episode_ends": np.cumsum(lengths),
        "rewards": 1 + 0.1 * random.normal(size=len(time)),
        "provenance": {"env_id": "<b>Walker</b>-v0", "source": "a test & nothing else"},
    }
    return Demos.from_numpy(**(given | changes))


def write_synthetic_demo_page(folder: Path, **changes: Any) -> Path:
    return write_demo_page(
        inspect(synthetic_demos(**changes)), folder / "demos.html", "synthetic.npz", "not compared"
    )
