"""Benches on Ray, on Slurm's stand-in and behind URLs: the same table as on this machine, whatever is killed."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.bench.small import LONG, TWO, started, suite, table, trustirl
from trustirl.bench import storage, work
from trustirl.bench.on_ray import resources
from trustirl.bench.storage import at_hand, fetch, file_system, store_run
from trustirl.core.errors import InputError
from trustirl.runs.folder import FORMAT_VERSION, Pointer, RunFolder, Saved

PIRO = "runs/gridworld-piro"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite, and what came of it on this machine."""
    folder = tmp_path_factory.mktemp("here")
    assert trustirl("bench", suite(folder, LONG), "--out", folder / "out") == 0
    return folder


def wait_for(happened: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def starter_of(run: Path) -> int:
    """The process that started the one that makes a run."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"trustirl.bench.worker" in words and str(run).encode() in words:
                return int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    raise AssertionError(f"nobody makes {run}")


@pytest.mark.slow
def test_a_killed_worker_of_ray_changes_nothing(here: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    run = tmp_path / PIRO
    bench = started("bench", here / "grid.toml", "--out", tmp_path, "--executor", "ray", "--workers", 2)
    wait_for(lambda: (run / "checkpoints" / "latest.json").exists() or bench.poll() is not None)
    assert bench.poll() is None, bench.communicate()
    worker = starter_of(run)
    assert worker != bench.pid
    os.kill(worker, signal.SIGKILL)
    assert not (run / "summary.json").exists()
    began = json.loads((run / "manifest.json").read_text())["created"]
    said, complaint = bench.communicate()
    assert bench.returncode == 0, complaint
    assert "report.html" in said
    assert json.loads((run / "manifest.json").read_text())["created"] == began  # resumed, not repeated
    assert table(tmp_path) == table(here / "out")


@pytest.mark.slow
def test_a_url_holds_what_a_killed_bench_can_go_on_from(here: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    out, run = f"file://{tmp_path}/out", tmp_path / "out" / PIRO
    bench = started("bench", here / "grid.toml", "--out", out)
    wait_for(lambda: (run / "checkpoints" / "latest.json").exists())
    bench.kill()
    bench.communicate()
    assert not (run / "summary.json").exists()
    began = json.loads((run / "manifest.json").read_text())["created"]
    assert trustirl("bench", here / "grid.toml", "--out", out) == 0
    assert json.loads((run / "manifest.json").read_text())["created"] == began
    assert table(tmp_path / "out") == table(here / "out")
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.slow
def test_submitit_starts_the_same_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submitit = pytest.importorskip("submitit")
    file, auto = suite(tmp_path, TWO), submitit.AutoExecutor
    monkeypatch.setattr(submitit, "AutoExecutor", lambda folder, cluster: auto(folder, "local"))
    assert trustirl("bench", file, "--out", tmp_path / "slurm", "--executor", "submitit") == 0
    assert trustirl("bench", file, "--out", tmp_path / "here") == 0
    assert table(tmp_path / "slurm") == table(tmp_path / "here")


def test_a_ray_that_does_not_answer_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.monotonic()
    for address, words in ((f"127.0.0.1:{port}", "no Ray answers at"), ("nowhere", "HOST:PORT")):
        ray = ("--executor", "ray", "--address", address)
        assert trustirl("bench", suite(tmp_path, TWO), "--out", tmp_path / "out", *ray) == 2
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(("executor", "package"), [("ray", "ray"), ("submitit", "submitit")])
def test_a_missing_package_is_named(
    executor: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert trustirl("bench", suite(tmp_path, TWO), "--out", tmp_path / "out", "--executor", executor) == 2
    assert "pip install 'trustirl[" in capsys.readouterr().err


def test_tasks_share_a_cluster() -> None:
    machines = [{"Alive": True, "Resources": {"CPU": 16.0, "GPU": 2.0}}, {"Alive": True, "Resources": {"CPU": 4.0}}]
    assert resources(machines, None) == {"num_cpus": 8, "num_gpus": 1.0}
    assert resources(machines, 6) == {"num_cpus": 2, "num_gpus": 0.33}
    assert resources(machines[1:], None) == {"num_cpus": 4, "num_gpus": 0.0}
    assert resources(machines[1:], 8) == {"num_cpus": 1, "num_gpus": 0.0}
    assert resources([*machines, {"Alive": False, "Resources": {"CPU": 99.0}}], 1)["num_cpus"] == 16


def checkpoint(folder: Path, iteration: int, files: list[str]) -> None:
    """What a run leaves when it has saved."""
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    for old in (folder / "checkpoints").iterdir():
        old.unlink()
    for name in files:
        (folder / "checkpoints" / name).write_text(f"{name} {iteration}")
    saved = [Saved(name, "", iteration, 0.0, {}, 0, "", 0) for name in files]
    pointer = Pointer(FORMAT_VERSION, "", tuple(saved), ())
    (folder / "checkpoints" / "latest.json").write_text(json.dumps(asdict(pointer)))
    (folder / "metrics.jsonl").write_text("row\n" * iteration)


def test_a_mirrored_run_can_be_resumed_at_any_moment(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    run, url = tmp_path / "run", "memory://bench/runs/one"
    system, root = file_system(url)
    checkpoint(run, 1, ["a"])
    assert store_run(run, url)
    checkpoint(run, 2, ["a", "b"])
    (run / "checkpoints" / ".b.half").write_text("being written")
    assert store_run(run, url)
    fetch(url, tmp_path / "again")
    for file in ("checkpoints/a", "checkpoints/b", "checkpoints/latest.json", "metrics.jsonl"):
        assert (tmp_path / "again" / file).read_text() == (run / file).read_text().replace("a 2", "a 1")
    assert not (tmp_path / "again" / "checkpoints" / ".b.half").exists()
    checkpoint(run, 3, ["b", "c"])
    (run / "checkpoints" / "c").unlink()  # the run had moved on before it could be copied
    assert not store_run(run, url)
    assert json.loads(system.cat(f"{root}/checkpoints/latest.json"))["checkpoints"][-1]["iteration"] == 2
    checkpoint(run, 4, ["c", "d"])
    assert store_run(run, url)
    kept = {path.removeprefix(f"{root}/checkpoints/") for path in system.find(f"{root}/checkpoints")}
    assert kept == {"c", "d", "latest.json"}


def test_programs_travel_with_a_run_until_it_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    run, url = RunFolder(tmp_path / "run"), "memory://programs/runs/one"
    system, root = file_system(url)
    checkpoint(run.path, 1, ["a"])
    run.programs.mkdir()
    (run.programs / "step").write_text("compiled")
    assert store_run(run.path, url)
    fetch(url, tmp_path / "again")
    assert (tmp_path / "again" / "programs" / "step").read_text() == "compiled"

    def finish_first(*given: object) -> None:
        run.forget_programs()
        put(*given)

    put = storage._put
    with monkeypatch.context() as patch:
        patch.setattr(storage, "_put", finish_first)
        assert not store_run(run.path, url)  # the run finished while it was copied
    assert store_run(run.path, url)
    assert not system.find(f"{root}/programs")


def test_a_run_behind_a_url_is_restored_and_mirrored(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    out = "memory://restored"
    system, root = file_system(out)
    with at_hand(out, "runs/one") as (folder, log, mirror):
        assert not folder.exists()
        checkpoint(folder, 1, ["a"])
        mirror()
        assert system.exists(f"{root}/runs/one/checkpoints/a")
        log.write_text("said")
    with at_hand(out, "runs/one") as (again, *_):
        assert again != folder
        assert not folder.exists()
        assert (again / "checkpoints" / "a").read_text() == "a 1"
        (again / "summary.json").write_text("{}")
    assert system.exists(f"{root}/runs/one/summary.json")
    assert system.cat(f"{root}/logs/one.log") == b"said"


@pytest.mark.parametrize("name", ["a/../../../escaped", "../escaped", "..", "a\0b"])
def test_an_object_is_copied_into_its_folder_only(name: str, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    system, root = file_system("memory://hostile")
    system.pipe_file(f"{root}/good", b"good")
    system.store[f"{root}/{name}"] = system.store[f"{root}/good"]
    try:
        with pytest.raises(InputError, match="remove that object"):
            fetch("memory://hostile", tmp_path / "a" / "b" / "c")
    finally:
        system.store.clear()
    assert not [file for file in tmp_path.rglob("*") if "escaped" in file.name]


@pytest.mark.parametrize("name", ["../../secret.txt", "/SECRET", "..", ""])
@pytest.mark.parametrize("kind", ["checkpoints", "replay"])
def test_only_checkpoints_are_copied_to_a_url(kind: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    secret, run = tmp_path / "secret.txt", tmp_path / "run"
    secret.write_text("secret")
    checkpoint(run, 1, ["a"])
    shard = {"file": "a", "sha256": "", "start": 0, "stop": 1}
    told = json.loads((run / "checkpoints" / "latest.json").read_text()) | {"replay": [shard]}
    told[kind][0]["file"] = name.replace("/SECRET", str(secret))
    (run / "checkpoints" / "latest.json").write_text(json.dumps(told))
    system, _ = file_system("memory://outwards")
    with pytest.raises(InputError, match=r"latest\.json"):
        store_run(run, "memory://outwards/runs/one")
    assert not [path for path in system.find("/outwards") if b"secret" in system.cat(path)]


def test_a_job_behind_a_url_that_cannot_be_copied_is_a_job_that_failed(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    system, root = file_system("memory://trouble")
    system.pipe_file(f"{root}/good", b"good")
    system.store[f"{root}/runs/one/../escaped"] = system.store[f"{root}/good"]
    try:
        assert "remove that object" in work.perform("memory://trouble", "runs/one", ["no-command"])
    finally:
        system.store.clear()
