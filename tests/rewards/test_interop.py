"""Another library, Stable-Baselines3, learns a task from a learned reward alone."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import trustirl as ti

EXAMPLES = Path(__file__).parents[2] / "examples"


class Unpaid(gym.RewardWrapper):
    """Whoever computes with the task's own reward fails."""

    def reward(self, reward: Any) -> Any:
        return None


@pytest.mark.slow
def test_stable_baselines_learns_from_a_learned_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("stable_baselines3") is None:
        pytest.skip("stable-baselines3 is not installed: run make test-all, which installs the interop extra")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    example, torch = import_module("with_sb3"), import_module("torch")
    torch.set_num_threads(1)
    reward = ti.load_reward(EXAMPLES / "rewards" / "Pendulum-v1")
    policy = example.learned(lambda env: reward.wrap(Unpaid(env)))
    assert example.judged(policy) >= -250
