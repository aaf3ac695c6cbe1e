"""What a Parquet file claims to hold, summed up from its own page headers before Arrow is asked to read it.

A few bytes can stand for any number of values: pages are compressed, runs are stored as one value and a length, and
texts as numbers in a dictionary. Arrow believes all of it, and some damaged metadata end the process. The headers are
in Thrift's compact protocol (https://github.com/apache/parquet-format).
"""

import mmap
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trustirl.core.errors import DemoError
from trustirl.demos.formats.outside import require_plausible

MAGIC = b"PAR1"
DEEPEST = 16  # Thrift structures within each other; a footer needs six
# Thrift's kinds of values.
TRUE, FALSE, BYTE, WHOLE, DOUBLE, BINARY, LISTS, STRUCT = 1, 2, 3, (4, 5, 6), 7, 8, (9, 10), 12
# Parquet's: types of columns, with the bytes of a value in memory, pages and encodings.
TEXT, FIXED = 6, 7
WIDTHS = {0: 8, 1: 8, 2: 8, 3: 16, 4: 8, 5: 8, TEXT: 8}
LEVELS = 4  # what a value in a list takes beside: how deep it lies and what it repeats
DICTIONARY_PAGE, PREFIXES = 2, 7


class Claim(NamedTuple):
    """What a part of a column says of itself."""

    path: str
    text: bool
    size: int  # bytes in memory


def require_modest(file: Path, wanted: Collection[str], texts: Collection[str]) -> list[str]:
    """Refuse a file that claims more than its size can hold; returns the paths of the columns of text."""
    size = file.stat().st_size
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            claims = [_claim(data, *chunk) for chunk in _chunks(data) if _is_of(chunk[0], wanted)]
        except IndexError:
            raise ValueError("it is cut off") from None
    for claim in claims:
        if claim.text and claim.path not in texts:
            raise DemoError(f"the column {claim.path} must hold numbers, got texts; give numbers to its values.")
    require_plausible(file, sum(claim.size for claim in claims), size)
    return sorted({claim.path for claim in claims if claim.text})


def _is_of(path: str, names: Collection[str]) -> bool:
    """Whether this is one of the columns, or the inside of one; names may hold points."""
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _chunks(data: mmap.mmap) -> Iterator[tuple[str, int, dict[int, Any]]]:
    """The path of each part of a column, the bytes of one value of it in the file, and what the footer says of it."""
    length = int.from_bytes(data[-8:-4], "little")
    if data[-4:] != MAGIC or length + 12 > len(data):
        raise ValueError("it has no footer")
    footer, _ = _struct(data, len(data) - 8 - length)
    widths = [int(element.get(2, 0)) for element in _items(footer, 2) if 5 not in element or not element[5]]
    for group in _items(footer, 4):
        for chunk, width in zip(_items(group, 1), widths, strict=True):
            told = chunk.get(3)
            if 1 in chunk or not isinstance(told, dict):
                raise ValueError("its columns lie in other files")
            yield b".".join(told[3]).decode(), width, told


def _claim(data: mmap.mmap, path: str, width: int, told: dict[int, Any]) -> Claim:
    """Goes from page to page, as Arrow will."""
    text, at = told[1] == TEXT, min(told[9], told.get(11) or told[9])
    end = at + told[7]
    if not 4 <= at < end <= len(data):
        raise ValueError(f"the column {path} lies outside of it")
    each: float = max(8, width) if told[1] == FIXED else WIDTHS[told[1]]
    each += LEVELS * (len(told[3]) > 1)
    values, largest = 0, 0
    while at < end and values < told[5]:
        page, at = _struct(data, at)
        at += page[3]
        about: dict[int, Any] = next((page[number] for number in (5, 7, 8) if isinstance(page.get(number), dict)), {})
        held = about.get(1, 0)
        if min(page[2], page[3], held) < 0 or at > len(data):
            raise ValueError(f"a page of the column {path} is cut off")
        if text and about.get(4 if 8 in page else 2) == PREFIXES:
            raise DemoError(f"the column {path} stores what its texts share only once; write it with a dictionary.")
        largest = max(largest, page[2])
        if page[1] == DICTIONARY_PAGE:
            each = max(each, page[2] / max(1, held))  # any row may be any of its values
        else:
            values += held
    return Claim(path, text, int(values * each) + largest)


def _items(fields: dict[int, Any], number: int) -> list[dict[int, Any]]:
    found = fields.get(number)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ValueError("its footer lacks a part")
    return found


def _struct(data: mmap.mmap, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """A structure as its fields by number, and where it ends."""
    fields: dict[int, Any] = {}
    number = 0
    while (head := data[at]) != 0:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _whole(data, at)
        fields[number], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _value(data: mmap.mmap, at: int, kind: int, depth: int, listed: bool = False) -> tuple[Any, int]:
    """A value, or None of a kind that says nothing here, and where it ends."""
    if depth > DEEPEST:
        raise ValueError("its headers are nested too deeply")
    if kind in (TRUE, FALSE):
        return kind == TRUE, at + listed
    if kind in WHOLE:
        return _whole(data, at)
    if kind == BINARY:
        length, at = _unsigned(data, at)
        if at + length > len(data):
            raise ValueError("it is cut off")
        return data[at : at + length], at + length
    if kind in LISTS:
        head = data[at]
        length, at = _unsigned(data, at + 1) if head >> 4 == 15 else (head >> 4, at + 1)
        if length > len(data) - at:
            raise ValueError("it is cut off")
        items = []
        for _ in range(length):
            item, at = _value(data, at, head & 15, depth + 1, listed=True)
            items.append(item)
        return items, at
    if kind == STRUCT:
        return _struct(data, at, depth + 1)
    if kind in (BYTE, DOUBLE):
        return None, at + (1 if kind == BYTE else 8)
    raise ValueError(f"its headers hold a value of kind {kind}")


def _unsigned(data: mmap.mmap, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError("its headers hold an endless number")


def _whole(data: mmap.mmap, at: int) -> tuple[int, int]:
    number, at = _unsigned(data, at)
    return (number >> 1) ^ -(number & 1), at
