"""Small files that stand for more than fits into memory or a lifetime: python -m tests.demos.bombs FILE...

Loads each file in a process of its own and prints JSON: what was said of it, seconds of computing, MiB of memory.
"""

import json
import resource
import signal
import struct
import sys
import time
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet

from tests.demos.samples import make
from trustirl.core.errors import DemoError
from trustirl.demos.schema import Demos

SECONDS, MOST_MEMORY = 20, 8 * 2**30  # beyond which the process is ended, for the sake of the others
STEPS = {"observation": np.zeros(4096), "action": np.zeros(4096)}


def hdf5_text(folder: Path) -> Path:
    """A text of 2 GB of which nothing was ever written."""
    with h5py.File(folder / "text.hdf5", "w") as root:
        for name in ("observations", "actions", "terminals", "timeouts"):
            root[name] = np.zeros((4, 1) if name in ("observations", "actions") else 4)
        root.create_dataset("env_id", shape=(), dtype="S2000000000")
    return folder / "text.hdf5"


def hdf5_links(folder: Path) -> Path:
    """Seven groups, each of which names the next one 15 times: 15^7 ways to the end."""
    make().save_minari("toy/links-v0")
    file = folder / "toy" / "links-v0" / "data" / "main_data.hdf5"
    with h5py.File(file, "a") as root:
        del root["episode_0/observations"]
        groups = [root.create_group(f"group_{level}") for level in range(7)]
        for group, inner in pairwise(groups):
            for name in range(15):
                group[str(name)] = inner
        groups[-1]["numbers"] = np.zeros((4, 3))
        root["episode_0/observations"] = groups[0]
    return folder / "toy" / "links-v0"


def npz_nothing(folder: Path) -> Path:
    """Texts without letters take no memory, but NumPy gives them one letter each."""
    shape = (30_000, 30_000)
    header = f"{{'descr': '<U0', 'fortran_order': True, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    file = folder / "nothing.npz"
    np.savez(file, observations=np.zeros((4, 1)), actions=np.zeros((4, 1)))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("provenance.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    return file


def parquet(folder: Path, name: str, table: dict[str, Any], **options: Any) -> Path:
    """A table, compressed."""
    file = folder / f"{name}.parquet"
    pyarrow.parquet.write_table(pyarrow.table(table), file, compression="zstd", **options)
    return file


def parquet_text(folder: Path) -> Path:
    """The same long name of an episode in every row, stored once."""
    names = pyarrow.DictionaryArray.from_arrays(np.zeros(4096, np.int32), ["x" * 10_000_000])
    return parquet(folder, "text", STEPS | {"episode": names}, write_statistics=False, store_schema=False)


def parquet_prefixes(folder: Path) -> Path:
    """Each name is the one before it, with nothing added."""
    encoding: dict[str, Any] = {"use_dictionary": False, "column_encoding": {"episode": "DELTA_BYTE_ARRAY"}}
    table = {name: column[:100] for name, column in STEPS.items()} | {"episode": ["x" * 1_000_000] * 100}
    return parquet(folder, "prefixes", table, write_statistics=False, **encoding)


def parquet_page(folder: Path) -> Path:
    """A page of 300 MB of zeros, compressed."""
    zeros = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.zeros(4096 * 10_000, np.float32)), 10_000)
    table = {"observation": zeros, "action": np.zeros(4096)}
    return parquet(folder, "page", table, use_dictionary=False, data_page_size=2**31 - 1, write_statistics=False)


def parquet_list(folder: Path) -> Path:
    """50 million zeros in one row."""
    zeros = pyarrow.ListArray.from_arrays([0, 50_000_000], pyarrow.array(np.zeros(50_000_000, np.int8)))
    return parquet(folder, "list", {"observation": zeros, "action": [0]}, write_statistics=False)


def csv_columns(folder: Path) -> Path:
    """300,000 columns."""
    names = [f"observation_{number}" for number in range(300_000)] + ["action"]
    (folder / "columns.csv").write_text(",".join(names) + "\n" + ",".join("0" * len(names)) + "\n")
    return folder / "columns.csv"


BOMBS = (
    *(hdf5_text, hdf5_links, npz_nothing, csv_columns),
    *(parquet_text, parquet_prefixes, parquet_page, parquet_list),
)


def memory(kind: str) -> float:
    """MiB of this process: VmRSS now, VmHWM at most."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[kind].split()[0]) / 1024


def attempt(file: Path) -> dict[str, Any]:
    """Load one file; what is measured is what that takes beyond what the process had."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the greatest memory so far
    had, began = memory("VmRSS"), time.process_time()
    signal.alarm(SECONDS)  # nobody catches it
    try:
        said = f"{len(Demos.load(file))} episodes"
    except DemoError as error:
        said = f"refused: {error}"
    signal.alarm(0)
    return {"said": said, "seconds": time.process_time() - began, "mib": memory("VmHWM") - had}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    print(json.dumps([attempt(Path(name)) for name in sys.argv[1:]]))
