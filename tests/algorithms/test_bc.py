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


@pytest.mark.slow
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


@pytest.mark.slow
def test_held_out_steps_are_never_drawn(tmp_path: Path) -> None:
    """Nobody but the held-out episode ever pushes right, and the fit has not heard of it."""
    rows, _ = held_out(noisy(3), 0.2)
    assert len(rows) == 10
    action = np.zeros(30, int)
    action[rows] = 1
    demos = ti.Demos.from_numpy(noisy(3).observations, action, [10, 20, 30])
    run = ti.train("bc", demos=demos, steps=160, out=tmp_path / "run", held_out=0.2, **SMALL)
    assert (column(run, "held_out_loss")[:, -1] > 2).all()
    assert (column(run, "log_likelihood")[:, -1] > -0.1).all()


def two_ways() -> ti.Demos:
    """Some demonstrators swing the pendulum left and as many right, and nobody does what lies between."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(400, 3))
    side = rng.choice([-1, 1], (400, 1))
    return ti.Demos.from_numpy(obs, side * (1.2 + 0.2 * obs[:, :1].clip(-1, 1)) + 0.02 * rng.normal(size=(400, 1)))


@pytest.mark.parametrize(
    ("settings", "between"),
    [
        ({"components": 2}, 0),
        pytest.param({}, 1, marks=pytest.mark.slow),
        pytest.param({"loss": "squared-error"}, 1, marks=pytest.mark.slow),
    ],
)
def test_where_there_are_two_ways_a_mixture_takes_one_and_a_gaussian_neither(
    settings: dict[str, Any], between: float, tmp_path: Path
) -> None:
    """Actions of about -1.2 and 1.2 are demonstrated: the single middle is near 0, where nobody ever was."""
    question = SMALL | {"task": "Pendulum-v1", "seeds": 1, "width": 32, "updates": 500, "fit_batch": 64}
    run = ti.train("bc", demos=two_ways(), steps=1000, out=tmp_path / "run", **question | settings)
    obs = np.random.default_rng(1).normal(size=(200, 3)).astype(np.float32)
    usual, _ = run.policy.predict(obs, deterministic=True)
    assert (np.abs(usual) < 0.8).mean() == pytest.approx(between, abs=0.2)
    if "loss" not in settings:
        drawn, _ = run.policy.predict(obs)
        assert ((np.abs(drawn) < 0.8).mean() < 0.1) == (between < 0.5)


@pytest.mark.parametrize(
    ("task", "settings", "words"),
    [
        ("CartPole-v1", {"components": 2}, "for continuous actions"),
        ("CartPole-v1", {"loss": "squared-error"}, "for continuous actions"),
        ("Pendulum-v1", {"components": 2, "loss": "squared-error"}, "no single middle"),
        ("Pendulum-v1", {"components": 0}, "components must be at least 1"),
        ("Pendulum-v1", {"loss": "squared"}, "squared-error"),
    ],
)
def test_fits_that_cannot_be_are_refused(task: str, settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    demos = noisy(2) if task == "CartPole-v1" else two_ways()
    with pytest.raises(ti.InputError, match=words):
        ti.train("bc", demos=demos, steps=20, out=tmp_path / "run", **SMALL | {"task": task} | settings)
    assert not (tmp_path / "run").exists()
