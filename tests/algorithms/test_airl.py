"""AIRL: its objective with absorbing rows on both sides, what is paid and kept, and the reward that it recovers."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.adversaries import ENDED, INPUTS, OBS, SETTINGS, WEIGHT, differences, linear, side, stepped
from tests.algorithms.test_recovery import learn, recovered
from trustirl.algorithms.airl import AirlConfig, Shaped, airl
from trustirl.core.errors import InputError
from trustirl.core.measure import whole
from trustirl.core.records import Parts
from trustirl.core.types import Transition
from trustirl.irl.known_mdp import exact_parts
from trustirl.irl.measures import after_steps
from trustirl.nets.rewards import TableReward
from trustirl.rl.exact import exact_solver
from trustirl.rl.softq import softq
from trustirl.tasks.registry import make_task

TERMINATED = np.array([0.0, 1.0, 0.0])


def parameters(reward: Shaped) -> np.ndarray:
    """Weights of g, then of phi."""
    return np.concatenate([np.asarray(net.network.layers[0].weight, float).ravel() for net in (reward.g, reward.phi)])


def f_of(weights: np.ndarray, which: int) -> np.ndarray:
    """f of a side's three rows: a step, one that ended the episode, and what follows that."""
    g, phi = INPUTS[which] @ weights[:2], OBS[which] * weights[2]
    ahead = (OBS[which] + 1) * weights[2]
    return g + (1 - ENDED) * (SETTINGS.discount * (1 - TERMINATED) * ahead - phi)


@pytest.mark.parametrize("penalty", [0.0, 10.0])
def test_the_step_follows_the_gradient_of_the_objective(penalty: float) -> None:
    algorithm, old, new = stepped(airl, AirlConfig(inner_steps=1, penalty=penalty))
    actor = algorithm.solver.actor(old.policy)
    log_pi = [np.asarray(algorithm.solver.log_prob(actor, side(e).obs, side(e).action)) for e in (True, False)]

    def objective(weights: np.ndarray) -> float:
        logits = [f_of(weights, which) - (1 - ENDED) * log_pi[which] for which in range(2)]
        told = np.average(np.logaddexp(0, -logits[0]), weights=WEIGHT[0])
        told += np.average(np.logaddexp(0, logits[1]), weights=WEIGHT[1])
        return float(told + penalty * (np.linalg.norm(weights[:2]) - 1) ** 2)

    expected = differences(objective, parameters(old.reward))
    assert np.abs(expected[:3]).min() > 0.01
    np.testing.assert_allclose(parameters(new.optimizer[0].mu) / 0.1, expected, rtol=1e-3, atol=1e-5)
    assert (np.sign(parameters(new.reward) - parameters(old.reward)) == -np.sign(expected))[:3].all()


def test_f_is_paid_at_the_temperature_and_g_is_kept() -> None:
    algorithm, old, new = stepped(airl, AirlConfig(inner_steps=1))
    assert algorithm.paid is not None
    assert algorithm.kept is not None
    for state in (old, new):
        for which, expert in enumerate((True, False)):
            expected = SETTINGS.temperature * f_of(parameters(state.reward), which)
            np.testing.assert_allclose(algorithm.paid(state)(side(expert)), expected, atol=2e-3)  # biases have moved
        assert algorithm.kept(state) is state.reward.g
    assert (np.asarray(algorithm.paid(old)(side(True))) != np.asarray(algorithm.paid(new)(side(True)))).any()


def test_shaping_adds_up_to_the_first_potential_of_an_episode_that_ends() -> None:
    """sum_t discount^t (f - g) = -phi(s_0), as phi is 0 at the end; with a time limit the last one is left."""
    phi = linear()
    obs = jnp.arange(5.0)[:, None] / 3 + 1
    for ended in (True, False):
        steps = Transition(obs, jnp.zeros(5, int), jnp.ones(5), obs + 1 / 3, jnp.arange(5) == (4 if ended else 5))
        shaping = SETTINGS.discount * after_steps(phi, steps) - phi(steps)
        total = float(jnp.sum(SETTINGS.discount ** jnp.arange(5) * shaping))
        left = 0.0 if ended else SETTINGS.discount**5 * float(phi(replace(steps, obs=obs + 1 / 3))[-1])
        assert total == pytest.approx(left - float(phi(steps)[0]), abs=1e-5)


def test_what_follows_is_a_mean_where_it_is_known() -> None:
    mdp = make_task("gridworld", {"size": 3, "slip": 0.3}).mdp
    make = lambda _: TableReward(jnp.arange(9.0))  # noqa: E731
    parts = exact_parts(exact_solver(mdp), make, make)
    assert parts.after is not None
    expected = (np.asarray(mdp.probabilities) * np.arange(9.0)[np.asarray(mdp.successors)]).sum(axis=-1)
    np.testing.assert_allclose(parts.after(make(0), mdp.pairs()), expected.ravel())


def test_a_temperature_that_moves_is_refused() -> None:
    settings = replace(SETTINGS, learn_temperature=True)
    parts = Parts(lambda: softq(1, 2, SETTINGS), linear, whole, config=settings, after=after_steps)
    with pytest.raises(InputError, match="set learn_temperature to False"):
        airl(parts, AirlConfig())


def test_g_is_the_reward_of_a_deterministic_grid_up_to_a_constant() -> None:
    world, state, *_ = learn("airl", "gridworld", 60, reward_step=0.05, inner_steps=20)
    reward = eqx.tree_at(lambda state: state.irl.reward, state, state.irl.reward.g)
    assert recovered(world, reward) >= 0.95
