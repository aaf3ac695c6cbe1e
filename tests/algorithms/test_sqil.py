"""SQIL: its loss and its gradient in plain NumPy, what ends are worth, and the reward that its values imply."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.adversaries import differences
from tests.algorithms.values import ENDED, EXPERT, rows, values
from trustirl.algorithms.sqil import SqilConfig, two_sided
from trustirl.core.errors import InputError
from trustirl.core.types import Transition
from trustirl.rl.targets import Fit, SideReward, terminal_value

SIDES = SideReward(expert=1.0, learner=0.0)


def test_the_reward_is_one_on_demonstrated_rows_and_zero_on_own() -> None:
    np.testing.assert_array_equal(SIDES(rows()), EXPERT.astype(np.float32))


def test_after_an_end_each_side_goes_on_with_its_own_reward() -> None:
    worth = terminal_value(SIDES, 1, jnp.zeros(1, int), 0.9, "T2").of(rows())
    np.testing.assert_allclose(worth, np.where(EXPERT, 10.0, 0.0), rtol=1e-6)
    np.testing.assert_array_equal(terminal_value(SIDES, 1, jnp.zeros(1, int), 0.9, "T0").of(rows()), 0.0)
    after = np.where(ENDED, worth, 3.0)
    target = values()._replace(reward=np.asarray(SIDES(rows())), after=after).fit().target
    assert float(target[6]) == pytest.approx(10)  # of the expert: 1 now and for ever
    assert float(target[0]) == float(target[3]) == 0  # of the learner


def test_the_loss_is_the_papers() -> None:
    """E_E[(Q - r - gV')^2] + lambda E_B[(Q - r - gV')^2], each side by its own mean, over both critics."""
    given = values()
    error = (given.q - given.reward - 0.9 * given.after) ** 2
    wanted = error[:, EXPERT].mean() + 0.3 * error[:, ~EXPERT].mean()
    assert float(two_sided(0.3)(given.fit(), rows())) == pytest.approx(wanted, rel=1e-5)


def test_its_gradient_pulls_every_value_to_its_target() -> None:
    given = values()
    gradient = jax.grad(lambda q: two_sided(0.3)(given.fit(q), rows()))(jnp.asarray(given.q))
    error = given.q - given.reward - 0.9 * given.after
    share = np.where(EXPERT, 1 / EXPERT.sum(), 0.3 / (~EXPERT).sum()) / 2  # of two critics
    np.testing.assert_allclose(gradient, 2 * error * share, rtol=1e-5)
    loss = lambda q: float(two_sided(0.3)(given.fit(jnp.asarray(q.reshape(2, 8))), rows()))  # noqa: E731
    np.testing.assert_allclose(gradient.ravel(), differences(loss, given.q.ravel()), rtol=1e-4, atol=1e-6)


def test_values_imply_the_share_of_the_expert_in_what_is_done() -> None:
    """With n demonstrated and m own rows at a pair, Q - gV' is n / (n + lambda m): the loss has no slope there."""
    rng = np.random.default_rng(1)
    states, actions, weight = 4, 3, 0.5
    successor = rng.integers(states, size=(states, actions))
    shown, own = rng.integers(1, 5, size=(2, states, actions))
    own[0, 0] += shown.sum() - own.sum() + 100  # a minibatch has as many of both
    shown[0, 0] += 100
    share = shown / (shown + weight * own)
    table = np.zeros((states, actions))
    for _ in range(500):
        table = share + 0.9 * np.logaddexp.reduce(table, axis=1)[successor]
    place = np.concatenate([np.repeat(np.arange(states * actions), n.ravel()) for n in (own, shown)])
    obs, action = (jnp.asarray(x) for x in np.divmod(place, actions))
    expert = jnp.arange(len(place)) >= own.sum()
    batch = Transition(obs, action, jnp.ones(len(place)), expert=expert)
    after = jnp.asarray(np.logaddexp.reduce(table, axis=1)[successor].ravel()[place])

    def loss(table: jax.Array) -> jax.Array:
        fit = Fit(lambda s, a: table[s, a][None], lambda s: s, None, SIDES(batch), after, 0.9)
        return two_sided(weight)(fit, batch)

    with jax.enable_x64(True):
        slope = jax.grad(loss)
        np.testing.assert_allclose(slope(jnp.asarray(table)), 0, atol=1e-6)
        assert np.abs(slope(jnp.asarray(table + 0.1))).min() > 1e-4  # the test can tell


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="own_weight must be positive"):
        SqilConfig(own_weight=0.0)
