"""Rewards that are read off values and policies: against NumPy, from a folder, and cards that lie."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.compiled import compiled
from trustirl.core.errors import InputError
from trustirl.core.spaces import Spaces
from trustirl.core.types import Transition
from trustirl.nets.agent_rewards import LogRatioReward, ValueReward, log_ratio_reward, value_reward
from trustirl.nets.critics import DiscreteQEnsemble, QEnsemble
from trustirl.nets.policies import GaussianActor, StationaryActor
from trustirl.rewards.kinds import card_of
from trustirl.rewards.saved import load_rewards, save_rewards

LOW, HIGH = np.full(2, -2, np.float32), np.full(2, 2, np.float32)
BOX = Spaces(name="Box-v0", obs_dim=3, action_dim=2, discrete=False, action_low=LOW, action_high=HIGH)
CHOICE = Spaces(name="Choice-v0", obs_dim=3, action_dim=4, discrete=True)
MEAN, STD = np.float32([1.0, -2.0, 0.5]), np.float32([2.0, 0.5, 0.0])
TEMPERATURE, DISCOUNT, SEEDS = 0.3, 0.9, 2


def moved(tree: Any, seed: int) -> Any:
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + random.normal(0, 0.2, x.shape).astype(np.float32), tree)


def values(spaces: Spaces, key: jax.Array, layer_norm: bool = False) -> ValueReward:
    sizes = spaces.obs_dim, spaces.action_dim, 8, 1
    if spaces.discrete:
        critic = DiscreteQEnsemble(*sizes, 2, key, layer_norm)
        return value_reward(critic, None, TEMPERATURE, MEAN, STD, DISCOUNT)
    actor, continuous = GaussianActor(*sizes, key), QEnsemble(*sizes, 2, key, layer_norm)
    return value_reward(continuous, actor, TEMPERATURE, MEAN, STD, DISCOUNT)


def ratio(key: jax.Array, actor: Any = StationaryActor) -> LogRatioReward:
    return log_ratio_reward(moved(actor(BOX.obs_dim, BOX.action_dim, 8, 1, key), 0), MEAN, STD, 0.5)


def transitions(spaces: Spaces, count: int = 20) -> Transition:
    random = np.random.default_rng(1)
    obs, after = (jnp.asarray(random.normal(size=(count, 3)), jnp.float32) for _ in range(2))
    action: Any = random.integers(4, size=count) if spaces.discrete else random.uniform(-0.9, 0.9, (count, 2))
    action = jnp.asarray(action, jnp.int32 if spaces.discrete else jnp.float32)
    return Transition(obs, action, jnp.ones(count), after, jnp.arange(count) % 3 == 0)


def forward(net: Any, member: int, x: np.ndarray) -> np.ndarray:
    *hidden, last = [
        (np.asarray(layer.weight, float)[member], np.asarray(layer.bias, float)[member]) for layer in net
    ]
    for weight, bias in hidden:
        x = np.maximum(x @ weight.T + bias, 0)
    return x @ last[0].T + last[1]


def standardised(obs: Any) -> np.ndarray:
    return (np.asarray(obs, float) - MEAN) / np.where(STD > 0, STD, 1)


def test_values_of_finitely_many_actions() -> None:
    reward, batch = compiled(lambda key: values(CHOICE, key), jax.random.key(0)), transitions(CHOICE)

    def q(obs: Any) -> np.ndarray:
        return np.min([forward(reward.critic.nets.layers, member, standardised(obs)) for member in range(2)], axis=0)

    paid = q(batch.obs)[np.arange(20), np.asarray(batch.action)]
    after = TEMPERATURE * np.log(np.exp(q(batch.next_obs) / TEMPERATURE).sum(axis=1))
    expected = paid - DISCOUNT * np.where(batch.terminated, 0, after)
    np.testing.assert_allclose(compiled(reward, batch), expected, atol=1e-5)


def test_values_of_continuous_actions() -> None:
    reward, batch = compiled(lambda key: values(BOX, key), jax.random.key(0)), transitions(BOX)
    assert reward.actor is not None
    assert reward.noise is not None

    def q(obs: Any, action: Any) -> np.ndarray:
        x = np.concatenate([standardised(obs), action], axis=1)
        return np.min([forward(reward.critic.nets.layers, member, x)[:, 0] for member in range(2)], axis=0)

    stacked = jax.tree.map(lambda x: x[None], reward.actor.net.layers)
    outputs = forward(stacked, 0, standardised(batch.next_obs))
    drawn = []
    for noise in np.asarray(reward.noise, float):
        action = np.tanh(outputs[:, :2] + np.exp(outputs[:, 2:]) * noise)
        density = np.exp(-(noise**2) / 2) / np.sqrt(2 * np.pi) / np.exp(outputs[:, 2:]) / (1 - action**2)
        drawn.append(q(batch.next_obs, action) - TEMPERATURE * np.log(density).sum(axis=1))
    assert len(drawn) == 16
    expected = q(batch.obs, batch.action) - DISCOUNT * np.where(batch.terminated, 0, np.mean(drawn, axis=0))
    np.testing.assert_allclose(compiled(reward, batch), expected, atol=1e-4)
    with pytest.raises(InputError, match="reward of values needs transitions with next_obs and terminated"):
        reward(eqx.tree_at(lambda rows: rows.next_obs, batch, None))


@pytest.mark.parametrize("actor", [GaussianActor, StationaryActor])
def test_a_log_ratio_is_what_the_policy_prefers_to_uniform_actions(actor: Any) -> None:
    reward, batch = compiled(ratio, jax.random.key(0), actor), transitions(BOX)
    policy = compiled(reward.actor, jnp.asarray(standardised(batch.obs), jnp.float32))
    deviation, u = np.exp(np.asarray(policy.log_std, float)), np.arctanh(np.asarray(batch.action, float))
    density = np.exp(-(((u - policy.mean) / deviation) ** 2) / 2) / np.sqrt(2 * np.pi) / deviation
    ratios = density / (1 - np.asarray(batch.action, float) ** 2) / 0.5
    np.testing.assert_allclose(compiled(reward, batch), 0.5 * np.log(ratios).sum(axis=1), atol=1e-3)


def test_only_the_policy_of_a_log_ratio_is_trained() -> None:
    batch, reward = transitions(BOX), compiled(ratio, jax.random.key(0))
    gradient = compiled(jax.grad(lambda reward: reward(batch).sum()), reward)
    np.testing.assert_array_equal(np.stack([gradient.mean, gradient.std]), 0)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient.actor))


MAKERS: dict[str, tuple[Spaces, Callable[[jax.Array], Any]]] = {
    "discrete": (CHOICE, lambda key: values(CHOICE, key)),
    "continuous": (BOX, lambda key: values(BOX, key, layer_norm=True)),
    "log-ratio": (BOX, ratio),
    "plain log-ratio": (BOX, lambda key: ratio(key, GaussianActor)),
}


@cache
def made(name: str) -> Any:
    """A reward for every seed."""
    return compiled(eqx.filter_vmap(MAKERS[name][1]), jax.random.split(jax.random.key(0), SEEDS))


@pytest.fixture(params=MAKERS)
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Spaces, Any]:
    spaces, stacked = MAKERS[request.param][0], made(request.param)
    save_rewards(tmp_path, stacked, card_of(stacked, spaces, 0.5, "T2"))
    return tmp_path, spaces, stacked


def test_a_saved_reward_is_the_one_in_memory(saved: tuple[Path, Spaces, Any]) -> None:
    folder, spaces, stacked = saved
    batch = transitions(spaces)
    action = np.asarray(batch.action) * (1 if spaces.discrete else 2)
    paid = [reward(batch.obs, action, batch.next_obs, batch.terminated) for reward in load_rewards(folder)]
    expected = compiled(eqx.filter_vmap(lambda reward: reward(batch)), stacked)
    np.testing.assert_allclose(paid, expected, atol=1e-4)
    assert not np.allclose(paid[0], paid[1])


@pytest.mark.parametrize(
    ("saved", "name", "value"),
    [
        *[("continuous", name, 10**9) for name in ("width", "depth", "critics")],
        *[("continuous", "discount", 1), ("continuous", "layer_norm", 3), ("discrete", "critics", 0)],
        *[("log-ratio", "seeds", 3), ("log-ratio", "head", "oracle"), ("log-ratio", "head", "gaussian")],
        *[("log-ratio", "scale", 0), ("log-ratio", "scale", 1e300), ("log-ratio", "width", 10**9)],
    ],
    indirect=["saved"],
)
def test_cards_that_lie_are_refused(saved: tuple[Path, Spaces, Any], name: str, value: Any) -> None:
    folder, _, _ = saved
    card = json.loads((folder / "reward.json").read_text())
    (folder / "reward.json").write_text(json.dumps(card | {name: value}))
    with pytest.raises(InputError, match=r"reward\.\w+ .*(restore it|was it changed)"):
        load_rewards(folder)


def test_a_log_ratio_of_discrete_actions_is_refused(tmp_path: Path) -> None:
    stacked = made("log-ratio")
    save_rewards(tmp_path, stacked, card_of(stacked, CHOICE, 0.5, "T0"))
    with pytest.raises(InputError, match="log-ratio of discrete actions"):
        load_rewards(tmp_path)


def test_a_reward_without_a_card_cannot_be_saved() -> None:
    with pytest.raises(InputError, match="MLP cannot be saved"):
        card_of(eqx.nn.MLP(1, 1, 1, 1, key=jax.random.key(0)), BOX, 0.9, "T0")
