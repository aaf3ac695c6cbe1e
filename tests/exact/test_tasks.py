"""Tasks are what they claim to be, and bad ones are refused in one sentence."""

import jax.numpy as jnp
import numpy as np
import pytest

from trustirl.core.errors import InputError
from trustirl.core.mdp import check_reward_table, make_mdp
from trustirl.rl.exact import solve
from trustirl.tasks.registry import TASKS, make_task


@pytest.mark.parametrize("name", [name for name in TASKS if name not in ("mdp", "table")])
def test_every_task_is_a_valid_mdp(name: str) -> None:
    task = make_task(name)
    np.testing.assert_allclose(np.asarray(task.mdp.probabilities).sum(-1), 1.0)
    assert task.true_reward.shape == (task.mdp.states, task.mdp.actions)
    assert len(task.features) == task.mdp.states
    if task.state_only:
        np.testing.assert_array_equal(task.true_reward, task.true_reward[:, :1].repeat(task.mdp.actions, 1))
    if task.grid:
        assert np.prod(task.grid) == task.mdp.states


def test_the_grid_is_the_papers() -> None:
    task = make_task("gridworld")
    assert task.grid == (7, 7)
    assert task.mdp.actions == 5
    assert task.target == 24
    corner, beside = 0, 25
    assert task.true_reward[corner, 0] == pytest.approx(-np.hypot(3, 3))
    assert task.true_reward[beside, 0] == pytest.approx(-1.0)
    assert task.true_reward[task.target, 0] == 0.0
    assert np.asarray(task.mdp.successors)[corner, :, 0].tolist() == [0, 0, 7, 0, 1]  # walls hold
    assert (np.asarray(task.mdp.successors)[task.target] == task.target).all()  # terminal
    assert float(task.mdp.initial[task.target]) == 0.0


def test_slip_mixes_the_intended_move_with_a_random_one() -> None:
    task = make_task("gridworld", {"slip": 0.5})
    np.testing.assert_allclose(np.asarray(task.mdp.probabilities)[10, 2], [0.1, 0.1, 0.6, 0.1, 0.1])


def test_the_chain_expert_walks_to_the_goal() -> None:
    task = make_task("chain", {"temperature": 0.05})
    policy = solve(task.mdp, jnp.asarray(task.true_reward))
    assert np.exp(np.asarray(policy.log_prob))[:-1, 1].min() > 0.95


GOOD = {
    "successors": np.zeros((1, 2, 1), int),
    "probabilities": np.ones((1, 2, 1)),
    "initial": [1.0],
    "discount": 0.9,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"probabilities": np.full((1, 2, 1), 0.9)}, "sum to one, they sum to 0.9"),
        ({"probabilities": np.full((1, 2, 1), np.nan)}, "sum to one"),
        ({"initial": [0.5]}, "initial probabilities"),
        ({"initial": [0.5, 0.5]}, "one probability per state"),
        ({"discount": 1.0}, "strictly between 0 and 1"),
        ({"discount": 0.0}, "strictly between 0 and 1"),
        ({"discount": float("nan")}, "strictly between 0 and 1"),
        ({"discount": 0.999999}, "must be at most 0.99999, got 0.999999: beyond it"),
        ({"temperature": 0.0}, "temperature must lie between"),
        ({"successors": np.full((1, 2, 1), 3)}, "must lie in 0..0"),
        ({"successors": np.zeros((1, 2, 1))}, "must be integers"),
        ({"successors": np.zeros((1, 3, 1), int)}, "one shape"),
    ],
)
def test_bad_mdps_are_refused(change: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_mdp(**(GOOD | change))


def test_bad_rewards_are_refused() -> None:
    mdp = make_mdp(**GOOD)
    with pytest.raises(InputError, match="state 0 and action 1 is nan"):
        check_reward_table([[0.0, np.nan]], mdp)
    with pytest.raises(InputError, match="1 states x 2 actions"):
        check_reward_table([[0.0]], mdp)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("gridwrld", {}, "did you mean 'gridworld'"),
        ("gridworld", {"sise": 3}, "did you mean 'size'"),
        ("gridworld", {"size": "big"}, "task argument size must be a whole number, got 'big'"),
        ("gridworld", {"size": 2.5}, "task argument size must be a whole number, got 2.5"),
        ("gridworld", {"size": 1}, "at least 2"),
        ("gridworld", {"slip": 2.0}, "between 0 and 1"),
        ("gridworld", {"discount": "1.5"}, "strictly between 0 and 1"),
        ("cliff", {"width": 1}, "at least 3"),
        ("random-mdp", {"states": 0}, "states must be at least 1"),
        ("random-mdp", {"seed": -1}, "seed must be at least 0"),
        ("chain", {"horizon": 0}, "horizon must be at least 1"),
    ],
)
def test_bad_tasks_are_refused(name: str, arguments: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_task(name, arguments)
