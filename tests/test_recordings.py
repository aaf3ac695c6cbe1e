"""A newcomer's path: the ten lines of docs/recordings.md, on recordings of one's own."""

import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

PAGE = Path(__file__).parents[1] / "docs" / "recordings.md"


def record(file: Path) -> None:
    """Three episodes of a rule of thumb that balances the pole."""
    env = gym.make("CartPole-v1")
    observations, actions, ends = [], [], []
    for seed in range(3):
        observation, over = env.reset(seed=seed)[0], False
        while not over:
            observations.append(observation)
            actions.append(int(observation @ [0.1, 0.3, 3.0, 1.0] > 0))
            observation, _, terminated, truncated, _ = env.step(actions[-1])
            over = terminated or truncated
        ends.append(len(actions))
    np.savez(file, observations=np.array(observations), actions=np.array(actions), episode_ends=np.array(ends))


@pytest.mark.slow
def test_ten_lines_train_cartpole_on_recordings_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL).group(1)
    assert len(code.splitlines()) <= 10
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "recordings.npz")
    names: dict[str, object] = {}
    exec(compile(code, PAGE.name, "exec"), names)
    assert np.mean(names["run"].evaluate(episodes=20).returns) >= 450
    assert names["action"].shape == ()
    assert (tmp_path / "runs" / "mine" / "report.html").exists()
