"""Columns of a table with their texts: of a file, of a DataFrame, or of a mapping of names to arrays."""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trustirl.core.errors import DemoError, unknown_name
from trustirl.core.files import write_file
from trustirl.core.words import count
from trustirl.demos.formats.outside import existing_file
from trustirl.demos.formats.tables import opened

MOST_ROWS = 5_000_000
Source = str | os.PathLike[str] | Mapping[str, Any] | Any
"""A file, a mapping of names to arrays, or a DataFrame of pandas or polars."""


class Column(NamedTuple):
    """Numbers, or the places of texts among their names."""

    values: np.ndarray
    names: tuple[str, ...] | None = None

    def kept(self, rows: np.ndarray) -> "Column":
        """Some of the rows."""
        return self._replace(values=self.values[rows])


def read_columns(source: Source, wanted: Collection[str]) -> dict[str, Column]:
    """The wanted columns, all of one length.

    In an archive of arrays, `zone_names` holds the texts for which the numbers of the column `zone` stand, or those
    of `zone_idx`; another array as long, `zone_area`, says something of each and may be asked for like a column.
    """
    if isinstance(source, str | os.PathLike):
        found = _of_archive(source, wanted) if Path(source).suffix == ".npz" else _of_text(source, wanted)
    else:
        found = _in_memory(source, wanted)
    lengths = {name: len(column.values) if column.values.ndim else 0 for name, column in found.items()}
    rows = max(lengths.values(), default=0)
    for name, column in found.items():
        if column.values.ndim != 1 or lengths[name] != rows:
            raise DemoError(f"the column {name} has the shape {column.values.shape} beside {rows:,} rows of others.")
    if not rows:
        raise DemoError("the table has no rows; nothing can be counted.")
    if rows > MOST_ROWS:
        raise _too_long(f"{rows:,}")
    return found


def write_columns(path: Path, columns: Mapping[str, Column]) -> None:
    """Columns as an archive, from which `read_columns` reads them again."""
    arrays: dict[str, Any] = {name: column.values for name, column in columns.items()}
    arrays |= {f"{name}_names": np.array(column.names) for name, column in columns.items() if column.names}
    write_file(path, lambda file: np.savez_compressed(file, **arrays))


def _too_long(rows: str) -> DemoError:
    return DemoError(f"the table has {rows} rows, and at most {MOST_ROWS:,} are read; give a part of them.")


def _require(wanted: Collection[str], known: Collection[str]) -> None:
    for name in wanted:
        if name not in known:
            raise DemoError(str(unknown_name("column", name, known)))


def _of_text(source: str | os.PathLike[str], wanted: Collection[str]) -> dict[str, Column]:
    """Of a text or a Parquet file."""
    table = opened(source)
    _require(wanted, table.names)
    if Path(source).suffix != ".parquet":
        _require_few_lines(existing_file(source, "a table"))
    codes: dict[str, dict[Any, int]] = {name: {} for name in wanted}
    contents = table.read(set(wanted), codes)
    return {
        name: _column(np.array(list(codes[name]), dtype=object), contents[name])
        if codes[name]
        else Column(contents[name])
        for name in wanted
    }


def _require_few_lines(file: Path) -> None:
    """Before a Python object is made for every cell."""
    lines = 0
    with file.open("rb") as stream:
        while block := stream.read(2**22):
            lines += block.count(b"\n")
            if lines > MOST_ROWS + 1:
                raise _too_long(f"more than {MOST_ROWS:,}")


def _of_archive(source: str | os.PathLike[str], wanted: Collection[str]) -> dict[str, Column]:
    table = opened(source)
    about = {name: base for base in _named(table.names) for name in table.names if name.startswith(f"{base}_")}
    _require(wanted, table.names)
    contents = table.read({*wanted, *_beside(wanted, table.names, about)}, {})
    found = {}
    for name in wanted:
        base = about.get(name)
        index = None if base is None else contents.get(_index_of(base, table.names))
        if index is not None and len(contents[name]) == len(contents[f"{base}_names"]) != len(index):
            found[name] = _looked_up(name, contents[name], index)
        elif (names := contents.get(f"{name.removesuffix('_idx')}_names")) is not None:
            found[name] = _looked_up(name, names, contents[name])
        else:
            found[name] = _texts(name, contents[name])
    return found


def _named(names: Sequence[str]) -> list[str]:
    """Those whose values have names, the longest first to last, so that the longest is remembered."""
    bases = [name.removesuffix("_names") for name in names if name.endswith("_names")]
    return sorted((base for base in bases if _index_of(base, names) in names), key=len)


def _index_of(base: str, names: Sequence[str]) -> str:
    return base if base in names else f"{base}_idx"


def _beside(wanted: Collection[str], names: Sequence[str], about: Mapping[str, str]) -> set[str]:
    """What else must be read: the names of values, and the column that chooses among them."""
    bases = {about[name] for name in wanted if name in about} | {name for name in wanted if f"{name}_names" in names}
    more = {_index_of(base, names) for base in bases} | {f"{base}_names" for base in bases}
    return more & set(names)


def _looked_up(name: str, texts: np.ndarray, index: np.ndarray) -> Column:
    inside = index.dtype.kind in "iu" and (not index.size or 0 <= index.min() <= index.max() < len(texts))
    if not inside or texts.ndim != 1:
        raise DemoError(
            f"the numbers of the column {name} must lie in 0..{len(texts) - 1}, one for each of its names."
        )
    return _column(texts.astype(object), index)


def _in_memory(source: Any, wanted: Collection[str]) -> dict[str, Column]:
    """Of a mapping, or of whatever has columns, as DataFrames of pandas and polars do."""
    known = list(getattr(source, "columns", source if isinstance(source, Mapping) else ()))
    if not known:
        raise DemoError(
            f"a table is a file, a DataFrame or a mapping of names to arrays, and {type(source).__name__} is none."
        )
    _require(wanted, [str(name) for name in known])
    by_text = {str(name): name for name in known}
    return {name: _texts(name, _array(source[by_text[name]])) for name in wanted}


def _array(content: Any) -> np.ndarray:
    return np.asarray(content.to_numpy() if hasattr(content, "to_numpy") else content)


def _texts(name: str, values: np.ndarray) -> Column:
    """Numbers as they are; anything else as texts."""
    if values.dtype.kind in "iuf":
        return Column(values)
    if values.dtype.kind == "O":
        empty = sum(value is None or value != value for value in values.ravel())  # NaN is not itself
        if empty:
            raise DemoError(f"the column {name} has {count(empty, 'empty cell')}; leave such rows out.")
    names, index = np.unique(values.astype(str), return_inverse=True)
    return _column(names.astype(object), index.reshape(values.shape))


def _column(texts: np.ndarray, index: np.ndarray) -> Column:
    """Texts that are all numbers become these, and others are put into the order of the alphabet."""
    cells = [text.decode() if isinstance(text, bytes) else str(text).strip() for text in texts]
    for kind, dtype in ((int, np.int64), (float, np.float64)):
        try:
            numbers = np.array([kind(cell) for cell in cells], dtype)
        except (ValueError, OverflowError):
            continue
        if np.isfinite(numbers).all():  # "nan" is a text, as every other word
            return Column(numbers[index])
    known = sorted(set(cells))
    places = {cell: place for place, cell in enumerate(known)}
    return Column(np.array([places[cell] for cell in cells])[index], tuple(known))
