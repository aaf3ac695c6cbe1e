"""The code of docs/rewards.md runs as it stands; so do the rewards in examples/rewards."""

import re
from pathlib import Path

import pytest

import trustirl as ti

ROOT = Path(__file__).parents[2]


def test_the_page_on_rewards_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "rewards.md").read_text(), re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/rewards.md", "exec"), names)
    told = capsys.readouterr().out
    assert told.startswith("<r(s, a) of Pendulum-v1, learned by piro, seed 0>\nPendulum-v1 10 ")
    assert "['read_reward.py', 'reward.json', 'reward.md', 'reward.npz', 'reward.safetensors']" in told


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
def test_the_rewards_of_the_examples_say_what_they_pay(task: str) -> None:
    folder = ROOT / "examples" / "rewards" / task
    reward, card = ti.load_reward(folder), (folder / "reward.md").read_text()
    assert reward.origin is not None
    assert reward.origin.paid is not None
    assert f"# A learned reward of {task}" in card
    assert reward.origin.demos in card
