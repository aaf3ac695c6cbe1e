"""NumPy archives: ours, and the flat layouts of others (`layout`).

Reading believes nothing: the zip directory and the headers of the arrays are compared with each other and with the
file's size before memory is asked for, only arrays of plain numbers and texts are understood, and only the fields in
use are read, each straight into its array.
"""

import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from trustirl.core.errors import DemoError
from trustirl.core.files import write_file
from trustirl.demos.checks import Fields, pieces
from trustirl.demos.formats.layout import FIELDS, FORMAT, understood
from trustirl.demos.formats.outside import existing_file, reading, require_plausible

KIND = "an .npz archive of plain arrays"
LONGEST_HEADER = 10_000  # NumPy's own limit
BLOCK = 2**20
PLAIN = re.compile(r"[<>=|]?(?:[biuf][1248]|\?|U[1-9]\d{0,6})")  # NumPy gives texts without letters one each


def read_npz(path: str | os.PathLike[str]) -> Fields:
    """See `Demos.from_npz`."""
    arrays, present = read_arrays(path, FIELDS)
    return understood(arrays, path, present)


def read_arrays(
    path: str | os.PathLike[str], wanted: Collection[str] | None = None
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The wanted arrays that an archive holds (default: all), and the names of all it holds."""
    file = existing_file(path, KIND)
    with reading(file, KIND), file.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        chosen = {name: entry for name, entry in members.items() if wanted is None or name in wanted}
        require_plausible(file, sum(entry.file_size for entry in chosen.values()), os.fstat(stream.fileno()).st_size)
        return {name: _read(archive, name, entry) for name, entry in chosen.items()}, list(members)


def write_npz(fields: Fields, path: Path, compressed: bool) -> None:
    """See `Demos.save`."""
    arrays = {name: content for name, content in fields.items() if content is not None}
    if (final := final_observations(fields)) is not None:
        del arrays["next_observations"]
        arrays["final_observations"] = final
    arrays |= {"provenance": np.array(json.dumps(dict(fields["provenance"]))), "trustirl_demos": np.array(FORMAT)}
    save = np.savez_compressed if compressed else np.savez
    write_file(path, lambda file: save(file, **arrays))


def final_observations(fields: Fields) -> np.ndarray | None:
    """Those of each episode, if they and the observations say all that the next observations do, bit for bit."""
    obs, following, at_ends = fields["observations"], fields["next_observations"], fields["episode_ends"] - 1
    if following is None or fields["times"] is not None or obs.dtype != following.dtype:
        return None
    last = np.zeros(len(obs), bool)
    last[at_ends] = True
    for first, rows in pieces(following[:-1]):
        here = slice(first, first + len(rows))
        alike = _bits(rows) == _bits(obs[1:][here])
        if not (alike.reshape(len(rows), -1).all(axis=1) | last[here]).all():
            return None
    return following[at_ends]


def _bits(array: np.ndarray) -> np.ndarray:
    """Numbers as unsigned integers: 0.0 and -0.0 are equal, but not the same."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _read(archive: zipfile.ZipFile, name: str, entry: zipfile.ZipInfo) -> np.ndarray:
    if entry.flag_bits & 1:
        raise DemoError(f"demo {name} are encrypted; write the archive without a password.")
    # Other methods decompress in one go, without a limit.
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DemoError(f"demo {name} are compressed in an unusual way; use numpy.savez or numpy.savez_compressed.")
    with archive.open(entry) as stream:
        dtype, fortran, shape, start = _header(stream.read, name)
        size = math.prod(shape) * dtype.itemsize
        if start + size != entry.file_size:
            raise DemoError(
                f"demo {name} claim {size} bytes and the archive holds {entry.file_size - start}; the file is "
                "damaged, so write it again."
            )
        array = np.empty(math.prod(shape), dtype)
        memory = array.view(np.uint8) if size else array
        done = 0
        while done < size:
            block = stream.read(min(BLOCK, size - done))
            if not block:
                raise DemoError(
                    f"demo {name} end after {done} of {size} bytes; the file is cut off, so copy it again."
                )
            memory[done : done + len(block)] = np.frombuffer(block, np.uint8)
            done += len(block)
    return np.ascontiguousarray(array.reshape(shape[::-1]).T) if fortran else array.reshape(shape)


def _header(read: Callable[[int], bytes], name: str) -> tuple[np.dtype, bool, tuple[int, ...], int]:
    """Type, order and shape of an array in NumPy's format, and where its numbers begin.

    NumPy's own parser reads a header of any length before it complains, and evaluates it as a Python literal.
    """
    start = read(8)
    if start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3):
        raise DemoError(f"demo {name} are not an array in NumPy's format; use numpy.savez to write them.")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(read(width), "little")
    if length > LONGEST_HEADER:
        raise DemoError(f"demo {name} have a header of {length} bytes; only plain arrays of numbers are read.")
    text = read(length).decode("latin1")
    descr = re.search(r"""['"]descr['"]\s*:\s*['"]([^'"]*)['"]""", text)
    order = re.search(r"""['"]fortran_order['"]\s*:\s*(True|False)""", text)
    shape = re.search(r"""['"]shape['"]\s*:\s*\(([\d\s,]*)\)""", text)
    if descr and "O" in descr[1]:
        raise DemoError(
            f"demo {name} are Python objects, which only executing code could read; save numbers, with the steps of "
            "all episodes one after another and episode_ends."
        )
    if not (descr and order and shape and PLAIN.fullmatch(descr[1])):
        raise DemoError(f"demo {name} are not plain numbers; save them as integers or floats of at most 64 bits.")
    sizes = tuple(int(number) for number in shape[1].split(",") if number.strip())
    if len(sizes) > 16:
        raise DemoError(f"demo {name} have {len(sizes)} axes; the first is the step, and a few more are understood.")
    return np.dtype(descr[1]), order[1] == "True", sizes, 8 + width + length
