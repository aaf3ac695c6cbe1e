"""Film strips that lie in the folders of runs (`trustirl report --films`), as pages show them."""

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

Films = tuple[tuple[str, bytes], ...]
"""Whose they are, and a PNG each."""
PNG, LARGEST = b"\x89PNG\r\n\x1a\n", 1_000_000


def films_of(folders: Sequence[Path]) -> Films:
    """The film strips of the first folder that has any; a file that is no small PNG is passed over."""
    for folder in folders:
        files = [(whose, folder / f"film-{whose}.png") for whose in ("expert", "learner")]
        small = [(whose, file) for whose, file in files if file.is_file() and file.stat().st_size <= LARGEST]
        found = [(whose, file.read_bytes()) for whose, file in small]
        films = tuple((whose, content) for whose, content in found if content.startswith(PNG))
        if films:
            return films
    return ()


def strips(films: Iterable[tuple[str, bytes]]) -> str:
    """One below the other, each under its name, so that frames of the same moments stand side by side."""
    return "".join(
        f'<h3>{escape(name)}</h3><img class="film" alt="frames: {escape(name)}" '
        f'src="data:image/png;base64,{base64.b64encode(film).decode()}">'
        for name, film in films
    )
