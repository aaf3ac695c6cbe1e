"""Networks see vectors in float32 and act in [-1, 1]."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from tests.rollouts.policies import linear
from tests.rollouts.worlds import Counter, Static, dict_space, limited
from trustirl.core.errors import InputError, NumericalError
from trustirl.rollouts.host import HostEnvs
from trustirl.rollouts.ledger import Ledger
from trustirl.rollouts.spaces import flatten_observations, from_env_actions, to_env_actions
from trustirl.tasks.gym import ControlTask, make_control_task


def lopsided() -> ControlTask:
    """Actions between (-1, 0) and (3, 0.5)."""
    bounds = Box(np.array([-1, 0], np.float32), np.array([3, 0.5], np.float32))
    return make_control_task(limited(Static, 9, Box(-1, 1, (2,)), bounds))


def test_dicts_are_concatenated_in_sorted_key_order() -> None:
    observation = {"target": np.array([4.0, 5.0]), "clock": np.array(3.0), "body": np.array([0.0, 1.0, 2.0])}
    row = flatten_observations(observation, 1)
    assert row.dtype == np.float32
    np.testing.assert_array_equal(row, [[0, 1, 2, 3, 4, 5]])


def test_batched_dicts_come_out_of_the_environments_in_the_same_order() -> None:
    observation = {
        "target": np.array([4, 5], np.float32),
        "clock": np.array(3, np.float32),
        "body": np.array([0.0, 1.0, 2.0]),
    }
    task = make_control_task(limited(Static, 1, dict_space(), Discrete(2), observation))
    with HostEnvs(task, 2, 1, Ledger()) as envs:
        envs.reset(np.zeros((2, 1), int))
        result = envs.rollout(None, 2)  # the time limit is 1: next_obs is a final one
    for rows in (result.obs, result.next_obs):
        np.testing.assert_array_equal(rows, np.broadcast_to(np.arange(6), (2, 2, 1, 6)))
    assert result.truncated.all()


def test_flattening_copies() -> None:
    source = np.zeros((2, 3), np.float32)
    assert not np.shares_memory(flatten_observations(source, 2), source)


def test_actions_are_scaled_to_the_bounds_and_back() -> None:
    task = lopsided()
    corners = np.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0], [0.5, -0.5]])
    in_env = to_env_actions(task, corners)
    np.testing.assert_allclose(in_env, [[-1, 0], [1, 0.25], [3, 0.5], [2, 0.125]])
    assert in_env.dtype == np.float32
    back, clipped = from_env_actions(task, in_env)
    np.testing.assert_allclose(back, corners, atol=1e-6)
    assert clipped == 0


def test_clipped_demonstrations_are_counted() -> None:
    scaled, clipped = from_env_actions(lopsided(), np.array([[-1.5, 0.25], [3.0, 0.7], [4.0, -1.0]]))
    np.testing.assert_allclose(scaled, [[-1, 0], [1, 1], [1, -1]])
    assert clipped == 4
    assert scaled.dtype == np.float32


def test_the_environment_receives_the_scaled_action() -> None:
    with HostEnvs(lopsided(), 1, 1, Ledger()) as envs:
        envs.reset(np.zeros((1, 1), int))
        full = linear(np.zeros((4, 2)), [99, 99, -20, -20], 1, discrete=False)
        assert envs.rollout(full, 1).true_reward.item() == pytest.approx(3.5)


@pytest.mark.parametrize("bad", [1.1, -1.1, np.nan, np.inf])
def test_actions_outside_the_range_are_refused(bad: float) -> None:
    with pytest.raises(NumericalError, match=r"NaN or outside \[-1, 1\]"):
        to_env_actions(lopsided(), np.array([[0.0, bad]]))


def test_choices_start_where_the_environment_does() -> None:
    task = make_control_task(limited(Counter, 9, 10, 3))
    np.testing.assert_array_equal(to_env_actions(task, np.array([0, 4])), [3, 7])
    back, clipped = from_env_actions(task, np.array([3, 7]))
    np.testing.assert_array_equal(back, [0, 4])
    assert clipped == 0
    for wrong in (np.array([8]), np.array([2]), np.array([3.5])):
        with pytest.raises(InputError, match="whole numbers from 3 to 7"):
            from_env_actions(task, wrong)
