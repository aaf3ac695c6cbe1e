"""The command line as a person meets it: what a run leaves, what a mistake costs (one line, exit 2, nothing lost)."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trustirl.algorithms import MODULES
from trustirl.cli.main import main
from trustirl.core.errors import InputError
from trustirl.runs.run import load

SMALL = ["--task", "gridworld", "--task-args", "size=3", "--no-compare"]
SMOKE = [*SMALL, "--steps", "3"]
RUN_FILES = {
    "config.json",
    "manifest.json",
    "metrics.jsonl",
    "summary.json",
    "checkpoints",
    "reward.safetensors",
    "reward.json",
    "reward.md",
    "report.html",
}


def trustirl(*arguments: str) -> int:
    """Run in this process; the exit code."""
    try:
        main(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def metrics(path: Path) -> list[dict]:
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "small"
    assert trustirl("train", "piro", *SMOKE, "--seeds", "2", "--out", str(out)) == 0
    return out


def test_a_run_leaves_its_files(run: Path) -> None:
    assert {file.name for file in run.iterdir()} >= RUN_FILES
    rows = metrics(run)
    assert len(rows) == 2 * 4  # two seeds, the start and three updates
    assert {"seed", "iteration", "env_steps", "return_mean", "return_std", "gap", "drift", "mu", "ell"} <= rows[
        0
    ].keys()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["returns"] == [row["return_mean"] for row in rows[-2:]]
    assert summary["env_steps"] == {"train": 0, "reward": 0, "evaluation": 0}
    config = json.loads((run / "config.json").read_text())
    assert config["task_args"]["size"] == 3
    assert config["task_args"]["discount"] == 0.9  # fully resolved
    assert config["algorithm_config"]["inner_steps"] == 10


def test_exact_returns_are_evaluated_without_playing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="exact expectations"):
        load(run).evaluate()
    assert trustirl("evaluate", str(run), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["exact"], told["env_steps"]) == (True, 0)
    assert told["returns"] == [[mean] for mean in json.loads((run / "summary.json").read_text())["returns"]]
    assert trustirl("evaluate", str(run)) == 0
    assert "no episode was played" in capsys.readouterr().out


def test_the_same_seed_gives_the_same_metrics(run: Path, tmp_path: Path) -> None:
    assert trustirl("train", "piro", *SMOKE, "--seeds", "2", "--out", str(tmp_path / "again")) == 0
    assert metrics(tmp_path / "again") == metrics(run)


def test_a_folder_with_a_run_is_refused_and_untouched(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {file.name: file.stat().st_mtime_ns for file in run.iterdir()}
    assert trustirl("train", "piro", *SMOKE, "--out", str(run)) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert trustirl("resume", str(run)) == 2
    assert "is finished" in capsys.readouterr().err
    assert {file.name: file.stat().st_mtime_ns for file in run.iterdir()} == before


def test_overwrite_replaces_the_run_and_nothing_else(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(run, out)
    (out / "notes.txt").write_text("mine")
    assert trustirl("train", "piro", *SMALL, "--steps", "2", "--seeds", "2", "--out", str(out), "--overwrite") == 0
    assert json.loads((out / "config.json").read_text())["steps"] == 2
    assert metrics(out) == metrics(run)[: 2 * 3]
    assert (out / "notes.txt").read_text() == "mine"


BAD_DEMOS = {
    "states": {"observations": np.array([0, 99]), "actions": np.array([0, 0])},
    "actions": {"observations": np.array([0, 1]), "actions": np.array([0, 7])},
    "floats": {"observations": np.array([0.0, 1.0]), "actions": np.array([0, 1])},
    "keys": {"obs": np.array([0])},
    "lengths": {"observations": np.array([0, 1]), "actions": np.array([0])},
    "ends": {"observations": np.array([0, 1]), "actions": np.array([0, 1]), "episode_ends": np.array([2, 1])},
    "empty": {"observations": np.array([], int), "actions": np.array([], int)},
}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "did you mean 'train'"),
        (["train", "pirro", "--task", "gridworld"], "did you mean 'piro'"),
        (["train", "piro", "--task", "gridwold"], "did you mean 'gridworld'"),
        (["train", "piro"], "--task"),
        (["train", "piro", "--task", "gridworld", "--sedes", "3"], "--sedes"),
        (["train", "piro", "--task", "gridworld", "--penalty", "l3"], "'l2', 'squared'"),
        (["train", "piro", "--task", "gridworld", "--seeds", "0"], "seeds must be at least 1"),
        (["train", "piro", "--task", "gridworld", "--seeds", "many"], "--seeds must be a whole number, got 'many';"),
        (["train", "piro", "--task", "gridworld", "--steps", "1e5"], "--steps must be a whole number, got '1e5';"),
        (["train", "piro", "--task", "gridworld", "--mu", "much"], "--mu must be a number, got 'much';"),
        (
            ["train", "piro", "--task", "Pendulum-v1", "--actor-learning-rate", "slow"],
            "--actor-learning-rate must be a number, got 'slow';",
        ),
        (["train", "piro", "--task", "gridworld", "--target", "-1"], "trustirl: target must be positive and finite"),
        (["train", "piro", "--task", "gridworld", "--steps", "-1"], "steps must be at least 1"),
        (["train", "piro", "--task", "gridworld", "--suboptimality", "-1"], "must be at least 0"),
        (["train", "piro", "--task", "gridworld", "--seeds", "1000000000"], "at most 10,000 seeds run at once"),
        (["train", "piro", "--task", "gridworld", "--steps", "1" + 20 * "0"], "at most 2,147,483,647 steps"),
        (
            ["train", "piro", "--task", "gridworld", "--task-args", "size=100000"],
            "the grid with 10,000,000,000",
        ),
        (["train", "piro", "--task", "chain", "--task-args", "length=1000000"], "the chain with 1,000,000 states"),
        (["train", "piro", "--task", "gridworld", "--task-args", "horizon=1000000000"], "horizon must be at most"),
        (["train", "piro", "--task", "gridworld", "--task-args", "temperature=1e300"], "between 1e-09 and 1e+09"),
        (["train", "piro", "--task", "gridworld", "--demo-episodes", "99999999"], "are more than 67,108,864 steps"),
        (
            ["train", "piro", "--task", "gridworld", "--task-args", "size=1000", "--seeds", "10000"],
            "the tables of 10,000 seeds need",
        ),
        (["train", "piro", "--task", "gridworld", "--preset", "paper"], "on simulators and none for gridworld"),
        (["train", "piro", "--task", "CartPole-v1", "--width", "10000000"], "width must be at most 65,536"),
        (["train", "piro", "--task", "CartPole-v1", "--gamma", "0.9"], "'gamma': it is called 'discount' here"),
        (["train", "piro", "--task", "gridworld", "--gamma=0.9"], "called 'discount' here and is an argument of the"),
        (["train", "piro", "--task", "gridworld", "--size", "9"], "'size' is an argument of the task"),
        (["train", "piro", "--task", "CartPole-v1", "--total-timesteps=9"], "it is called 'steps' here"),
        (["train", "bc", "--task", "CartPole-v1", "--seed", "3"], "it is called 'first_seed' here"),
        (
            ["train", "ml-irl", "--task", "CartPole-v1", "--device", "cuda"],
            "JAX_PLATFORMS",
        ),
        (["expert", "CartPole-v1", "--n-envs", "3"], "it is called 'envs' here"),
        (["train", "piro", "--task", "gridworld", "--task-args", "discount=1.2"], "strictly between 0 and 1"),
        (["train", "piro", "--task", "gridworld", "--task-args", "size"], "name=value"),
        (["train", "piro", "--task", "gridworld", "--task-args", "seize=3"], "did you mean 'size'"),
        (["train", "piro", "--task", "chain", "--task-args", "goal=nan"], "rewards must be finite"),
        (["train", "piro", "--task", "gridworld", "--demos", "no/such.npz"], "does not exist"),
        (
            ["train", "piro", "--task", "gridworld", "--demos", "DEMOS/states"],
            "episode 0 of the demos has state 99",
        ),
        (
            ["train", "piro", "--task", "gridworld", "--demos", "DEMOS/actions"],
            "episode 0 of the demos has action 7",
        ),
        (["train", "piro", "--task", "gridworld", "--demos", "DEMOS/floats"], "one state number per step"),
        (["train", "piro", "--task", "gridworld", "--demos", "DEMOS/keys"], "lacks observations and actions"),
        (["train", "piro", "--task", "gridworld", "--demos", "DEMOS/lengths"], "one action per observation"),
        (["train", "piro", "--task", "gridworld", "--demos", "DEMOS/ends"], "episode_ends"),
        (["train", "piro", "--task", "gridworld", "--demos", "DEMOS/empty"], "must not be empty"),
        (["train", "piro", "--task", "gridworld", "--demos", "DEMOS/text"], "not an .npz archive"),
        (["train", "piro", "--task", "gridworld", "--demo-episodes", "0"], "at least 1"),
        (["train", "piro", "--task", "gridworld", "--stepz", "3"], "--stepz, 3; perhaps you meant --steps; see"),
        (["resume", "no-such-run"], "holds no run"),
        (["report", "no-such-run"], "no-such-run holds neither a run nor a bench"),
        (["report", "no-such-run", "--format", "pdf"], "choose from html, md, csv, latex, png"),
        (["report"], "give at least one folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, arrays in BAD_DEMOS.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
    (tmp_path / "text.npz").write_text("not an archive")
    arguments = [a if not a.startswith("DEMOS/") else str(tmp_path / f"{a[6:]}.npz") for a in arguments]
    out = tmp_path / "out"
    if arguments[0] == "train" and len(arguments) > 2:
        arguments += ["--out", str(out)]
    assert trustirl(*arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.startswith("trustirl: ")
    assert error.count("\n") == 1
    assert not out.exists()


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    for algorithm, setting in (("piro", "--mu-max"), ("trro", "--minorizer"), ("ml-irl", "--decay")):
        assert trustirl("train", algorithm, "--help") == 0
        shown = capsys.readouterr().out
        assert setting in shown
        assert "--demo-episodes" in shown
        assert "(default: 200)" in " ".join(shown.replace("│", " ").split())  # steps on the grid


def test_it_ends_quietly_when_nobody_reads() -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as `head` does when it has seen enough, only sooner
    command = [sys.executable, "-m", "trustirl", "train", "piro", "--help"]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_it_works_where_nothing_can_be_said() -> None:
    closed = "exec >&-; " + shlex.join([sys.executable, "-m", "trustirl", "--help"])
    ended = subprocess.run(["sh", "-c", closed], stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("columns", ["1", "2", "5"])
def test_help_ends_on_the_narrowest_terminal(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert trustirl("train", "piro", "--task", "CartPole-v1", "--help") == 0
    shown = capsys.readouterr().out
    assert "--mu-max" in shown
    assert len(shown.splitlines()) < 1000
    assert os.environ["COLUMNS"] == columns


def test_demos_from_a_file_and_network_rewards(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    steps = {"observations": rng.integers(9, size=40), "actions": rng.integers(5, size=40)}
    np.savez(tmp_path / "d.npz", **steps, episode_ends=np.arange(1, 41))
    out = tmp_path / "run"
    demos = ["--demos", str(tmp_path / "d.npz"), "--reward", "mlp", "--reward-inputs", "state-action"]
    assert trustirl("train", "piro", *SMOKE, *demos, "--out", str(out)) == 0
    assert len(json.loads((out / "manifest.json").read_text())["demo_hash"]) == 64


@pytest.mark.parametrize("moment", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_a_killed_run_resumes_to_the_same_metrics(tmp_path: Path, moment: int) -> None:
    arguments = [*SMALL, "--steps", str(2 * moment), "--seeds", "2"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert trustirl("train", "piro", *arguments, "--out", str(whole)) == 0
    command = [sys.executable, "-m", "trustirl", "train", "piro", *arguments, "--out", str(killed)]
    process = subprocess.Popen(command)
    while process.poll() is None:
        file = killed / "metrics.jsonl"
        if file.exists() and len(file.read_text().splitlines()) >= moment:
            process.kill()
            process.wait()
    if not (killed / "summary.json").exists():  # it may have been too quick for the killer
        assert trustirl("resume", str(killed)) == 0
    assert metrics(killed) == metrics(whole)
    ours, theirs = (json.loads((p / "summary.json").read_text()) for p in (whole, killed))
    assert ours["returns"] == theirs["returns"]


def test_help_names_every_algorithm_and_does_not_wait_for_jax() -> None:
    script = "import sys; from trustirl.cli.main import main; main(['--help']); sys.exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert f"ALGO is one of: {', '.join(MODULES)}" in " ".join(done.stdout.split())


def test_where_jax_is_broken_a_command_says_so_and_the_doctor_still_comes(tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text("raise ImportError('libcudart.so: no such file')")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}

    def told(*command: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "trustirl", *command]
        return subprocess.run(line, env=env, capture_output=True, text=True, check=False)

    refused = told("train", "piro", *SMOKE)
    assert refused.returncode == 2
    assert refused.stderr.startswith("trustirl: a package is missing or broken (libcudart.so: no such file)")
    assert refused.stderr.count("\n") == 1
    assert "JAX does not start: ImportError: libcudart.so" in told("doctor").stdout
