"""TRRO's promise on random MDPs with a soft-optimal expert: ell never falls, and it does move."""

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.theory.worlds import TEMPERATURES, World, random_world
from trustirl.algorithms import ALGORITHMS
from trustirl.core.measure import whole
from trustirl.core.records import Parts
from trustirl.core.types import ExpertData, TrainState
from trustirl.irl.known_mdp import exact_sampler
from trustirl.irl.loop import make_loop, seed_keys
from trustirl.nets.rewards import reward_factory
from trustirl.rl import exact

MDPS = min(1000, int(os.environ.get("TRUSTIRL_EXAMPLES", "200")))
INPUTS = pytest.mark.parametrize("action_inputs", [False, True], ids=["state", "state-action"])


@cache
def many_worlds(discounts: tuple[float, ...]) -> World:
    """Stacked MDPs of one shape, so that all of them run in one compiled call."""
    rng = np.random.default_rng(0)
    worlds = [
        random_world(seed, (6, 3, 3), float(rng.choice(discounts)), float(rng.choice(TEMPERATURES)))
        for seed in range(MDPS)
    ]
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *worlds)


def history(
    name: str, config: dict[str, Any], iterations: int, action_inputs: bool, discounts: tuple[float, ...]
) -> tuple[np.ndarray, ...]:
    """ell and |rho_E - rho|_1 [mdp, iteration], the drift of each update, and ell of the true reward."""

    def one(world: World) -> tuple[jax.Array, ...]:
        mdp = world.mdp
        truth = world.reward if action_inputs else jnp.broadcast_to(world.reward[:, :1], world.reward.shape)
        rho = exact.occupancy(mdp, exact.solve(mdp, truth).log_prob)
        make_reward = reward_factory("table", np.eye(mdp.states), mdp.actions, action_inputs)
        entry = ALGORITHMS[name]
        parts = Parts(lambda: exact.exact_solver(mdp), make_reward, whole)
        algorithm = entry.build(parts, entry.config(**config))
        expert = ExpertData(mdp.pairs(rho), mdp.states * mdp.actions)

        def observe(policy: exact.SoftPolicy, reward: Any) -> dict[str, jax.Array]:
            table = mdp.table(reward(mdp.pairs()))
            return {
                "ell": jnp.vdot(rho, table) - jnp.vdot(mdp.initial, policy.value),
                "distance": jnp.sum(jnp.abs(rho - exact.occupancy(mdp, policy.log_prob))),
            }

        loop = make_loop(algorithm, exact_sampler(algorithm, expert, mdp, observe), updates=1000)
        state, first = loop.start(seed_keys(1))

        arrays, static = eqx.partition(state, eqx.is_array)  # a scan carries arrays only

        def step(arrays: TrainState, _: None) -> tuple[TrainState, tuple[jax.Array, ...]]:
            state, metrics = loop.step(eqx.combine(arrays, static))
            return eqx.filter(state, eqx.is_array), (metrics["ell"], metrics["distance"], metrics["drift"])

        _, (ell, distance, drift) = jax.lax.scan(step, arrays, length=iterations)
        return (
            jnp.concatenate([first["ell"], ell[:, 0]]),
            jnp.concatenate([first["distance"], distance[:, 0]]),
            drift[:, 0],
            exact.log_likelihood(mdp, rho, truth),
        )

    return tuple(map(np.asarray, jax.jit(jax.vmap(one))(many_worlds(discounts))))


@pytest.mark.parametrize(
    ("minorizer", "action_inputs"),
    [  # each minorizer and each kind of reward quickly, the rest slowly
        pytest.param("quadratic", True, id="quadratic-state-action"),
        pytest.param("curvature", False, id="curvature-state"),
        pytest.param("quadratic", False, id="quadratic-state", marks=pytest.mark.slow),
        pytest.param("curvature", True, id="curvature-state-action", marks=pytest.mark.slow),
    ],
)
def test_trro_never_decreases_ell_and_moves(minorizer: str, action_inputs: bool) -> None:
    ell, distance, _, _ = history("trro", {"minorizer": minorizer}, 30, action_inputs, (0.3, 0.6, 0.9, 0.95))
    gains = np.diff(ell, axis=1)
    assert gains.min() >= -1e-9
    apart = distance[:, :-1] > 1e-4  # what rounding in ell (about 1e-12) leaves visible
    if not action_inputs:  # a state reward answers to the state marginal; far from the optimum both differ
        apart &= (ell[:, -1:] - ell[:, :-1]) > 1e-9
    assert apart.any()
    assert gains[apart].min() > 0


@pytest.mark.parametrize("action_inputs", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_trro_with_the_papers_constant_does_not_move(action_inputs: bool) -> None:
    _, distance, drift, _ = history("trro", {"minorizer": "paper"}, 3, action_inputs, (0.3, 0.6, 0.9, 0.95))
    assert np.all(distance[:, 0] > 1e-6)  # there is somewhere to go
    np.testing.assert_array_equal(drift, 0.0)


@pytest.mark.slow  # half a minute each
@INPUTS
def test_curvature_reaches_the_optimum_that_mce_finds(action_inputs: bool) -> None:
    discounts = (0.3, 0.6, 0.8, 0.9)
    ell, _, _, known = history("trro", {"minorizer": "curvature"}, 40, action_inputs, discounts)
    mce, _, _, _ = history("mce", {}, 40, action_inputs, discounts)
    to_go = mce[:, -1] - ell[:, 0]
    assert np.all((known - mce[:, -1]) <= 1e-3 * (known - ell[:, 0]))  # MCE itself is at the optimum
    assert np.all(mce[:, -1] - ell[:, -1] <= 1e-3 * to_go)


def test_ml_irl_with_a_large_step_does_decrease_ell(tell: Callable[[str], None]) -> None:
    ell, _, _, _ = history("ml-irl", {"reward_step": 1.0, "decay": 0.0}, 30, True, (0.3, 0.6, 0.9, 0.95))
    fell = int((np.diff(ell, axis=1) < -1e-6).any(axis=1).sum())
    tell(f"ML-IRL with step 1.0 decreased ell on {fell} of {MDPS} random MDPs; TRRO on none.")
    assert fell > 0
