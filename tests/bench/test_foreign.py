"""Suites and bench folders that others wrote: whatever they say, it is one sentence, and nothing else happens."""

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.bench.small import GRID, suite, trustirl
from trustirl.bench import bench
from trustirl.bench.plan import plan
from trustirl.bench.suites import MOST_BYTES, Question, Suite, find_suite
from trustirl.core.errors import InputError

JOB = GRID + "[[jobs]]\nalgorithm = 'piro'\n"
ESCAPE = "\\u001b]0;owned\\u0007"  # as TOML writes what renames a terminal's window


def refused(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 2) -> str:
    """The one sentence with which a command ends."""
    assert trustirl(*arguments) == code
    said, complaint = capsys.readouterr()
    assert said == ""
    assert complaint.startswith("trustirl: ")
    assert complaint.count("\n") == 1
    assert complaint[:-1].isprintable()
    assert len(complaint) < 2000
    return complaint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a" + ".a" * 50_000 + " = 1", "more than 100 dots"),
        ("x = 1\n" * (MOST_BYTES // 6 + 1), "at most 131,072 are read"),
        (JOB + "task_args = {size = " + "[" * 5000 + "]" * 5000 + "}", "nested too deeply"),
        (JOB + "task_args = {size = " + "[" * 30 + "]" * 30 + "}", "more than 20 lists or tables"),
        (JOB + "task_args = {size = " + "9" * 5000 + "}", "too long a number"),
        (JOB + "task_args = {size = 0x" + "f" * 5000 + "}", "too long a whole number"),
        (JOB + "task_args = {size = 1979-05-27}", "no dates"),
        (JOB + "task_args = {size = nan}", "finite numbers"),
        (JOB + "overrides = {reward_step = inf}", "finite numbers"),
        (JOB + 'task_args = {"--steps" = 99}', "'--steps' is no name"),
        (JOB + f"label = '{'x' * 260}'", "give it a shorter label"),
        (JOB + f'label = "{ESCAPE}"', "without control characters"),
        (JOB + f'demos = "{ESCAPE}"', "without control characters"),
        (JOB + 'demos = "a\\u0000b"', "without control characters"),
        (JOB.replace('"grid"', '"/../.."'), "give it a name of"),
        (JOB.replace('"grid"', '".."'), "give it a name of"),
        (JOB.replace('"grid"', '"x::http://127.0.0.1:9/y"'), "give it a name of"),
        (JOB.replace('"grid"', f'"{ESCAPE}"'), "give it a name of"),
        (JOB.replace('"grid"', '""'), "give it a name of"),
    ],
)
def test_a_foreign_suite_is_one_sentence(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    began = time.monotonic()
    assert words in refused(capsys, "bench", suite(tmp_path, text))
    assert time.monotonic() - began < 20
    assert [file.name for file in tmp_path.iterdir()] == ["grid.toml"]


@pytest.mark.slow
def test_the_slowest_suite_that_is_read_takes_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, size = [], 0
    while size < MOST_BYTES - 300:
        lines.append(f"[[k{len(lines)}{'.a' * 100}]]")
        size += len(lines[-1]) + 1
    began = time.monotonic()
    assert "unknown key" in refused(capsys, "bench", suite(tmp_path, "\n".join(lines)), "--out", tmp_path / "out")
    assert time.monotonic() - began < 30


def test_pipes_are_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = suite(tmp_path, JOB), tmp_path / "out"
    os.mkfifo(tmp_path / "pipe.toml")
    assert "not a regular file" in refused(capsys, "bench", tmp_path / "pipe.toml", "--out", out)
    out.mkdir()
    os.mkfifo(out / "bench.json")
    assert "not a regular file" in refused(capsys, "bench", file, "--out", out)
    assert "not a regular file" in refused(capsys, "bench", file, "--out", out, "--dry-run")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that can be imported, and leaves a mark when it is."""
    mark = tmp_path / "imported"
    (tmp_path / "a_foreign_module.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "a_foreign_module", raising=False)
    return "a_foreign_module"


@pytest.mark.parametrize(
    "named",
    [
        "task = 'a_foreign_module:CartPole-v1'\ntask_args = {}",
        "task = 'CartPole-v1'\ntask_args = {env_id = 'a_foreign_module:CartPole-v1'}",
        "task = 'CartPole-v1'\ntask_args = {wrapped = [{env_id = 'a_foreign_module:CartPole-v1'}]}",
    ],
)
@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--import", "os")])
def test_a_suite_chooses_no_module(
    named: str, options: Sequence[str], module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = suite(tmp_path, f"[[jobs]]\nalgorithm = 'bc'\n{named}")
    said = refused(capsys, "bench", file, "--out", tmp_path / "out", *options)
    assert f"add --import {module} to the command" in said
    assert not (tmp_path / "imported").exists()
    assert not (tmp_path / "out").exists()


def test_the_command_line_may_name_the_module(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = suite(
        tmp_path, f"[[jobs]]\nalgorithm = 'bc'\ntask = '{module}:CartPole-v1'\ndemos = 'packaged:CartPole-v1'"
    )
    bench = ("bench", file, "--out", tmp_path / "out", "--dry-run", "--import", module)
    assert trustirl(*bench) == 0
    assert "a_foreign_module-CartPole-v1-bc" in capsys.readouterr().out
    assert (tmp_path / "imported").exists()


def test_a_suite_downloads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    minari = pytest.importorskip("minari")
    asked: list[str] = []
    monkeypatch.setattr(minari, "download_dataset", asked.append)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    file = suite(tmp_path, "[[jobs]]\nalgorithm = 'bc'\ntask = 'CartPole-v1'\ndemos = 'minari:none/such-v0'")
    assert "a bench downloads nothing" in refused(capsys, "bench", file, "--out", tmp_path / "out")
    assert not asked


def recorded(folder: Path) -> tuple[Path, dict[str, Any]]:
    """A suite, and what bench.json says of it before anything has run."""
    file = suite(folder, JOB)
    (job,) = plan(find_suite(str(file)), folder)
    return file, {"format": 1, "suite": "grid", "jobs": [job.record()]}


def of_job(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda told: told | {"jobs": [told["jobs"][0] | values]}


def lacking(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda told: told | {"jobs": [{name: of for name, of in told["jobs"][0].items() if name != key}]}


PART = {"run": "runs/gridworld-piro", "first_seed": 0, "seeds": 2}
ELSEWHERE = "is not in"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (of_job(runs=["../victim"], parts=[PART | {"run": "../victim"}]), ELSEWHERE),
        (of_job(parts=[PART | {"run": "../victim"}]), ELSEWHERE),
        (of_job(runs=["../victim"]), ELSEWHERE),
        (of_job(runs=["runs/other"], parts=[PART | {"run": "runs/other"}]), ELSEWHERE),
        (of_job(parts=[PART | {"seeds": 3}]), "the seeds of its runs"),
        (of_job(parts=[PART | {"seeds": 0}]), ">= 1"),
        (of_job(parts=[], runs=[]), "length >= 1"),
        (of_job(parts=[PART | {"more": 1}]), "parts changed"),
        (of_job(parts=[1]), "does not hold what it should"),
        (lacking("parts"), "parts"),
        (lacking("name"), "name"),
        (lambda told: told | {"jobs": None}, "does not hold what it should"),
        (lambda told: told | {"jobs": {}}, "does not hold what it should"),
        (lambda told: {"format": 1, "suite": "grid"}, "jobs"),
        (lambda told: told | {"suite": "\x1b[2J" + "x" * 5000}, "choose another --out"),
        (lambda told: [], "does not hold what it should"),
    ],
)
def test_a_foreign_bench_json_is_one_sentence_and_no_other_folder_is_touched(
    change: Callable[[dict[str, Any]], Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim, out = tmp_path / "victim", tmp_path / "out"
    for folder in (victim, out / "runs" / "other"):
        folder.mkdir(parents=True)
        (folder / "demos.npz").write_text("precious")
    file, told = recorded(tmp_path)
    (out / "bench.json").write_text(json.dumps(change(told)))
    assert words in refused(capsys, "bench", file, "--out", out)
    assert (victim / "demos.npz").exists()
    assert (out / "runs" / "other" / "demos.npz").exists()


@pytest.mark.parametrize("content", ["[" * 200_000, '{"jobs":' * 100_000, '{"format": ' + "9" * 5000 + "}", "\x00"])
def test_a_bench_json_that_is_no_json_is_one_sentence(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench.json").write_text(content)
    refused(capsys, "bench", suite(tmp_path, JOB), "--out", tmp_path)


def test_jobs_of_other_suites_in_a_bench_json_are_forgotten(tmp_path: Path) -> None:
    file, told = recorded(tmp_path)
    told["jobs"].append(told["jobs"][0] | {"name": "another", "runs": ["../victim"]})
    (tmp_path / "bench.json").write_text(json.dumps(told))
    assert [job.name for job in plan(find_suite(str(file)), tmp_path)] == ["gridworld-piro"]


def test_so_many_seeds_that_every_one_is_a_run_of_its_own_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trustirl.bench import plan as planning

    asked = Suite("many", (Question("piro", "Pendulum-v1", steps=20_000, seeds=10_000),))
    monkeypatch.setattr(planning, "free_bytes", lambda: 10**6)
    with pytest.raises(InputError, match="ask for fewer seeds"):
        plan(asked, tmp_path)


@pytest.mark.parametrize(
    ("out", "options"),
    [("grid.toml/out", ()), ("x" * 300, ()), ("x" * 300, ("--dry-run",)), ("out/" + "x" * 300, ())],
)
def test_a_folder_that_cannot_be_made_is_one_sentence(
    out: str, options: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "bench", suite(tmp_path, JOB), "--out", tmp_path / out, *options, code=1)


def test_a_full_disk_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, content: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(bench, "write_json", full)
    said = refused(capsys, "bench", suite(tmp_path, JOB), "--out", tmp_path / "out", code=1)
    assert "bench.json" in said
    assert "No space left on device" in said
