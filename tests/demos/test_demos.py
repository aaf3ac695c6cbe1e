"""A set of demonstrations: its parts, its weights, and that nobody can change it."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import trustirl as ti
from tests.demos.samples import assert_same, assert_sound, make
from trustirl.demos.schema import PER_STEP, Demos

lengths_of_episodes = st.lists(st.integers(1, 7), min_size=1, max_size=6).map(tuple)


def test_a_demo_error_is_an_input_error() -> None:
    assert issubclass(ti.DemoError, ti.InputError)
    assert ti.DemoError.exit_code == 2


@given(lengths_of_episodes, st.data())
def test_indexing_gives_the_episodes_asked_for(lengths: tuple[int, ...], data: st.DataObject) -> None:
    demos = make(lengths)
    numbers = data.draw(st.lists(st.integers(-len(lengths), len(lengths) - 1), min_size=1, max_size=5))
    chosen = demos[numbers]
    assert_sound(chosen)
    assert len(chosen) == len(numbers)
    for number, episode in zip(numbers, chosen, strict=True):
        end = demos.episode_ends[number]
        rows = slice(end - demos.lengths()[number], end)
        for name in PER_STEP:
            if getattr(demos, name) is not None:
                np.testing.assert_array_equal(getattr(episode, name), getattr(demos, name)[rows])
        assert episode.terminated == [demos.terminated[number]]


def test_episodes_side_by_side_share_memory_and_cannot_be_written() -> None:
    demos = make()
    assert len(demos[1]) == 1
    for part in (demos[1], demos[-2:], demos[[1, 2]], demos[np.array([False, True, True])], demos.take(2)):
        assert np.shares_memory(part.observations, demos.observations)
        assert part.provenance == demos.provenance
        for name in (*PER_STEP, "episode_ends", "terminated"):
            array = getattr(part, name)
            assert array is None or not array.flags.writeable
    assert [len(episode.actions) for episode in demos] == [4, 1, 6]
    assert_same(demos[:], demos)


@pytest.mark.parametrize("choice", [3, [], [0, 5], slice(2, 2), np.array([True]), np.zeros((2, 2), int)])
def test_a_choice_that_names_no_episodes_is_refused(choice: Any) -> None:
    with pytest.raises(ti.DemoError, match="0 to 2"):
        make()[choice]


def test_take_and_split_choose_and_keep_the_order() -> None:
    demos = make((3, 1, 5, 2), rewards=np.array([0.0] * 3 + [9.0] + [1.0] * 5 + [0.0] * 2))
    np.testing.assert_array_equal(demos.returns(), [0, 9, 5, 0])
    assert list(demos.take(2, "longest").lengths()) == [3, 5]
    assert list(demos.take(2, "best").lengths()) == [1, 5]
    for first in (3, 0.75):
        one, rest = demos.split(first)
        assert_same(Demos.concatenate([one, rest]), demos)
        assert (len(one), len(rest)) == (3, 1)
    shuffled, rest = demos.split(2, seed=1)
    assert sorted([*shuffled.lengths(), *rest.lengths()]) == [1, 2, 3, 5]
    assert_same(shuffled, demos.split(2, seed=1)[0])
    for wrong in (0, 4, 0.01, 1.0, -1):
        with pytest.raises(ti.DemoError, match="both sides"):
            demos.split(wrong)
    with pytest.raises(ti.DemoError, match="between 1 and 4"):
        demos.take(5)
    with pytest.raises(ti.DemoError, match="no rewards"):
        make(rewards=None).take(1, "best")


@given(lengths_of_episodes, st.integers(1, 4), st.integers(0, 2))
def test_subsampling_keeps_the_true_times_and_successors(lengths: tuple[int, ...], every: int, offset: int) -> None:
    demos = make(lengths)
    if offset >= min(lengths):
        with pytest.raises(ti.DemoError, match=f"episode {lengths.index(min(lengths))} has {min(lengths)} step"):
            demos.subsample(every, offset)
        return
    fewer = demos.subsample(every, offset)
    assert_sound(fewer)
    kept = [np.arange(offset, length, every) for length in lengths]
    np.testing.assert_array_equal(fewer.times, np.concatenate(kept))
    rows = np.concatenate(
        [times + end - length for times, end, length in zip(kept, demos.episode_ends, lengths, strict=True)]
    )
    for name in ("observations", "actions", "next_observations", "rewards", "states"):
        np.testing.assert_array_equal(getattr(fewer, name), getattr(demos, name)[rows])
    np.testing.assert_allclose(fewer.discount_weights(0.9), 0.9 ** np.concatenate(kept))
    np.testing.assert_array_equal(fewer.subsample(1).times, fewer.times)


def test_successors_are_those_that_are_known() -> None:
    obs = np.arange(7.0)[:, None]
    demos = Demos.from_numpy(obs, np.zeros(7, int), [4, 7])
    index, after = demos.successors()
    np.testing.assert_array_equal(index, [0, 1, 2, 4, 5])  # what followed an episode's last step was not seen
    np.testing.assert_array_equal(after[:, 0], index + 1)
    index, after = demos[1].successors()
    np.testing.assert_array_equal(after[:, 0], [5, 6])
    index, _ = demos.subsample(2).successors()
    assert len(index) == 0  # the rows beside each other do not follow each other
    known = Demos.from_numpy(obs, np.zeros(7, int), [4, 7], next_observations=obs + 0.5)
    index, after = known.subsample(3).successors()
    np.testing.assert_array_equal(after[:, 0], [0.5, 3.5, 4.5])


def test_weights_by_hand() -> None:
    demos = make((2, 3), terminated=[True, True])
    np.testing.assert_array_equal(demos.time_in_episode(), [0, 1, 0, 1, 2])
    np.testing.assert_array_equal(demos.discount_weights(None), np.ones(5))
    np.testing.assert_allclose(demos.discount_weights(0.5), [1, 0.5, 1, 0.5, 0.25])
    np.testing.assert_array_equal(demos.absorbing_weights(10), [8, 7])
    np.testing.assert_array_equal(demos.absorbing_weights(3), [1, 0])  # the limit ended the second one
    np.testing.assert_allclose(demos.absorbing_weights(10, 0.5), [0.25 / 0.5, 0.125 / 0.5])
    np.testing.assert_array_equal(make((2, 3), terminated=[False, False]).absorbing_weights(10), [0, 0])


def test_a_discounted_episode_that_ended_weighs_as_much_as_one_that_never_ends() -> None:
    demos = make((6,), terminated=[True])
    total = demos.discount_weights(0.8).sum() + demos.absorbing_weights(99, 0.8).sum()
    assert total == pytest.approx(1 / 0.2)


def test_subsampling_leaves_the_share_of_the_absorbing_state_as_it_was() -> None:
    demos = make((101,), terminated=[True])
    for discount in (None, 0.97):
        shares = []
        for part in (demos, demos.subsample(20)):
            lived, after = part.discount_weights(discount).sum(), part.absorbing_weights(400, discount).sum()
            shares.append(after / (lived + after))
        assert shares[0] == pytest.approx(shares[1], rel=1e-9)  # the last step, 100, was kept


def test_statistics_are_exact_and_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trustirl.demos.checks.PIECE", 8)
    observations = np.random.default_rng(0).normal(1e4, 1e-2, size=(100, 3)).astype(np.float32)
    mean, deviation = Demos.from_numpy(observations, np.zeros(100)).statistics()
    np.testing.assert_allclose(mean, observations.astype(np.float64).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(deviation, observations.astype(np.float64).std(axis=0), rtol=1e-9)


def test_concatenation_keeps_what_all_know() -> None:
    whole, plain = make(), make(rewards=None, states=None, provenance={"env_id": "Other-v0"})
    both = Demos.concatenate([whole, plain, whole.subsample(1)])
    assert_sound(both)
    assert len(both) == 9
    assert both.rewards is None
    assert both.states is None
    np.testing.assert_array_equal(both.next_observations[11:22], plain.next_observations)
    np.testing.assert_array_equal(both.times, np.tile(whole.time_in_episode(), 3))
    assert both.provenance["parts"][1] == {"env_id": "Other-v0"}
    with pytest.raises(ti.DemoError, match="observations of one shape"):
        Demos.concatenate([whole, make(observations=np.zeros((11, 2)), final_observations=None)])
    with pytest.raises(ti.DemoError, match="actions of one shape and kind"):
        Demos.concatenate([whole, make(actions=np.zeros((11, 2), int))])
    with pytest.raises(ti.DemoError, match="at least one"):
        Demos.concatenate([])


def test_the_hash_covers_what_training_reads() -> None:
    demos = make()
    assert demos.content_hash() == make(rewards=np.zeros(11), provenance={}).content_hash()
    changes: list[dict[str, Any]] = [
        {"observations": demos.observations + np.float32(1e-3)},
        {"observations": demos.observations.astype(np.float64)},
        {"actions": -demos.actions},
        {"episode_ends": [5, 6, 11]},
        {"terminated": [False, False, True]},
        {"final_observations": np.zeros((3, 3), np.float32)},
        {"final_observations": None},
        {"states": None},
    ]
    hashes = {demos.content_hash(), demos.subsample(1).content_hash(), *(make(**c).content_hash() for c in changes)}
    assert len(hashes) == 2 + len(changes)


def test_the_hash_of_plain_demonstrations_is_what_it_was() -> None:
    """Run folders of earlier versions hold it."""
    demos = Demos.from_numpy(np.arange(6.0).reshape(3, 2), np.array([0, 1, 0]), [1, 3], [True, False])
    assert demos.content_hash() == "d6b7b7f3ea6e0689b92323548f97ac17265055f90f17999886ce78072f7d0c1f"


def test_discrete_actions_must_be_said_and_whole() -> None:
    floats = make(actions=np.arange(11.0)[:, None])
    discrete = floats.with_discrete_actions()
    assert discrete.actions.dtype == np.int64
    np.testing.assert_array_equal(discrete.actions, np.arange(11))
    assert not discrete.actions.flags.writeable
    for wrong in (np.full(11, 0.5), np.zeros((11, 2))):
        with pytest.raises(ti.DemoError, match="one whole number per step"):
            make(actions=wrong).with_discrete_actions()


@pytest.mark.parametrize("source", ["demos.txt", "packaged", ".", "minari:no-version", "minari:../../etc/x-v0"])
def test_what_is_no_source_of_demonstrations_is_refused(source: str) -> None:
    with pytest.raises(ti.DemoError, match=re.escape(source.removeprefix("minari:"))):
        Demos.load(source)
