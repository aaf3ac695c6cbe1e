"""IQ-Learn: its loss in plain NumPy, what ends are worth, and a table of values that does what the expert does."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.algorithms.contract import check_loop
from tests.algorithms.values import ENDED, EXPERT, rows, values
from tests.control.small import cartpole_demo, experiment
from trustirl.algorithms.iq_learn import IqLearnConfig, inverse_soft_q
from trustirl.core.errors import InputError
from trustirl.core.mdp import MDP
from trustirl.core.precision import double_precision
from trustirl.core.types import Transition
from trustirl.rl.exact import occupancy, soft_backup, solve
from trustirl.rl.targets import Fit
from trustirl.tasks.registry import make_task
from trustirl.worlds.simulator import build


@pytest.mark.parametrize("start", ["value", "v0"])
@pytest.mark.parametrize("chi2", ["both", "expert"])
def test_the_loss_is_the_papers(start: Any, chi2: Any) -> None:
    """- E_E[Q - gV'] + (1-g) E[V(s0)] + E[(Q - gV')^2] / (4a), for each member of the critic."""
    given = values()
    implied = given.q - 0.9 * given.after
    over = EXPERT if chi2 == "expert" else np.ones(8, bool)
    wanted = -implied[:, EXPERT].mean() + (implied[:, over] ** 2).mean() / (4 * 0.7)
    wanted += (given.v - 0.9 * given.after).mean() if start == "value" else 0.1 * 3.5
    at = given.fit().v
    fit = given.fit()._replace(v=lambda obs: jnp.mean(obs, axis=1) if len(obs) == 2 else at(obs))
    starts = jnp.array([[3.0], [4.0]]) if start == "v0" else None
    loss = inverse_soft_q(IqLearnConfig(0.7, start, chi2), starts=starts)
    assert float(loss(fit, rows())) == pytest.approx(wanted, rel=1e-5)


def test_after_an_end_its_reward_goes_on() -> None:
    """Every end with the absorbing steps that follow, g / (1-g) of them by weight, each side by its own mean."""
    given, g = values(), 0.9
    u = given.q  # what the absorbing state is worth
    tail = np.where(ENDED, g / (1 - g), 0.0)
    following = np.where(ENDED, u, given.after)

    def mean(step: np.ndarray, rest: np.ndarray, side: np.ndarray) -> np.ndarray:
        return (step + tail * rest)[:, side].sum(axis=1) / (1 + tail)[side].sum()

    def over_both(step: np.ndarray, rest: np.ndarray) -> float:
        shares = ((EXPERT, 3 / 8), (~EXPERT, 5 / 8))
        return float(sum(share * mean(step, rest, side) for side, share in shares).mean())

    implied, later = given.q - g * following, (1 - g) * u
    wanted = over_both(given.v - g * following, later) - mean(implied, later, EXPERT).mean()
    wanted += over_both(implied**2, later**2) / (4 * 0.7)
    loss = inverse_soft_q(IqLearnConfig(0.7), absorb=True)
    assert float(loss(given.fit(), rows())) == pytest.approx(wanted, rel=1e-5)
    assert float(inverse_soft_q(IqLearnConfig(0.7))(given.fit(), rows())) != pytest.approx(wanted, rel=1e-2)


def test_no_other_absorbing_value_costs_less() -> None:
    q, g = 3.0, 0.9
    cost = lambda u: (q - g * u) ** 2 + g / (1 - g) * ((1 - g) * u) ** 2  # noqa: E731
    others = np.linspace(-10, 10, 401)
    assert others[np.argmin(cost(others))] == pytest.approx(q)
    assert cost(q) == pytest.approx((1 - g) * q**2)


def in_shares(chances: jax.Array, rows: int = 4000) -> np.ndarray:
    """Each number as often as its chance says, to the nearest whole."""
    chances = np.asarray(chances).ravel()
    ends = np.round(rows * np.cumsum(chances / chances.sum())).astype(int)
    return np.repeat(np.arange(chances.size), np.diff(ends, prepend=0))


@partial(jax.jit, static_argnames="start")
def best_table(mdp: MDP, obs: jax.Array, action: jax.Array, begins: jax.Array, start: Any) -> jax.Array:
    """The values that minimise the loss on an expert's rows, with free rewards; V' moves with Q."""
    no = jnp.zeros(len(obs), bool)
    batch = Transition(obs, action, jnp.ones(len(obs)), obs, no, expert=~no)  # any occupancy will do for V - gV'
    loss = inverse_soft_q(IqLearnConfig(1e6, start), starts=begins[:, None] if start == "v0" else None)
    successors, chances = mdp.successors[obs, action], mdp.probabilities[obs, action]

    def objective(table: jax.Array) -> jax.Array:
        value = mdp.temperature * jax.nn.logsumexp(table / mdp.temperature, axis=1)
        after = jnp.sum(chances * value[successors], axis=-1)
        v = lambda states: value[states.reshape(-1).astype(int)]  # noqa: E731
        return loss(Fit(lambda s, a: table[s, a][None], v, None, after, after, mdp.discount), batch)

    optimizer = optax.lbfgs()

    def step(carry: tuple[jax.Array, Any], _: None) -> tuple[tuple[jax.Array, Any], None]:
        table, memory = carry
        cost, slope = optax.value_and_grad_from_state(objective)(table, state=memory)
        moved, memory = optimizer.update(slope, memory, table, value=cost, grad=slope, value_fn=objective)
        return (optax.apply_updates(table, moved), memory), None

    nothing = jnp.zeros((mdp.states, mdp.actions))
    return jax.lax.scan(step, (nothing, optimizer.init(nothing)), length=60)[0][0]


@pytest.mark.parametrize("start", ["value", "v0"])
@pytest.mark.parametrize("discount", [0.5, 0.9, 0.99])
def test_the_best_table_of_values_has_the_experts_occupancy(discount: float, start: Any) -> None:
    with double_precision():
        task = make_task("random-mdp", {"discount": discount})
        mdp = task.mdp
        rho = occupancy(mdp, solve(mdp, jnp.asarray(task.true_reward)).log_prob)
        states, actions = np.divmod(in_shares(rho), mdp.actions)
        begins = in_shares(mdp.initial).astype(float)
        table = best_table(mdp, jnp.asarray(states), jnp.asarray(actions), jnp.asarray(begins), start)
        value = jax.nn.logsumexp(table / mdp.temperature, axis=1, keepdims=True)
        learned = occupancy(mdp, table / mdp.temperature - value)
        uniform = occupancy(mdp, jnp.full_like(table, -np.log(mdp.actions)))
    apart = lambda other: 0.5 * float(jnp.abs(rho - other).sum()) * (1 - discount)  # noqa: E731
    assert apart(learned) < 0.005
    assert apart(uniform) > 0.1  # the test can tell


def test_the_implied_reward_of_soft_optimal_values_is_the_true_one() -> None:
    task = make_task("random-mdp", {"discount": 0.8})
    mdp, truth = task.mdp, jnp.asarray(task.true_reward)
    policy = solve(mdp, truth)
    value, log_prob = soft_backup(mdp, truth, policy.value)
    q = mdp.temperature * log_prob + value[:, None]
    after = jnp.sum(mdp.probabilities * value[mdp.successors], axis=-1)
    np.testing.assert_allclose(q - mdp.discount * after, truth, atol=1e-6)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="largest must be positive"):
        IqLearnConfig(largest=0.0)


@pytest.mark.slow
def test_it_learns_from_the_states_in_which_episodes_begin() -> None:
    parts = build(experiment("iq-learn", start="v0", termination="T2"), cartpole_demo())
    check_loop(parts.loop)
    parts.close()
