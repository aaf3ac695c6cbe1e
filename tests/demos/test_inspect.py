"""Each finding is made of data with exactly that defect, and of no other; good data give none."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from trustirl.demos import Demos
from trustirl.demos.inspect import Columns, columns, described, inspect
from trustirl.tasks.gym import ControlTask

HORIZON, SIZE, CHOICES = 20, 4, 3


def task(discrete: bool = False, **changes: Any) -> ControlTask:
    sizes = {"obs_dim": SIZE, "action_dim": CHOICES if discrete else 2, "discrete": discrete, "horizon": HORIZON}
    bounds = {} if discrete else {"action_low": np.array([-1.0, -2.0]), "action_high": np.array([1.0, 2.0])}
    parts = {"name": "Small-v0", "env_id": "Small-v0", "make": gym.Env, "env_kwargs": {}}
    return ControlTask(**(parts | sizes | bounds | changes))


def arrays(discrete: bool = False) -> dict[str, Any]:
    """Six episodes without any defect: four end at the limit, two before it in a terminal state."""
    random = np.random.default_rng(0)
    lengths = np.array([HORIZON, 7, HORIZON, HORIZON, 12, HORIZON])
    ends, steps = np.cumsum(lengths), int(lengths.sum())
    actions = np.arange(steps) % CHOICES if discrete else random.uniform(-0.9, 0.9, (steps, 2))
    return {
        "observations": random.normal(size=(steps, SIZE)),
        "actions": actions,
        "episode_ends": ends,
        "terminated": lengths < HORIZON,
        "rewards": 3 + random.normal(size=steps),
        "final_observations": random.normal(size=(len(ends), SIZE)),
    }


def found(
    change: Callable[[dict[str, Any]], None] = lambda _: None,
    against: ControlTask | None = None,
    discrete: bool = False,
    **provenance: str,
) -> list[tuple[str, str, str]]:
    parts = arrays(discrete)
    change(parts)
    demos = Demos.from_numpy(**parts, provenance=provenance)
    return [(finding.severity, finding.where, finding.sentence) for finding in inspect(demos, against).findings]


def only(findings: list[tuple[str, str, str]], severity: str, where: str, *words: str) -> None:
    assert [finding[:2] for finding in findings] == [(severity, where)]
    for word in words:
        assert word in findings[0][2], findings[0][2]
    assert findings[0][2].endswith((".", "?"))


@pytest.mark.parametrize("discrete", [False, True])
def test_good_data_are_left_in_peace(discrete: bool) -> None:
    assert found(discrete=discrete) == []
    assert found(discrete=discrete, against=task(discrete)) == []


def test_time_limits_marked_as_terminal() -> None:
    def mark(parts: dict[str, Any]) -> None:
        parts["terminated"][[0, 2, 3]] = True

    only(found(mark, task()), "problem", "episodes 0, 2-3", "3 of 6", "exactly 20 steps", "truncated")
    assert found(mark) == []  # without the task's limit, different lengths say nothing

    def all_alike(parts: dict[str, Any]) -> None:
        parts |= {"episode_ends": np.arange(1, 4) * 33, "terminated": np.ones(3, bool)}
        parts["final_observations"] = parts["final_observations"][:3]

    only(found(all_alike), "problem", "episodes 0-2", "3 of 3", "exactly 33 steps", "the same length")


def test_lost_marks_and_cuts() -> None:
    def forget(parts: dict[str, Any]) -> None:
        parts["terminated"][:] = False

    only(found(forget, task()), "note", "episodes 1, 4", "2 of 6", "before the time limit of 20")
    only(found(forget, task(horizon=30)), "warning", "episodes 0-5", "marks may be lost")
    only(found(against=task(horizon=15)), "problem", "episodes 0, 2-3, 5", "4 of 6", "longer than the time limit")


def test_constant_columns() -> None:
    def still(name: str, *places: int) -> Callable[[dict[str, Any]], None]:
        def change(parts: dict[str, Any]) -> None:
            parts[name][:, list(places)] = 0.5

        return change

    only(found(still("observations", 1, 2)), "note", "observation columns 1-2", "2 of 4")
    only(found(still("actions", 1)), "warning", "action column 1", "1 of 2 action columns never changes")


def test_repeated_rows_and_copied_episodes() -> None:
    def repeat(parts: dict[str, Any]) -> None:
        parts["observations"][1:7:2] = parts["observations"][0:6:2]
        parts["observations"][21:27:2] = parts["observations"][20:26:2]

    only(found(repeat), "warning", "episodes 0-1", "6%", "equal the one before")

    def few(parts: dict[str, Any]) -> None:
        parts["observations"][1:7:2] = parts["observations"][0:6:2]

    assert found(few) == []

    def copy(parts: dict[str, Any]) -> None:
        for name in ("observations", "actions"):
            parts[name][27:47] = parts[name][47:67] = parts[name][0:20]

    only(found(copy), "warning", "episodes 2-3", "2 of 6", "2 from 0")

    def nearly(parts: dict[str, Any]) -> None:
        copy(parts)
        parts["actions"][[46, 66], 0] = 0.25, 0.26

    assert found(nearly) == []


def test_states_of_a_small_world_may_stand_still() -> None:
    demos = Demos.from_numpy(np.zeros(8, int), np.array([0, 1] * 4), episode_ends=[4, 8])
    assert [finding.where for finding in inspect(demos).findings] == ["observation column 0"]


def test_episodes_of_one_step() -> None:
    def cut(parts: dict[str, Any]) -> None:
        parts["episode_ends"][0] = 1

    only(found(cut), "warning", "episode 0", "1 of 6 episodes is one step long")


def test_rows_out_of_order() -> None:
    def shuffle(parts: dict[str, Any]) -> None:
        observations = parts["observations"]
        parts["next_observations"] = np.concatenate([observations[1:], observations[:1]])
        del parts["final_observations"]
        observations[[29, 31]] = observations[[31, 29]]

    only(found(shuffle), "problem", "episode 2", "2 of 99", "out of order")


def test_missing_steps_are_told() -> None:
    parts = arrays()
    demos = Demos.from_numpy(**parts).subsample(3)
    assert [(f.severity, f.where) for f in inspect(demos, task()).findings] == [("note", "episodes 0-5")]


def test_observations_of_another_version() -> None:
    def make(size: int) -> Callable[[dict[str, Any]], None]:
        def change(parts: dict[str, Any]) -> None:
            steps = len(parts["observations"])
            parts["observations"] = np.random.default_rng(1).normal(size=(steps, size))
            del parts["final_observations"]

        return change

    only(found(make(27), task(name="Ant-v5", obs_dim=105)), "problem", "observations", "27", "as Ant-v4", "105")
    only(found(make(348), env_id="Humanoid-v4"), "problem", "observations", "as Humanoid-v5", "Humanoid-v4 has 376")
    assert found(make(27), env_id="Ant-v4") == []
    only(found(make(5), task()), "problem", "observations", "There are 5 observation columns, but Small-v0 has 4")


def test_actions_of_another_task() -> None:
    def narrow(parts: dict[str, Any]) -> None:
        parts["actions"] = parts["actions"][:, :1]

    only(found(narrow, task()), "problem", "actions", "(1,)", "(2,)")

    def floats(parts: dict[str, Any]) -> None:
        parts["actions"] = parts["actions"].astype(float)

    only(found(floats, task(True), discrete=True), "problem", "actions", "float64", "with_discrete_actions")


def test_actions_outside_the_space() -> None:
    def push(parts: dict[str, Any]) -> None:
        parts["actions"][[3, 40], 1] = 2.5, -2.25  # beyond the second bound
        parts["actions"][5, 0] = 1.0  # a bound is inside

    only(found(push, task()), "warning", "action column 1", "2 of 198 action entries", "by up to 0.5", "not clipped")
    parts = arrays()
    push(parts)
    assert described(inspect(Demos.from_numpy(**parts), task()))["actions"]["outside"] == 2
    assert described(inspect(Demos.from_numpy(**parts)))["actions"]["outside"] is None

    def count_from_one(parts: dict[str, Any]) -> None:
        parts["actions"][parts["actions"] == 0] = 3

    findings = found(count_from_one, task(True), discrete=True)
    assert [(severity, where) for severity, where, _ in findings] == [("problem", "actions"), ("warning", "actions")]
    assert "33 actions are not among 0..2" in findings[0][2]
    assert "Action 0 never occurs" in findings[1][2]
    assert found(count_from_one, task(True, action_start=1), discrete=True) == []


def test_actions_at_the_bounds() -> None:
    def clip(parts: dict[str, Any]) -> None:
        parts["actions"] = np.clip(parts["actions"] * np.array([3.0, 6.0]), [-1, -2], [1, 2])

    only(found(clip, task()), "warning", "action columns 0-1", "at a bound")

    def unit(parts: dict[str, Any]) -> None:
        parts["actions"] = np.clip(parts["actions"] * 3, -1, 1)

    only(found(unit), "warning", "action columns 0-1", "at a bound")  # without a task, -1 and 1 are bounds
    assert found(lambda parts: parts["actions"].__imul__(3.0)) == []  # nothing lies at any


def test_discrete_actions_that_never_occur() -> None:
    only(found(against=task(True, action_dim=5), discrete=True), "warning", "actions", "Actions 3-4 never occur")

    def skip(parts: dict[str, Any]) -> None:
        parts["actions"] = parts["actions"] * 2

    only(found(skip, discrete=True), "warning", "actions", "Actions 1, 3 never occur")


def test_rewards_that_were_changed() -> None:
    def standardise(parts: dict[str, Any]) -> None:
        random = np.random.default_rng(2)
        for name in ("observations", "actions"):
            parts[name] = random.uniform(-0.9, 0.9, (200, parts[name].shape[1]))
        rewards = random.normal(size=200)
        parts |= {"rewards": (rewards - rewards.mean()) / rewards.std(), "episode_ends": np.array([120, 200])}
        parts |= {"terminated": None, "final_observations": None}

    only(found(standardise), "warning", "rewards", "mean 0 and deviation 1")

    def scale(parts: dict[str, Any]) -> None:
        rewards = parts["rewards"]
        parts["rewards"] = (rewards - rewards.min()) / np.ptp(rewards)

    only(found(scale), "warning", "rewards", "from 0 to 1")

    def paid(values: float) -> Callable[[dict[str, Any]], None]:
        return lambda parts: parts.update(rewards=np.full(len(parts["rewards"]), values))

    only(found(paid(0.0)), "note", "rewards", "All rewards are 0")
    assert found(paid(1.0)) == []  # CartPole's


def test_huge_observations() -> None:
    def break_sensor(parts: dict[str, Any]) -> None:
        parts["observations"][17, 3] = -9e9

    only(found(break_sensor), "warning", "observation column 3", "9e+09")

    def beyond(parts: dict[str, Any]) -> None:
        parts["observations"][17, 3] = 1e30

    only(found(beyond), "problem", "observation column 3", "1e+30", "numbers up to 1e+15")


def test_many_places_are_counted_instead_of_named() -> None:
    def single_steps(parts: dict[str, Any]) -> None:
        ends = np.sort(np.append(np.arange(3, 99, 3), np.arange(4, 99, 3)))  # of lengths 3, 1, 2, 1, 2, ...
        parts |= {"episode_ends": np.append(ends, 99), "terminated": None, "final_observations": None}

    only(found(single_steps), "warning", "episodes 1, 3, 5, 7, 9, 11, 13, 15 and 24 more", "32 of 65 episodes")


def test_columns_are_those_of_the_whole_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trustirl.demos.checks.PIECE", 30)  # many pieces
    array = np.random.default_rng(3).normal(5, 2, (101, 2, 3)).astype(np.float32)
    got, flat = columns(array), array.reshape(101, 6).astype(np.float64)
    assert (got.shape, got.dtype) == ((2, 3), "float32")
    for name, value in {"low": "min", "high": "max", "mean": "mean", "std": "std"}.items():
        np.testing.assert_allclose(getattr(got, name), getattr(flat, value)(axis=0), rtol=1e-12)


def test_pieces_hide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same findings, whatever the size of the pieces that arrays are looked at in."""

    def everything(parts: dict[str, Any]) -> None:
        parts["observations"][1:60:2] = parts["observations"][0:59:2]
        parts["actions"][::2] *= 4

    whole = found(everything, task())
    monkeypatch.setattr("trustirl.demos.checks.PIECE", 12)
    assert found(everything, task()) == whole
    assert len(whole) > 1


def test_description_is_json_and_true() -> None:
    demos = Demos.from_numpy(**arrays(), provenance={"env_id": "Small-v0"})
    told = json.loads(json.dumps(described(inspect(demos, task())), allow_nan=False))
    returns = demos.returns()
    assert returns is not None
    assert (told["episodes"], told["steps"], told["terminated"], told["not_terminated"]) == (6, 99, 2, 4)
    assert told["lengths"] == {"min": 7, "median": 20.0, "max": 20}
    assert told["returns"]["mean"] == returns.mean()
    assert told["returns"]["max"] == returns.max()
    assert told["observations"]["low"] == demos.observations.min(axis=0).tolist()
    assert told["actions"]["shape"] == [2]
    assert told["content_hash"] == demos.content_hash()
    assert (told["task"], told["provenance"], told["findings"]) == ("Small-v0", {"env_id": "Small-v0"}, [])
    assert described(inspect(replace(demos, rewards=None)))["returns"] is None
    assert isinstance(inspect(demos).observations, Columns)


@pytest.mark.filterwarnings("error")
def test_sums_that_are_too_large_are_null() -> None:
    parts = {name: np.full_like(array, 1.7e308) for name, array in arrays().items() if array.dtype.kind == "f"}
    told = json.loads(json.dumps(described(inspect(Demos.from_numpy(**(arrays() | parts)))), allow_nan=False))
    assert told["returns"] == {"mean": None, "std": None, "min": None, "max": None}
    assert told["observations"]["mean"] == [None] * SIZE
    assert told["observations"]["high"] == [1.7e308] * SIZE
