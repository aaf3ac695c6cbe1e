"""Tasks whose true reward is not known: what can be known is shown, and what cannot is said."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from safetensors.numpy import load_file

import trustirl as ti
from tests.control.small import cartpole_demo
from trustirl.bench.show import Summary
from trustirl.cli.main import main
from trustirl.core.files import read_form
from trustirl.report import read_run, write_comparison
from trustirl.report.rows import result_row
from trustirl.tasks.registry import make_task
from trustirl.tasks.small import chain

JUDGED = ("returns", "expert_return", "demo_return", "random_return", "reward_correlation", "ell_expert")
UNKNOWN = "No true reward of this task is known"


def arrays(**changes: Any) -> dict[str, Any]:
    """The chain's own."""
    mdp = chain().mdp
    known = {name: np.asarray(getattr(mdp, name)) for name in ("successors", "probabilities", "initial")}
    return {name: value for name, value in (known | changes).items() if value is not None}


def saved(path: Path, **changes: Any) -> str:
    np.savez(path, **arrays(**changes))
    return str(path)


def demos() -> ti.Demos:
    return ti.Demos.from_numpy([0, 1, 2, 3, 4, 0, 1, 0, 1, 2], [1, 1, 1, 1, 1, 1, 0, 1, 1, 1], episode_ends=[5, 10])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("unpaid")
    saved(home / "mdp.npz")
    demos().save(home / "demos.npz")
    return home


@pytest.fixture(scope="module")
def run(home: Path) -> ti.Run:
    asked: dict[str, Any] = {"task_args": {"file": str(home / "mdp.npz")}, "seeds": 2, "steps": 60}
    return ti.train("piro", "mdp", str(home / "demos.npz"), out=home / "run", compare=True, **asked)


@pytest.mark.slow
def test_a_run_without_a_true_reward_tells_what_can_be_known(run: ti.Run) -> None:
    assert ti.load(run.path).summary == run.summary
    assert [run.summary[name] for name in JUDGED] == [None] * len(JUDGED)
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert {row["return_mean"] for row in rows} == {None}
    assert rows[-1]["ell"] > rows[1]["ell"]  # it has learned
    assert max(row["log_likelihood"] for row in rows) < 0
    maps = load_file(run.path / "maps.safetensors")
    assert maps.keys() == {"recovered_reward", "learner_visits", "demo_visits"}
    assert run.policy.predict(0, deterministic=True)[0] == 1
    assert run.reward.table().shape == (5, 2)


def test_its_page_shows_that_and_says_what_cannot_be(run: ti.Run) -> None:
    page = (run.path / "report.html").read_text()
    assert UNKNOWN in page
    for name in ("rewards", "visits", "likelihood", "trust", "certificate"):
        assert f'data-figure="{name}"' in page
    assert "True return" not in page.split("<figure")[0]
    assert "nan" not in page.lower().replace("finance", "")
    files = read_run(run.path)
    assert files.known is not None
    assert files.known.comparison is not None
    assert files.known.comparison.sampled_episodes is None  # nobody could sample them


@pytest.mark.slow
def test_it_takes_part_in_comparisons(run: ti.Run, home: Path) -> None:
    other = ti.train(
        "mce", "mdp", demos(), task_args={"file": str(home / "mdp.npz")}, seeds=2, steps=30, out=home / "mce"
    )
    page = write_comparison([run.path, other.path], home / "page.html").read_text()
    assert "How well the demonstrations are explained" in page
    assert "objective ℓ" in page
    assert "<h2>True returns" not in page
    assert "NaN" not in page
    assert "worst –" not in page
    tables = write_comparison([run.path, other.path], home / "page.md", "md").read_text()
    line = next(line for line in tables.splitlines() if line.startswith("| mdp | mce"))
    assert f"{np.mean(other.summary['ell']):.3f}"[:5].replace("-", "−") in line
    row = result_row([run.path])
    assert row["returns"] == [None, None]
    assert row["ell"] == run.summary["ell"]
    assert read_form(run.path / "summary.json", Summary).returns is None


@pytest.mark.usefixtures("drawn")
def test_its_comparison_is_drawn(run: ti.Run, home: Path) -> None:
    assert write_comparison([run.path], home / "page.png", "png").stat().st_size > 10_000


def test_it_resumes_to_the_same(run: ti.Run, home: Path) -> None:
    half = home / "half"
    shutil.copytree(run.path, half)
    for name in ("summary.json", "report.html"):
        (half / name).unlink()
    again = ti.resume(half)
    assert again.summary["ell"] == run.summary["ell"]
    (half / "summary.json").unlink()
    saved(home / "mdp.npz", initial=np.array([0, 1.0, 0, 0, 0]))
    try:
        with pytest.raises(ti.InputError, match="the file of mdp changed since the run began"):
            ti.resume(half)
    finally:
        saved(home / "mdp.npz")


def test_at_the_command_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = [
        "train",
        "ml-irl",
        "--task",
        "mdp",
        "--task-args",
        f"file={home / 'mdp.npz'}",
        "--steps",
        "3",
        "--no-compare",
    ]
    main([*ask, "--demos", str(home / "demos.npz"), "--out", str(home / "line")])
    told = capsys.readouterr().out
    assert told.startswith("ell -")
    for word in ("return", "correlation"):
        assert word not in told.splitlines()[0]
    for command, words in (
        ([*ask, "--out", str(home / "none")], "has no expert to demonstrate: give demonstrations"),
        ([*ask, "--demo-episodes", "3", "--out", str(home / "none")], "has no expert to demonstrate"),
        (["evaluate", str(home / "line")], "'s task is not known"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(command)
        assert stop.value.code == 2
        assert words in capsys.readouterr().err
    assert not (home / "none").exists()


def test_a_known_true_reward_gives_the_run_of_the_built_in_task(tmp_path: Path) -> None:
    truth = chain().true_reward
    assert truth is not None
    file = saved(tmp_path / "mdp.npz", true_reward=truth[:, 0], features=np.eye(5))
    asked: dict[str, Any] = {"steps": 3}
    own = ti.train("piro", "mdp", task_args={"file": file}, out=tmp_path / "own", **asked)
    theirs = ti.train("piro", "chain", out=tmp_path / "theirs", **asked)
    same = (*JUDGED, "ell")
    assert [own.summary[name] for name in same] == [theirs.summary[name] for name in same]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"successors": None}, "lacks the array 'successors'"),
        ({"reward": np.zeros(5)}, "did you mean 'true_reward'"),
        ({"successors": np.full((5, 2, 1), 9)}, r"must lie in 0\.\.4"),
        ({"probabilities": np.full((5, 2, 1), 0.5)}, "sum to one"),
        ({"true_reward": np.zeros(4)}, "5 states x 2 actions, got shape"),
        ({"true_reward": np.float64(3)}, "5 states x 2 actions, got shape"),
        ({"true_reward": np.full(5, np.nan)}, "is nan"),
        ({"features": np.zeros((4, 2))}, "a row for each of 5 states"),
        ({"features": np.full((5, 2), np.inf)}, "finite numbers"),
        ({"initial": np.array(["a"] * 5)}, "initial must be numbers"),
        ({"initial": np.array([None] * 5)}, "is not what numpy.savez writes of plain numbers"),
    ],
)
def test_bad_files_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ti.InputError, match=words):
        make_task("mdp", {"file": saved(tmp_path / "mdp.npz", **changes)})


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", bytes(1000)])
def test_damaged_files_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "mdp.npz").write_bytes(content)
    with pytest.raises(ti.InputError, match="write it again"):
        make_task("mdp", {"file": str(tmp_path / "mdp.npz")})
    cut = tmp_path / "cut.npz"
    cut.write_bytes(Path(saved(tmp_path / "whole.npz")).read_bytes()[:-200])
    with pytest.raises(ti.InputError, match="write it again"):
        make_task("mdp", {"file": str(cut)})


def test_changed_bytes_are_refused_or_read(tmp_path: Path) -> None:
    file, random = tmp_path / "mdp.npz", np.random.default_rng(0)
    whole = Path(saved(file, true_reward=np.arange(5.0), features=np.eye(5))).read_bytes()
    refused = 0
    for _ in range(150):
        damaged = bytearray(whole)
        for place in random.integers(len(whole), size=random.integers(1, 6)):
            damaged[place] = random.integers(256)
        file.write_bytes(damaged)
        try:
            make_task("mdp", {"file": str(file)})
        except ti.InputError:
            refused += 1
    assert 0 < refused < 150


def test_a_file_that_claims_too_much_is_not_read(tmp_path: Path) -> None:
    file = saved(tmp_path / "mdp.npz")
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("more", b"")  # so that the list of contents is written anew
        archive.getinfo("successors.npy").file_size = 2**31 + 1
    with pytest.raises(ti.InputError, match="claims to hold"):
        make_task("mdp", {"file": file})


def test_a_task_of_a_file_needs_its_file() -> None:
    with pytest.raises(ti.InputError, match=r"give it in task_args, as file=FILE\.npz"):
        make_task("mdp")
    with pytest.raises(ti.InputError, match="does not exist"):
        make_task("mdp", {"file": "nowhere.npz"})


def unpaid() -> gym.Env:
    return gym.wrappers.TransformReward(gym.make("CartPole-v1"), lambda _: 0.0)


@pytest.mark.slow  # two runs and a page of their comparison; that practice reads no reward is quickly tested
def test_an_environment_that_always_pays_nothing_can_be_learned_in_and_compared(tmp_path: Path) -> None:
    shown = cartpole_demo()
    fit: dict[str, Any] = {"width": 8, "depth": 1, "updates": 10, "fit_batch": 16, "evaluation_episodes": 2}
    runs = [
        ti.train("bc", unpaid, shown, seeds=2, steps=30, out=tmp_path / name, fit_step=float(name), **fit)
        for name in ("0.001", "0.01")
    ]
    assert [run.summary["returns"] for run in runs] == [[0.0, 0.0]] * 2
    page = (runs[0].path / "report.html").read_text()
    assert "nan" not in page.split("</style>")[-1].split("<details")[0].lower()
    compared = write_comparison([run.path for run in runs], tmp_path / "page.html").read_text()
    assert "nothing can be said over all tasks" in compared
