"""A bench on this machine: what it leaves, and that it can be repeated whatever happened."""

import io
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.bench.small import GRID, LONG, TWO, started, suite, table, trustirl
from trustirl.bench import work
from trustirl.bench.estimate import progress
from trustirl.bench.local import share
from trustirl.bench.plan import plan
from trustirl.bench.show import live_table
from trustirl.bench.suites import find_suite
from trustirl.bench.work import Done, Work
from trustirl.cli import bench as bench_commands

BROKEN = (
    TWO
    + """
[[jobs]]
algorithm = "piro"
overrides = {reward_step = 1e308, decay = 0.0}
label = "far too far"
"""
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two jobs side by side, and one that fails."""
    folder, said = tmp_path_factory.mktemp("bench"), io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        assert trustirl("bench", suite(folder, BROKEN), "--out", folder / "out", "--workers", 3) == 1
    last = said.getvalue().splitlines()[-1]
    assert last.startswith("trustirl: 1 of 3 jobs failed (gridworld-piro-far-too-far: ")
    assert "Traceback" not in said.getvalue()
    return folder


def test_a_bench_leaves_its_table_and_its_failures(bench: Path) -> None:
    out = bench / "out"
    told = json.loads((out / "bench.json").read_text())
    assert (told["format"], told["suite"]) == (1, "grid")
    assert [job["name"] for job in told["jobs"]] == [
        "gridworld-piro",
        "gridworld-ml-irl-small-step",
        "gridworld-piro-far-too-far",
    ]
    first = told["jobs"][0]
    assert first["runs"] == ["runs/gridworld-piro"]
    assert first["command"].startswith("trustirl train piro --task gridworld --task-args size=3 ")
    rows = table(out)
    assert [(row["job"], row["algorithm"], row["label"]) for row in rows] == [
        ("gridworld-piro", "piro", ""),
        ("gridworld-ml-irl-small-step", "ml-irl", "small step"),
    ]
    for row in rows:
        summary = json.loads((out / "runs" / row["job"] / "summary.json").read_text())
        assert row["returns"] == summary["returns"]
        assert len(row["drawdown"]) == len(row["steps_to_90"]) == 2
        assert row["settings"]["algorithm_config"]["reward_step"] == (0.05 if row["label"] else 0.1)
    (failure,) = (out / "failures").iterdir()
    assert failure.name == "gridworld-piro-far-too-far.json"
    assert "became" in json.loads(failure.read_text())["error"]
    assert (out / "report.html").exists()


def test_what_is_finished_is_not_run_again_and_what_failed_is(bench: Path) -> None:
    out = bench / "out"
    before = {file: file.stat().st_mtime_ns for file in (out / "runs" / "gridworld-piro").rglob("*")}
    tried = (out / "logs" / "gridworld-piro-far-too-far.log").stat().st_mtime_ns
    rows = table(out)
    assert trustirl("bench", bench / "grid.toml", "--out", out) == 1
    assert {file: file.stat().st_mtime_ns for file in (out / "runs" / "gridworld-piro").rglob("*")} == before
    assert (out / "logs" / "gridworld-piro-far-too-far.log").stat().st_mtime_ns > tried
    assert table(out) == rows


FINISHED = ("--only", "*-piro", "*-small-step")  # those of BROKEN that do not fail


@pytest.fixture
def finished(bench: Path, tmp_path: Path) -> Path:
    """A copy of the bench."""
    shutil.copytree(bench / "out", tmp_path / "out")
    return tmp_path / "out"


def test_a_finished_job_has_not_failed(bench: Path, finished: Path) -> None:
    failure = finished / "failures" / "gridworld-piro.json"
    failure.write_text('{"error": "the process was killed by signal 9"}')  # when its page was there already
    rows = table(finished)
    assert trustirl("bench", bench / "grid.toml", "--out", finished, *FINISHED) == 0
    assert not failure.exists()
    assert table(finished) == rows


@pytest.mark.parametrize(
    ("there", "task", "command"),
    [
        ([], "CartPole-v1", "train bc --task CartPole-v1 --out RUN --overwrite"),
        (["checkpoints/latest.json"], "CartPole-v1", "resume RUN"),
        (["checkpoints/latest.json"], "my_tasks:Mine-v0", "resume RUN --task my_tasks:Mine-v0"),
        (["checkpoints/latest.json", "summary.json"], "CartPole-v1", "report RUN"),
        (["summary.json", "report.html"], "CartPole-v1", ""),
    ],
)
def test_a_run_is_gone_on_with_where_it_was_left(
    there: list[str], task: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, log = tmp_path / "runs" / "one", tmp_path / "logs" / "one.log"
    for name in there:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).touch()
    monkeypatch.setattr(sys, "executable", shutil.which("echo"))
    assert work.perform(str(tmp_path), "runs/one", ["train", "bc", "--task", task]) == ""
    said = log.read_text().removeprefix("-m trustirl.bench.worker ").strip() if log.exists() else ""
    assert said == command.replace("RUN", str(run))


def test_what_a_failure_file_holds_is_not_asked(bench: Path, finished: Path) -> None:
    for name in ("gridworld-piro", "gridworld-ml-irl-small-step"):
        (finished / "failures" / f"{name}.json").write_text("[" * 100_000)
    assert trustirl("bench", bench / "grid.toml", "--out", finished, *FINISHED) == 0


def cut_short(run: Path) -> None:
    content = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(content[: len(content) // 2])


def without_hash(run: Path) -> None:
    told = json.loads((run / "manifest.json").read_text())
    del told["demo_hash"]
    (run / "manifest.json").write_text(json.dumps(told))


def with_nan(run: Path) -> None:
    told = json.loads((run / "config.json").read_text())
    told["algorithm_config"]["reward_step"] = float("nan")
    (run / "config.json").write_text(json.dumps(told))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut_short, "metrics.jsonl"),
        (without_hash, "demo_hash"),
        (with_nan, "JSON"),
        (lambda run: (run / "summary.json").write_text('{"returns": 1}'), "summary.json"),
        (lambda run: (run / "summary.json").write_text("[" * 100_000), "summary.json"),
    ],
)
def test_one_damaged_run_is_one_job_that_failed(
    damage: Callable[[Path], object],
    words: str,
    bench: Path,
    finished: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = table(finished)
    damage(finished / "runs" / "gridworld-piro")
    (finished / "results.json").unlink()
    (finished / "report.html").unlink()
    assert trustirl("bench", bench / "grid.toml", "--out", finished, *FINISHED) == 1
    said = capsys.readouterr().err
    assert said.startswith("trustirl: 1 of 2 jobs failed (gridworld-piro: ")
    assert words in said
    assert said.count("\n") == 1
    assert words in json.loads((finished / "failures" / "gridworld-piro.json").read_text())["error"]
    assert table(finished) == rows[1:]
    assert (finished / "report.html").exists()
    assert trustirl("bench", bench / "grid.toml", "--out", finished, *FINISHED, "--dry-run") == 0


def test_progress_is_told_of_rows_that_fit(bench: Path, finished: Path) -> None:
    jobs = plan(find_suite(str(bench / "grid.toml")), finished)
    run = finished / "runs" / "gridworld-piro"
    (run / "summary.json").unlink()
    assert 0 < progress(jobs[0], run) <= 1
    for line in (
        "{}",
        "[1]",
        '{"iteration": "1"}',
        "[" * 100_000,
        '{"iteration": 1, "env_steps": null, "seconds": 0}',
    ):
        (run / "metrics.jsonl").write_text(line + "\n")
        assert progress(jobs[0], run) == 0
        assert live_table(jobs, finished).row_count == 3
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    assert progress(jobs[0], run) == 0


def test_what_a_failed_process_said_steers_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(works: Sequence[Work], workers: int) -> Iterator[Done]:
        yield from ((work, "said \x1b[2J and ended") for work in works)

    monkeypatch.setattr(bench_commands, "run_locally", fail)
    assert trustirl("bench", suite(tmp_path, TWO), "--out", tmp_path / "out") == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("[") for line in lines] == [True, True, False]
    assert all(line.isprintable() for line in lines)


@pytest.mark.slow  # tests/bench/test_plan.py has a quick one
def test_only_leaves_the_others_alone(bench: Path, tmp_path: Path) -> None:
    assert trustirl("bench", bench / "grid.toml", "--out", tmp_path, "--only", "small") == 0
    assert [file.name for file in (tmp_path / "runs").iterdir()] == ["gridworld-ml-irl-small-step"]
    assert table(tmp_path) == table(bench / "out")[1:]


def test_two_suites_in_one_folder(bench: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = (bench / "out" / "results.json").read_bytes()
    other = suite(bench, BROKEN.replace('name = "grid"', 'name = "other"'), "other.toml")
    assert trustirl("bench", other, "--out", bench / "out") == 2
    assert "holds the suite 'grid', not 'other'" in capsys.readouterr().err
    assert (bench / "out" / "results.json").read_bytes() == rows


@pytest.mark.slow
def test_killed_in_the_middle_and_repeated_gives_the_same_table(tmp_path: Path) -> None:
    file = suite(tmp_path, LONG)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert trustirl("bench", file, "--out", whole) == 0
    run = killed / "runs" / "gridworld-piro"
    process = started("bench", file, "--out", killed)
    deadline = time.monotonic() + 300
    while not (run / "checkpoints" / "latest.json").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert not (run / "summary.json").exists()
    time.sleep(1)
    assert not (run / "summary.json").exists()
    seen = (run / "metrics.jsonl").stat().st_size
    time.sleep(1)
    assert (run / "metrics.jsonl").stat().st_size == seen  # the job's process ended with the one that started it
    began = json.loads((run / "manifest.json").read_text())["created"]
    assert trustirl("bench", file, "--out", killed) == 0
    assert json.loads((run / "manifest.json").read_text())["created"] == began  # resumed, not repeated
    assert table(killed) == table(whole)


@pytest.mark.slow
def test_stopped_politely_it_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    file = suite(tmp_path, GRID + "[[jobs]]\nalgorithm = 'piro'\nsteps = 100_000")
    process = started("bench", file, "--out", tmp_path)
    run = tmp_path / "runs" / "gridworld-piro"
    while process.poll() is None and not (run / "checkpoints" / "latest.json").exists():
        time.sleep(0.05)
    process.terminate()
    _, complaint = process.communicate()
    assert process.returncode == 1
    assert complaint.splitlines()[-1].endswith("repeat the command to go on.")
    assert "stopped after" in (tmp_path / "logs" / "gridworld-piro.log").read_text()
    assert not (tmp_path / "failures" / "gridworld-piro.json").exists()


def test_two_at_once_in_one_folder_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fcntl = pytest.importorskip("fcntl")
    file = suite(tmp_path, TWO)
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert trustirl("bench", file, "--out", tmp_path) == 2
    assert f"is working in {tmp_path}; wait" in capsys.readouterr().err


def test_a_log_is_a_new_file_whatever_was_there(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "logs" / "one.log").symlink_to(victim)
    assert "unknown command" in work.perform(str(tmp_path), "runs/one", ["no-command"])
    assert victim.read_text() == "precious"
    os.mkfifo(tmp_path / "logs" / "two.log")
    assert "unknown command" in work.perform(str(tmp_path), "runs/two", ["no-command"])
    (tmp_path / "logs" / "three.log").mkdir()
    assert "three.log: Is a directory" in work.perform(str(tmp_path), "runs/three", ["no-command"])


def test_processes_share_cores_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4}, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert share(0, 1) == {}
    assert [share(place, 2)["TRUSTIRL_CORES"] for place in range(2)] == ["0,1", "2,3,4"]
    assert [share(place, 7)["TRUSTIRL_CORES"] for place in range(7)].count("") == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    gpus = [share(place, 3) for place in range(3)]
    assert [told["CUDA_VISIBLE_DEVICES"] for told in gpus] == ["2", "5", "2"]
    assert {told["XLA_PYTHON_CLIENT_PREALLOCATE"] for told in gpus} == {"false"}
    # What waits for a GPU leaves its cores to its neighbours.
    assert {told["TRUSTIRL_CORES"] for told in gpus} == {"0,1,2,3,4", "1,2,3,4,0", "3,4,0,1,2"}
    assert [share(place, 5)["TRUSTIRL_CORES"] for place in (0, 2)] == ["0,1,2,3", "2,3,4,0"]
