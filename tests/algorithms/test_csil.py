"""CSIL: a clone is the best answer to its own reward, the critic's loss in plain NumPy, and what init leaves."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.compiled import compiled
from trustirl.algorithms import ALGORITHMS
from trustirl.algorithms.csil import CsilConfig, csil, slope
from trustirl.core.descend import fitted
from trustirl.core.measure import minibatches
from trustirl.core.records import Parts
from trustirl.core.types import ExpertData, Transition
from trustirl.nets.agent_rewards import log_ratio_reward
from trustirl.nets.policies import (
    INSIDE,
    LEAST_VARIANCE,
    MOST_STD,
    StationaryActor,
    TanhGaussian,
    largest_log_ratio,
)
from trustirl.rl.config import SolverConfig
from trustirl.rl.sac import sac
from trustirl.rl.targets import Fit
from trustirl.tasks.gym import make_control_task

SETTINGS = SolverConfig(width=16, critics=1, temperature=0.01)


def parts(spy: dict[str, Any] | None = None) -> Parts:
    task = make_control_task("Pendulum-v1", {})
    statistics = np.zeros(3, np.float32), np.ones(3, np.float32)

    def make(**slots: Any) -> Any:
        if spy is not None:
            spy.update(slots)
        return sac(3, 1, SETTINGS, *statistics, updates=1, termination="T0", **slots)

    return Parts(make, lambda key: None, minibatches(8), task, SETTINGS, statistics)


def expert(rows: int = 400) -> ExpertData:
    """A noisy linear expert; each step is followed by the next row."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (rows + 1, 3)).astype(np.float32)
    action = np.tanh(0.5 * obs[:, :1] + 0.2 * rng.normal(size=(rows + 1, 1))).astype(np.float32)
    ones, no = jnp.ones(rows), jnp.zeros(rows, bool)
    measure = Transition(*map(jnp.asarray, (obs[:-1], action[:-1])), ones, jnp.asarray(obs[1:]), no, no)
    following = Transition(jnp.asarray(obs[1:]), jnp.asarray(action[1:]), ones)
    return ExpertData(measure, rows, measure, following)


@pytest.fixture(scope="module")
def begun() -> tuple[Any, Any]:
    algorithm = csil(parts(), CsilConfig(clone_updates=1000, value_updates=300, fit_batch=64))
    return algorithm, eqx.filter_jit(lambda: algorithm.init(jax.random.key(0), expert()))()


@pytest.mark.slow
def test_a_clone_is_the_soft_optimal_answer_to_its_own_reward(begun: tuple[Any, Any]) -> None:
    """With uniform actions as the prior every state is worth 0, so Q = r, and the best policy is p exp(Q / scale)."""
    algorithm, state = begun
    obs = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (5, 3)), jnp.float32)
    grid = np.linspace(-0.999, 0.999, 4001)
    reward, actor = algorithm.paid(state), algorithm.solver.actor(state.policy)

    def at(action: float) -> tuple[jax.Array, jax.Array]:
        actions = jnp.full((5, 1), action, jnp.float32)
        return reward(Transition(obs, actions, jnp.ones(5))), algorithm.solver.log_prob(actor, obs, actions)

    paid, log_prob = (np.asarray(x, float).T for x in jax.vmap(at)(jnp.asarray(grid, jnp.float32)))
    optimal = 0.5 * np.exp(paid / 1.0)  # one dimension of actions: the scale is 1
    mass = np.trapezoid(optimal, grid, axis=1)
    np.testing.assert_allclose(mass, 1.0, atol=0.02)  # V = scale * log of it = 0
    inside = np.abs(grid) < 0.98
    np.testing.assert_allclose(optimal[:, inside], np.exp(log_prob[:, inside]), rtol=1e-3, atol=1e-4)


def test_no_reward_is_greater_than_its_bound_and_one_reaches_it() -> None:
    """Of any head, anywhere, at the border of actions, too; per dimension of actions."""
    actor = compiled(StationaryActor, 3, 2, 16, 2, jax.random.key(0))
    rng, limit = np.random.default_rng(0), largest_log_ratio()
    obs, action = rng.normal(size=(300, 3)) * 5, rng.uniform(-1.0, 1.0, (300, 2))
    action[:100] = np.sign(action[:100])
    batch = Transition(*(jnp.asarray(x, jnp.float32) for x in (obs, action, np.ones(300))))
    statistics = np.zeros(3, np.float32), np.ones(3, np.float32)
    # As a head is at first, and with means far out and as narrow as it can be; on the diagonal stand logarithms.
    for spread, height in ((0.0, 0.0), (-5.0, 1.0), (-40.0, 30.0)):
        diagonal = jnp.asarray(np.broadcast_to(spread * np.eye(16, dtype=np.float32), actor.factors.shape))
        means = jnp.asarray(height * rng.normal(size=actor.mean.shape), jnp.float32)
        head = eqx.tree_at(lambda net: (net.factors, net.mean), actor, (diagonal, means))
        paid = compiled(lambda head: log_ratio_reward(head, *statistics, 1 / 2)(batch), head)
        assert float(np.max(paid)) <= limit + 1e-4
    # The narrowest head, asked at its mean, just where actions are cut off.
    mean, least, at = (
        jnp.full((1, 2), x, jnp.float32)
        for x in (np.arctanh(INSIDE), np.log(MOST_STD * np.tanh(np.sqrt(LEAST_VARIANCE))), INSIDE)
    )
    most = compiled(TanhGaussian(mean, least).log_prob, at)[0] / 2 + np.log(2)
    assert float(most) == pytest.approx(limit, abs=1e-3)


def test_offline_the_reward_stays_the_clones_and_values_follow_it() -> None:
    """Without rows of the learner nothing would hold the reward down: its own loss is left out."""
    here: dict[str, Any] = {}
    there: dict[str, Any] = {}
    csil(parts(here)._replace(own_rows=False), CsilConfig())
    csil(parts(there), CsilConfig())
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(6, 3)), rng.uniform(-0.9, 0.9, (6, 1))
    batch = Transition(*map(jnp.asarray, (obs, action, np.ones(6))), expert=jnp.ones(6, bool))
    after = jnp.asarray(rng.normal(size=6))

    def loss(height: jax.Array, seen: dict[str, Any]) -> jax.Array:
        q = lambda s, a: (s[:, 0] * a[:, 0] ** 2)[None]  # noqa: E731
        fit = Fit(q, lambda _: jnp.zeros(6), lambda _: height * jnp.ones(6), jnp.zeros(6), after, 0.9)
        return seen["critic_loss"](fit, batch)

    error = (obs[:, 0] * action[:, 0] ** 2 - 0.3 - 0.9 * np.asarray(after)) ** 2
    steep = (2 * obs[:, 0] * action[:, 0]) ** 2
    assert float(compiled(loss, jnp.asarray(0.3), here)) == pytest.approx(
        error.mean() + np.sqrt(steep.mean()), rel=1e-4
    )
    assert float(compiled(jax.grad(loss), jnp.asarray(0.3), here)) == 0
    assert not np.isfinite(float(compiled(loss, jnp.asarray(0.3), there)))  # the test can tell


def test_init_clones_and_its_prior_and_reward_are_the_clone(begun: tuple[Any, Any]) -> None:
    algorithm, state = begun
    agent, data = state.policy, expert()
    told = compiled(algorithm.solver.log_prob, agent.actor, data.measure.obs, data.measure.action)
    assert float(np.mean(told)) > -np.log(2) + 0.5  # far better than uniform actions
    for part in (agent.prior, agent.partner.actor):
        for one, other in zip(jax.tree.leaves(part), jax.tree.leaves(agent.actor), strict=True):
            np.testing.assert_array_equal(one, other)
    far = Transition(jnp.full((50, 3), 200.0), jnp.asarray(np.linspace(-0.9, 0.9, 50)[:, None]), jnp.ones(50))
    near, away = (np.asarray(compiled(algorithm.paid(state), rows)) for rows in (data.measure, far))
    assert np.abs(away).mean() < 0.7 * near.mean()
    assert float(near.max()) <= largest_log_ratio()


def test_the_critics_loss_is_the_papers() -> None:
    seen: dict[str, Any] = {}
    csil(parts(seen), CsilConfig())
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(8, 3)), rng.uniform(-0.9, 0.9, (8, 1))
    paid, after, expert_rows = rng.normal(size=8) * 3, rng.normal(size=8), np.arange(8) >= 4
    batch = Transition(*map(jnp.asarray, (obs, action, np.ones(8))), expert=jnp.asarray(expert_rows))
    q = lambda s, a: (s[:, 0] * a[:, 0] ** 2)[None]  # noqa: E731
    fit = Fit(q, lambda _: jnp.zeros(8), lambda _: jnp.asarray(paid), jnp.zeros(8), jnp.asarray(after), 0.9)
    steep = (2 * obs[:, 0] * action[:, 0]) ** 2
    target = paid + 0.9 * after
    wanted = ((obs[:, 0] * action[:, 0] ** 2 - target) ** 2).mean() + np.sqrt(steep[expert_rows].mean())
    wanted += (np.exp(-np.maximum(paid, -5)) - 1 + paid)[~expert_rows].mean() - paid[expert_rows].mean()
    assert float(compiled(lambda: seen["critic_loss"](fit, batch))) == pytest.approx(wanted, rel=1e-4)
    assert float(compiled(slope, q, batch, jnp.zeros(8, bool))) < 1e-5  # of no rows


def test_continuous_actions_alone() -> None:
    assert ALGORITHMS["csil"].actions == ("continuous",)


@pytest.mark.parametrize(("updates", "made"), [(7, 7), (100, 100), (250, 249), (300, 300)])
def test_fits_make_as_many_updates_as_rounds_of_one_length_allow(updates: int, made: int) -> None:
    """Plain steps of length 1 down a slope of 1 count themselves; what stays is the network of the round's start."""
    seen: list[float] = []

    def slide(net: jax.Array, old: jax.Array, rows: jax.Array) -> jax.Array:
        jax.debug.callback(lambda x: seen.append(float(x)), old)
        return net + 0.0 * rows.sum()

    net = fitted(slide, optax.sgd(1.0), jnp.asarray(0.0), jnp.ones((4, 1)), updates, 2, jax.random.key(0))
    jax.effects_barrier()
    assert float(net) == -made
    rounds = -(-updates // 100)
    assert sorted({-round(x) for x in seen}) == [number * (made // rounds) for number in range(rounds)]
