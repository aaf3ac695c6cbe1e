"""P2IL: its loss on a table beside an independent solution of the saddle point, and the loss in plain NumPy."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from tests.algorithms.values import ENDED, EXPERT, rows, values
from trustirl.algorithms.p2il import P2ilConfig, logistic
from trustirl.core.errors import InputError
from trustirl.core.types import Transition
from trustirl.rl.targets import Fit

STATES, ACTIONS, FEATURES = 5, 3, 4
DISCOUNT, TEMPERATURE, ETA = 0.9, 0.3, 0.7


class Problem(NamedTuple):
    """Whole numbers of rows of both sides in a deterministic MDP; the expert's are walks that end where they began.

    So the mean of V(s) - g V(s') over them is (1-g) times that of V over their states: these are its first states.
    """

    successor: np.ndarray
    shown: np.ndarray
    own: np.ndarray
    features: np.ndarray

    @property
    def start(self) -> np.ndarray:
        return self.shown.sum(axis=1) / self.shown.sum()

    @property
    def expert(self) -> np.ndarray:
        return self.shown / self.shown.sum()

    @property
    def before(self) -> np.ndarray:
        """m."""
        return self.own / self.own.sum()

    def parts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Reward, values and Bellman error of parameters."""
        reward, q = self.features @ x[:FEATURES], x[FEATURES:].reshape(STATES, ACTIONS)
        value = TEMPERATURE * logsumexp(q / TEMPERATURE, axis=1)
        return reward, q, reward + DISCOUNT * value[self.successor] - q

    def dual(self, x: np.ndarray) -> float:
        reward, q, error = self.parts(x)
        first = self.start @ (TEMPERATURE * logsumexp(q / TEMPERATURE, axis=1))
        bellman = logsumexp(ETA * error, b=self.before) / ETA
        return float(bellman - (self.expert * reward).sum() + (1 - DISCOUNT) * first)

    def slope(self, x: np.ndarray) -> np.ndarray:
        """Of the dual, by hand."""
        _, q, error = self.parts(x)
        policy, moved = softmax(q / TEMPERATURE, axis=1), self.before * np.exp(ETA * (error - error.max()))
        moved /= moved.sum()
        arriving = (1 - DISCOUNT) * self.start
        np.add.at(arriving, self.successor, DISCOUNT * moved)
        of_weights = np.einsum("saf,sa->f", self.features, moved - self.expert)
        return np.concatenate([of_weights, (arriving[:, None] * policy - moved).ravel()])

    def primal(self, m: np.ndarray) -> float:
        """What an occupancy is worth: entropy of its policy, less its distance from m."""
        policy = m / m.sum(axis=1, keepdims=True)
        return float(-(m * np.log(policy)).sum() * TEMPERATURE - (m * np.log(m / self.before)).sum() / ETA)


@pytest.fixture(scope="module")
def problem() -> Problem:
    rng = np.random.default_rng(0)
    successor = rng.integers(STATES, size=(STATES, ACTIONS))
    successor[:, 0] = (np.arange(STATES) + 1) % STATES  # every state leads everywhere
    shown = np.zeros((STATES, ACTIONS), int)
    for _ in range(60):
        state = first = rng.integers(STATES)
        while not shown.sum() or state != first or rng.random() < 0.5:
            action = rng.choice(ACTIONS, p=[0.6, 0.3, 0.1])
            shown[state, action] += 1
            state = successor[state, action]
        while state != first:
            shown[state, 0] += 1
            state = successor[state, 0]
    own = rng.integers(5, 60, size=(STATES, ACTIONS))
    return Problem(successor, shown, own, rng.normal(size=(STATES, ACTIONS, FEATURES)))


@pytest.fixture(scope="module")
def solution(problem: Problem) -> np.ndarray:
    """The dual's minimum, without a line of the package."""
    start = np.zeros(FEATURES + STATES * ACTIONS)
    found = minimize(problem.dual, start, jac=problem.slope, method="BFGS", options={"gtol": 1e-11, "maxiter": 5000})
    assert np.abs(problem.slope(found.x)).max() < 1e-7
    return np.asarray(found.x)


def test_at_the_duals_minimum_the_moved_occupancy_is_one(problem: Problem, solution: np.ndarray) -> None:
    """It satisfies the flow constraint, has the expert's features, and no duality gap is left."""
    _, q, error = problem.parts(solution)
    moved = problem.before * np.exp(ETA * error)
    moved /= moved.sum()
    arriving = (1 - DISCOUNT) * problem.start
    np.add.at(arriving, problem.successor, DISCOUNT * moved)
    np.testing.assert_allclose(moved.sum(axis=1), arriving, atol=1e-7)
    np.testing.assert_allclose(moved / moved.sum(axis=1, keepdims=True), softmax(q / TEMPERATURE, axis=1), atol=1e-5)
    told = np.einsum("saf,sa->f", problem.features, moved - problem.expert)
    np.testing.assert_allclose(told, 0, atol=1e-7)
    assert problem.primal(moved) == pytest.approx(problem.dual(solution), abs=1e-7)
    assert np.abs(moved - problem.before).sum() > 0.1  # the step is one


def loss_of(problem: Problem, rows: np.ndarray, expert: np.ndarray, config: P2ilConfig) -> Any:
    """P2IL's loss as a function of the same parameters, on as many rows as there are."""
    own_rows = not expert.all()
    obs, action = (jnp.asarray(x) for x in np.divmod(rows, ACTIONS))
    after = jnp.asarray(problem.successor)[obs, action]
    batch = Transition(
        obs, action, jnp.ones(len(rows)), after, jnp.zeros(len(rows), bool), expert=jnp.asarray(expert)
    )
    features = jnp.asarray(problem.features)

    def loss(x: jax.Array) -> jax.Array:
        q = x[FEATURES:].reshape(STATES, ACTIONS)
        value = TEMPERATURE * jax.nn.logsumexp(q / TEMPERATURE, axis=1)
        reward = lambda pairs: features[pairs.obs, pairs.action] @ x[:FEATURES]  # noqa: E731
        nothing = jnp.zeros(len(rows))
        fit = Fit(lambda s, a: q[s, a][None], lambda s: value[s], reward, nothing, nothing, DISCOUNT)
        return logistic(config, own_rows)(fit, batch)

    return loss


def test_the_loss_is_the_dual_and_has_its_minimum(problem: Problem, solution: np.ndarray) -> None:
    pairs = np.arange(STATES * ACTIONS)
    rows = np.concatenate([np.repeat(pairs, counts.ravel()) for counts in (problem.own, problem.shown)])
    expert = np.arange(len(rows)) >= problem.own.sum()
    plain = P2ilConfig(eta=ETA, reference_rows="own", reward_penalty=0.0, value_penalty=0.0, regression=0.0)
    with jax.enable_x64(True):
        loss = jax.jit(loss_of(problem, rows, expert, plain))
        slope = jax.jit(jax.grad(loss))
        for scale in (0.0, 0.1, 1.0):
            x = solution + scale * np.random.default_rng(1).normal(size=solution.shape)
            assert float(loss(x)) == pytest.approx(problem.dual(x), abs=1e-9)
            np.testing.assert_allclose(slope(x), problem.slope(x), atol=1e-9)
        np.testing.assert_allclose(slope(solution), 0, atol=1e-7)
        # All rows together, where the reference is all of them; offline those are the expert's.
        both = problem._replace(own=problem.own + problem.shown).dual(solution)
        every = loss_of(problem, rows, expert, replace(plain, reference_rows="all"))(solution)
        alone = loss_of(problem, rows[expert], expert[expert], plain)(solution)
        assert float(every) == pytest.approx(both, abs=1e-9)
        assert float(alone) == pytest.approx(problem._replace(own=problem.shown).dual(solution), abs=1e-9)


def test_ends_and_penalties_in_plain_numpy() -> None:
    given, rng = values(), np.random.default_rng(1)
    paid, absorbing = rng.normal(size=8), 0.7
    config = P2ilConfig(eta=0.4, reference_rows="own", reward_penalty=0.3, value_penalty=0.2, regression=0.6)
    batch = rows()
    fit = Fit(
        lambda *_: jnp.asarray(given.q),
        lambda _: jnp.asarray(given.v),
        lambda _: jnp.asarray(paid),
        jnp.zeros(8),
        jnp.asarray(given.after),
        0.9,
        lambda reward: absorbing + 0.0 * reward(batch)[0],
    )
    following = 0.9 * np.where(ENDED, absorbing, given.v)
    target = paid + 0.9 * np.where(ENDED, absorbing, given.after)
    error = (paid + following - given.q)[:, ~EXPERT]
    wanted = (logsumexp(0.4 * error, axis=1) - np.log((~EXPERT).sum())).mean() / 0.4
    wanted += (given.v - following - paid)[EXPERT].mean()
    wanted += 0.3 * (paid**2).mean() + 0.2 * (given.q**2).mean() + 0.6 * ((given.q - target) ** 2).mean()
    assert float(logistic(config)(fit, batch)) == pytest.approx(wanted, rel=1e-5)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="eta must be positive"):
        P2ilConfig(eta=0.0)
    with pytest.raises(InputError, match="reward_penalty"):
        P2ilConfig(reward_penalty=-1.0)
