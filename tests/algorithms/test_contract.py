"""What every algorithm owes: finite numbers, one compilation, determinism, and a reward that moves."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.contract import check_loop
from trustirl.algorithms import ALGORITHMS
from trustirl.core.descend import decaying_adam, decays, trainable
from trustirl.core.types import ExpertData, TrainState
from trustirl.irl.known_mdp import exact_parts, exact_sampler
from trustirl.irl.loop import Loop, as_one_program, iterate, make_loop, seed_keys
from trustirl.nets.mlp import MLP, ensemble
from trustirl.nets.rewards import reward_factory
from trustirl.rl.exact import exact_solver, occupancy, solve
from trustirl.tasks.registry import make_task

UPDATES = 20  # of a whole run


def small_loop(name: str, kind: str = "table", action_inputs: bool = False, rounds: int = 0, **config) -> Loop:
    task = make_task("gridworld", {"size": 3})
    mdp = task.mdp
    rho = occupancy(mdp, solve(mdp, jnp.asarray(task.true_reward)).log_prob)
    make_reward = reward_factory(kind, task.features, mdp.actions, action_inputs)
    entry = ALGORITHMS[name]
    make_potential = reward_factory(kind, task.features, mdp.actions, False)
    parts = exact_parts(exact_solver(mdp, rounds), make_reward, make_potential)
    algorithm = entry.build(parts, entry.config(**config))
    expert = ExpertData(mdp.pairs(rho), mdp.states * mdp.actions)
    return as_one_program(make_loop(algorithm, exact_sampler(algorithm, expert, mdp, nothing), UPDATES))


def nothing(_policy: Any, _reward: Any) -> dict[str, jax.Array]:
    return {}


def run(loop: Loop, iterations: int, seeds: int = 1) -> TrainState:
    *_, (state, _) = iterate(loop, seed_keys(seeds), iterations)
    return state


def leaves(state: TrainState) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state.irl.reward) if hasattr(leaf, "shape")]


EXPLICIT = ALGORITHMS.trained_in("exact")  # and by those of other packages
CASES = [(name, *case) for name in EXPLICIT for case in (("table", False), ("linear", True), ("mlp", True))]
OTHERS_TOO = {("piro", "linear"), ("ml-irl", "mlp")}
LIKE_OTHERS = {"gail", "mm", "hype"}  # their reward steps are those of airl, or of ml-irl
QUICK = [case for case in CASES if case[:2] in OTHERS_TOO or (case[1] == "table" and case[0] not in LIKE_OTHERS)]


@pytest.mark.parametrize(
    ("name", "kind", "action_inputs"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in CASES],
)
def test_contract(name: str, kind: str, action_inputs: bool) -> None:
    loop = small_loop(name, kind, action_inputs)  # raises if the step compiles more than once
    states, told = check_loop(loop)
    assert not np.allclose(told[0]["gap"], told[-1]["gap"])
    assert any(not np.array_equal(states[0][part], states[-1][part]) for part in states[0] if ".reward" in part)


def test_adding_seeds_leaves_the_first_as_it_was() -> None:
    alone, together = run(small_loop("ml-irl"), 1), run(small_loop("ml-irl"), 1, seeds=2)
    for one, other in zip(leaves(alone), leaves(together), strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-6, atol=1e-9)


def test_a_second_compilation_is_an_error() -> None:
    loop = small_loop("ml-irl")
    run(loop, 1, seeds=1)
    with pytest.raises(RuntimeError, match="can only be traced 1 times"):
        run(loop, 1, seeds=2)


def test_rounds_of_policy_iteration_learn_too() -> None:
    (_, first), *_, (_, metrics) = iterate(small_loop("ml-irl", rounds=1), seed_keys(1), 30)
    assert float(metrics["gap"][0]) != float(first["gap"][0])
    assert float(metrics["suboptimality"][0]) < 1.0


@pytest.mark.parametrize(
    ("kind", "action_inputs", "held_down"),
    [
        ("table", False, {".table"}),
        ("table", True, {".table"}),
        ("linear", False, {".model.weight"}),
        ("mlp", True, {f".model.layers[{layer}].weight" for layer in range(3)}),
    ],
)
def test_weight_decay_moves_the_trained_weights_and_nothing_else(
    kind: str, action_inputs: bool, held_down: set[str]
) -> None:
    """Where the loss has no slope: tables of states too, and never biases or the fixed features."""
    weights = trainable(reward_factory(kind, np.eye(4), 3, action_inputs)(jax.random.key(0)))
    optimizer = decaying_adam(0.1, 0.5, weight_decay=0.1)
    flat = jax.tree.map(jnp.zeros_like, weights)
    updates = eqx.filter_jit(lambda: optimizer.update(flat, optimizer.init(weights), weights)[0])()
    moves, _ = jax.tree_util.tree_flatten_with_path(updates)
    assert {jax.tree_util.keystr(path) for path, move in moves if np.any(move != 0)} == held_down


def test_weight_decay_spares_the_biases_and_norms_of_an_ensemble() -> None:
    net = ensemble(lambda key: MLP(3, 2, 4, 1, key, layer_norm=True), 2, jax.random.key(0))
    flags, _ = jax.tree_util.tree_flatten_with_path(decays(trainable(net)))
    assert {jax.tree_util.keystr(path) for path, flag in flags if flag} == {".layers[0].weight", ".layers[1].weight"}
    assert len(flags) == 6
