"""Which world a question is asked in, that runs name it, and that older ones, which do not, still open."""

import json
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import trustirl as ti
from tests.control.small import SETTINGS, cartpole_demo
from trustirl.core.worlds import FACTS, world_in
from trustirl.report import read_run, write_report
from trustirl.worlds.job import Experiment
from trustirl.worlds.world import WORLDS, world_of

FIT = {"width": 8, "depth": 1, "updates": 10, "fit_batch": 16, "evaluation_episodes": 2}
SLOW = pytest.mark.slow  # the same as with a quicker one
RUNS = [
    pytest.param("mce", "exact", marks=SLOW),
    ("bc", "offline"),
    pytest.param("ml-irl", "simulator", marks=SLOW),
]
ASKING = (
    r"is_exact",
    r'"(plan|offline|control|exact|expert)" (not )?in ',
    r"isinstance\([^)]*TabularPolicy\b",
    r" in TASKS\b",
    r'"policy\.json"\)\.exists',
)
OUTSIDE = re.compile("|".join(ASKING))


def rows(path: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in row.items() if name != "seconds"} for row in lines]


def train(algorithm: str, out: Path, **changes: Any) -> ti.Run:
    if algorithm == "mce":
        return ti.train("mce", "chain", seeds=2, out=out, **{"steps": 60} | changes)
    asked: dict[str, Any] = {"task": "CartPole-v1", "demos": cartpole_demo(), "seeds": 2, "out": out} | changes
    if algorithm == "bc":
        return ti.train("bc", **{"steps": 30} | asked, **FIT)
    return ti.train(algorithm, **{"steps": 180} | asked, **SETTINGS)


@pytest.mark.parametrize(
    ("algorithm", "task", "name"),
    [
        ("mce", "chain", "exact"),
        ("piro", "gridworld", "exact"),
        ("piro", "CartPole-v1", "simulator"),
        ("piro", lambda: gym.make("CartPole-v1"), "simulator"),
        ("piro", "mine:Own-v0", "simulator"),
        ("bc", "CartPole-v1", "offline"),
        ("expert", "CartPole-v1", "fixed reward"),
    ],
)
def test_the_world_of_a_question(algorithm: str, task: Any, name: str) -> None:
    assert world_of(algorithm, task).facts == FACTS[name]


def test_every_kind_of_world_is_one_world() -> None:
    assert WORLDS.keys() == FACTS.keys()
    assert all(world.facts == FACTS[name] for name, world in WORLDS.items())


def test_nothing_outside_the_worlds_asks_what_kind_a_task_is() -> None:
    for file in Path(ti.__file__).parent.rglob("*.py"):
        if file.parent.name not in ("worlds", "tasks") and file.name != "worlds.py":
            assert not OUTSIDE.findall(file.read_text()), file


@pytest.mark.parametrize(("algorithm", "name"), RUNS)
def test_runs_from_before_worlds_were_named_open_and_go_on(
    algorithm: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(algorithm, tmp_path / "whole")
    assert whole.config["world"] == name
    assert whole.world == FACTS[name]
    as_now = Experiment.config
    with monkeypatch.context() as patch:
        patch.setattr(Experiment, "config", lambda self: {k: v for k, v in as_now(self).items() if k != "world"})
        old = train(algorithm, tmp_path / "old")
    assert "world" not in old.config
    assert ti.load(old.path).world == FACTS[name]
    assert read_run(old.path).world == FACTS[name]
    assert write_report(old.path).exists()
    (old.path / "summary.json").unlink()
    (old.path / "report.html").unlink()
    assert rows(ti.resume(old.path).path) == rows(whole.path)


def test_a_world_that_is_not_the_runs_is_refused(tmp_path: Path) -> None:
    run = train("mce", tmp_path / "run", steps=2)
    config = json.loads((run.path / "config.json").read_text())
    (run.path / "summary.json").unlink()
    for world in ("offline", "nowhere", 3, None):
        (run.path / "config.json").write_text(json.dumps(config | {"world": world}))
        with pytest.raises(ti.InputError, match=r"another version|another world|'world' must be one of exact"):
            ti.resume(run.path)


def test_an_older_run_tells_its_world_by_its_settings() -> None:
    old = {"plan": {}, "solver": {}}
    assert world_in(old | {"algorithm": "expert", "expert": {}}, "").name == "fixed reward"
    assert world_in(old | {"algorithm": "piro", "control": {}}, "").name == "simulator"


@SLOW  # a whole run on a simulator
def test_a_run_whose_algorithm_learned_no_reward_opens_without_one(tmp_path: Path) -> None:
    run = train("ml-irl", tmp_path / "run")
    (run.path / "summary.json").write_text(json.dumps(run.summary | {"learns_reward": False}))
    (run.path / "reward.json").unlink()
    again = ti.load(run.path)
    assert not again.rewards
    with pytest.raises(ti.InputError, match="ml-irl, which learns no reward"):
        again.reward  # noqa: B018
    assert not read_run(run.path).learns_reward


@pytest.mark.parametrize(("algorithm", "example"), [("dac", "CartPole-v1"), ("csil", "Pendulum-v1")])
def test_the_advice_for_another_task_can_be_followed(algorithm: str, example: str) -> None:
    with pytest.raises(ti.InputError, match=f"give it a Gymnasium task, such as {example}"):
        world_of(algorithm, "gridworld")
    assert world_of(algorithm, example).facts == FACTS["simulator"]
