"""LS-IQ: its loss in plain NumPy, its bounds, SQIL as its special case, and IQ-Learn's objective in another form."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.adversaries import differences
from tests.algorithms.values import ENDED, EXPERT, rows, values
from tests.rl.batches import fresh_agent, make, quick_jit, transitions
from trustirl.algorithms.iq_learn import IqLearnConfig, inverse_soft_q
from trustirl.algorithms.ls_iq import LsIqConfig, least_squares
from trustirl.algorithms.sqil import two_sided
from trustirl.core.errors import InputError
from trustirl.rl.targets import CriticLoss, Fit, SideReward, terminal_value

DISCOUNT = 0.9
SQIL = SideReward(expert=1.0, learner=0.0)
HALVES = SideReward(expert=0.5, learner=-0.5)
SHIFT = 0.5 / (1 - DISCOUNT)  # what a reward that is greater by a half is worth
AS_SQIL = LsIqConfig(regulariser=2.0, expert_side="bootstrap", own_side="q_old_policy")


@pytest.mark.parametrize("expert_side", ["fix", "bootstrap"])
@pytest.mark.parametrize("own_side", ["value", "q_old_policy"])
def test_the_loss_is_the_papers(expert_side: Any, own_side: Any) -> None:
    """With c = 1/4 and a discount of 0.9, rewards are -4 and 4 and values within 40."""
    given = values(scale=60.0)
    assert (np.abs(given.after) > 40).any()
    following = 0.9 * np.clip(given.after, -40, 40)
    target = 40.0 if expert_side == "fix" else (4 + following)[EXPERT]
    wanted = ((given.q[:, EXPERT] - target) ** 2).mean()
    if own_side == "value":
        wanted += ((given.v + 4 - following) ** 2).mean()
    else:
        wanted += ((given.q + 4 - following)[:, ~EXPERT] ** 2).mean()
    loss = least_squares(LsIqConfig(0.25, expert_side, own_side))
    assert float(loss(given.fit(), rows())) == pytest.approx(wanted, rel=1e-5)
    gradient = jax.grad(lambda q: loss(given.fit(q), rows()))(jnp.asarray(given.q))
    with jax.enable_x64(True):
        slopes = differences(lambda q: float(loss(given.fit(jnp.asarray(q.reshape(2, 8))), rows())), given.q.ravel())
    np.testing.assert_allclose(gradient.ravel(), slopes, rtol=1e-4, atol=1e-4)


def test_after_an_end_each_side_has_its_bound_and_stays_there() -> None:
    worth = np.asarray(terminal_value(SideReward(2.0, -2.0), 1, jnp.zeros(1, int), DISCOUNT, "T2").of(rows()))
    np.testing.assert_allclose(worth, np.where(EXPERT, 20, -20), rtol=1e-6)
    given = values()._replace(after=np.where(ENDED, worth, 0.0))
    settled = np.where(EXPERT, 2.0, -2.0) + DISCOUNT * given.after
    np.testing.assert_allclose(settled[ENDED], worth[ENDED], rtol=1e-6)
    loss = least_squares(LsIqConfig(0.5, "bootstrap", "q_old_policy"))
    slope = jax.grad(lambda q: loss(given.fit(q), rows()))
    np.testing.assert_allclose(slope(jnp.asarray(np.tile(settled, (2, 1)))), 0, atol=1e-5)


def test_it_is_iq_learns_objective_but_for_a_constant_and_a_factor() -> None:
    """Over as many rows of both sides, with c = 1 / (4a), and a telescoped mean that is the policy's of r."""
    rng = np.random.default_rng(2)
    batch = replace(rows(), expert=jnp.arange(8) >= 4)
    q, after, a = rng.normal(size=(1, 8)), jnp.asarray(rng.normal(size=8)), 0.3

    def slope(loss: CriticLoss) -> np.ndarray:
        def of(q: jax.Array) -> jax.Array:
            telescoped = jnp.where(batch.expert, DISCOUNT * after, 2 * q[0] - DISCOUNT * after)
            return loss(Fit(lambda *_: q, lambda _: telescoped, None, jnp.zeros(8), after, DISCOUNT), batch)

        return np.asarray(jax.grad(of)(jnp.asarray(q)))

    c = 1 / (4 * a)
    ours = slope(least_squares(LsIqConfig(c, "bootstrap", "q_old_policy")))
    np.testing.assert_allclose(c / 2 * ours, slope(inverse_soft_q(IqLearnConfig(a))), rtol=1e-4, atol=1e-6)


def test_sqil_is_a_special_case() -> None:
    """Values of 1 and 0 are those of 1/2 and -1/2, shifted: the same loss and slope."""
    given = values()
    after = np.where(ENDED, np.where(EXPERT, 10.0, 0.0), SHIFT + given.after)
    assert (np.abs(after - SHIFT) <= SHIFT).all()  # LS-IQ's bounds are those of SQIL's values, 0 and 10
    sqil = given._replace(q=SHIFT + given.q, reward=np.asarray(SQIL(rows())), after=after)
    halves = sqil._replace(q=given.q, after=after - SHIFT)
    one = jax.value_and_grad(lambda q: two_sided(1.0)(sqil.fit(q), rows()))(jnp.asarray(sqil.q))
    other = jax.value_and_grad(lambda q: least_squares(AS_SQIL)(halves.fit(q), rows()))(jnp.asarray(halves.q))
    np.testing.assert_allclose(one[0], other[0], rtol=1e-5)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("solver_name", ["softq", pytest.param("sac", marks=pytest.mark.slow)])
def test_a_solver_learns_the_same_policy_by_sqil_and_by_the_special_case(solver_name: str) -> None:
    batch, begun = replace(transitions(solver_name, rows=8), expert=jnp.asarray(EXPERT)), []

    def improved(critic_loss: CriticLoss, reward: SideReward, shift: float) -> Any:
        solver = make(solver_name, {"updates": 3}, critic_loss=critic_loss)
        agent = fresh_agent(solver)
        for part in ("critic", "target_critic"):
            bias = lambda critic: critic.nets.layers[-1].bias  # noqa: E731
            agent = replace(agent, **{part: eqx.tree_at(bias, getattr(agent, part), replace_fn=lambda b: b + shift)})
        if shift == 0:
            begun.append(np.asarray(solver.q(agent, batch.obs, batch.action)))
        agent, _ = quick_jit(lambda a: solver.improve(a, lambda _: batch, reward, jax.random.key(0)))(agent)
        likelihood = solver.log_prob(solver.actor(agent), batch.obs, batch.action)
        return np.asarray(solver.q(agent, batch.obs, batch.action)), np.asarray(likelihood)

    values, likelihood = improved(two_sided(1.0), SQIL, SHIFT)
    others = improved(least_squares(AS_SQIL), HALVES, 0.0)
    np.testing.assert_allclose(values - SHIFT, others[0], atol=1e-4)
    np.testing.assert_allclose(likelihood, others[1], atol=1e-4)
    assert np.abs(others[0] - begun[0]).max() > 0.01  # the test can tell


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="regulariser must be positive"):
        LsIqConfig(regulariser=0.0)
