"""The network reward of Gymnasium tasks: where it lies, and that its gradient reaches everywhere."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import trustirl as ti
from tests.control.small import SETTINGS, cartpole_demo
from trustirl.core.errors import DemoError, InputError
from trustirl.core.spaces import Termination
from trustirl.core.types import Transition
from trustirl.demos.schema import Demos
from trustirl.nets.mlp import standardiser
from trustirl.nets.rewards import NetworkReward, RewardInputs, network_reward_factory
from trustirl.rewards.kinds import NetworkCard
from trustirl.rewards.reward import LearnedReward
from trustirl.rewards.saved import load_rewards, save_rewards
from trustirl.rollouts.spaces import SpacesCard
from trustirl.tasks.gym import make_control_task
from trustirl.worlds.matching import standards


def pairs(scale: float, count: int = 200) -> Transition:
    rng = np.random.default_rng(0)
    obs, action = (jnp.asarray(scale * rng.normal(size=(count, size)), jnp.float32) for size in (5, 2))
    return Transition(obs, action, jnp.ones(count))


def reward(gain: float) -> NetworkReward:
    """A random one, whose network's outputs are multiplied by `gain`."""
    made = network_reward_factory(pairs(1.0), 0, "state-action", 16, 2, 10.0)(jax.random.key(0))
    last = lambda net: net.network.layers[-1].weight  # noqa: E731
    return eqx.tree_at(last, made, gain * jax.random.normal(jax.random.key(1), last(made).shape, jnp.float32))


def test_a_new_reward_is_zero_everywhere() -> None:
    made = network_reward_factory(pairs(1.0), 0, "state-action", 16, 2, 10.0)(jax.random.key(0))
    np.testing.assert_allclose(made(pairs(30.0)), 0.0, atol=1e-6)


def test_goals_that_no_demonstration_reached_for_stay_apart() -> None:
    """A column that is constant in the demonstrations is not scaled, for rewards and for policies alike."""
    plain = pairs(1.0)
    shown = eqx.tree_at(lambda rows: rows.obs, plain, plain.obs.at[:, 2].set(1000.1).at[:, 3].multiply(1e-4))
    made = network_reward_factory(shown, 0, "state-action", 16, 2, 10.0)(jax.random.key(0))
    np.testing.assert_array_equal(made.std[2:4], np.float32([1.0, 1e-2]))
    np.testing.assert_array_equal(made.mean[2], np.float32(1000.1))
    demos = Demos.from_numpy(np.asarray(shown.obs), np.asarray(shown.action))
    mean, deviation = standards(demos)
    np.testing.assert_array_equal(deviation[2:4], np.float32([1.0, 1e-2]))
    np.testing.assert_array_equal(mean[2], np.float32(1000.1))
    np.testing.assert_allclose(deviation, made.std[:5], rtol=1e-5)
    seen = standardiser(mean, deviation)(jnp.zeros((2, 5)).at[:, 2].set(jnp.asarray([1000.5, 1001.0])))
    assert seen[0, 2] != seen[1, 2]


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_rewards_keep_their_bounds_far_from_all_that_was_shown(sign: float) -> None:
    values = sign * np.asarray(reward(30.0 * sign)(pairs(100.0)))
    assert 9.0 < values.max() <= 10.0
    assert values.min() >= -10.0


def test_the_gradient_of_a_reward_is_that_of_finite_differences() -> None:
    made, batch = reward(1.0), pairs(1.0, 20)
    direction = jax.random.normal(jax.random.key(2), made.network.layers[0].weight.shape)

    def total(size: Array) -> Array:
        first = lambda net: net.network.layers[0].weight  # noqa: E731
        return eqx.tree_at(first, made, first(made) + size * direction)(batch).sum()

    slope = jax.grad(total)(jnp.zeros(()))
    np.testing.assert_allclose(slope, (total(jnp.asarray(1e-3)) - total(jnp.asarray(-1e-3))) / 2e-3, rtol=0.02)


def test_rewards_are_those_of_their_inputs_and_have_a_slope_there() -> None:
    made, batch = (
        reward(1.0),
        eqx.tree_at(lambda rows: rows.absorbing, pairs(1.0, 20), jnp.arange(20) == 3, is_leaf=lambda x: x is None),
    )
    inputs = made.inputs(batch)
    joined = np.concatenate([batch.obs, batch.action], axis=1)
    standardised = (joined - made.mean) / made.std
    np.testing.assert_allclose(inputs[:, :-1], np.where(np.arange(20)[:, None] == 3, 0.0, standardised), atol=1e-6)
    np.testing.assert_array_equal(inputs[:, -1], np.arange(20) == 3)
    np.testing.assert_array_equal(made.of(inputs), made(batch))
    slope, step = jax.vmap(jax.grad(made.of))(inputs), 1e-2 * np.eye(8, dtype=np.float32)[0]
    np.testing.assert_allclose(
        slope[:, 0], (made.of(inputs + step) - made.of(inputs - step)) / 2e-2, rtol=0.05, atol=0.02
    )


def saved(tmp_path: Path, made: NetworkReward, inputs: RewardInputs) -> LearnedReward:
    """A reward of Pendulum as it comes back from a folder."""
    sizes: dict[str, Any] = {"seeds": 1, "width": 16, "depth": 2, "bound": 3.0}
    spaces = SpacesCard.of(make_control_task("Pendulum-v1"))
    card = NetworkCard(**sizes, spaces=spaces, reward_inputs=inputs, discount=0.9, termination="T0")
    save_rewards(tmp_path, jax.tree.map(lambda x: x[None] if eqx.is_array(x) else x, made), card)
    return load_rewards(tmp_path)[0]


def pendulum(inputs: RewardInputs) -> tuple[NetworkReward, Transition]:
    """A random reward, and what it was standardised by; actions in [-1, 1], as networks see them."""
    random = np.random.default_rng(1)
    obs, after = (30 * random.normal(size=(50, 3)).astype(np.float32) for _ in range(2))
    action = np.clip(15 * random.normal(size=(50, 1)), -1.0, 1.0).astype(np.float32)
    batch = Transition(jnp.asarray(obs), jnp.asarray(action), jnp.ones(50), jnp.asarray(after))
    made = network_reward_factory(batch, 0, inputs, 16, 2, 3.0)(jax.random.key(0))
    last = lambda net: net.network.layers[-1].weight  # noqa: E731
    return eqx.tree_at(last, made, 3 * jax.random.normal(jax.random.key(1), last(made).shape, jnp.float32)), batch


@pytest.mark.parametrize("inputs", ["state", "state-action", "transition"])
def test_a_saved_reward_pays_the_same(tmp_path: Path, inputs: RewardInputs) -> None:
    made, batch = pendulum(inputs)
    loaded = saved(tmp_path, made, inputs)
    paid = loaded(batch.obs, 2 * np.asarray(batch.action), batch.next_obs)
    assert np.std(paid) > 0.1
    np.testing.assert_allclose(paid, made(batch), rtol=1e-5)


def test_a_reward_of_transitions_sees_what_followed_and_nothing_else(tmp_path: Path) -> None:
    made, batch = pendulum("transition")
    joined = np.concatenate([batch.obs, batch.next_obs], axis=1)
    standardised = (joined - joined.mean(axis=0)) / joined.std(axis=0)
    np.testing.assert_allclose(made.inputs(batch)[:, :-1], standardised, atol=1e-4)
    np.testing.assert_array_equal(made(replace(batch, action=-batch.action)), made(batch))
    assert not np.allclose(made(replace(batch, next_obs=batch.obs)), made(batch))
    with pytest.raises(InputError, match="depends on what followed each step; give transitions with next_obs"):
        made(replace(batch, next_obs=None))
    loaded = saved(tmp_path, made, "transition")
    with pytest.raises(InputError, match="this reward depends on next_obs"):
        loaded(batch.obs, batch.action)
    env = loaded.wrap(gym.make("Pendulum-v1"))
    obs, _ = env.reset(seed=0)
    after, reward, *_ = env.step(np.zeros(1, np.float32))
    assert reward == pytest.approx(loaded(obs, [0.0], after), rel=1e-5)


@pytest.mark.parametrize("inputs", ["state", "state-action"])
def test_rewards_of_earlier_runs_load(tmp_path: Path, inputs: RewardInputs) -> None:
    made, batch = pendulum(inputs)
    saved(tmp_path, made, inputs)
    card = json.loads((tmp_path / "reward.json").read_text())
    del card["reward_inputs"]
    (tmp_path / "reward.json").write_text(json.dumps(card | {"action_inputs": inputs == "state-action"}))
    paid = load_rewards(tmp_path)[0](batch.obs, 2 * np.asarray(batch.action))
    np.testing.assert_allclose(paid, made(batch), rtol=1e-5)


def test_demonstrations_must_tell_what_followed(tmp_path: Path) -> None:
    obs, action = np.zeros((6, 3)), np.zeros((6, 1))
    whole = Demos.from_numpy(obs, action, episode_ends=[3, 6])
    for demos, unknown in ((whole, "2 of 6"), (whole.subsample(2), "4 of 4")):
        with pytest.raises(DemoError, match=f"not known what followed {unknown} demonstrated steps.* reward_inputs"):
            ti.train("piro", task="Pendulum-v1", demos=demos, reward_inputs="transition", out=tmp_path / "run")


@pytest.mark.parametrize("termination", ["T2", pytest.param("T3", marks=pytest.mark.slow)])
def test_a_reward_of_transitions_trains_where_episodes_end_and_loads(
    termination: Termination, tmp_path: Path
) -> None:
    given = cartpole_demo()
    rng = np.random.default_rng(3)
    demos = Demos.from_numpy(
        given.observations,
        given.actions,
        given.episode_ends,
        [True, True],
        next_observations=given.observations + rng.normal(size=given.observations.shape, scale=0.1),
    )
    asked = SETTINGS | {"reward_inputs": "transition", "termination": termination, "seeds": 2, "steps": 260}
    run = ti.train("ml-irl", "CartPole-v1", demos, out=tmp_path / "run", **asked)
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    learned = [row for row in rows if row["iteration"]]
    assert min(row["drift"] for row in learned) > 0
    assert all(np.isfinite(row["gap"]) for row in learned)

    reward, card = ti.load(run.path).reward, json.loads((run.path / "reward.json").read_text())
    assert (card["reward_inputs"], card["termination"]) == ("transition", termination)
    obs, action, after = demos.observations[:5], demos.actions[:5], demos.next_observations[:5]
    paid = reward(obs, action, after, terminated=False)
    np.testing.assert_array_equal(paid, run.reward(obs, action, after, terminated=False))
    np.testing.assert_array_equal(paid, reward(obs, 1 - action, after, terminated=False))
    assert not np.allclose(paid, reward(obs, action, obs, terminated=False))
    ended = reward(obs, action, after, terminated=True) - paid
    if termination == "T2":  # the absorbing state's reward, which is one number, for ever after
        np.testing.assert_allclose(ended, ended[0], rtol=1e-4)
        assert ended[0] != 0
    else:
        np.testing.assert_array_equal(ended, 0)
    with pytest.raises(InputError, match="this reward depends on next_obs"):
        reward(obs, action)
