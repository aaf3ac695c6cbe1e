"""IQ-Learn: its loss in plain NumPy, and a table of values whose policy does what the expert does."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from trustirl.algorithms.iq_learn import IqLearnConfig, inverse_soft_q
from trustirl.core.errors import InputError
from trustirl.core.types import Transition
from trustirl.rl.exact import occupancy, soft_backup, solve
from trustirl.rl.targets import Fit
from trustirl.tasks.registry import make_task


def test_the_loss_is_the_papers() -> None:
    """- E_E[Q - gV'] + E[V - gV'] + E[(Q - gV')^2] / (4a), for each member of the critic."""
    rng = np.random.default_rng(0)
    q, v, after = rng.normal(size=(2, 8)), rng.normal(size=8), rng.normal(size=8)
    expert = np.arange(8) >= 5
    obs = jnp.zeros((8, 1))
    batch = Transition(obs, jnp.zeros(8), jnp.ones(8), expert=jnp.asarray(expert))
    fit = Fit(
        lambda *_: jnp.asarray(q), lambda _: jnp.asarray(v), None, jnp.zeros(8), jnp.asarray(after), discount=0.9
    )
    implied = q - 0.9 * after
    wanted = -implied[:, expert].mean() + (v - 0.9 * after).mean() + (implied**2).mean() / (4 * 0.7)
    assert float(inverse_soft_q(0.7)(fit, batch)) == pytest.approx(wanted, rel=1e-5)


def test_a_table_of_values_recovers_the_experts_occupancy() -> None:
    """Rows of both sides weighted by their occupancies, by drawing them in these shares; V' moves with Q."""
    task = make_task("random-mdp", {"discount": 0.8})
    mdp = task.mdp
    truth = jnp.asarray(task.true_reward)
    rho = np.asarray(occupancy(mdp, solve(mdp, truth).log_prob)).ravel()
    rng, rows = np.random.default_rng(0), 20_000
    states, actions = np.divmod(rng.choice(rho.size, rows, p=rho / rho.sum()), mdp.actions)
    obs, action = jnp.asarray(states), jnp.asarray(actions)
    batch = Transition(obs, action, jnp.ones(rows), expert=jnp.ones(rows, bool))  # any occupancy will do for V - gV'
    loss = inverse_soft_q(1e4)  # rewards are free
    successors, chances = mdp.successors[obs, action], mdp.probabilities[obs, action]

    def objective(table: jax.Array) -> jax.Array:
        value = mdp.temperature * jax.nn.logsumexp(table / mdp.temperature, axis=1)
        after = jnp.sum(chances * value[successors], axis=-1)
        fit = Fit(lambda s, a: table[s, a][None], lambda s: value[s], None, jnp.zeros(rows), after, mdp.discount)
        return loss(fit, batch)

    optimizer = optax.adam(0.05)

    @jax.jit
    def descended(table: jax.Array) -> jax.Array:
        def step(carry: tuple[jax.Array, optax.OptState], _: None) -> tuple[tuple[jax.Array, optax.OptState], None]:
            table, state = carry
            updates, state = optimizer.update(jax.grad(objective)(table), state)
            return (optax.apply_updates(table, updates), state), None

        return jax.lax.scan(step, (table, optimizer.init(table)), length=1500)[0][0]

    table = descended(jnp.zeros_like(truth))
    value = jax.nn.logsumexp(table / mdp.temperature, axis=1, keepdims=True)
    learned = np.asarray(occupancy(mdp, table / mdp.temperature - value)).ravel()
    uniform = np.asarray(occupancy(mdp, jnp.full_like(table, -np.log(mdp.actions)))).ravel()
    apart = lambda other: 0.5 * np.abs(rho / rho.sum() - other / other.sum()).sum()  # noqa: E731
    assert apart(learned) < 0.02
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
