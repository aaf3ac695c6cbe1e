"""Malformed inputs for one loader, in a process of its own: python -m tests.demos.fuzz LOADER COUNT.

Whatever is given, a loader raises `DemoError` or returns sound demonstrations, within seconds. The last line printed
is JSON: inputs refused, inputs loaded, and the peak memory of the process.
"""

import json
import os
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tests.demos.samples import assert_sound, make
from tests.fuzzing import attempt, damage, limited, peak_mib
from trustirl.core.errors import DemoError
from trustirl.demos.formats.layout import FIELDS
from trustirl.demos.schema import Demos

outcomes: Counter[str] = Counter()


def loads(load: Callable[[], Demos]) -> None:
    """Sound demonstrations, or a `DemoError` of one sentence, and nothing else."""
    outcomes[attempt(load, DemoError, assert_sound)] += 1


numbers = st.one_of(
    npst.integer_dtypes(endianness="?"),
    npst.unsigned_integer_dtypes(endianness="?"),
    npst.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    npst.boolean_dtypes(),
)
odd = st.one_of(npst.complex_number_dtypes(), npst.unicode_string_dtypes(max_len=4), npst.datetime64_dtypes())
shapes = st.one_of(st.just((6,)), st.just((6, 2)), npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7))
any_array = npst.arrays(st.one_of(numbers, numbers, numbers, odd), shapes)


@st.composite
def any_field(draw: st.DrawFn, name: str) -> Any:
    """What a field should be, or nearly."""
    right: dict[str, st.SearchStrategy[Any]] = {
        "observations": npst.arrays(np.float32, (6, 2), elements=st.floats(-5, 5, width=32)),
        "actions": npst.arrays(np.int64, (6,), elements=st.integers(0, 3)),
        "episode_ends": st.sampled_from([np.array([2, 6]), np.array([6]), np.array([6, 2]), np.array([-1, 6])]),
        "lengths": st.sampled_from([np.array([1, 2]), np.array([3, 3]), np.array([0, 9]), np.array([-2, 2])]),
        "final_observations": npst.arrays(np.float32, (2, 2), elements=st.floats(-5, 5, width=32)),
        "terminated": npst.arrays(bool, (2,)),
    }
    usual = right.get(name, npst.arrays(st.sampled_from([np.bool_, np.float64]), (6,)))
    return draw(st.one_of(usual, usual, usual, any_array))


def from_numpy(count: int, _folder: Path) -> None:
    """Arrays, lists of episodes, nested lists and nonsense."""
    extra = ("rewards", "episode_ends", "terminated", "lengths", "next_observations", "final_observations", "states")
    nonsense = st.one_of(st.none(), st.text(max_size=3), st.integers(), st.just([[1], [1, 2]]), st.just({"a": 1}))

    @limited(count)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        fields = {name: data.draw(any_field(name)) for name in ("observations", "actions")}
        for name in data.draw(st.lists(st.sampled_from(extra), max_size=3, unique=True)):
            fields[name] = data.draw(any_field(name))
        shape = data.draw(st.sampled_from(["flat", "flat", "list", "nested", "nonsense", "objects"]))
        if shape == "list":
            fields = {name: [rows] * data.draw(st.sampled_from([2, 2, 2, 1])) for name, rows in fields.items()}
        elif shape == "nested":
            fields = {name: rows.tolist() for name, rows in fields.items()}
        elif shape == "nonsense":
            fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(nonsense)
        elif shape == "objects":
            fields["observations"] = np.array([fields["observations"], None], dtype=object)
        loads(lambda: Demos.from_numpy(**fields))

    run()


def from_npz(count: int, folder: Path) -> None:
    """Damaged archives, and sound archives of unsound arrays."""
    file, originals = folder / "demos.npz", []
    for number, (dtype, compressed) in enumerate([("float32", True), ("float64", False)]):
        make(dtype=dtype).save(folder / f"{number}.npz", compressed)
        originals.append((folder / f"{number}.npz").read_bytes())
    np.savez(folder / "sb2.npz", obs=np.zeros((6, 2)), actions=np.zeros((6, 1), int), episode_starts=np.eye(6)[0])
    originals.append((folder / "sb2.npz").read_bytes())

    @limited(count)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        if data.draw(st.booleans()):
            file.write_bytes(data.draw(damage(originals)))
        else:
            names = data.draw(st.lists(st.sampled_from(FIELDS), max_size=5, unique=True))
            arrays = {name: data.draw(any_field(name)) for name in dict.fromkeys(["observations", "actions", *names])}
            if data.draw(st.integers(0, 9)) == 0:
                arrays["actions"] = np.array([{}, []], dtype=object)
            (np.savez_compressed if data.draw(st.booleans()) else np.savez)(file, **arrays)
        loads(lambda: Demos.load(file))

    run()


def from_hdf5(count: int, folder: Path) -> None:
    """Damaged HDF5 files, and sound ones of unsound arrays."""
    file, originals = folder / "demos.hdf5", []
    for number, options in enumerate([{}, {"compression": "gzip", "shuffle": True, "chunks": True}]):
        with h5py.File(folder / f"{number}.h5", "w") as root:
            for name, shape in (("observations", (20, 3)), ("actions", (20, 2)), ("rewards", (20,))):
                root.create_dataset(name, data=np.random.default_rng(0).normal(size=shape), **options)
            for name, at in (("terminals", 9), ("timeouts", 19)):
                root.create_dataset(name, data=np.arange(20) == at, **options)
        originals.append((folder / f"{number}.h5").read_bytes())

    @limited(count)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        if data.draw(st.booleans()):
            file.write_bytes(data.draw(damage(originals)))
        else:
            names = data.draw(st.lists(st.sampled_from(FIELDS), max_size=5, unique=True))
            with h5py.File(file, "w") as root:
                for name in dict.fromkeys(["observations", "actions", *names]):
                    array = data.draw(any_field(name))
                    if array.dtype.kind in "UM":
                        root.create_group(name)
                    else:
                        root[name] = array
        loads(lambda: Demos.load(file))

    run()


def from_minari(count: int, folder: Path) -> None:
    """Minari datasets with damaged numbers or a damaged description."""
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    make().save_minari("toy/demos-v0")
    data_folder = folder / "toy" / "demos-v0" / "data"
    hdf5, description = data_folder / "main_data.hdf5", data_folder / "metadata.json"
    whole, text = hdf5.read_bytes(), description.read_text()
    json_values = st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
        max_leaves=5,
    )

    @limited(count)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        hdf5.write_bytes(whole)
        description.write_text(text)
        kind = data.draw(st.sampled_from(["numbers", "numbers", "text", "values", "numbers and values"]))
        if "numbers" in kind:
            hdf5.write_bytes(data.draw(damage([whole])))
        if "text" in kind:
            description.write_bytes(data.draw(damage([text.encode()])))
        if "values" in kind:
            metadata = json.loads(text)
            for key in data.draw(st.lists(st.sampled_from(sorted(metadata)), min_size=1, max_size=3)):
                metadata[key] = data.draw(json_values)
            description.write_text(json.dumps(metadata))
        loads(lambda: Demos.load(folder / "toy" / "demos-v0"))

    run()


def from_csv(count: int, folder: Path) -> None:
    """Damaged tables, and tables of any cells."""
    file = folder / "demos.csv"
    rows = [f"{episode},{time},{time / 3},{-time},{time % 2},true" for episode in "ab" for time in range(5)]
    whole = "\n".join(["episode,time,observation_0,observation_1,action,terminated", *rows]).replace(",true", ",0")
    originals = [whole.encode(), whole.replace("action", "act").encode(), whole.replace("episode", "ep").encode()]
    cells = st.sampled_from(["0", "1", "-1", "2.5", "nan", "inf", "1e999", "", "x", "9" * 30, '"', "true", " 1 "])

    @limited(count)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        if data.draw(st.booleans()):
            file.write_bytes(data.draw(damage(originals)))
        else:
            lines = data.draw(st.lists(st.lists(cells, min_size=5, max_size=6), max_size=6))
            file.write_text("\n".join([whole.splitlines()[0], *map(",".join, lines)]))
        loads(lambda: Demos.load(file))

    run()


def from_parquet(count: int, folder: Path) -> None:
    """Damaged Parquet files, and sound ones of unsound columns."""
    file, originals = folder / "demos.parquet", []
    columns: dict[str, Any] = {
        "episode": ["a"] * 5 + ["b"] * 5,
        "time": list(range(5)) * 2,
        "observation": [[float(time), 2.0] for time in range(10)],
        "action": list(range(10)),
    }
    for compression in ("snappy", "none"):
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / "whole.parquet", compression=compression)
        originals.append((folder / "whole.parquet").read_bytes())
    cells = st.one_of(
        st.none(), st.integers(-9, 9), st.floats(), st.text(max_size=3), st.lists(st.floats(), max_size=2)
    )
    column = st.one_of(st.lists(st.integers(-9, 9), max_size=4), st.lists(st.floats(), max_size=4), st.lists(cells))

    @limited(count)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        if data.draw(st.integers(0, 3)):
            file.write_bytes(data.draw(damage(originals)))
        else:
            made = {name: data.draw(column)[:4] for name in columns}
            shortest = min(map(len, made.values()))
            try:
                table = pyarrow.table({name: content[:shortest] for name, content in made.items()})
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):  # no column of one type
                table = pyarrow.table({"observation": [1.0]})
            pyarrow.parquet.write_table(table, file)
        loads(lambda: Demos.load(file))

    run()


LOADERS = {
    "numpy": from_numpy,
    "npz": from_npz,
    "hdf5": from_hdf5,
    "minari": from_minari,
    "csv": from_csv,
    "parquet": from_parquet,
}

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as name:
        LOADERS[sys.argv[1]](int(sys.argv[2]), Path(name))
    print(json.dumps({"refused": 0, "loaded": 0} | outcomes | {"peak_mib": peak_mib()}))
