"""Algorithms of other packages: by entry point or by `register`, and what is said of those that cannot be used."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trustirl as ti
from tests.bench.small import suite, table, trustirl
from tests.conftest import PLUGIN
from tests.control.small import SETTINGS, cartpole_demo, flags, pendulum_demo
from trustirl import algorithms
from trustirl.algorithms import ALGORITHMS, MODULES, Defaults, Entry, register
from trustirl.algorithms.bc import BcConfig, bc
from trustirl.core.errors import InputError
from trustirl.training.train import setting_groups

NAME = "plain-gradient"
MINE: dict[str, Any] = {"config": BcConfig, "build": bc, "reference": "mine", "worlds": ("offline",)}
GRID = ("--task", "gridworld", "--task-args", "size=3", "--no-compare")


@pytest.fixture
def registered() -> Iterator[None]:
    """Forget what a test registers."""
    before = dict(ALGORITHMS.registered)
    yield
    ALGORITHMS.registered.clear()
    ALGORITHMS.registered.update(before)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Install modules with entry points, as a package would."""

    def install(points: str, **modules: str) -> dict[str, str]:
        info = tmp_path / "broken-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[trustirl.algorithms]\n{points}\n")
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        forget()
        return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))}

    def forget() -> None:
        algorithms._installed.cache_clear()
        algorithms._loaded.cache_clear()
        sys.modules.pop("sad", None)

    yield install
    monkeypatch.undo()
    forget()


def rows(path: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in row.items() if name != "seconds"} for row in lines]


def test_every_module_holds_the_entry_of_its_name_and_is_short() -> None:
    for name, module in MODULES.items():
        entry = ALGORITHMS[name]
        assert entry.name == name
        assert entry.reference
        lines = (Path(algorithms.__file__).parent / f"{module}.py").read_text().splitlines()
        assert len(lines) <= 150, name


def test_nothing_else_in_the_package_names_an_algorithm() -> None:
    own = set(MODULES.values())
    # Not followed by a bracket, since `filter(` is a function, too.
    words = re.compile(rf"\b({'|'.join({*own, *MODULES})})\b(?!\()", re.IGNORECASE)
    for file in Path(ti.__file__).parent.rglob("*.py"):
        if file.parent.name == "algorithms" and file.stem in {*own, "__init__"}:
            continue
        if file.name not in ("suites.py", "meerkats.py"):  # the built-in ones
            assert not words.findall(file.read_text()), file


def test_the_documents_name_every_algorithm() -> None:
    root = Path(__file__).parents[2]
    readme, sections = (root / "README.md").read_text(), (root / "docs" / "algorithms.md").read_text()
    assert all(f"`{name}`" in readme for name in MODULES)
    assert all(f"\n## {name}\n" in sections for name in MODULES)


def test_another_package_needs_no_more_than_eighty_lines() -> None:
    files = [file for file in PLUGIN.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    assert sum(len(file.read_text().splitlines()) for file in files) <= 80


def test_an_installed_algorithm_is_listed_and_not_imported_for_it() -> None:
    script = "import sys; from trustirl.cli.main import main; main(['train', '--help']); "
    script += "sys.exit('plain_gradient' in sys.modules)"
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(PLUGIN), *sys.path])}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert f"{', '.join(MODULES)}, {NAME}" in " ".join(done.stdout.split())  # on several lines
    with pytest.raises(InputError, match="did you mean 'plain-gradient'"):
        setting_groups("plain-gradent", "gridworld")


def test_its_defaults_are_its_own() -> None:
    assert setting_groups(NAME, "gridworld")["algorithm_config"].ascent == 1.0
    assert setting_groups(NAME, "Pendulum-v1")["algorithm_config"].ascent == 0.01
    assert setting_groups(NAME, "CartPole-v1")["solver"].width == 64
    with pytest.raises(InputError, match="and none for plain-gradient"):
        setting_groups(NAME, "CartPole-v1", "paper")


@pytest.mark.parametrize(
    ("task", "demos"),
    [("CartPole-v1", cartpole_demo()), ("Pendulum-v1", pendulum_demo())],
    ids=["discrete", "continuous"],
)
@pytest.mark.slow
def test_it_learns_on_simulators(task: str, demos: ti.Demos, tmp_path: Path) -> None:
    run = ti.train(NAME, task, demos, seeds=2, steps=260, out=tmp_path / "run", **SETTINGS)
    assert max(row["drift"] for row in rows(run.path) if row["drift"] is not None) > 0
    page = (run.path / "report.html").read_text()
    assert NAME.upper() in page
    assert "What else was recorded" in page
    assert "reward_size" in page
    assert all(np.isfinite(row["reward_size"]) for row in rows(run.path) if row["iteration"])
    assert len(ti.load(run.path).rewards) == 2


@pytest.mark.slow  # a killed run in a known MDP is quick, below, and so is one of our own on a simulator
@pytest.mark.parametrize(
    ("task", "demos"),
    [("CartPole-v1", cartpole_demo()), ("Pendulum-v1", pendulum_demo())],
    ids=["discrete", "continuous"],
)
def test_its_killed_runs_on_simulators_go_on(task: str, demos: ti.Demos, tmp_path: Path) -> None:
    """In a process that computes as this one does, and finds the package on its path."""
    whole, killed, file = tmp_path / "whole", tmp_path / "killed", tmp_path / "demos.npz"
    demos.save(file)
    ti.train(NAME, task, file, seeds=2, steps=260, out=whole, **SETTINGS)
    env = os.environ | {"JAX_ENABLE_X64": "1", "PYTHONPATH": os.pathsep.join([str(PLUGIN), *sys.path])}
    words = ["train", NAME, "--task", task, "--demos", str(file), "--seeds", "2", "--steps", "260", *flags()]
    process = subprocess.Popen([sys.executable, "-m", "trustirl", *words, "--out", str(killed)], env=env)
    while process.poll() is None:
        if (killed / "metrics.jsonl").exists() and (killed / "metrics.jsonl").read_text():
            process.kill()
    assert process.returncode == -signal.SIGKILL
    assert trustirl("resume", killed) == 0
    assert rows(killed) == rows(whole)


def test_it_learns_where_the_mdp_is_known_and_a_killed_run_goes_on(tmp_path: Path) -> None:
    arguments = ["train", NAME, *GRID, "--steps", "60", "--seeds", "2"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert trustirl(*arguments, "--out", whole) == 0
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(PLUGIN), *sys.path])}
    process = subprocess.Popen([sys.executable, "-m", "trustirl", *arguments, "--out", str(killed)], env=env)
    while process.poll() is None:
        file = killed / "metrics.jsonl"
        if file.exists() and len(file.read_text().splitlines()) >= 20:
            process.kill()
            process.wait()
    if not (killed / "summary.json").exists():  # it may have been too quick for the killer
        assert trustirl("resume", killed) == 0
    assert rows(killed) == rows(whole)
    ell = [row["ell"] for row in rows(whole)]
    assert ell[-1] > ell[0]


@pytest.mark.slow
def test_it_takes_part_in_a_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PLUGIN), *sys.path]))
    jobs = "[defaults]\ntask = 'gridworld'\ntask_args = {size = 3}\nsteps = 3\nseeds = 1\n"
    jobs += f"[[jobs]]\nalgorithm = '{NAME}'\noverrides = {{ascent = 0.5}}\n"
    out = tmp_path / "bench"
    assert trustirl("bench", suite(tmp_path, jobs), "--out", out) == 0
    (row,) = table(out)
    assert (row["algorithm"], row["settings"]["algorithm_config"]["ascent"]) == (NAME, 0.5)
    assert NAME in (out / "report.html").read_text()


def test_one_can_be_registered_for_a_process(registered: None) -> None:
    register(Entry("my-own", **MINE, defaults=Defaults(ours={"fit_batch": 7})))
    assert "my-own" in ALGORITHMS
    assert setting_groups("my-own", "CartPole-v1")["algorithm_config"].fit_batch == 7
    for name in ("my-own", "piro", "expert", NAME):
        with pytest.raises(InputError, match=f"the name '{name}' is taken"):
            register(Entry(name, **MINE))
    with pytest.raises(InputError, match=r"registered as a trustirl\.algorithms\.Entry, got 5"):
        register(5)


def test_a_default_that_no_part_has_is_refused(registered: None) -> None:
    register(Entry("my-own", **MINE, defaults=Defaults(tasks={"CartPole-v1": {"fit_bach": 7}})))
    assert setting_groups("my-own", "Pendulum-v1")
    with pytest.raises(InputError, match="unknown setting 'fit_bach'"):
        setting_groups("my-own", "CartPole-v1")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "My Own"}, "small letters, digits and single hyphens"),
        ({"name": "../own"}, "small letters, digits and single hyphens"),
        ({"config": dict}, "needs a dataclass as config"),
        ({"worlds": ()}, "worlds of own must be some of exact, simulator, offline"),
        ({"actions": ()}, "actions of own must be some of discrete, continuous"),
    ],
)
def test_an_entry_that_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Entry(**{"name": "own"} | MINE | changes)


def test_actions_that_an_algorithm_does_not_know_are_refused(registered: None, tmp_path: Path) -> None:
    register(Entry("my-own", **MINE, actions=("continuous",)))
    with pytest.raises(InputError, match="my-own learns with continuous actions, and CartPole-v1 has discrete ones"):
        ti.train("my-own", "CartPole-v1", cartpole_demo(), steps=500, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("point", "text", "words"),
    [
        (
            "sad:ENTRY",
            "raise RuntimeError('no luck')",
            "cannot be loaded from sad:ENTRY (RuntimeError: no luck); mend",
        ),
        ("sad:ENTRY", "", "cannot be loaded from sad:ENTRY (AttributeError"),
        ("sad:ENTRY", "ENTRY = {}", "must lead to a trustirl.algorithms.Entry of that name, and sad:ENTRY is {}"),
        ("trustirl.algorithms.bc:ENTRY", "", "must lead to a trustirl.algorithms.Entry of that name"),
    ],
)
def test_a_broken_package_is_named_and_harms_nobody(point: str, text: str, words: str, installed: Any) -> None:
    env = installed(f"sad = {point}", sad=text)
    with pytest.raises(InputError) as error:
        setting_groups("sad", "gridworld")
    assert words in str(error.value)
    line = [sys.executable, "-m", "trustirl"]
    listed = subprocess.run([*line, "--help"], env=env, capture_output=True, text=True, check=False)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "sad" in listed.stdout
    with pytest.raises(InputError, match="trro needs a known MDP"):  # names all others that would do
        setting_groups("trro", "CartPole-v1")


@pytest.mark.parametrize("name", ["piro", "expert", "Bad Name", NAME])
def test_a_name_that_is_taken_is_left_out(name: str, installed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    installed(f"{name} = another:ENTRY")
    names = list(ALGORITHMS)
    assert len(names) == len(set(names))
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1
    assert "rename its entry point" in warning
    assert ALGORITHMS["piro"].build.__module__ == "trustirl.algorithms.piro"
