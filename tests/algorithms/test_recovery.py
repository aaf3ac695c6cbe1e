"""The paper's grid: PIRO recovers the reward and the behaviour; the cliff: what a trust region is for."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from trustirl.algorithms import ALGORITHMS
from trustirl.evaluation.recovery import align
from trustirl.irl.loop import iterate, seed_keys
from trustirl.worlds.exact import ExactOptions, Question, build
from trustirl.worlds.job import Experiment


def learn(algorithm: str, task: str, steps: int, demo_episodes: int | None = None, **config: Any) -> tuple[Any, ...]:
    experiment = Experiment(
        algorithm=algorithm,
        task=task,
        task_args={},
        demos="packaged",
        demo_episodes=demo_episodes,
        demo_choice="first",
        seeds=1,
        steps=steps,
        settings={
            "algorithm_config": asdict(ALGORITHMS[algorithm].config(**config)),
            "exact": asdict(ExactOptions(reward_inputs="state")),
        },
        world="exact",
    )
    world: Question = build(experiment)
    ell = []
    for now in iterate(world.loop, seed_keys(1), steps):
        ell.append(float(now[1]["ell"][0]))
    return world, now[0], now[1], np.array(ell)


def recovered(world: Question, state: Any) -> float:
    return align(np.asarray(state.irl.reward.table[0]), world.task.true_reward[:, 0]).correlation


def test_piro_recovers_the_papers_grid(tell: Callable[[str], None]) -> None:
    world, state, metrics, ell = learn("piro", "gridworld", 200)
    correlation, score = recovered(world, state), float(metrics["return_mean"][0])
    assert correlation >= 0.95
    likelihood = float(metrics["log_likelihood"][0])
    assert ell[-1] == pytest.approx(float(world.mdp.mass * world.mdp.temperature) * likelihood)
    assert score >= -8.48  # the paper's PIRO, under the definition of docs/deviations.md
    assert np.diff(ell).min() > -1e-6
    tell(f"PIRO on the 7x7 grid: correlation {correlation:.3f}, return {score:.2f}.")


@pytest.mark.slow
def test_piro_comes_close_from_sampled_episodes(tell: Callable[[str], None]) -> None:
    world, state, metrics, _ = learn("piro", "gridworld", 200, demo_episodes=50)
    correlation, score = recovered(world, state), float(metrics["return_mean"][0])
    tell(f"PIRO on the 7x7 grid from 50 sampled episodes: correlation {correlation:.3f}, return {score:.2f}.")
    assert correlation > 0.4  # 0.465 when written; the exact occupancy gives 0.98


@pytest.mark.slow  # tests/theory/test_monotone.py shows it on random MDPs
def test_the_cliff_punishes_greedy_updates() -> None:
    *_, greedy = learn("ml-irl", "cliff", 30, reward_step=1.0, decay=0.0)
    *_, careful = learn("trro", "cliff", 30, minorizer="curvature")
    assert np.diff(greedy).min() < -0.5
    assert np.diff(careful).min() > -1e-9
    assert careful[-1] > greedy[-1]


@pytest.mark.slow
def test_sampled_demonstrations_leave_ell_bounded() -> None:
    """The learner starts where the episodes start; else ell grows by punishing states it cannot avoid."""
    world, _, _, ell = learn("trro", "gridworld", 60, demo_episodes=5, minorizer="curvature")
    starts = np.asarray(world.demo.obs).reshape(5, -1)[:, 0]
    np.testing.assert_allclose(world.mdp.initial, np.bincount(starts, minlength=49) / 5)
    assert ell[-1] < 0  # a log-likelihood
