"""PIRO on a simulator: it runs, repeats itself, counts its steps and never stores a reward."""

from dataclasses import asdict, replace
from typing import Any

import jax
import numpy as np
import pytest

from trustirl.algorithms import ALGORITHMS
from trustirl.control import SAMPLED, ControlExperiment, build_control
from trustirl.core.errors import InputError
from trustirl.demos.schema import Demos
from trustirl.irl.loop import iterate, seed_keys
from trustirl.irl.practice import Plan

PLAN = Plan(steps_per_iteration=80, envs=2, rounds=2, batch=16, reward_batch=8, warmup=20)


def cartpole_demo() -> Demos:
    rng = np.random.default_rng(0)
    return Demos.from_numpy(rng.normal(size=(60, 4)), rng.integers(2, size=60), [30, 60], [True, False])


def experiment(algorithm: str = "piro", **changes: Any) -> ControlExperiment:
    plain = ControlExperiment(
        algorithm=algorithm,
        task="CartPole-v1",
        env_kwargs={},
        demos="",
        demo_episodes=None,
        seeds=2,
        steps=240,
        termination="T2",
        reward_inputs="state-action",
        reward_width=8,
        reward_depth=1,
        reward_bound=10.0,
        backend="sync",
        evaluation_episodes=2,
        plan=asdict(PLAN),
        solver_config={"width": 8, "depth": 1},
        algorithm_config=asdict(ALGORITHMS[algorithm].config(**SAMPLED.get(algorithm, {}))),
    )
    return replace(plain, **changes)


def test_the_control_loop_repeats_itself_and_counts_every_step() -> None:
    question = experiment()
    parts = build_control(question, cartpole_demo())
    steps, again = (list(iterate(parts.loop, seed_keys(2), question.iterations - 1)) for _ in range(2))
    state, last = steps[-1]
    assert len(steps) == 3
    for (_, one), (_, other) in zip(steps, again, strict=True):
        for name in one:
            assert np.isfinite(one[name]).all()
            np.testing.assert_array_equal(one[name], other[name])
    assert parts.ledger.counts["train"] == 2 * 2 * (3 * 80 + 20)  # runs, seeds, three iterations and the warm-up
    assert int(state.replay.size[0]) == 3 * 80 + 20
    assert int(state.iteration[0]) == 2
    assert (last["drift"] > 0).all()
    assert last["gap"][0] != last["gap"][1]  # seeds differ
    returns = parts.evaluate(state.irl.policy)
    parts.close()
    assert returns.shape == (2, 2)
    assert (returns >= 8).all()  # no pole falls sooner
    networks = jax.tree.leaves((state.irl.policy, state.irl.reward))
    assert {str(leaf.dtype) for leaf in networks if hasattr(leaf, "dtype")} <= {"float32", "int32"}


@pytest.mark.parametrize(
    ("question", "demos", "words"),
    [
        (experiment("trro"), cartpole_demo(), "needs a known MDP"),
        (
            experiment(),
            Demos.from_numpy(np.zeros((5, 3)), np.zeros(5, int)),
            "3 observation dimensions and CartPole-v1",
        ),
        (experiment(), Demos.from_numpy(np.zeros((5, 4)), np.zeros((5, 1))), "actions of shape"),
        (experiment(), Demos.from_numpy(np.zeros((5, 4)), np.full(5, 3)), "whole numbers from 0 to 1"),
        (experiment(task="CartPole-v9"), cartpole_demo(), "CartPole"),
    ],
)
def test_bad_questions_are_refused(question: ControlExperiment, demos: Demos, words: str) -> None:
    with pytest.raises(InputError, match=words):
        build_control(question, demos)
