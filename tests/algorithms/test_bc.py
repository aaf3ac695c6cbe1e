"""Cloning: what early stopping keeps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trustirl as ti
from trustirl.core.files import read_arrays
from trustirl.worlds.offline import held_out

SMALL: dict[str, Any] = {"task": "CartPole-v1", "seeds": 2, "width": 8, "depth": 1, "updates": 20, "fit_batch": 16}
SMALL |= {"fit_step": 0.03, "evaluation_episodes": 2, "evaluate_every": 1, "checkpoint_every": 2}


def noisy(episodes: int) -> ti.Demos:
    """Few steps, whose actions follow the pole with many exceptions: soon they are known by heart."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(10 * episodes, 4))
    action = (obs[:, 2] > 0) ^ (rng.random(len(obs)) < 0.25)
    return ti.Demos.from_numpy(obs, action.astype(int), 10 * np.arange(1, episodes + 1))


def column(run: ti.Run, name: str) -> np.ndarray:
    rows = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    return np.array([[row[name] for row in rows if row["seed"] == seed] for seed in range(2)])


def test_kept_is_the_policy_that_fits_best_what_was_held_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first seed's policy is the one with which a run that ends at its best iteration ends."""
    run = ti.train("bc", demos=noisy(6), steps=160, out=tmp_path / "whole", **SMALL)
    assert "1 of 6 demo episodes is held out" in capsys.readouterr().err
    loss = column(run, "held_out_loss")
    best = loss.argmin(axis=1)
    assert (best > 0).all()
    assert (best < 7).all()  # later ones are worse, though they fit the others better
    assert (column(run, "log_likelihood")[:, -1] > column(run, "log_likelihood")[range(2), best]).all()
    kept = read_arrays(run.path / "policy.safetensors")
    shorter = ti.train("bc", demos=noisy(6), steps=20 * (int(best[0]) + 1), out=tmp_path / "shorter", **SMALL)
    for name, array in read_arrays(shorter.path / "policy.safetensors").items():
        of = slice(None) if name.startswith("obs_") else 0
        np.testing.assert_array_equal(array[of], kept[name][of], err_msg=name)

    (run.path / "summary.json").unlink()  # as if it had been killed before the end
    (run.path / "report.html").unlink()
    for name, array in read_arrays(ti.resume(run.path).path / "policy.safetensors").items():
        np.testing.assert_array_equal(array, kept[name])


@pytest.mark.parametrize(
    ("episodes", "share", "apart"), [(1, 0.2, 0), (2, 0.2, 0), (3, 0.2, 1), (10, 0.2, 2), (6, 0.0, 0)]
)
def test_whole_episodes_are_held_out_where_there_are_several(episodes: int, share: float, apart: int) -> None:
    rows, told = held_out(noisy(episodes), share)
    assert len(rows) == 10 * apart
    assert len(set(rows // 10)) == apart
    assert bool(told) == bool(apart)


def test_held_out_steps_are_never_drawn(tmp_path: Path) -> None:
    """Nobody but the held-out episode ever pushes right, and the fit has not heard of it."""
    rows, _ = held_out(noisy(3), 0.2)
    assert len(rows) == 10
    action = np.zeros(30, int)
    action[rows] = 1
    demos = ti.Demos.from_numpy(noisy(3).observations, action, [10, 20, 30])
    run = ti.train("bc", demos=demos, steps=160, out=tmp_path / "run", **SMALL)
    assert (column(run, "held_out_loss")[:, -1] > 2).all()
    assert (column(run, "log_likelihood")[:, -1] > -0.1).all()
