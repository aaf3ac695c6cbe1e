"""Run folders: one writer, nothing of anybody else's is removed, and what was damaged is noticed."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import pytest

import trustirl as ti
from trustirl.core import lock
from trustirl.report import report
from trustirl.runs.film import add_film
from trustirl.runs.folder import RunFolder

HOLD = """
import sys, time
from pathlib import Path
from trustirl.core import lock
with lock.held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def small(out: Path, **changes: object) -> ti.Run:
    """A run of a second."""
    options = {"task": "chain", "steps": 8} | changes
    return ti.train("ml-irl", out=out, **options)  # type: ignore[arg-type]


SMALL_BC = {
    "steps": 20,
    "updates": 10,
    "fit_batch": 16,
    "width": 8,
    "depth": 1,
    "backend": "sync",
    "evaluation_episodes": 2,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trustirl.worlds.exact_run.CHECKPOINT_EVERY", 3)
        return small(tmp_path_factory.mktemp("run") / "whole").path


@pytest.fixture(scope="module")
def stopped(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as if it had been killed just before its summary."""
    path = Path(shutil.copytree(finished, tmp_path_factory.mktemp("run") / "stopped"))
    (path / "summary.json").unlink()
    return path


@pytest.fixture
def copy(stopped: Path, tmp_path: Path) -> Path:
    """One to damage."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def rows(path: Path) -> list[dict[str, object]]:
    return [{name: row[name] for name in row if name != "seconds"} for row in RunFolder(path).metrics()]


# One writer


def test_two_processes_do_not_share_a_folder(copy: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, copy], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        before = {file: file.stat().st_mtime_ns for file in copy.rglob("*") if file.is_file()}
        for attempt in (lambda: ti.resume(copy), lambda: small(copy, overwrite=True)):
            with pytest.raises(ti.InputError, match=f"process {holder.pid} on .* is working in"):
                attempt()
        command = [sys.executable, "-m", "trustirl", "resume", copy]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert str(holder.pid) in done.stderr
        assert before == {file: file.stat().st_mtime_ns for file in copy.rglob("*") if file.is_file()}
        holder.send_signal(signal.SIGKILL)
    assert (copy / lock.NAME).exists()  # killed, it could not tidy up
    assert ti.resume(copy).summary["returns"]
    assert not (copy / lock.NAME).exists()


def test_without_locks_of_the_system_the_named_process_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    with lock.held(tmp_path), pytest.raises(ti.InputError, match=f"process {os.getpid()}"), lock.held(tmp_path):
        pass
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    told = {"pid": gone.pid, "host": os.uname().nodename}
    (tmp_path / lock.NAME).write_text(json.dumps(told))
    with lock.held(tmp_path):  # stale
        pass
    (tmp_path / lock.NAME).write_text(json.dumps(told | {"host": "elsewhere"}))
    with pytest.raises(ti.InputError, match="elsewhere"), lock.held(tmp_path):
        pass


def test_windows_locks_a_byte_behind_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte that somebody holds is an OSError there."""
    held: dict[tuple[int, int], int] = {}

    def locking(handle: int, mode: int, length: int) -> None:
        where = os.fstat(handle).st_ino, os.lseek(handle, 0, os.SEEK_CUR)
        assert (mode, length) == (2, 1)
        assert where[1] > os.fstat(handle).st_size
        if where in held and held[where] != handle:
            raise OSError("locked")
        held[where] = handle

    monkeypatch.setattr(lock, "fcntl", None)
    monkeypatch.setattr(lock, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    with lock.held(tmp_path):
        assert json.loads((tmp_path / lock.NAME).read_text())["pid"] == os.getpid()
        with pytest.raises(ti.InputError, match=f"process {os.getpid()}"), lock.held(tmp_path):
            pass
    assert not (tmp_path / lock.NAME).exists()


# Whose files


def test_a_folder_with_somebody_elses_files_is_left_alone(tmp_path: Path) -> None:
    """Among them the demonstrations that the run is to learn from."""
    for name in ("demos.npz", "programs/mine", "tb/mine", "checkpoints/mine", "card.json", "config.json"):
        file = tmp_path / "mine" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
        for overwrite in (False, True):
            with pytest.raises(ti.InputError, match=r"no run of trustirl and holds"):
                small(tmp_path / "mine", overwrite=overwrite)
        assert file.read_text() == "mine"
        shutil.rmtree(tmp_path / "mine")


def test_files_that_a_run_does_not_write_may_lie_beside_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    small(tmp_path)
    small(tmp_path, overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_overwriting_follows_no_link(copy: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_text("mine")
    shutil.rmtree(copy / "checkpoints")
    (copy / "checkpoints").symlink_to(mine)
    small(copy, overwrite=True)
    assert not (copy / "checkpoints").is_symlink()
    assert [file.name for file in mine.iterdir()] == ["file"]


def test_demonstrations_in_the_run_to_be_replaced_are_not_lost(copy: Path) -> None:
    demos = ti.Demos.from_numpy([0, 1, 2], [1, 1, 1], [3])
    demos.save(copy / "demos.npz")
    with pytest.raises(ti.InputError, match="lies in the run that would be replaced"):
        small(copy, demos=str(copy / "demos.npz"), overwrite=True)
    assert len(ti.Demos.load(copy / "demos.npz")) == 1


def test_films_of_the_run_before_are_not_shown_for_this_one(copy: Path) -> None:
    (copy / "film-learner.png").write_bytes(b"old")
    small(copy, overwrite=True)
    assert not (copy / "film-learner.png").exists()


def test_a_folder_among_the_checkpoints_does_not_stop_a_run(copy: Path) -> None:
    (copy / "checkpoints" / "mine.safetensors").mkdir()
    forget_last_checkpoint(copy)
    ti.resume(copy)
    assert (copy / "checkpoints" / "mine.safetensors").is_dir()


def test_files_have_the_modes_that_the_user_wants(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        path = small(tmp_path / "run").path
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(file.stat().st_mode) & 0o077 for file in path.rglob("*.json*")}
    assert modes == {0}
    (path / "config.json").chmod(0o640)
    RunFolder(path).begin({})
    assert stat.S_IMODE((path / "config.json").stat().st_mode) == 0o640


# Damage


def forget_last_checkpoint(path: Path) -> None:
    pointer = json.loads((path / "checkpoints" / "latest.json").read_text())
    pointer["checkpoints"].pop()
    (path / "checkpoints" / "latest.json").write_text(json.dumps(pointer))


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


def checkpoints(path: Path) -> list[Path]:
    return sorted((path / "checkpoints").glob("*.safetensors"))


@pytest.mark.parametrize(
    "damage", [lambda file: flip(file, -1), lambda file: file.unlink(), lambda file: os.truncate(file, 90)]
)
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_it_used(
    damage: Callable[[Path], None], copy: Path, stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(checkpoints(copy)[-1])
    ti.resume(copy)
    assert "going on from iteration 6" in capsys.readouterr().err
    assert rows(copy) == rows(stopped)


def test_where_no_checkpoint_is_whole_nothing_goes_on(copy: Path, stopped: Path) -> None:
    for file in checkpoints(copy):
        flip(file, -1)
    with pytest.raises(ti.InputError, match="has changed since it was written, and no older checkpoint is whole"):
        ti.resume(copy)
    assert rows(copy) == rows(stopped)


def test_metrics_that_changed_are_noticed(copy: Path) -> None:
    """Not dropped from the first bad line on, as once."""
    flip(copy / "metrics.jsonl", 3)
    before = (copy / "metrics.jsonl").read_bytes()
    with pytest.raises(ti.InputError, match=r"metrics\.jsonl has changed since it was written"):
        ti.resume(copy)
    assert (copy / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"[1]\n", b"{}\n", b"\xff\n"])
def test_metrics_that_are_lost_are_noticed(content: bytes | None, copy: Path) -> None:
    (copy / "metrics.jsonl").unlink() if content is None else (copy / "metrics.jsonl").write_bytes(content)
    with pytest.raises(ti.InputError, match=r"metrics\.jsonl"):
        ti.resume(copy)


def test_metrics_after_the_checkpoint_are_made_again(copy: Path, stopped: Path) -> None:
    forget_last_checkpoint(copy)
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"seed": 0, "iterat')
    ti.resume(copy)
    assert rows(copy) == rows(stopped)


# Moments at which a process may be killed


def killed_at(moment: str, out: Path, **changes: object) -> None:
    """Train until just before the function `moment` would be called."""
    with pytest.MonkeyPatch.context() as patch:

        def kill(*_args: object, **_more: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(moment, kill)
        with pytest.raises(KeyboardInterrupt):
            small(out, **changes)


@pytest.mark.parametrize("over", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("moment", ["RunFolder.begin", "write_json", "write_bytes"])
def test_a_run_killed_before_it_began_can_be_started_again(
    moment: str, over: bool, finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    if over:
        shutil.copytree(finished, out)
    killed_at(f"trustirl.runs.folder.{moment}", out, overwrite=over)
    with pytest.raises(ti.InputError, match=r"was stopped before it began; start it again|holds no run"):
        ti.resume(out)
    assert small(out).summary["returns"]  # without --overwrite, for nothing is lost


def test_a_run_killed_before_its_first_evaluation_can_be_resumed(tmp_path: Path) -> None:
    demos = ti.Demos.from_numpy([0, 1, 2], [1, 1, 1], [3])
    killed_at("trustirl.training.train._go_on", tmp_path / "run", demos=demos)
    assert ti.resume(tmp_path / "run").summary["returns"]


def test_a_run_killed_before_its_page_was_drawn_is_finished_by_resume(tmp_path: Path) -> None:
    killed_at("trustirl.training.train.write_report", tmp_path / "run")
    assert (tmp_path / "run" / "summary.json").exists()
    ti.resume(tmp_path / "run")
    assert (tmp_path / "run" / "report.html").exists()
    with pytest.raises(ti.InputError, match="is finished"):
        ti.resume(tmp_path / "run")


@pytest.mark.parametrize("out", ["file/run", "file/a/run", "x" * 300])
def test_folders_that_cannot_be_are_refused_before_the_work(out: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(ti.InputError, match="choose another"):
        small(tmp_path / out)


def test_a_full_disk_is_one_sentence_and_leaves_a_run_to_resume(tmp_path: Path, stopped: Path) -> None:
    def full(*_args: object, **_more: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "run" / "x"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trustirl.runs.folder.write_arrays", full)
        with pytest.raises(ti.TrustIRLError, match=r"No space left on device.*trustirl resume"):
            small(tmp_path / "run")
    ti.resume(tmp_path / "run")
    assert rows(tmp_path / "run") == rows(stopped)


# What a folder may name


MODULE = """
from pathlib import Path
Path({mark!r}).write_text("imported")
import gymnasium as gym
gym.register("Id-v0", lambda: gym.make("CartPole-v1").unwrapped, max_episode_steps=10)
"""


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A finished run whose config.json names a module, and the file that importing it would write."""
    mark = tmp_path / "mark"
    (tmp_path / "somewhere_strange.py").write_text(MODULE.format(mark=str(mark)))
    monkeypatch.syspath_prepend(tmp_path)
    path = ti.train("bc", "CartPole-v1", **SMALL_BC, out=tmp_path / "run").path
    config = json.loads((path / "config.json").read_text()) | {"task": "somewhere_strange:Id-v0"}
    (path / "config.json").write_text(json.dumps(config))
    return path, mark


def test_opening_a_folder_imports_nothing_that_it_names(foreign: tuple[Path, Path], tmp_path: Path) -> None:
    path, mark = foreign
    run = ti.load(path)
    report([path], tmp_path / "page.html")
    with pytest.raises(
        ti.InputError, match=r"names the task somewhere_strange:Id-v0.*--task somewhere_strange:Id-v0"
    ):
        run.evaluate(episodes=1)
    assert "names the task somewhere_strange:Id-v0" in str(add_film(path))
    (path / "summary.json").unlink()
    with pytest.raises(ti.InputError, match=r"names the task somewhere_strange:Id-v0.*--task"):
        ti.resume(path)
    assert not mark.exists()
    assert run.evaluate(episodes=1, task="somewhere_strange:Id-v0").env_steps <= 10  # the user says so
    assert mark.exists()


def test_a_task_given_as_a_function_is_asked_for_again(tmp_path: Path) -> None:
    make: Callable[[], gym.Env] = lambda: gym.make("CartPole-v1")  # noqa: E731
    run = ti.train("bc", make, "packaged", **SMALL_BC, out=tmp_path / "run")
    with pytest.raises(ti.InputError, match="give it again"):
        run.evaluate(episodes=1)
    assert run.evaluate(episodes=1, task=make).env_steps


def test_nobody_waits_for_more_episodes_than_can_be_played(foreign: tuple[Path, Path]) -> None:
    with pytest.raises(ti.InputError, match="at most 100,000 episodes"):
        ti.load(foreign[0]).evaluate(episodes=10**12, task="CartPole-v1")


def test_the_lock_is_free_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ti.InputError):
        small(tmp_path / "run", demos="nowhere.npz")
    assert not (tmp_path / "run").exists()
    began = time.monotonic()
    small(tmp_path / "run")
    assert time.monotonic() - began < 60


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    (tmp_path / lock.NAME).symlink_to(precious)
    with pytest.raises(ti.InputError, match="is a link"), lock.held(tmp_path):
        pass
    assert precious.read_text() == "mine"
