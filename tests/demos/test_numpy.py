"""Arrays in memory: three layouts, and what is wrong with them said in one sentence."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.demos.samples import assert_same, assert_sound, make
from trustirl import DemoError
from trustirl.demos.schema import Demos

OBS, ACT = np.zeros((6, 2)), np.zeros((6, 1))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.booleans())
def test_flat_padded_and_listed_episodes_are_the_same(lengths: list[int], final: bool) -> None:
    flat = make(tuple(lengths), **({} if final else {"final_observations": None}))
    per_step = ("actions", "rewards", "states")
    listed: dict[str, Any] = {name: [getattr(episode, name) for episode in flat] for name in per_step}
    listed["observations"] = [
        np.concatenate([episode.observations, episode.next_observations[-1:]]) if final else episode.observations
        for episode in flat
    ]
    same = {"terminated": flat.terminated, "provenance": flat.provenance}
    assert_same(Demos.from_numpy(**listed, **same), flat)
    padded = {}
    for name, episodes in listed.items():
        time = max(lengths) + (name == "observations" and final)
        padded[name] = np.full((len(lengths), time, *episodes[0].shape[1:]), np.nan, episodes[0].dtype)
        for row, episode in zip(padded[name], episodes, strict=True):
            row[: len(episode)] = episode
    assert_same(Demos.from_numpy(**padded, lengths=lengths, **same), flat)


def test_lists_of_vectors_are_steps_and_lists_of_whole_numbers_are_tabular_episodes() -> None:
    steps = Demos.from_numpy([np.zeros(2), np.ones(2)], [np.zeros(2), np.ones(2)])
    assert (len(steps), steps.observations.shape) == (1, (2, 2))
    tabular = Demos.from_numpy([np.array([3, 1]), np.array([2])], [np.array([0, 1]), np.array([1])])
    np.testing.assert_array_equal(tabular.observations, [3, 1, 2])
    np.testing.assert_array_equal(tabular.episode_ends, [2, 3])


def test_the_given_arrays_stay_the_callers() -> None:
    observations = np.zeros((4, 2))
    demos = Demos.from_numpy(observations, np.zeros(4))
    observations[:] = 7
    assert not demos.observations.any()
    assert observations.flags.writeable


def test_foreign_byte_orders_and_flags_as_numbers_are_understood() -> None:
    demos = Demos.from_numpy(
        np.arange(12, dtype=">f4").reshape(6, 2), ACT, np.array([2, 6], ">u2"), np.array([1.0, 0.0])
    )
    assert_sound(demos)
    np.testing.assert_array_equal(demos.observations[:, 0], [0, 2, 4, 6, 8, 10])
    np.testing.assert_array_equal(demos.terminated, [True, False])


def nan_at(*place: int) -> np.ndarray:
    array = np.zeros((6, 2))
    array[place] = np.nan
    return array


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"observations": nan_at(4, 1), "episode_ends": [3, 6]}, "observations must be finite; step 1 of episode 1"),
        ({"actions": np.full((6, 1), np.inf)}, "actions must be finite; step 0 of episode 0"),
        ({"rewards": [0, 0, 0, 0, 0, np.nan], "episode_ends": [5, 6]}, "rewards must be finite; step 0 of episode 1"),
        (
            {"final_observations": nan_at(1)[:2], "episode_ends": [3, 6]},
            "final_observations must be finite; .* 1 is not",
        ),
        ({"observations": np.array([np.zeros(2), None], object)}, "observations are Python objects"),
        ({"observations": [[0.0, 1.0], [2.0]]}, "observations cannot be made one array"),
        ({"observations": np.array(["a"] * 6)}, "observations must be integers or floats"),
        ({"observations": np.zeros(6, complex)}, "observations must be integers or floats"),
        ({"actions": np.zeros(6, bool)}, "actions must be integers or floats"),
        ({"observations": np.zeros((0, 2)), "actions": np.zeros(0)}, "observations must not be empty"),
        ({"observations": np.zeros((6, 0))}, "observations must not be empty"),
        ({"observations": 3.0}, "observations must not be empty"),
        ({"actions": np.zeros((5, 1))}, "one action per observation, got 6 observations and 5"),
        ({"episode_ends": [4, 2, 6]}, "episode 1 ends at 2"),
        ({"episode_ends": [-3, 6]}, "episode 0 ends at -3"),
        ({"episode_ends": [0, 6]}, "episode 0 ends at 0"),
        ({"episode_ends": [2, 5]}, "equal to the number of steps, 6, and it is 5"),
        ({"episode_ends": [2.0, 6.0]}, "episode_ends must be a vector of whole numbers"),
        ({"episode_ends": np.array([2**63 + 1, 6], np.uint64)}, "no count of steps"),
        ({"episode_ends": np.zeros(0, int)}, "episode_ends must not be empty"),
        ({"terminated": [True, False]}, "terminated must hold 1 truth values"),
        ({"terminated": [0.5]}, "terminated must be true or false"),
        ({"rewards": np.zeros(5)}, r"rewards must have one row per step and so the shape \(6,\)"),
        ({"next_observations": np.zeros((6, 3))}, r"next_observations must have .* \(6, 2\), got \(6, 3\)"),
        ({"final_observations": np.zeros((2, 2))}, r"final_observations must have one row per episode"),
        ({"final_observations": np.zeros((1, 2)), "observations": np.zeros((6, 2), int)}, "make them alike"),
        ({"states": np.zeros((5, 3))}, "states must have one row per step"),
        ({"provenance": {"when": object()}}, "provenance must consist of JSON values"),
        ({"provenance": {"score": float("nan")}}, "provenance must consist of JSON values"),
        ({"lengths": [3, 3]}, r"padded to \[2 episodes, time, ...\], got \(6, 2\); for flat arrays"),
        ({"lengths": [6], "episode_ends": [6]}, "not both"),
    ],
)
def test_bad_arrays_are_refused_in_one_sentence(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(DemoError, match=words) as caught:
        Demos.from_numpy(**({"observations": OBS, "actions": ACT} | fields))
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"lengths": [2, -1]}, "between 1 and 3; that of episode 1 is -1"),
        ({"lengths": [4, 1]}, "between 1 and 3; that of episode 0 is 4"),
        ({"lengths": [1]}, "padded to"),
        ({"lengths": [1.0, 2.0]}, "lengths must be a vector of whole numbers"),
        ({"lengths": [2, 2], "rewards": np.zeros((2, 1))}, "rewards of episode 0 have 1 row and its actions 2"),
    ],
)
def test_bad_padding_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(DemoError, match=words):
        Demos.from_numpy(**({"observations": np.zeros((2, 3, 2)), "actions": np.zeros((2, 3, 1))} | fields))


@pytest.mark.parametrize(
    ("observations", "actions", "more", "words"),
    [
        ([OBS, OBS[:3]], [ACT, ACT[:0]], {}, "episode 1 has no actions"),
        ([OBS, OBS[:3]], [ACT, ACT[:2]], {}, "observations of episode 1 have 3 rows and its actions 2"),
        ([OBS, np.zeros((6, 3))], [ACT, ACT], {}, r"observations of episode 1 are float64 of shape \(3,\)"),
        ([OBS, OBS], [ACT, ACT.astype(int)], {}, "actions of episode 1 are int64"),
        ([OBS, OBS], [ACT], {}, "observations hold 2 episodes and actions 1"),
        ([OBS], [ACT], {"rewards": np.zeros(6)}, "rewards must be a list"),
    ],
)
def test_bad_lists_of_episodes_are_refused(observations: Any, actions: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(DemoError, match=words):
        Demos.from_numpy(observations, actions, **more)
