"""Archives, HDF5 and tables: what was written comes back, and what a file claims is not believed."""

import json
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tests.demos.samples import assert_same, assert_sound, make
from trustirl import DemoError
from trustirl.demos.formats.outside import reading
from trustirl.demos.schema import Demos
from trustirl.demos.tabular import tabular_measure
from trustirl.tasks.registry import make_task
from trustirl.training.train import setting_groups
from trustirl.worlds.exact import build
from trustirl.worlds.job import Experiment, settle

GOLDEN = Path(__file__).parent / "golden-1.npz"
D4RL = {
    "observations": np.arange(12.0).reshape(6, 2),
    "actions": np.ones((6, 1), np.float32),
    "rewards": np.arange(6.0),
    "terminals": np.array([0, 0, 1, 0, 0, 0], bool),
    "timeouts": np.array([0, 0, 0, 0, 1, 0], bool),
}


def write_hdf5(path: Path, arrays: dict[str, Any], **options: Any) -> Path:
    with h5py.File(path, "w") as root:
        for name, array in arrays.items():
            root.create_dataset(name, data=array, **options)
    return path


def write_npz(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path, **arrays)
    return path


floats = st.sampled_from([np.float16, np.float32, np.float64])


@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple),
    observation=st.tuples(floats, st.sampled_from([(), (3,), (2, 2)])),
    action=st.sampled_from([np.int8, np.uint16, np.int64, np.float32]),
    known=st.sets(st.sampled_from(["rewards", "states", "next", "final", "times"])),
    compressed=st.booleans(),
    data=st.data(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_our_archive_gives_everything_back_bit_for_bit(
    tmp_path: Path,
    lengths: tuple[int, ...],
    observation: tuple[Any, tuple[int, ...]],
    action: Any,
    known: set[str],
    compressed: bool,
    data: st.DataObject,
) -> None:
    dtype, shape = observation
    steps, numbers = sum(lengths), npst.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False)
    fields: dict[str, Any] = {
        "observations": data.draw(npst.arrays(dtype, (steps, *shape), elements=numbers)),
        "actions": data.draw(npst.arrays(action, (steps,), elements=st.integers(0, 9))),
        "next_observations": data.draw(npst.arrays(dtype, (steps, *shape), elements=numbers))
        if "next" in known
        else None,
        "final_observations": np.zeros((len(lengths), *shape), dtype) if "final" in known else None,
    }
    fields |= {name: None for name in ("rewards", "states") if name not in known}
    demos = make(lengths, **fields)
    demos = demos.subsample(2) if "times" in known else demos
    demos.save(tmp_path / "demos.npz", compressed)
    assert_same(Demos.load(tmp_path / "demos.npz"), demos)


def test_consecutive_observations_are_stored_once(tmp_path: Path) -> None:
    make().save(tmp_path / "demos.npz")
    with np.load(tmp_path / "demos.npz") as archive:
        assert "next_observations" not in archive.files
        assert archive["final_observations"].shape == (3, 3)
    signed = make(observations=np.zeros((11, 3), np.float32), next_observations=np.full((11, 3), -0.0, np.float32))
    signed.save(tmp_path / "signed.npz")  # equal, but not the same
    assert np.signbit(Demos.load(tmp_path / "signed.npz").next_observations).all()


def test_the_first_format_is_read_for_ever() -> None:
    demos = Demos.load(GOLDEN)
    assert demos.content_hash() == make().content_hash()
    assert_same(demos, make())


def test_saving_is_for_archives_and_never_leaves_half_a_file(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match=r"saved as .npz, not as demos.csv"):
        make().save(tmp_path / "demos.csv")
    with pytest.raises(DemoError, match="cannot write"):
        make().save(tmp_path / "nowhere" / "demos.npz")
    assert not list(tmp_path.iterdir())


def test_flat_layouts_of_others(tmp_path: Path) -> None:
    for path in (write_npz(tmp_path / "d4rl.npz", D4RL), write_hdf5(tmp_path / "d4rl.hdf5", D4RL)):
        demos = Demos.load(path)
        np.testing.assert_array_equal(demos.episode_ends, [3, 5, 6])  # terminal, timeout, cut
        np.testing.assert_array_equal(demos.terminated, [True, False, False])
        np.testing.assert_array_equal(demos.rewards, D4RL["rewards"])
        assert demos.actions.dtype == np.float32
    starts = {"obs": D4RL["observations"], "actions": np.ones((6, 1), int), "episode_starts": [1, 0, 1, 0, 0, 0]}
    demos = Demos.load(write_npz(tmp_path / "sb2.npz", starts))
    np.testing.assert_array_equal(demos.episode_ends, [2, 6])
    assert demos.actions.shape == (6,)
    ours = {"observations": D4RL["observations"], "actions": D4RL["actions"], "episode_ends": [3, 6]}
    told = {"env_id": "Toy-v1", "versions": "toy 1.0", "provenance": "a sentence", "episode_terminal": [True, False]}
    demos = Demos.load(write_npz(tmp_path / "flat.npz", ours | told | {"episode_returns": [1.0, 2.0]}))
    np.testing.assert_array_equal(demos.terminated, [True, False])
    assert demos.provenance == {"env_id": "Toy-v1", "versions": "toy 1.0", "source": "a sentence"}


def test_goals_join_the_observations_as_the_environment_gives_them(tmp_path: Path) -> None:
    goals = {"achieved_goal": np.full((6, 1), 7.0), "desired_goal": np.full((6, 1), 8.0)}
    demos = Demos.load(write_npz(tmp_path / "maze.npz", D4RL | goals))
    np.testing.assert_array_equal(demos.observations[1], [7, 8, 2, 3, 1])
    with pytest.raises(DemoError, match="desired_goal must hold one vector of floats per step"):
        Demos.load(write_npz(tmp_path / "bad.npz", D4RL | goals | {"desired_goal": np.zeros(5)}))


@pytest.mark.parametrize("suffix", ["npz", "hdf5"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"observations": None}, "lacks observations; it holds actions, rewards"),
        ({"actions": None}, "lacks actions"),
        ({"timeouts": None}, "lack timeouts, so nobody knows where every episode ends"),
        ({"terminals": np.zeros(5, bool)}, "terminals must hold 6 truth values"),
        ({"terminals": np.full(6, 3)}, "terminals must be true or false"),
        ({"episode_ends": np.array([2, 6])}, "terminals mark step 0 of episode 1, which does not end it"),
        ({"episode_ends": np.array([9, 6])}, "episode 1 ends at 6"),
        ({"actions": np.zeros((5, 1))}, "6 observations and 5 actions"),
        ({"observations": np.full((6, 2), np.nan)}, "observations must be finite"),
    ],
)
def test_wrong_arrays_in_files_are_named(tmp_path: Path, suffix: str, changes: dict[str, Any], words: str) -> None:
    arrays = {name: array for name, array in (D4RL | changes).items() if array is not None}
    path = tmp_path / f"demos.{suffix}"
    (write_npz if suffix == "npz" else write_hdf5)(path, arrays)
    with pytest.raises(DemoError, match=words):
        Demos.load(path)


def test_objects_in_an_archive_are_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "sprung",)

    write_npz(tmp_path / "trap.npz", D4RL | {"actions": np.array([Trap()] * 6, object)})
    with pytest.raises(DemoError, match="actions are Python objects, which only executing code could read"):
        Demos.load(tmp_path / "trap.npz")
    assert not (tmp_path / "sprung").exists()
    np.load(tmp_path / "trap.npz", allow_pickle=True)["actions"]
    assert (tmp_path / "sprung").exists()  # the trap works


def member(header: str, content: bytes = b"", version: int = 1) -> bytes:
    width = 2 if version == 1 else 4
    return b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(width, "little") + header.encode() + content


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (member("{'descr': '<f8', 'fortran_order': False, 'shape': (125000000, 10)}"), "claim 10000000000 bytes"),
        (
            member("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2)}", bytes(31)),
            "claim 32 bytes .* 31",
        ),
        (member("{'descr': '<f8', 'fortran_order': False, 'shape': (-2, 2)}"), "not plain numbers"),
        (member("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2,)}"), "not plain numbers"),
        (member("{'descr': '<f16', 'fortran_order': False, 'shape': (2,)}"), "not plain numbers"),
        (member("__import__('os')"), "not plain numbers"),
        (member("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1," * 40 + ")}"), "40 axes"),
        (member(" " * 20_000, version=2), "header of 20000 bytes"),
        (b"not an array", "not an array in NumPy's format"),
        (b"", "not an array in NumPy's format"),
    ],
)
def test_an_array_that_lies_about_itself_is_refused_before_memory_is_asked_for(
    tmp_path: Path, data: bytes, words: str
) -> None:
    with zipfile.ZipFile(tmp_path / "demos.npz", "w") as archive:
        archive.writestr("observations.npy", data)
    tracemalloc.start()
    with pytest.raises(DemoError, match=words):
        Demos.load(tmp_path / "demos.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 2**20


def test_bombs_are_refused_before_they_go_off(tmp_path: Path) -> None:
    header = member("{'descr': '<f8', 'fortran_order': False, 'shape': (10000000, 1)}")
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("observations.npy", "w") as file,
    ):
        file.write(header)
        for _ in range(80):
            file.write(bytes(10**6))
    with h5py.File(tmp_path / "bomb.h5", "w") as root:
        for name in ("observations", "actions", "terminals", "timeouts"):
            root.create_dataset(name, (10**9, 2), "f8", chunks=True)
    many = {"observation": pyarrow.repeat(pyarrow.scalar(0.5, pyarrow.float32()), 10**7)}
    pyarrow.parquet.write_table(pyarrow.table(many | {"action": many["observation"]}), tmp_path / "bomb.parquet")
    tracemalloc.start()
    for name in ("bomb.npz", "bomb.h5", "bomb.parquet"):
        assert (tmp_path / name).stat().st_size < 500_000
        with pytest.raises(DemoError, match="bytes and claims to hold"):
            Demos.load(tmp_path / name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 2**20


def test_unusual_archives_are_refused(tmp_path: Path) -> None:
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / "odd.npz", "w", method) as archive:
            archive.writestr("observations.npy", b"")
        with pytest.raises(DemoError, match="observations are compressed in an unusual way"):
            Demos.load(tmp_path / "odd.npz")
    make().save(tmp_path / "new.npz")
    with zipfile.ZipFile(tmp_path / "new.npz", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("trustirl_demos.npy", member("{'descr': '|i1', 'fortran_order': False, 'shape': ()}", b"\2"))
    with pytest.raises(DemoError, match="only a newer version of trustirl knows"):
        Demos.load(tmp_path / "new.npz")


@pytest.mark.parametrize("suffix", [".npz", ".hdf5", ".csv", ".parquet"])
def test_files_that_are_none(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"demos{suffix}"
    with pytest.raises(DemoError, match="does not exist"):
        Demos.load(path)
    path.mkdir()
    with pytest.raises(DemoError, match="is a directory"):
        Demos.load(path)
    path.rmdir()
    for content in (b"", b"\0", b"nonsense" * 100):
        path.write_bytes(content)
        with pytest.raises(DemoError, match=r"damaged or not|column"):
            Demos.load(path)


@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path, suffix: str) -> None:
    whole = write_npz(tmp_path / "a.npz", D4RL) if suffix == ".npz" else write_hdf5(tmp_path / "a.hdf5", D4RL)
    content, path = whole.read_bytes(), tmp_path / f"cut{suffix}"
    for length in np.linspace(0, len(content) - 1, 60).astype(int):
        path.write_bytes(content[:length])
        with pytest.raises(DemoError, match="damaged"):
            Demos.load(path)


def test_what_parsers_cannot_read_is_refused_and_our_mistakes_are_not_hidden(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "times.hdf5", "w") as root:
        root["observations"] = np.zeros((6, 2))
        h5py.h5d.create(root.id, b"actions", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((6,)))
    (tmp_path / "wide.csv").write_text("observation,action\n" + 200_000 * "1" + ",2\n")
    for name, words in (("times.hdf5", "No NumPy equivalent"), ("wide.csv", "field larger than field limit")):
        with pytest.raises(DemoError, match=words):
            Demos.load(tmp_path / name)
    with pytest.raises(AttributeError), reading(tmp_path / "any", "a file"):
        raise AttributeError


def test_loading_an_archive_takes_the_memory_of_its_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    demos = Demos.from_numpy(rng.normal(size=(200_000, 17)).astype(np.float32), np.zeros((200_000, 6), np.float32))
    for compressed in (True, False):
        demos.save(tmp_path / "demos.npz", compressed)
        tracemalloc.start()
        loaded = Demos.load(tmp_path / "demos.npz")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= 1.3 * (loaded.observations.nbytes + loaded.actions.nbytes)


def test_hdf5_cannot_lead_out_of_the_file_or_load_plug_ins(tmp_path: Path) -> None:
    other = write_hdf5(tmp_path / "other.h5", D4RL)
    path = tmp_path / "demos.h5"

    def refused(words: str) -> None:
        with pytest.raises(DemoError, match=words):
            Demos.load(path)

    rest = {name: array for name, array in D4RL.items() if name != "observations"}
    for link in (h5py.ExternalLink(other, "observations"), h5py.SoftLink("/actions")):
        with h5py.File(write_hdf5(path, rest), "a") as root:
            root["observations"] = link
        refused("observations is a link to another place")
    with h5py.File(write_hdf5(path, rest), "a") as root:
        root.create_dataset("observations", (6, 2), "f8", external=[(str(other), 0, 96)])
    refused("observations lie in other files")
    with h5py.File(write_hdf5(path, rest), "a") as root:
        layout = h5py.VirtualLayout((6, 2), "f8")
        layout[:] = h5py.VirtualSource(other, "observations", (6, 2))
        root.create_virtual_dataset("observations", layout)
    refused("observations lie in other files")
    with h5py.File(write_hdf5(path, rest), "a") as root:
        settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        settings.set_chunk((6, 2))
        settings.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, ())
        space = h5py.h5s.create_simple((6, 2))
        h5py.h5d.create(root.id, b"observations", h5py.h5t.NATIVE_DOUBLE, space, settings)
    refused("observations are compressed by a plug-in")
    with h5py.File(write_hdf5(path, rest), "a") as root:
        root["observations"] = ["text"] * 6
    refused("observations must be numbers")
    with h5py.File(write_hdf5(path, rest), "a") as root:
        root.create_group("observations")
    refused("observations must be a dataset")
    write_hdf5(path, {name: D4RL[name] for name in ("observations", "actions")})
    refused("lacks terminals and timeouts")


def test_training_reads_any_file(tmp_path: Path) -> None:
    arrays = {"observations": np.array([0, 1, 2, 2]), "actions": np.array([4, 1, 0, 3])}
    path = write_hdf5(tmp_path / "grid.h5", arrays | {"episode_ends": np.array([2, 4])})
    settings = settle(setting_groups("mce", "gridworld"), {}, "mce")
    world = build(Experiment("mce", "gridworld", {"size": 3}, str(path), None, "first", 1, 2, settings, "exact"))
    np.testing.assert_array_equal(world.demo.obs, arrays["observations"])
    np.testing.assert_allclose(world.demo.weight[1] / world.demo.weight[0], world.mdp.discount)
    wrong = write_hdf5(tmp_path / "wrong.h5", arrays | {"actions": np.array([0, 1, 0, 9]), "episode_ends": [2, 4]})
    with pytest.raises(DemoError, match=r"step 1 of episode 1 of the demos has action 9"):
        tabular_measure(Demos.load(wrong), world.mdp)


def test_steps_that_cannot_happen_are_refused_by_name() -> None:
    mdp = make_task("chain").mdp  # action 0 goes to the left, action 1 to the right, and the end holds
    tabular_measure(Demos.from_numpy([0, 1, 0, 3, 4, 4], [1, 0, 1, 1, 0, 0], [3, 6]), mdp)
    told = (
        r"hold 4 transitions that cannot happen in the task: from state 0 by action 1 to state 2, from state 2 by "
        r"action 1 to state 1, from state 1 by action 0 to state 4 and 1 more \(first at step 1 of episode 1\)"
    )
    with pytest.raises(DemoError, match=told):
        tabular_measure(Demos.from_numpy([0, 0, 0, 2, 1, 4, 0, 2], [0, 0, 1, 1, 0, 1, 1, 1], [1, 8]), mdp)
    with pytest.raises(DemoError, match="1 transition that cannot happen in the task: from state 1 by action 1 to"):
        tabular_measure(Demos.from_numpy([0, 1], [1, 1], final_observations=[3]), mdp)
    apart = Demos.from_numpy([0, 1, 3], [1, 1, 1])
    tabular_measure(replace(apart, times=np.array([0, 1, 3])), mdp)  # a step is missing, not impossible


def test_compressed_hdf5_is_read(tmp_path: Path) -> None:
    for options in ({"compression": "gzip", "shuffle": True, "fletcher32": True}, {"compression": "lzf"}):
        assert_sound(Demos.load(write_hdf5(tmp_path / "demos.h5", D4RL, **options)))


def columns(demos: Demos) -> dict[str, Any]:
    """Demonstrations as columns, rows in no order."""
    order = np.random.default_rng(1).permutation(len(demos.actions))
    numbers = np.repeat(np.arange(len(demos)), demos.lengths())
    over = np.zeros(len(numbers), bool)
    over[demos.episode_ends - 1] = demos.terminated
    table = {f"observation_{number}": column for number, column in enumerate(demos.observations.T)}
    table |= {"action": demos.actions[:, 0].astype(np.float64), "episode": [f"no. {number}" for number in numbers]}
    table |= {"time": demos.time_in_episode(), "terminated": over, "reward": demos.rewards}
    return {name: np.asarray(column)[order] for name, column in table.items()}


def write_csv(path: Path, table: dict[str, Any]) -> Path:
    rows = zip(*([str(cell) for cell in column.tolist()] for column in table.values()), strict=True)
    path.write_text("\n".join(map(",".join, [list(table), *rows])) + "\n")
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "npz"])
def test_tables_come_back_in_order_bit_for_bit(tmp_path: Path, kind: str) -> None:
    demos = make((4, 1, 12), dtype="float64")
    table, path = columns(demos), tmp_path / f"demos.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.table(table), path)
    elif kind == "npz":
        np.savez(path, **table)
    else:
        write_csv(path, table)
        path.write_text(path.read_text().replace(",", "\t" if kind == "tsv" else ","))
    loaded = Demos.from_table(path)
    by_first = list(dict.fromkeys(table["episode"].tolist()))
    wanted = demos[[int(name.removeprefix("no. ")) for name in by_first]]
    for name in ("observations", "episode_ends", "terminated", "rewards"):
        assert getattr(loaded, name).tobytes() == getattr(wanted, name).tobytes(), name
    np.testing.assert_array_equal(loaded.actions, wanted.actions[:, 0])
    if kind != "npz":
        assert_same(Demos.load(path), loaded)
    if kind in ("csv", "parquet"):
        other = path.rename(tmp_path / "demos.dat")
        again = getattr(Demos, f"from_{kind}")(other, actions="action")
        assert_same(again, replace(loaded, provenance={"source": "demos.dat"}))


def test_columns_are_chosen_by_name_and_time_that_leaps_splits(tmp_path: Path) -> None:
    """The layout of the meerkat annotations."""
    table = {
        "video": np.array([0, 0, 0, 0, 1, 1]),
        "animal": np.array([5, 5, 5, 3, 5, 5]),
        "when": np.array([10, 11, 13, 11, 2, 1]),
        "zone": np.array([1, 2, 3, 4, 5, 6], np.int8),
        "coordinates": np.arange(18, dtype=np.float32).reshape(6, 3),
        "behaviour": np.array([1, 0, 1, 0, 1, 0], np.int8),
        "names": np.array(["dig", "rest"]),
    }
    path = write_npz(tmp_path / "animals.npz", table)
    with pytest.raises(DemoError, match=r"lacks observations and actions; .* name its columns in Demos.from_table"):
        Demos.load(path)
    chosen: dict[str, Any] = {"actions": "behaviour", "episode": ["video", "animal"], "time": "when"}
    demos = Demos.from_table(path, observations=["zone", "coordinates"], **chosen)
    np.testing.assert_array_equal(demos.observations[:, 0], [1, 2, 3, 4, 6, 5])
    np.testing.assert_array_equal(demos.lengths(), [2, 1, 1, 2])
    assert demos.observations.shape == (6, 4)
    np.testing.assert_array_equal(Demos.from_table(path, observations="zone", **chosen, gap=2.0).lengths(), [3, 1, 2])


def test_without_episodes_the_flags_end_them(tmp_path: Path) -> None:
    table = {"observation": np.arange(5.0), "action": np.arange(5)}
    ends = {"terminated": np.array([0, 1, 0, 0, 0]), "truncated": np.array([0, 0, 0, 1, 0])}
    demos = Demos.load(write_csv(tmp_path / "a.csv", table | ends))
    np.testing.assert_array_equal(demos.episode_ends, [2, 4, 5])
    np.testing.assert_array_equal(demos.terminated, [True, False, False])
    assert len(Demos.load(write_csv(tmp_path / "b.csv", table))) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("observation,act\n1,2\n", "unknown column 'action': did you mean 'act'"),
        ("observation,action\n1,2\n3\n", "a row of 1 cell near line 3 and 2 columns"),
        ("observation,action\n1,left\n", "column action holds 'left' near line 2"),
        ("observation,action\n1,\n", "column action holds '' near line 2"),
        ("observation,action\nnan,1\n", "observations must be finite"),
        ("observation,action\n", "not empty"),
        ("observation,observation,action\n1,1,1\n", "column names, each once"),
        ("observation,action,time\n1,1,3\n1,1,3\n", "row 1 has the time of another row"),
        ("observation,action,time\n1,1,inf\n1,1,3\n", "time column must hold one finite number"),
        ("observation,action,episode,terminated\n1,1,a,1\n1,1,a,0\n", "terminated mark step 0 of episode 0"),
        ("q\x85\x1b[2J,w\n1,2\n", r"unknown column 'observation': choose from q  \[2J, w"),
        ("observation,action\n1," + "9" * 200_000 + "\n", "damaged or not a table"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "demos.csv").write_text(text)
    with pytest.raises(DemoError, match=words):
        Demos.load(tmp_path / "demos.csv")


def test_parquet_lists_are_vectors_and_gaps_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "demos.parquet"

    def write(**table: Any) -> Path:
        pyarrow.parquet.write_table(pyarrow.table({"action": [0, 1]} | table), path)
        return path

    demos = Demos.load(write(observation=[[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal(demos.observations, [[1, 2], [3, 4]])
    fixed = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array([1.0, 2.0, 3.0, 4.0], pyarrow.float32()), 2)
    assert Demos.load(write(observation=fixed)).observations.dtype == np.float32
    for column, words in (
        ([[1.0], [3.0, 4.0]], "lists of the column observation must all be of one length"),
        ([[1.0], [None]], "has 1 empty entry;"),
        ([1.0, None], "has 1 empty cell;"),
        (["a", "b"], "observation must hold numbers"),
    ):
        with pytest.raises(DemoError, match=words):
            Demos.load(write(observation=column))


def test_a_provenance_is_only_ever_data(tmp_path: Path) -> None:
    for text, told in (
        (json.dumps({"env_id": "A-v0"}), {"env_id": "A-v0"}),
        ("[" * 100_000, {"source": "[" * 100_000}),
        ("[1]", {"source": "[1]"}),
        ("NaN", {"source": "NaN"}),
    ):
        write_npz(tmp_path / "demos.npz", D4RL | {"provenance": text})
        assert Demos.load(tmp_path / "demos.npz").provenance == told
