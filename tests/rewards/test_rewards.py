"""Learned rewards as things that people load and call: kinds, what a kind needs, sentences, folders of before."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import trustirl as ti
from trustirl.core.files import write_json
from trustirl.core.spaces import Finite, Spaces
from trustirl.core.trees import check_sizes
from trustirl.core.types import Transition
from trustirl.nets.rewards import TableReward, expected_reward_factory, numbered_transitions
from trustirl.rewards.kinds import KINDS, TableCard
from trustirl.rewards.reward import LearnedReward
from trustirl.rewards.saved import load_rewards, save_rewards
from trustirl.rollouts.spaces import SpacesCard
from trustirl.runs.folder import RunFolder

LOW, HIGH = np.full(1, -2, np.float32), np.full(1, 2, np.float32)
PENDULUM = Spaces(name="Pendulum-v1", obs_dim=3, action_dim=1, discrete=False, action_low=LOW, action_high=HIGH)
CARTPOLE = Spaces(name="CartPole-v1", obs_dim=4, action_dim=2, discrete=True)


class Advantage(eqx.Module):
    """A reward of the kind that a critic leaves: Q(s) - g m V(s'), both linear."""

    slope: Float[Array, " obs"]
    needs: ClassVar[tuple[str, ...]] = ("action", "next_obs", "terminated")

    def __call__(self, batch: Transition) -> Float[Array, "..."]:
        return batch.obs @ self.slope - jnp.where(batch.terminated, 0.0, 0.5 * batch.next_obs @ self.slope)


@dataclass(frozen=True, kw_only=True)
class AdvantageCard:
    kind: Literal["advantage"] = "advantage"
    spaces: SpacesCard
    seeds: int

    def check(self, arrays: Mapping[str, np.ndarray], where: Path) -> None:
        check_sizes(arrays, where, self.seeds, 1, obs_dim=self.spaces.obs_dim)

    def make(self, key: Array) -> Advantage:
        return Advantage(jnp.zeros(self.spaces.obs_dim, jnp.float32))

    def reward(self, function: Advantage) -> LearnedReward:
        return LearnedReward(function, self.spaces.spaces)


@pytest.fixture
def advantage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LearnedReward:
    """Another kind takes a card and an entry, nothing else."""
    monkeypatch.setitem(KINDS, "advantage", AdvantageCard)
    slopes = Advantage(jnp.asarray([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]], jnp.float32))
    save_rewards(tmp_path, slopes, AdvantageCard(spaces=SpacesCard.of(PENDULUM), seeds=2))
    first, second = load_rewards(tmp_path)
    assert second(np.ones(3), [0.0], np.ones(3), False) == 0
    return first


def test_what_follows_is_handed_over_where_it_counts(advantage: LearnedReward) -> None:
    obs, after = np.eye(3), 2 * np.eye(3)
    rewards = advantage(obs, np.zeros((3, 1)), after, [False, True, False])
    np.testing.assert_array_equal(rewards, [1.0 - 1.0, 2.0, 3.0 - 3.0])
    np.testing.assert_array_equal(advantage(obs, np.zeros((3, 1)), after, True), [1.0, 2.0, 3.0])
    assert advantage(obs[1], [0.0], obs[0], False) == 1.5


@pytest.mark.parametrize(
    ("following", "missing"),
    [((), "next_obs and terminated"), ((np.eye(3),), "terminated"), ((None, True), "next_obs")],
)
def test_a_reward_says_what_it_was_not_given(advantage: LearnedReward, following: Any, missing: str) -> None:
    with pytest.raises(ti.InputError, match=rf"depends on {missing}: call reward\(obs, action, next_obs, terminated"):
        advantage(np.eye(3), np.zeros((3, 1)), *following)


def test_other_numbers_of_rows_are_refused(advantage: LearnedReward) -> None:
    obs, action = np.eye(3), np.zeros((3, 1))
    with pytest.raises(ti.InputError, match="one next_obs per observation, got 2 and 3"):
        advantage(obs, action, obs[:2], False)
    with pytest.raises(ti.InputError, match="one terminated per observation, got 2 and 3"):
        advantage(obs, action, obs, [False, True])
    with pytest.raises(ti.InputError, match="one action per observation, got 2 and 3"):
        advantage(obs, action[:2], obs, False)


def test_a_wrapped_environment_hands_over_what_followed(advantage: LearnedReward) -> None:
    env = advantage.wrap(gym.make("Pendulum-v1"))
    obs, _ = env.reset(seed=0)
    after, reward, *_ = env.step(np.zeros(1, np.float32))
    assert reward == pytest.approx(np.dot([1, 2, 3], obs - 0.5 * after), rel=1e-5)


def test_a_kind_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "reward.json", {"kind": "oracle"})
    with pytest.raises(ti.InputError, match=r"kind of reward, 'oracle', that is not known"):
        load_rewards(tmp_path)


def numbered() -> LearnedReward:
    with ti.double_precision():
        return LearnedReward(TableReward(jnp.arange(6.0).reshape(3, 2)), Finite(3, 2))


def test_a_table_answers_in_the_shape_of_its_states() -> None:
    reward = numbered()
    np.testing.assert_array_equal(reward.table(), [[0, 1], [2, 3], [4, 5]])
    assert reward.table().dtype == np.float64
    assert reward(2, 1) == 5
    np.testing.assert_array_equal(reward([[0], [2]], 1), [[1], [5]])
    with pytest.raises(ti.InputError, match="one action per state"):
        reward([0, 1, 2], [0, 1])


def test_what_a_world_does_not_have_is_said_in_a_sentence() -> None:
    with pytest.raises(
        ti.InputError, match=r"learned for 3 numbered states and 2 actions, and CartPole-v1 has .* reward\.table\(\)"
    ):
        numbered().wrap(gym.make("CartPole-v1"))
    with pytest.raises(ti.InputError, match="reward of Pendulum-v1 has no table"):
        LearnedReward(lambda batch: batch.obs[:, 0], PENDULUM).table()


def test_a_reward_of_transitions_is_its_mean_over_what_may_follow() -> None:
    """r(s, a) = sum_k P(s_k|s, a) r(s, s_k), where transitions that several actions share are paid alike."""
    random = np.random.default_rng(0)
    successors = random.integers(4, size=(4, 3, 2))
    probabilities = random.dirichlet([1, 1], size=(4, 3))
    features = random.normal(size=(4, 2))
    numbers, both = numbered_transitions(successors, features)
    assert len(both) == len({(s, after) for s in range(4) for after in successors[s].ravel()})
    with ti.double_precision():
        made = expected_reward_factory("linear", both, numbers, probabilities)(jax.random.key(0))
        slope = np.asarray(made.model.model.weight)[0]
        paid = LearnedReward(made, Finite(4, 3)).table()
    for state, action in np.ndindex(4, 3):
        follow = [np.concatenate([features[state], features[after]]) @ slope for after in successors[state, action]]
        assert paid[state, action] == pytest.approx(probabilities[state, action] @ follow)


@pytest.mark.parametrize("kind", ["table", "linear", "mlp"])
def test_a_reward_of_transitions_comes_back_from_a_folder(kind: Any, tmp_path: Path) -> None:
    numbers, both = numbered_transitions(np.arange(8).reshape(4, 2, 1) % 4, np.eye(4))
    sizes = {"states": 4, "actions": 2, "features": 8, "transitions": len(both), "successors": 1}
    card = TableCard(kind=kind, reward_inputs="transition", width=64, depth=2, seeds=2, **sizes)
    with ti.double_precision():
        make = expected_reward_factory(kind, both, numbers, np.ones((4, 2, 1)))
        stacked = eqx.filter_vmap(make)(jax.random.split(jax.random.key(0), 2))
        save_rewards(tmp_path, stacked, card)
        pairs = Transition(*jnp.indices((4, 2)), jnp.ones((4, 2)))
        expected = eqx.filter_vmap(lambda reward: reward(pairs))(stacked)
    tables = [reward.table() for reward in load_rewards(tmp_path)]
    np.testing.assert_allclose(tables, expected)
    assert np.std(tables) > 0


@pytest.mark.slow
def test_the_exact_world_learns_rewards_of_transitions(tmp_path: Path) -> None:
    run = ti.train("ml-irl", task="chain", steps=10, seeds=1, reward_inputs="transition", out=tmp_path / "run")
    ell = [row["ell"] for row in RunFolder(tmp_path / "run").metrics()]
    assert ell[-1] > ell[0]
    assert run.reward.table().std() > 0
