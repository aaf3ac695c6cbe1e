"""Demonstrations by name: those of the package and local Minari datasets."""

import json
import tomllib
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from trustirl.core.errors import DemoError
from trustirl.core.machine import installed
from trustirl.demos import Demos, restore_state, sources
from trustirl.demos.schema import find_demos
from trustirl.demos.sources import Named, named_demos, packaged_names, packaged_path
from trustirl.training.train import train

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with demonstrations of two tasks, one of them with a card, and no Minari datasets."""
    place = tmp_path / "packaged"
    place.mkdir()
    monkeypatch.setattr(sources, "FOLDER", place)
    monkeypatch.setattr(sources, "LARGE", "large_demos")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    rng = np.random.default_rng(0)
    for task in ("Hopper-v4", "CartPole-v1"):
        Demos.from_numpy(rng.normal(size=(5, 4)), np.array([0, 1, 1, 0, 1])).save(place / f"{task}.npz")
    card = {"task": "Hopper-v4", "demonstrations": {"episodes": 1, "steps": 5, "mean": 12.5}}
    (place / "Hopper-v4.json").write_text(json.dumps(card))
    return place


def test_packaged_demos_are_found(folder: Path) -> None:
    assert packaged_names() == ["CartPole-v1", "Hopper-v4"]
    assert packaged_path("Hopper-v4") == folder / "Hopper-v4.npz"
    asked = [
        find_demos("packaged", "Hopper-v4"),
        find_demos("packaged:Hopper-v4"),
        Demos.packaged("Hopper-v4"),
        find_demos(str(folder / "Hopper-v4.npz")),
    ]
    assert len({demos.content_hash() for demos in asked}) == 1
    assert named_demos() == [
        Named("packaged:CartPole-v1", "CartPole-v1", None, None, None),
        Named("packaged:Hopper-v4", "Hopper-v4", 1, 5, 12.5),
    ]


def test_names_that_are_not_there_say_which_are(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DemoError, match=r"Hopper-v5.*did you mean 'Hopper-v4'"):
        packaged_path("Hopper-v5")
    with pytest.raises(DemoError, match=r"choose from CartPole-v1, Hopper-v4"):
        packaged_path("Xyz")
    with pytest.raises(DemoError, match="say packaged:TASK"):
        find_demos("packaged")
    with pytest.raises(DemoError, match="Pendulum-v1"):  # nobody gave demonstrations, and none come with the package
        train("piro", task="Pendulum-v1", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(sources, "FOLDER", tmp_path / "nowhere")
    with pytest.raises(DemoError, match="nor of any other task"):
        packaged_path("Hopper-v4")


def test_large_demos_come_in_a_package_of_their_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "Hopper-v4.npz").unlink()  # the card stays
    assert packaged_names() == ["CartPole-v1"]
    with pytest.raises(DemoError, match=r"Hopper-v4 come in a package .* pip install 'trustirl\[demos\]'"):
        find_demos("packaged", "Hopper-v4")
    with pytest.raises(DemoError, match="did you mean 'Hopper-v4'"):
        packaged_path("Hopper-v5")
    second = tmp_path / "site" / "large_demos"
    second.mkdir(parents=True)
    (second / "__init__.py").write_text("raise AssertionError('imported')")
    Demos.from_numpy(np.ones((5, 4)), np.ones(5, int)).save(second / "Hopper-v4.npz")
    monkeypatch.syspath_prepend(second.parent)
    assert packaged_names() == ["CartPole-v1", "Hopper-v4"]
    assert packaged_path("Hopper-v4") == second / "Hopper-v4.npz"
    assert named_demos()[1] == Named("packaged:Hopper-v4", "Hopper-v4", 1, 5, 12.5)


def test_training_takes_packaged_demos_of_its_task(folder: Path, tmp_path: Path) -> None:
    """Pendulum's are found, and found not to be Pendulum's."""
    (folder / "CartPole-v1.npz").rename(folder / "Pendulum-v1.npz")
    with pytest.raises(DemoError, match=r"4 observation dimensions and Pendulum-v1 has 3"):
        train("piro", task="Pendulum-v1", out=tmp_path / "run")


def test_local_minari_datasets_are_listed_from_their_files(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "minari"
    told = {"total_episodes": 3, "total_steps": 30, "env_spec": json.dumps({"id": "Hopper-v5"})}
    for name, text in {"mine/hopper-v0": json.dumps(told), "odd-v0": "[]", "torn-v0": "{", "bare-v1": "{}"}.items():
        (root / name / "data").mkdir(parents=True)
        (root / name / "data" / "metadata.json").write_text(text)
    assert named_demos()[2:] == [
        Named("minari:bare-v1", None, None, None, None),
        Named("minari:mine/hopper-v0", "Hopper-v5", 3, 30, None),
    ]


@pytest.mark.parametrize("task", packaged_names())
def test_packaged_demos_are_what_their_card_says(task: str) -> None:
    card = json.loads((sources.FOLDER / f"{task}.json").read_text())
    demos, told = Demos.packaged(task), card["demonstrations"]
    assert (card["task"], told["file"]) == (task, f"{task}.npz")
    assert demos.content_hash() == card["demo_hash"]
    assert (len(demos), len(demos.actions)) == (told["episodes"], told["steps"])
    assert float(demos.returns().mean()) == pytest.approx(told["mean"], rel=1e-5)
    assert demos.provenance["env_id"] == task
    assert (demos.states is None) == task.startswith("LunarLander")  # Box2D has none to take up
    assert demos.states is None or demos.states.shape == tuple(told["states"])


@pytest.mark.parametrize("task", ["Pendulum-v1", "Hopper-v4", "Humanoid-v4"])
def test_packaged_demos_can_be_taken_up_at_any_step(task: str) -> None:
    recorded = json.loads((sources.FOLDER / f"{task}.json").read_text())["versions"].get("mujoco")
    if recorded and installed("mujoco") != recorded:
        pytest.skip(f"MuJoCo {recorded} recorded them; another one moves robots otherwise")
    demos, env = Demos.packaged(task), gym.make(task)
    env.reset(seed=0)
    second = int(demos.episode_ends[0])
    for step in (0, 57, second + 50):
        restore_state(env, demos.states[step])
        reached = env.step(demos.actions[step])[0]
        np.testing.assert_allclose(reached, demos.observations[step + 1], rtol=1e-4, atol=1e-4)
    env.close()


def test_the_wheel_leaves_out_what_the_second_wheel_holds() -> None:
    """And both stay small."""
    project, second = (
        tomllib.loads((ROOT / place / "pyproject.toml").read_text()) for place in (".", "packages/demos")
    )
    left_out = {Path(name) for name in project["tool"]["hatch"]["build"]["exclude"]}
    taken = second["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    there = {(ROOT / "packages" / "demos" / name).resolve().relative_to(ROOT): held for name, held in taken.items()}
    assert left_out == there.keys()
    assert {f"trustirl_demos/{name.name}" for name in left_out} == set(there.values())
    sizes = {file.relative_to(ROOT): file.stat().st_size for file in sources.FOLDER.iterdir()}
    assert sum(sizes[name] for name in left_out) <= 25 * 2**20
    assert sum(size for name, size in sizes.items() if name not in left_out) <= 2**20
    ours = project["project"]
    assert ours["optional-dependencies"]["demos"] == [f"trustirl-demos=={second['project']['version']}"]
    assert second["project"]["version"] == ours["version"]
