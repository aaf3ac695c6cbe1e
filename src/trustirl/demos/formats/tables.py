"""Tables: one row per step, columns chosen by name. CSV, Parquet, and NumPy archives of columns."""

import csv
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from trustirl.core.errors import DemoError, unknown_name
from trustirl.core.words import count
from trustirl.demos.checks import Fields, flags
from trustirl.demos.formats.layout import terminated_episodes
from trustirl.demos.formats.npz import read_arrays
from trustirl.demos.formats.outside import existing_file, missing_package, reading, require_plausible
from trustirl.demos.formats.parquet import require_modest

Kind = Literal["csv", "tsv", "parquet", "npz"]
Columns = str | Sequence[str]
Codes = Mapping[str, dict[Any, int]]
USUAL = {
    "observations": "observation",
    "actions": "action",
    "episode": "episode",
    "time": "time",
    "terminated": "terminated",
    "truncated": "truncated",
    "rewards": "reward",
}
BLOCK = 2**20  # cells of a CSV file that are converted together
MOST_COLUMNS = 2**15  # of a CSV file; what is wider belongs in an array
PARQUET_ROWS = 2**12
TRUTH = {"true": 1, "false": 0}


class Table(NamedTuple):
    """The names of a table's columns, and how to read some of them.

    Those among `codes` may hold texts: each value is given a number there, in the order in which they appear.
    """

    names: list[str]
    read: Callable[[Collection[str], Codes], dict[str, np.ndarray]]


def read_table(
    path: str | os.PathLike[str], kind: Kind | None = None, gap: float | None = None, **columns: Columns | None
) -> Fields:
    """See `Demos.from_table`; `columns` name those of each role in `USUAL`, None the usual one if it is there."""
    table = opened(path, kind)
    chosen = {role: _names(table, role, columns.get(role)) for role in USUAL}
    codes: Codes = {name: {} for name in chosen["episode"]}
    contents = table.read({name for names in chosen.values() for name in names}, codes)
    rows = {len(column) if column.ndim else 0 for column in contents.values()}
    if len(rows) != 1 or not max(rows):
        raise DemoError(f"the columns of {path} must be of one length and not empty, got {sorted(rows)} rows.")
    parts = {role: [contents[name] for name in names] for role, names in chosen.items()}
    order, ends = episodes_of(parts, rows.pop(), gap)
    arrays: Fields = {role: side_by_side(chosen[role], parts[role], order) for role in ("observations", "actions")}
    if parts["rewards"]:
        arrays["rewards"] = _numeric("rewards", parts["rewards"][0])[order]
    if parts["terminated"]:
        over = flags("terminated", parts["terminated"][0], order)[order]
        arrays["terminated"] = terminated_episodes("terminated", over, ends)
    return arrays | {"episode_ends": ends, "provenance": {"source": Path(path).name}}


def opened(path: str | os.PathLike[str], kind: Kind | None = None) -> Table:
    """A table whose columns are read when they are asked for; its kind is that of its name's ending."""
    suffix = kind or Path(path).suffix.lower().removeprefix(".")
    openers = {"csv": _csv, "tsv": _csv, "parquet": _parquet, "npz": _npz}
    if suffix not in openers:
        raise DemoError(f"{path} is no table that can be read; its name must end in .{', .'.join(openers)}.")
    return openers[suffix](existing_file(path, f"a .{suffix} table"))


def _names(table: Table, role: str, given: Columns | None) -> list[str]:
    """The columns of a role: those named, the one named, or the numbered ones: name_0, name_1, ..."""
    if given is not None and not isinstance(given, str):
        found, missing = list(given), [name for name in given if name not in table.names]
        if missing:
            raise DemoError(str(unknown_name("column", missing[0], table.names)))
        return found
    name = given or USUAL[role]
    if name in table.names:
        return [name]
    pattern = re.compile(re.escape(name) + r"[_.\[ ]?(\d{1,6})\]?")
    numbered = sorted((int(match[1]), other) for other in table.names if (match := pattern.fullmatch(other)))
    if not numbered and (given is not None or role in ("observations", "actions")):
        raise DemoError(f"{unknown_name('column', name, table.names)} Columns for {role} are given by name.")
    return [other for _, other in numbered]


def episodes_of(
    parts: Mapping[str, Sequence[np.ndarray]], rows: int, gap: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """The order of the rows, by episode and time, and where episodes end in it."""
    group = np.zeros(rows, np.int64)
    for column in parts["episode"]:
        if column.ndim != 1:
            raise DemoError(f"the episode column must hold one value per row, got the shape {column.shape}.")
        group = _numbered(group * rows + _numbered(column))
    time = _numeric("time", parts["time"][0]).astype(np.float64) if parts["time"] else np.arange(rows, dtype=float)
    if time.ndim != 1 or not np.isfinite(time).all():
        raise DemoError("the time column must hold one finite number per row; repair it or leave it out.")
    order = np.lexsort([time, group])
    new = np.diff(group[order]) != 0
    advance = np.diff(time[order])
    if (~new & (advance <= 0)).any():
        row = int(order[1 + int(np.argmax(~new & (advance <= 0)))])
        raise DemoError(
            f"row {row} has the time of another row of its episode; name all columns that tell episodes apart."
        )
    if parts["time"] and (~new).any():
        new |= advance > (1.5 * advance[~new].min() if gap is None else gap)
    if not parts["episode"]:
        for role in ("terminated", "truncated"):
            for column in parts[role]:
                new |= flags(role, column, order)[order][:-1]
    return order, np.append(np.flatnonzero(new) + 1, rows)


def _numbered(column: np.ndarray) -> np.ndarray:
    """Values as whole numbers, in the order in which they first appear."""
    _, first, inverse = np.unique(column, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse.reshape(-1)]


def _numeric(name: str, column: np.ndarray) -> np.ndarray:
    if column.dtype.kind not in "biuf":
        raise DemoError(f"the column {name} must hold numbers, got dtype {column.dtype}; give numbers to its values.")
    return column.astype(np.int8) if column.dtype.kind == "b" else column


def side_by_side(names: Sequence[str], columns: Sequence[np.ndarray], order: np.ndarray) -> np.ndarray:
    """Columns side by side; a column that stands alone keeps its shape."""
    numeric = [_numeric(name, column) for name, column in zip(names, columns, strict=True)]
    if len(numeric) == 1:
        return numeric[0][order]
    return np.concatenate([column.reshape(len(column), -1) for column in numeric], axis=1)[order]


def _npz(file: Path) -> Table:
    _, names = read_arrays(file, ())
    return Table(names, lambda wanted, _codes: read_arrays(file, wanted)[0])


def _csv(file: Path) -> Table:
    kind, delimiter = "a table of comma- or tab-separated values", "\t" if file.suffix == ".tsv" else ","
    with reading(file, kind), file.open(encoding="utf-8-sig", newline="") as lines:
        header = [name.strip() for name in next(csv.reader(lines, delimiter=delimiter), [])]
    if len(header) > MOST_COLUMNS:
        raise DemoError(f"{file} has {len(header):,} columns and at most {MOST_COLUMNS:,} are read; save it as .npz.")
    if not header or len(set(header)) < len(header):
        raise DemoError(f"{file} must begin with a line of column names, each once.")

    def read(wanted: Collection[str], codes: Codes) -> dict[str, np.ndarray]:
        places = {name: place for place, name in enumerate(header) if name in wanted}
        blocks: dict[str, list[np.ndarray]] = {name: [np.zeros(0, np.int64)] for name in wanted}
        with reading(file, kind), file.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(lines, delimiter=delimiter)
            next(rows)
            while block := list(islice(rows, max(1, BLOCK // len(header)))):
                short = next((row for row in block if row and len(row) != len(header)), None)
                if short is not None:
                    raise DemoError(
                        f"{file} has a row of {count(len(short), 'cell')} near line {rows.line_num} and "
                        f"{count(len(header), 'column')}."
                    )
                for name, place in places.items():
                    cells = [row[place] for row in block if row]
                    if name in codes:
                        known = codes[name]
                        blocks[name].append(
                            np.array([known.setdefault(cell, len(known)) for cell in cells], np.int64)
                        )
                    else:
                        blocks[name].append(_parsed(name, cells, rows.line_num))
        return {name: np.concatenate(parts) for name, parts in blocks.items()}

    return Table(header, read)


def _parsed(name: str, cells: Sequence[str], line: int) -> np.ndarray:
    """Cells as integers, if they all are, or floats; true and false count as 1 and 0."""
    for kind, dtype in ((int, np.int64), (float, np.float64)):
        try:
            return np.array([kind(cell) for cell in cells], dtype)
        except (ValueError, OverflowError):
            continue
    lower = [cell.strip().lower() for cell in cells]
    if all(cell in TRUTH for cell in lower):
        return np.array([TRUTH[cell] for cell in lower], np.int64)
    wrong = next(cell for cell in cells if not _is_number(cell))
    raise DemoError(f"the column {name} holds {wrong[:20]!r} near line {line}; give numbers, or leave such rows out.")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _parquet(file: Path) -> Table:
    kind = "a Parquet file"
    try:
        import pyarrow.parquet
    except ImportError:
        raise missing_package(kind, "parquet") from None
    with reading(file, kind), closing(pyarrow.parquet.ParquetFile(file)) as table:
        names = list(table.schema_arrow.names)

    def read(wanted: Collection[str], codes: Codes) -> dict[str, np.ndarray]:
        with reading(file, kind):
            in_dictionary = require_modest(file, wanted, codes)
            with closing(pyarrow.parquet.ParquetFile(file, read_dictionary=in_dictionary)) as table:
                batches, held = [], 0
                # In pieces, so that one may not become too many in spite of what the file said.
                for batch in table.iter_batches(PARQUET_ROWS, columns=sorted(wanted)):
                    columns = {
                        name: _coded(name, batch[name], codes[name]) if name in codes else batch[name]
                        for name in batch.schema.names
                    }
                    batches.append(pyarrow.table(columns))
                    held += batches[-1].nbytes
                    require_plausible(file, held, file.stat().st_size)
            if not batches:
                return {name: np.zeros(0) for name in wanted}
            content = pyarrow.concat_tables(batches)
            return {name: _arrow_column(name, content[name]) for name in wanted}

    return Table(names, read)


def _coded(name: str, column: Any, known: dict[Any, int]) -> Any:
    """Numbers as they are, and other values by the number that each has been given: they only tell rows apart."""
    import pyarrow

    _require_filled(name, column)
    if pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type):
        return column
    if not pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    used, inverse = np.unique(column.indices.to_numpy(zero_copy_only=False), return_inverse=True)
    values = column.dictionary.take(pyarrow.array(used)).to_pylist()
    return pyarrow.array(np.array([known.setdefault(value, len(known)) for value in values], np.int64)[inverse])


def _require_filled(name: str, column: Any) -> None:
    if column.null_count:
        raise DemoError(f"the column {name} has {count(column.null_count, 'empty cell')}; leave such rows out.")


def _arrow_column(name: str, column: Any) -> np.ndarray:
    """A column as an array; lists of one length become its rows."""
    import pyarrow

    _require_filled(name, column)
    array, kinds = column.combine_chunks(), pyarrow.types
    shape = [len(array)]
    while kinds.is_list(array.type) or kinds.is_large_list(array.type) or kinds.is_fixed_size_list(array.type):
        inner = array.flatten()
        if len(array.value_lengths().unique()) > 1:
            raise DemoError(f"the lists of the column {name} must all be of one length.")
        shape, array = [*shape, len(inner) // max(1, len(array))], inner
    if not (kinds.is_integer(array.type) or kinds.is_floating(array.type) or kinds.is_boolean(array.type)):
        raise DemoError(f"the column {name} must hold numbers, got {array.type}; give numbers to its values.")
    if array.null_count:
        raise DemoError(
            f"the column {name} has {count(array.null_count, 'empty entry', 'empty entries')}; leave such rows out."
        )
    return np.array(array.to_numpy(zero_copy_only=False)).reshape(shape)
