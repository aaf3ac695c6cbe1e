"""Rewards in folders: every kind opens for ever and anywhere, and what is wrong with one is said in a sentence."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trustirl as ti
from tests.rewards.golden import GOLDEN, MAKERS
from trustirl.cli.main import main
from trustirl.core.files import read_arrays, write_arrays
from trustirl.rewards.kinds import KINDS
from trustirl.rewards.reward import Rewards

FOLDERS = sorted(folder.name for folder in GOLDEN.iterdir())


@pytest.fixture(scope="module")
def opened() -> dict[str, Any]:
    """What golden rewards pay in a process that can import neither Gymnasium nor a simulator."""
    command = [sys.executable, "-m", "tests.rewards.opened", *(str(GOLDEN / name) for name in FOLDERS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_reward_of_every_kind_opens_for_ever(name: str, opened: dict[str, Any]) -> None:
    expected = json.loads((GOLDEN / name / "expected.json").read_text())["paid"]
    np.testing.assert_allclose(opened[name], expected, rtol=1e-4, atol=1e-4)
    assert np.std(expected[0]) > 0
    assert not np.allclose(expected[0], expected[1])


def test_there_is_a_golden_reward_of_every_kind() -> None:
    assert set(MAKERS) <= set(FOLDERS)
    assert {json.loads((GOLDEN / name / "reward.json").read_text())["kind"] for name in FOLDERS} == set(KINDS)


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return Path(shutil.copytree(GOLDEN / getattr(request, "param", "network"), tmp_path / "reward"))


def test_a_reward_says_what_it_is_and_where_it_comes_from(folder: Path) -> None:
    rewards = ti.load_rewards(folder)
    first = rewards[0]
    assert (first.form, first.needs, first.bound, first.seed) == ("r(s, a)", ("action",), 5.0, 3)
    assert first.origin is not None
    assert (first.origin.run, first.origin.task, first.origin.demos) == ("golden", "made up", "0" * 64)
    assert repr(first) == "<r(s, a) of Box-v0, learned by piro, seed 3>"
    assert first.normalisation is not None
    assert [len(moment) for moment in first.normalisation] == [5, 5]
    # An end earns the absorbing state's reward for ever: g / (1 - g) of it, with g = 0.9.
    assert first.absorbing is not None
    obs, action = np.ones(3), [0.5, 0.5]
    ended = first(obs, action, terminated=True) - first(obs, action)
    assert ended == pytest.approx(9 * first.absorbing, rel=1e-4)
    assert first.end == pytest.approx(ended, rel=1e-4)
    assert first.origin.paid is not None
    given = json.loads((folder / "expected.json").read_text())["given"]
    steps = rewards.each(given["obs"], given["action"])
    np.testing.assert_allclose(first.origin.paid.mean, steps.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(first.origin.paid.high, steps.max(axis=1), rtol=1e-5)
    np.testing.assert_allclose(first.origin.paid.end, [reward.end for reward in rewards], rtol=1e-5)


def test_the_seeds_of_a_run_are_one_reward_their_mean(folder: Path) -> None:
    rewards = ti.load_rewards(folder)
    obs, action = np.eye(3), np.zeros((3, 2))
    each = np.stack([reward(obs, action) for reward in rewards])
    np.testing.assert_array_equal(rewards(obs, action), each.mean(axis=0))
    np.testing.assert_array_equal(rewards.spread(obs, action), each.std(axis=0))
    assert rewards.spread(obs, action).min() > 0
    np.testing.assert_array_equal(rewards[1:](obs, action), each[1])
    assert rewards(obs[0], action[0]).shape == ()
    with pytest.raises(ti.RewardError, match="learned none"):
        Rewards(())(obs)


def test_an_older_card_opens(folder: Path) -> None:
    card = json.loads((folder / "reward.json").read_text())
    del card["origin"], card["reward_inputs"], card["format_version"]
    (folder / "reward.json").write_text(json.dumps(card | {"action_inputs": True}))
    reward = ti.load_reward(folder)
    assert (reward.origin, reward.seed, reward.form) == (None, 0, "r(s, a)")


@pytest.mark.parametrize("folder", ["table-state", "network-state"], indirect=True)
def test_a_reward_of_states_needs_no_action(folder: Path) -> None:
    reward, expected = ti.load_reward(folder), json.loads((folder / "expected.json").read_text())
    paid = reward(expected["given"]["obs"], terminated=expected["given"].get("terminated"))
    np.testing.assert_allclose(paid, expected["paid"][0], rtol=1e-4)


def test_a_reward_of_actions_asks_for_them(folder: Path) -> None:
    with pytest.raises(ti.RewardError, match="depends on action: call reward"):
        ti.load_reward(folder)(np.zeros(3))
    with pytest.raises(ti.RewardError, match="observations of Box-v0 have 3 dimensions, got shape"):
        ti.load_reward(folder)(np.zeros((2, 4)), np.zeros((2, 2)))


def change(**values: Any) -> Callable[[Path], None]:
    """Other values in reward.json."""

    def damage(folder: Path) -> None:
        file = folder / "reward.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | values))

    return damage


def arrays(edit: Callable[[dict[str, np.ndarray]], Any]) -> Callable[[Path], None]:
    """Other tensors."""

    def damage(folder: Path) -> None:
        file = folder / "reward.safetensors"
        held = {name: array.copy() for name, array in read_arrays(file).items()}
        edit(held)
        write_arrays(file, held)

    return damage


def claims_much(folder: Path) -> None:
    """1 kB that says it were 10 GB."""
    header = json.dumps({".mean": {"dtype": "F32", "shape": [2, 1_250_000_000], "data_offsets": [0, 10**10]}})
    padded = header.encode().ljust(1016)
    (folder / "reward.safetensors").write_bytes(len(padded).to_bytes(8, "little") + padded)


BIAS = ".network.layers[0].bias"
WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "another format": (
        change(format_version=2),
        "has format 2, this version reads 1; use the trustirl that wrote it",
    ),
    "no number": (change(format_version=None), "has format None"),
    "another kind": (change(kind="oracle"), "'oracle', that is not known here"),
    "a missing tensor": (arrays(lambda held: held.pop(BIAS)), "does not fit this configuration .*bias"),
    "an extra tensor": (
        arrays(lambda held: held.update(extra=held[BIAS])),
        "does not fit this configuration .*extra",
    ),
    "a wrong shape": (arrays(lambda held: held.update({BIAS: held[BIAS][:, :3]})), r"needs float32\(8,\)"),
    "a wrong type": (arrays(lambda held: held.update({BIAS: held[BIAS].astype(int)})), "as int64"),
    "no finite number": (arrays(lambda held: held[BIAS].put(0, np.nan)), "in .*bias that are not finite"),
    "an infinite number": (arrays(lambda held: held[".mean"].put(0, np.inf)), "in .mean that are not finite"),
    "a deviation of zero": (arrays(lambda held: held[".std"].put(0, 0)), "deviations are not positive"),
    "a file that claims 10 GB": (claims_much, "damaged or not a safetensors file"),
    "a card that claims 10 GB": (change(width=50_000), "says width 50000, more than any array"),
    "too many seeds": (change(seeds=10**9), "tells of other seeds or layers"),
    "no card": (lambda folder: (folder / "reward.json").unlink(), "reward.json does not exist"),
    "no tensors": (lambda folder: (folder / "reward.safetensors").unlink(), "reward.safetensors does not exist"),
    "no JSON": (lambda folder: (folder / "reward.json").write_text("{"), "cut short or no JSON"),
    "an odd origin": (change(origin={"run": 3}), "origin does not hold what it should"),
    "a place as a tensor": (lambda folder: (folder / "reward.json").write_text("[]"), "does not hold what it should"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_with_a_reward_is_said_in_a_sentence(
    wrong: str, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    damage, sentence = WRONG[wrong]
    damage(folder)
    with pytest.raises(ti.RewardError, match=sentence) as refusal:
        ti.load_reward(folder)
    assert len(str(refusal.value).splitlines()) == 1
    with pytest.raises(SystemExit) as stop:
        main(["reward", "export", str(folder), "--out", str(folder.parent / "out")])
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (folder.parent / "out").exists()
