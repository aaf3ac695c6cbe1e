"""MM: its objective with absorbing rows on both sides, in a direct computation, and the authors' step."""

import numpy as np
import pytest

from tests.algorithms.adversaries import INPUTS, WEIGHT, differences, side, stepped
from trustirl.algorithms.mm import MmConfig, mm
from trustirl.irl.terms import gap
from trustirl.nets.rewards import NetworkReward


def layer(net: NetworkReward) -> np.ndarray:
    return np.asarray(net.network.layers[0].weight, float).ravel()


@pytest.mark.parametrize("penalty", [0.0, 10.0])
def test_the_step_follows_the_gradient_of_the_objective(penalty: float) -> None:
    """Pairs weigh what their measures say, what follows an end included; a linear network is as steep everywhere."""

    def objective(weight: np.ndarray) -> float:
        moments = [np.average(INPUTS[which] @ weight, weights=WEIGHT[which]) for which in range(2)]
        return float(moments[1] - moments[0] + penalty * (np.linalg.norm(weight) - 0.4) ** 2)

    _, old, new = stepped(mm, MmConfig(inner_steps=1, penalty=penalty))
    expected = differences(objective, layer(old.reward))
    np.testing.assert_allclose(layer(new.optimizer[0].mu) / 0.1, expected, rtol=1e-3, atol=1e-5)
    assert (np.sign(layer(new.reward) - layer(old.reward)) == -np.sign(expected)).all()


def test_a_reward_that_is_not_too_steep_moves_up_for_the_expert_and_is_paid_as_it_is() -> None:
    algorithm, old, new = stepped(mm, MmConfig(inner_steps=3, slope=2.0))
    assert float(gap(new.reward, side(True), side(False))) > float(gap(old.reward, side(True), side(False)))
    assert algorithm.paid is not None
    assert algorithm.kept is not None
    assert algorithm.paid(new) is algorithm.kept(new) is new.reward


@pytest.mark.parametrize("steps", [1, 3])
def test_the_authors_steps_are_of_one_size_that_falls_with_their_number(steps: int) -> None:
    config = MmConfig(rule="sign", reward_step=0.016, decay=1.0, inner_steps=steps, penalty=0.0)
    _, old, new = stepped(mm, config)
    size = 0.016 * sum(1 / (1 + count) for count in range(steps))
    np.testing.assert_allclose(np.abs(layer(new.reward) - layer(old.reward)), size, rtol=1e-4)  # the gap is linear
