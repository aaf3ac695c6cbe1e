"""HDF5 files in D4RL's flat layout (`layout`), and the careful reading that Minari's files need too.

An HDF5 file can point at other files, have its numbers decompressed by a plug-in, and claim any size; all three are
refused.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from trustirl.core.errors import DemoError
from trustirl.demos.checks import Fields
from trustirl.demos.formats.layout import ENDS, FIELDS, understood
from trustirl.demos.formats.outside import existing_file, missing_package, reading, require_plausible

KIND = "an HDF5 file"
# Deflate, shuffle, Fletcher's checksum, szip, n-bit, scale-offset and LZF come with h5py; others load a plug-in.
FILTERS = {1, 2, 3, 4, 5, 6, 32000}


def read_hdf5(path: str | os.PathLike[str]) -> Fields:
    """See `Demos.from_hdf5`."""
    file = existing_file(path, KIND)
    with opened(file) as root:
        present = [str(name) for name in root]  # names that are no text come as bytes
        if "episode_0" in present:
            raise DemoError(f"{path} is part of a Minari dataset; give the dataset's folder, or minari:ID.")
        found = [dataset(root, name) for name in FIELDS if name in present]
        arrays = dict(zip((name for name in FIELDS if name in present), contents(file, found), strict=True))
    if {"observations", "actions"} <= arrays.keys() and not any(name in arrays for name in ENDS):
        raise DemoError(f"the demo file {path} lacks terminals and timeouts, which say where episodes end; add them.")
    return understood(arrays, path, present)


@contextmanager
def opened(file: Path) -> Iterator[Any]:
    """The root group of an HDF5 file."""
    try:
        import h5py
    except ImportError:
        raise missing_package(KIND, "hdf5") from None
    with reading(file, KIND), h5py.File(file, "r") as root:
        yield root


def child(group: Any, name: str) -> Any:
    """A member of a group that lies in the same file."""
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise DemoError(f"demo {name} is a link to another place; copy the data into the file itself.")
    return group[name]


def dataset(group: Any, name: str) -> Any:
    """An array of numbers or a text in a group, not read yet."""
    import h5py

    found = child(group, name)
    if not isinstance(found, h5py.Dataset) or found.shape is None:
        raise DemoError(f"demo {name} must be a dataset of HDF5, not an empty one or a group of others.")
    if found.is_virtual or found.external:
        raise DemoError(f"demo {name} lie in other files; copy the data into the file itself.")
    settings = found.id.get_create_plist()
    if any(settings.get_filter(number)[0] not in FILTERS for number in range(settings.get_nfilters())):
        raise DemoError(f"demo {name} are compressed by a plug-in; write them with gzip or lzf.")
    if h5py.check_string_dtype(found.dtype) is not None and found.shape == ():
        return found
    if found.dtype.kind not in "biuf" or found.dtype.itemsize > 8:
        raise DemoError(f"demo {name} must be numbers of at most 64 bits, got dtype {found.dtype}.")
    return found


def contents(file: Path, datasets: Sequence[Any]) -> list[np.ndarray]:
    """The arrays themselves, if the file is large enough to hold them."""
    require_plausible(file, sum(entry.nbytes for entry in datasets), file.stat().st_size)
    return [np.array(entry[()] if entry.dtype.kind in "biuf" else entry.asstr()[()]) for entry in datasets]
