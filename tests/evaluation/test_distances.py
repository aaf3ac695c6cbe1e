"""Distances between rewards on cases whose answer is known: shaping and scale are nothing, negation is the most."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from trustirl.core.mdp import MDP
from trustirl.evaluation.distances import (
    all_transitions,
    best_policy,
    correlation,
    dard,
    distance,
    epic,
    expected,
    paid,
    rank_correlation,
    ranks,
    regret,
    sampled_dard,
    sampled_epic,
    sampled_starc,
    starc,
    waves,
)
from trustirl.tasks.registry import make_task

RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module")
def mdp() -> MDP:
    return make_task("random-mdp", {"states": 7, "actions": 3, "successors": 3}).mdp


def apart(mdp: MDP, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """All distances, on all transitions."""
    steps, pairs = all_transitions(mdp), np.ones(mdp.states * mdp.actions)
    return {
        "pearson": float(distance(paid(x, steps), paid(y, steps), steps.weight)),
        "epic": float(distance(*(epic(r, steps, float(mdp.discount)) for r in (x, y)), steps.weight)),
        "dard": float(distance(*(dard(r, steps, mdp) for r in (x, y)), steps.weight)),
        "starc": float(distance(starc(x, mdp), starc(y, mdp), pairs, centred=False)),
    }


def shaped(reward: np.ndarray, mdp: MDP, potential: np.ndarray) -> np.ndarray:
    """r(s, a, s') + g f(s') - f(s), as a table of all three."""
    whole = reward[:, :, None] if reward.ndim == 2 else reward
    return whole + float(mdp.discount) * potential[None, None, :] - potential[:, None, None]


@pytest.mark.parametrize("inputs", ["pairs", "transitions"])
def test_potentials_scale_and_shift_are_nothing_and_negation_is_the_most(mdp: MDP, inputs: str) -> None:
    following = (mdp.states,) if inputs == "transitions" else ()
    reward, potential = RANDOM.normal(size=(mdp.states, mdp.actions, *following)), RANDOM.normal(size=mdp.states)
    alike = 3.0 * shaped(reward, mdp, 5 * potential) + 2.0
    found = apart(mdp, reward, alike)
    assert found["pearson"] > 0.2  # which is why the others are needed
    for name in ("epic", "dard", "starc"):
        assert found[name] == pytest.approx(0, abs=1e-5)
    opposed = apart(mdp, reward, -shaped(reward, mdp, potential))
    for name in ("epic", "dard", "starc"):
        assert opposed[name] == pytest.approx(1, abs=1e-5)


def test_only_starc_sees_through_a_mean_over_what_follows(mdp: MDP) -> None:
    reward = RANDOM.normal(size=(mdp.states, mdp.actions, mdp.states))
    found = apart(mdp, reward, expected(reward, mdp))
    assert found["starc"] == pytest.approx(0, abs=1e-5)
    assert min(found["epic"], found["dard"]) > 0.1


def test_distances_lie_between_are_symmetric_and_keep_the_triangle(mdp: MDP) -> None:
    x, y, z = RANDOM.normal(size=(3, mdp.states, mdp.actions))
    between = {pair: apart(mdp, *pair_of) for pair, pair_of in (("xy", (x, y)), ("yz", (y, z)), ("xz", (x, z)))}
    back = apart(mdp, y, x)
    for name in back:
        assert 0.05 < between["xy"][name] < 0.95
        assert between["xy"][name] == pytest.approx(back[name], abs=1e-9)
        assert between["xz"][name] <= between["xy"][name] + between["yz"][name] + 1e-9


def test_a_reward_that_says_nothing_is_half_way_to_all_that_say_something(mdp: MDP) -> None:
    reward, potential = RANDOM.normal(size=(mdp.states, mdp.actions)), RANDOM.normal(size=mdp.states)
    for empty in (np.zeros_like(reward), np.full_like(reward, 7.3), shaped(np.zeros_like(reward), mdp, potential)):
        found, none = apart(mdp, reward, empty), apart(mdp, empty, np.zeros_like(reward))
        for name in ("epic", "dard", "starc"):
            assert found[name] == pytest.approx(0.5, abs=1e-6)
            assert none[name] == pytest.approx(0, abs=1e-6)


def test_epic_and_dard_are_the_sums_of_their_definitions(mdp: MDP) -> None:
    reward, g = RANDOM.normal(size=(mdp.states, mdp.actions, mdp.states)), float(mdp.discount)
    steps, states, actions = all_transitions(mdp), range(mdp.states), range(mdp.actions)
    kernel = np.zeros((mdp.states, mdp.actions, mdp.states))
    for s, a, slot in product(states, actions, range(3)):
        kernel[s, a, mdp.successors[s, a, slot]] += mdp.probabilities[s, a, slot]
    row = 11
    s, a, after = steps.state[row], steps.action[row], steps.following[row]
    independent = [
        g * reward[after, act, end] - reward[s, act, end] - g * reward[begin, act, end]
        for begin, act, end in product(states, actions, states)
    ]
    assert epic(reward, steps, g)[row] == pytest.approx(reward[s, a, after] + np.mean(independent), abs=1e-5)
    possible = sum(
        kernel[s, act, one]
        * kernel[after, act, two]
        * (g * reward[after, act, two] - reward[s, act, one] - g * reward[one, act, two])
        for act, one, two in product(actions, states, states)
    )
    assert dard(reward, steps, mdp)[row] == pytest.approx(reward[s, a, after] + possible / mdp.actions, abs=1e-5)


def test_correlations_are_those_of_scipy() -> None:
    x, y = RANDOM.normal(size=(2, 60))
    x[:20] = x[0]  # equal values share their rank
    weight = np.ones(60)
    assert correlation(x, y, weight) == pytest.approx(pearsonr(x, y).statistic)
    assert rank_correlation(x, y, weight) == pytest.approx(spearmanr(x, y).statistic)
    assert distance(x, y, weight) == pytest.approx(math.sqrt((1 - pearsonr(x, y).statistic) / 2))
    assert correlation(x, np.ones(60), weight) == 0
    np.testing.assert_array_equal(ranks(np.array([3.0, 1.0, 3.0, 2.0])), [2.5, 0.0, 2.5, 1.0])


def test_every_row_of_weights_is_a_resample_of_its_own() -> None:
    x, y = RANDOM.normal(size=(2, 40)) + 100
    counts = RANDOM.integers(0, 3, size=(5, 40)).astype(float)
    for row, value in zip(counts, distance(x, y, counts), strict=True):
        drawn = np.repeat(np.arange(40), row.astype(int))
        assert value == pytest.approx(distance(x[drawn], y[drawn], np.ones(len(drawn))), abs=1e-9)


def test_regret_is_none_for_the_judge_and_all_for_chance(mdp: MDP) -> None:
    reward, potential = RANDOM.normal(size=(mdp.states, mdp.actions)), RANDOM.normal(size=mdp.states)
    assert regret(mdp, reward, reward) == pytest.approx(0, abs=1e-9)
    assert regret(mdp, 2 * expected(shaped(reward, mdp, potential), mdp), reward) == pytest.approx(0, abs=1e-9)
    assert regret(mdp, np.zeros_like(reward), reward) == pytest.approx(1, abs=1e-9)
    assert regret(mdp, -reward, reward) > 1  # worse than chance
    assert math.isnan(regret(mdp, reward, np.ones_like(reward)))


def test_the_best_policy_is_none_worse_than_any_other() -> None:
    task = make_task("chain", {"length": 3})
    np.testing.assert_array_equal(best_policy(task.mdp, task.true_reward), [[0, 1], [0, 1], [0.5, 0.5]])


def test_samples_agree_with_what_is_exact() -> None:
    """A plane in which actions are moves: a state-only reward, its shaping, and another reward."""
    obs, action = RANDOM.normal(size=(2, 500, 2))
    rows, g = (obs, action, obs + 0.3 * action), 0.9

    def reward(s: np.ndarray, a: np.ndarray, after: np.ndarray) -> np.ndarray:
        return np.sin(s[:, 0]) + 0.1 * a[:, 1]

    def potential(s: np.ndarray) -> np.ndarray:
        return 3 * s[:, 0] - 2 * np.cos(s[:, 1])

    def alike(s: np.ndarray, a: np.ndarray, after: np.ndarray) -> np.ndarray:
        return 2 * (reward(s, a, after) + g * potential(after) - potential(s)) - 1

    def opposed(s: np.ndarray, a: np.ndarray, after: np.ndarray) -> np.ndarray:
        return -alike(s, a, after)

    tried = RANDOM.normal(size=(500, 4, 2))
    tried = tried, rows[0][:, None] + 0.3 * tried, rows[2][:, None] + 0.3 * tried
    others, weight = np.arange(100), np.ones(500)
    features = waves(rows[0], rows[2], 200)
    for other, wanted in ((alike, 0.0), (opposed, 1.0)):
        found = [sampled_epic(pays, rows, others, g) for pays in (reward, other)]
        assert distance(*found, weight) == pytest.approx(wanted, abs=1e-4)
        found = [sampled_dard(pays, rows, tried, g) for pays in (reward, other)]
        assert distance(*found, weight) == pytest.approx(wanted, abs=1e-4)
        assert (distance(reward(*rows), other(*rows), weight) - wanted) ** 2 > 0.02
        left = [sampled_starc(pays(*rows), *features, g) for pays in (reward, other)]
        assert distance(*left, weight, centred=False) == pytest.approx(wanted, abs=0.05)
