"""Minari: its datasets are read, ours are read by it, and none of them can make us run anything."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import minari
import numpy as np
import pytest

from tests.control.small import experiment
from tests.demos.samples import assert_same, assert_sound, make
from trustirl import DemoError
from trustirl.demos.schema import Demos
from trustirl.worlds.simulator import build
from trustirl.worlds.simulator_run import control_job


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def collected(env: gym.Env, name: str, episodes: int = 3) -> minari.MinariDataset:
    """A dataset made by Minari's own collector, with random actions."""
    collector = minari.DataCollector(env, record_infos=True)
    collector.action_space.seed(0)
    for episode in range(episodes):
        collector.reset(seed=episode)
        over = False
        while not over:
            *_, terminated, truncated, _ = collector.step(collector.action_space.sample())
            over = terminated or truncated
    return collector.create_dataset(name, author="a", author_email="b", code_permalink="c", algorithm_name="d")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_minari_collects_is_read() -> None:
    theirs = collected(gym.wrappers.TimeLimit(gym.make("CartPole-v1"), 15), "cartpole/random-v0")
    demos = Demos.load("minari:cartpole/random-v0")
    assert_sound(demos)
    assert len(demos) == theirs.total_episodes == 3
    assert (demos.provenance["env_id"], demos.provenance["author"]) == ("CartPole-v1", ["a"])
    for episode, other in zip(demos, theirs, strict=True):
        np.testing.assert_array_equal(episode.observations, other.observations[:-1])
        np.testing.assert_array_equal(episode.next_observations, other.observations[1:])
        np.testing.assert_array_equal(episode.actions, other.actions)
        np.testing.assert_array_equal(episode.rewards, other.rewards)
        assert episode.terminated[0] == other.terminations[-1]
    assert demos.terminated.any()
    assert not demos.terminated.all()
    for folder in (theirs.spec.data_path, Path(theirs.spec.data_path).parent):
        assert_same(Demos.load(folder), demos)
    assert_same(Demos.from_minari("cartpole/random-v0", env_id="CartPole-v1"), demos)
    with pytest.raises(DemoError, match="was made in CartPole-v1, not in Acrobot-v1"):
        Demos.from_minari("cartpole/random-v0", env_id="Acrobot-v1")


class Groups(gym.Env):
    """Nested observations, whose numbers tell their place in the flattened vector."""

    observation_space = gym.spaces.Dict(
        {
            "b": gym.spaces.Tuple([gym.spaces.Box(-9, 99, (1,)) for _ in range(11)]),
            "a": gym.spaces.Dict({"z": gym.spaces.Box(-9, 99, (2,)), "y": gym.spaces.Discrete(100)}),
        }
    )
    action_space = gym.spaces.Discrete(3)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        """Always the same."""
        parts = tuple(np.array([3 + number], np.float32) for number in range(11))
        return {"b": parts, "a": {"z": np.array([1, 2], np.float32), "y": 0}}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step is all."""
        return self.reset()[0], 1.0, True, False, {}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_group_spaces_are_flattened_in_sorted_key_order() -> None:
    collected(Groups(), "groups/toy-v0")
    demos = Demos.load("minari:groups/toy-v0")
    np.testing.assert_array_equal(demos.observations, np.tile(np.arange(14), (3, 1)))
    np.testing.assert_array_equal(demos.next_observations, demos.observations)
    assert demos.actions.shape == (3,)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dtype": "float64", "rewards": None, "states": None, "provenance": {}},
        {"actions": np.arange(11, dtype=np.int8) - 3},
        {"observations": np.arange(11, dtype=np.int16), "final_observations": np.zeros(3, np.int16)},
        {
            "observations": np.arange(11 * 40 * 40).reshape(11, 40, 40).astype(np.uint8),
            "final_observations": np.zeros((3, 40, 40), np.uint8),
        },
    ],
)
def test_our_dataset_is_opened_by_minari_and_comes_back_bit_for_bit(changes: dict[str, Any]) -> None:
    demos = make(**changes)
    demos.save_minari("toy/ours-v3", author="someone")
    theirs = minari.load_dataset("toy/ours-v3")
    assert (theirs.total_episodes, theirs.total_steps) == (3, 11)
    for episode, other in zip(demos, theirs, strict=True):
        np.testing.assert_array_equal(other.observations[:-1], episode.observations)
        np.testing.assert_array_equal(other.observations[1:], episode.next_observations)
        np.testing.assert_array_equal(other.actions, episode.actions)
        assert other.terminations[-1] == episode.terminated[0] != other.truncations[-1]
        assert theirs.observation_space.contains(other.observations[0])
        assert theirs.action_space.contains(other.actions[0])
    assert_same(Demos.from_minari("toy/ours-v3"), demos)


def test_a_dataset_saved_with_its_environment_lets_minari_make_it() -> None:
    env = gym.make("Pendulum-v1")
    demos = Demos.record(lambda _: env.action_space.sample(), env, 1)
    demos.save_minari("pendulum/ours-v0", env=env)
    theirs = minari.load_dataset("pendulum/ours-v0")
    assert theirs.recover_environment().spec.id == "Pendulum-v1"
    assert theirs.action_space == env.action_space
    assert_same(Demos.load("minari:pendulum/ours-v0"), demos)


def test_what_minari_cannot_hold_is_refused(root: Path) -> None:
    with pytest.raises(DemoError, match="give final_observations, do not subsample"):
        make(final_observations=None).save_minari("toy/a-v0")
    with pytest.raises(DemoError, match="do not subsample"):
        make().subsample(2).save_minari("toy/a-v0")
    with pytest.raises(DemoError, match="ids look like"):
        make().save_minari("../a-v0")
    with pytest.raises(DemoError, match="Minari could not write"):
        make().save_minari("toy/a-v0", ref_max_score=1.0, expert_policy=lambda _: 0)
    assert not (root / "toy" / "a-v0").exists()
    make().save_minari("toy/a-v0")
    with pytest.raises(DemoError, match="already exists"):
        make().save_minari("toy/a-v0")


def test_a_dataset_cannot_make_us_import_or_run_anything(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a space is missing, Minari makes the environment that the dataset names."""
    (root / "trap_module.py").write_text(f"import pathlib; pathlib.Path({str(root / 'sprung')!r}).touch()")
    monkeypatch.syspath_prepend(root)
    make(provenance={}).save_minari("toy/trap-v0")
    description = root / "toy" / "trap-v0" / "data" / "metadata.json"
    metadata = json.loads(description.read_text())
    del metadata["observation_space"], metadata["trustirl"]
    spec = {"id": "Trap-v0", "entry_point": "trap_module:Trap", "kwargs": {}, "additional_wrappers": []}
    description.write_text(json.dumps(metadata | {"env_spec": json.dumps(spec)}))
    demos = Demos.load("minari:toy/trap-v0")
    assert_sound(demos)
    assert demos.provenance["env_id"] == "Trap-v0"
    assert not (root / "sprung").exists()
    assert "trap_module" not in sys.modules
    with pytest.raises((AttributeError, TypeError, KeyError, gym.error.Error)):
        minari.load_dataset("toy/trap-v0")
    assert (root / "sprung").exists()  # the trap works


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"total_episodes": 10**12}, "claims 1000000000000 episodes"),
        ({"total_episodes": 4}, "lacks episode_3"),
        ({"total_episodes": "3"}, "claims 3 episodes"),
        ({"data_format": "arrow"}, "stored as arrow, and only hdf5 is read"),
        (
            {"jpeg_encoding": True, "observation_space": '{"type": "Box", "dtype": "uint8", "shape": [64, 64, 3]}'},
            "images",
        ),
    ],
)
def test_a_description_that_does_not_fit_is_refused(root: Path, changes: dict[str, Any], words: str) -> None:
    make().save_minari("toy/bad-v0")
    description = root / "toy" / "bad-v0" / "data" / "metadata.json"
    description.write_text(json.dumps(json.loads(description.read_text()) | changes))
    with pytest.raises(DemoError, match=words):
        Demos.load("minari:toy/bad-v0")


def test_datasets_with_missing_or_contradictory_parts_are_refused(root: Path) -> None:
    make().save_minari("toy/bad-v0")
    file = root / "toy" / "bad-v0" / "data" / "main_data.hdf5"
    with h5py.File(file, "a") as content:
        content["episode_2/terminations"][1] = True
    with pytest.raises(DemoError, match="episode 2 of the Minari dataset is empty or goes on after its end"):
        Demos.load("minari:toy/bad-v0")
    with h5py.File(file, "a") as content:
        del content["episode_1/actions"]
        content["episode_1/actions"] = h5py.SoftLink("/episode_0/actions")
    with pytest.raises(DemoError, match="actions is a link"):
        Demos.load("minari:toy/bad-v0")
    with h5py.File(file, "a") as content:
        del content["episode_1/actions"]
    with pytest.raises(DemoError, match="episode_1 of the Minari dataset lacks actions; it holds"):
        Demos.load("minari:toy/bad-v0")
    with pytest.raises(DemoError, match="part of a Minari dataset; give the dataset's folder"):
        Demos.load(file)
    file.unlink()
    with pytest.raises(DemoError, match="does not exist"):
        Demos.load("minari:toy/bad-v0")
    with pytest.raises(DemoError, match="holds no Minari dataset"):
        Demos.from_minari(root)


def test_a_dataset_that_is_not_at_hand_is_asked_of_minari(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(dataset_id: str) -> None:
        asked.append(dataset_id)
        if dataset_id == "toy/there-v0":
            make().save_minari(dataset_id)
        else:
            raise ConnectionError("no network\nat all")

    monkeypatch.setattr(minari, "download_dataset", download)
    assert_same(Demos.load("minari:toy/there-v0"), make())
    with pytest.raises(DemoError, match=r"could not be downloaded \(no network at all\); see `minari list remote`"):
        Demos.load("minari:toy/gone-v0")
    Demos.load("minari:toy/there-v0")
    assert asked == ["toy/there-v0", "toy/gone-v0"]


def test_training_asks_where_demonstrations_come_from() -> None:
    fields: dict[str, Any] = {
        "observations": np.random.default_rng(0).normal(size=(11, 4)),
        "actions": np.arange(11) % 2,
        "final_observations": np.zeros((3, 4)),
    }
    for version, env_id in enumerate(("CartPole-v1", "CartPole-v0", "Acrobot-v1")):
        make(**fields, provenance={"env_id": env_id}).save_minari(f"cartpole/demos-v{version}")
    notes = []
    for version in range(2):
        job = control_job(replace(experiment(seeds=1), demos=f"minari:cartpole/demos-v{version}"))
        job.close()
        notes.append([note for note in job.notes if "made in" in note])
    assert notes == [[], ["the demos were made in CartPole-v0 and the task is CartPole-v1"]]
    changed = replace(experiment(seeds=1), task_args={"sutton_barto_reward": True})
    new = ["the task is given sutton_barto_reward=True, which the environment of the demos was not"]
    for known, note in (
        ({}, new),
        ("{}", new),  # as others write it
        ({"sutton_barto_reward": True}, []),
        ("{'sutton_barto_reward': True}", []),
        (None, []),  # nothing is known
    ):
        job = control_job(changed, make(**fields, provenance={"env_id": "CartPole-v1", "env_kwargs": known}))
        job.close()
        assert [told for told in job.notes if "is given" in told] == note
    with pytest.raises(DemoError, match="made in Acrobot-v1 and the task is CartPole-v1"):
        build(replace(experiment(), demos="minari:cartpole/demos-v2"))
    with pytest.raises(DemoError, match=r"takes whole numbers; if they are, say so by Demos.with_discrete_actions"):
        build(experiment(), make(**(fields | {"actions": np.zeros(11)}), provenance={}))
