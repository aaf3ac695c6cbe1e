"""f-IRL: its surrogate against exact covariances and true gradients of divergences, and what it asks of a world."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.compiled import compiled
from tests.control.small import cartpole_demo, experiment, pendulum_demo
from trustirl.algorithms import ALGORITHMS
from trustirl.algorithms.f_irl import DIVERGENCES, FIrlConfig, f_irl, surrogate
from trustirl.core.errors import DemoError, InputError
from trustirl.core.measure import minibatches
from trustirl.core.records import Parts
from trustirl.core.types import ExpertData, RewardData, Transition
from trustirl.demos.schema import Demos
from trustirl.irl.measures import Weighing, weighted
from trustirl.nets.rewards import TableReward, blank_network_reward
from trustirl.rl.config import SolverConfig
from trustirl.rl.softq import softq
from trustirl.worlds.matching import expert_data
from trustirl.worlds.simulator import build, prepared

HORIZON = 3
PAID = np.array([0.0, 1.0])  # log 2 of these is the reward whose policy made the trajectories
EXPERT = np.array([0.3, 0.7])


def trajectories() -> tuple[np.ndarray, np.ndarray]:
    """States of all trajectories of a world of two states and two actions, and how many of 256 each is.

    One action stays and the other moves, each but for one time in four; the policy likes to be in state 1.
    """
    found: dict[tuple[int, ...], int] = {}
    for states in product(range(2), repeat=HORIZON):
        if states[0]:
            continue
        chance = 1.0
        for now, after in pairwise(states):
            moves = 1 / 4 if now else 3 / 4
            to_other = moves * 3 / 4 + (1 - moves) / 4
            chance *= to_other if now != after else 1 - to_other
        found[states] = round(256 * chance)
    return np.array([*found]), np.array([*found.values()])


def fed(states: np.ndarray, counts: np.ndarray) -> tuple[Transition, jax.Array]:
    """All trajectories as rows of one measure, each as often as it comes."""
    rows = jnp.asarray(np.repeat(states, counts, axis=0))
    count = len(rows)
    share = jnp.repeat(jnp.eye(count), HORIZON, axis=1)
    flat = rows.reshape(-1)
    return Transition(flat, jnp.zeros_like(flat), jnp.ones(flat.shape)), share


def gradient_of(term: np.ndarray, states: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The surrogate's gradient in r(0) and r(1)."""
    rows, share = fed(states, counts)
    values = jnp.asarray(term)[rows.obs]
    loss: Callable[..., Any] = lambda table: surrogate(TableReward(table), values, rows, share, HORIZON)  # noqa: E731
    return np.asarray(compiled(jax.grad(loss), jnp.zeros(2)))


@pytest.mark.parametrize("name", DIVERGENCES)
def test_the_gradient_is_the_exact_covariance(name: str) -> None:
    states, counts = trajectories()
    log_ratio = np.array([-0.8, 0.4])
    k = {"fkl": np.exp(log_ratio), "rkl": log_ratio, "js": np.log(1 + np.exp(log_ratio))}[name]
    visits = (states[:, :, None] == np.arange(2)).sum(axis=1)
    chance = counts / counts.sum()
    unlikely = -visits @ k
    exact = (chance * unlikely) @ visits - (chance @ unlikely) * (chance @ visits)
    assert abs(exact).min() > 0.01
    np.testing.assert_allclose(
        gradient_of(np.asarray(DIVERGENCES[name](log_ratio)), states, counts), exact / HORIZON, rtol=1e-4
    )


def visited(reward: np.ndarray) -> np.ndarray:
    """Shares of the states under the trajectories that entropy prefers: chances as exp(sum of rewards), any moves."""
    states = np.array([*product(range(2), repeat=HORIZON)])
    chance = np.exp(reward[states].sum(axis=1))
    return np.array([(chance / chance.sum()) @ (states == state).mean(axis=1) for state in range(2)])


@pytest.mark.parametrize("name", DIVERGENCES)
def test_the_gradient_is_that_of_the_divergence(name: str) -> None:
    """Theorem 4.1 of the paper, where every trajectory is possible and the policy is the best one."""

    def divergence(reward: np.ndarray) -> float:
        own = visited(reward)
        both = (own + EXPERT) / 2
        fkl, rkl = EXPERT @ np.log(EXPERT / own), own @ np.log(own / EXPERT)
        js = EXPERT @ np.log(EXPERT / both) + own @ np.log(own / both)
        return float({"fkl": fkl, "rkl": rkl, "js": js}[name])

    reward = np.log(2) * PAID
    nudges = 1e-5 * np.eye(2)
    slope = [(divergence(reward + nudge) - divergence(reward - nudge)) / 2e-5 for nudge in nudges]
    states = np.array([*product(range(2), repeat=HORIZON)])
    counts = 2 ** PAID[states].sum(axis=1).astype(int)
    log_ratio = np.log(EXPERT / visited(reward))
    np.testing.assert_allclose(
        gradient_of(np.asarray(DIVERGENCES[name](log_ratio)), states, counts), slope, rtol=2e-3
    )


def test_short_episodes_count_as_whole_ones() -> None:
    """Against NumPy, with rows of any weight."""
    rng = np.random.default_rng(0)
    share, term, paid = rng.uniform(size=(4, 9)), rng.normal(size=9), rng.normal(size=9)
    rows = Transition(jnp.arange(9), jnp.zeros(9, int), jnp.ones(9))
    t1, t2 = (np.array([7 * np.average(values, weights=row) for row in share]) for values in (-term, paid))
    loss = compiled(surrogate, TableReward(jnp.asarray(paid)), jnp.asarray(term), rows, jnp.asarray(share), 7)
    covariance = np.mean(t1 * t2) - t1.mean() * t2.mean()
    np.testing.assert_allclose(loss, (covariance + 0.5 * t2.mean() ** 2) / 7, rtol=1e-4)


def test_what_the_covariance_leaves_open_is_held_at_a_mean_of_zero() -> None:
    """Adding to all rewards changes no covariance; of what may be added, the loss wants what makes their mean 0."""
    states, counts = trajectories()
    rows, share = fed(states, counts)
    values, table = jnp.asarray([-0.8, 0.4])[rows.obs], jnp.asarray([1.0, 2.5])

    def loss(added: jax.Array) -> jax.Array:
        return surrogate(TableReward(table + added), values, rows, share, HORIZON)

    centre = -jnp.mean(table[rows.obs])
    slope = jax.jit(jax.grad(loss))
    assert abs(float(slope(centre))) < 1e-4
    assert float(slope(centre + 1.0)) == pytest.approx(HORIZON, rel=1e-3)


@pytest.mark.slow
def test_the_reward_rises_where_the_expert_is_and_the_agent_is_not() -> None:
    """The agent's episodes are of both states, the expert's of the second alone."""
    make_reward = blank_network_reward(np.zeros(1, np.float32), np.ones(1, np.float32), 0, "state", 8, 1, 10.0)
    config = FIrlConfig(reward_step=0.01, inner_steps=20, ratio_step=0.01, ratio_steps=200)
    algorithm = f_irl(Parts(lambda: softq(1, 2, SolverConfig(width=4)), make_reward, minibatches(32)), config)
    obs = jnp.asarray([[-1.0, -1, 1, 1], [-1.0, -1, -1, 1]])[..., None]
    own = weighted(Transition(obs, jnp.zeros((2, 4), int), jnp.ones((2, 4))))
    demo = weighted(Transition(jnp.ones((8, 1)), jnp.zeros(8, int), jnp.ones(8)))
    expert = ExpertData(demo, 8, episode=jnp.repeat(jnp.arange(2), 4))
    state = algorithm.init(jax.random.key(0), expert)
    assert algorithm.update_reward is not None
    data = RewardData(demo, demo, demo, episodes=own)
    new, _ = algorithm.update_reward(state, data, jax.random.key(1))
    reward = new.reward(replace(demo, obs=jnp.linspace(-1, 1, 8)[:, None]))
    assert float(reward[-1]) > float(reward[0]) + 0.05
    assert float(new.extra.logit(demo)[0]) > 0


def ended() -> Demos:
    rng = np.random.default_rng(0)
    return Demos.from_numpy(rng.normal(size=(60, 4)), rng.integers(2, size=60), [30, 60], [True, True])


@pytest.mark.parametrize(("absorb", "repeat"), [(True, False), (False, False), (False, True)])
def test_every_row_of_the_expert_knows_its_episode(absorb: bool, repeat: bool) -> None:
    demos = ended()
    obs = np.repeat([1.0, 2.0], 30)[:, None].astype(np.float32) * np.ones((1, 4), np.float32)
    expert = expert_data(demos, obs, demos.actions, Weighing(100, 0.9, False, absorb), repeat)
    assert expert.episode is not None
    assert len(expert.episode) == len(expert.measure.weight)
    first, second = (np.asarray(expert.measure.weight)[np.asarray(expert.episode) == number] for number in range(2))
    assert first.sum() == second.sum() == (100 if absorb or repeat else 30)
    if repeat:  # the last observation goes on
        np.testing.assert_array_equal(expert.measure.obs[-2:], obs[[29, 59]])


def small(**changes: Any) -> Any:
    return replace(experiment("f-irl", "Pendulum-v1", **changes), steps=1500)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"extra_steps": 200}, "extra_steps must be 400"),
        ({"envs": 1}, "envs must be at least 2"),
        ({"termination": "T2"}, "termination must be T3, got T2"),
        ({"reward_inputs": "state-action"}, "reward_inputs must be state, got state-action"),
    ],
)
def test_what_it_cannot_learn_from_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        prepared(small(**changes), pendulum_demo())


def test_episodes_reach_the_reward_step_and_the_ledger() -> None:
    parts = build(small(), pendulum_demo())
    try:
        state = parts.loop.blank(jax.vmap(jax.random.key)(jnp.arange(2)))
        assert state.data.episodes.obs.shape == (2, 2, 200, 3)
        assert parts.plan.whole == 80 + 2 * 200
    finally:
        parts.close()


def test_whoever_needs_expert_rows_gets_some(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = replace(ALGORITHMS["ml-irl"], name="rows", needs=frozenset({"expert rows"}))
    monkeypatch.setitem(ALGORITHMS.registered, "rows", entry)
    asked = experiment("rows")
    assert prepared(asked, cartpole_demo()).plan == prepared(experiment("ml-irl"), cartpole_demo()).plan
    with pytest.raises(InputError, match="set demo_share"):
        prepared(experiment("rows", demo_share=0.0), cartpole_demo())
    lone = Demos.from_numpy(np.zeros((3, 4)), np.zeros(3, int), [1, 2, 3])
    with pytest.raises(DemoError, match="must know what followed"):
        prepared(asked, lone)
