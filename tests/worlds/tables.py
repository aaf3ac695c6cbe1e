"""A small table of its own shape: birds between places, in changing weather, with names in several alphabets."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

PLACES, DEEDS = ("гнездо", "池", "wood"), ("singt", "τρώει", "rests")
HOW: dict[str, Any] = {"states": ["place", "wind"], "actions": "deed", "episode": ["bird"], "time": "minute"}
HOW |= {"bins": {"wind": [3.0]}, "moves": "place"}


def birds(seed: int = 0, rows: int = 30, several: int = 6) -> dict[str, np.ndarray]:
    """Columns; between wood and nest nobody flies directly, and every bird once disappears for a while."""
    random = np.random.default_rng(seed)
    found: list[tuple[Any, ...]] = []
    for bird in range(several):
        place = 1
        for minute in range(rows):
            found.append((f"bird {bird}", minute + 50 * (minute >= rows // 2), PLACES[place], random.random() * 6))
            if random.random() < 0.3:
                place = random.integers(3) if place == 1 else 1
    names = [np.array(column) for column in zip(*found, strict=True)]
    deeds = np.array(DEEDS)[random.integers(3, size=len(found))]
    return dict(zip(("bird", "minute", "place", "wind"), names, strict=True)) | {"deed": deeds}


def as_csv(path: Path, columns: dict[str, np.ndarray]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path
