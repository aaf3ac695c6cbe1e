"""Learning from demonstrations alone: the fit, the run, and what such a run has not got."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trustirl as ti
from tests.control.small import SETTINGS, cartpole_demo, pendulum_demo
from trustirl.algorithms.bc import BcConfig, bc
from trustirl.bench.plan import command_line
from trustirl.bench.suites import Question
from trustirl.core.measure import whole as whole_measures
from trustirl.core.records import Parts
from trustirl.core.types import ExpertData, Transition
from trustirl.irl.loop import as_one_program, iterate, make_loop, seed_keys
from trustirl.irl.measures import Weighing
from trustirl.irl.offline import demonstrated, offline_sampler
from trustirl.report.compare import _timed, write_comparison
from trustirl.report.study import read_study
from trustirl.rl.config import SolverConfig
from trustirl.rl.sac import sac
from trustirl.rl.softq import softq
from trustirl.training.asking import train_question
from trustirl.training.train import setting_groups
from trustirl.worlds.matching import expert_data
from trustirl.worlds.world import world_of

SMALL = {"width": 8, "depth": 1, "updates": 10, "fit_batch": 16, "evaluation_episodes": 2, "evaluate_every": 1}


def rows(path: Path) -> list[dict[str, Any]]:
    lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in row.items() if name != "seconds"} for row in lines]


def fitted(solver: Any, pairs: Transition, **config: Any) -> Any:
    settings = BcConfig(**{"fit_batch": 64, "updates": 500, "fit_step": 1e-2, "weight_decay": 0.0} | config)
    algorithm = bc(Parts(lambda: solver, lambda key: None, whole_measures), settings)
    sampler = offline_sampler(algorithm, ExpertData(pairs, len(pairs.weight)), settings.fit_batch)
    loop = as_one_program(make_loop(algorithm, sampler, 2))
    *_, (state, metrics) = iterate(loop, seed_keys(1), 2)
    policy = jax.tree.map(lambda leaf: leaf[0] if hasattr(leaf, "shape") else leaf, state.irl.policy.best)
    return policy, float(metrics["log_likelihood"][0])


def test_finitely_many_actions_get_the_frequencies_of_the_demonstrations() -> None:
    """Two states; in the first, actions come 3:1, in the second 1:9. The likelihood is that of the frequencies."""
    shares = np.array([[0.75, 0.25], [0.1, 0.9]])
    state = np.repeat([0, 1], 400)
    action = np.concatenate([np.arange(400) >= 300, np.arange(400) >= 40]).astype(np.int32)
    pairs = Transition(jnp.asarray(np.eye(2)[state], jnp.float32), jnp.asarray(action), jnp.ones(800))
    solver = softq(2, 2, SolverConfig(width=16, critics=1, temperature=1.0))
    policy, likelihood = fitted(solver, pairs, fit_batch=800, fit_step=1e-2)
    given = [solver.log_prob(policy, jnp.eye(2), jnp.full(2, choice)) for choice in (0, 1)]
    np.testing.assert_allclose(np.exp(np.stack(given, 1)), shares, atol=0.05)
    assert likelihood == pytest.approx(float((shares * np.log(shares)).sum(axis=1).mean()), abs=0.01)


def test_continuous_actions_are_fitted_in_mean_and_spread() -> None:
    """a = tanh(u), u ~ N(s, 0.3^2): the best likelihood is minus the entropy of that distribution."""
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1, 1, (4000, 1))
    u = obs + 0.3 * rng.standard_normal((4000, 1))
    pairs = Transition(*(jnp.asarray(x, jnp.float32) for x in (obs, np.tanh(u), np.ones(4000))))
    solver = sac(1, 1, SolverConfig(width=32))
    policy, likelihood = fitted(solver, pairs, fit_batch=512, fit_step=3e-3)
    true = -0.5 * ((u - obs) / 0.3) ** 2 - np.log(0.3) - 0.5 * np.log(2 * np.pi) - np.log(1 - np.tanh(u) ** 2)
    assert likelihood == pytest.approx(float(true.mean()), abs=0.03)
    seen = jnp.linspace(-0.9, 0.9, 7)[:, None]
    np.testing.assert_allclose(np.arctanh(solver.mode(policy, seen)), seen, atol=0.12)


def test_a_run_clones_stops_goes_on_and_has_no_reward(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"task": "CartPole-v1", "demos": cartpole_demo(), "seeds": 2, "steps": 40} | SMALL
    whole = ti.train("bc", out=tmp_path / "whole", **asked)
    again = ti.train("bc", out=tmp_path / "again", checkpoint_every=2, **asked)
    assert rows(whole.path) == rows(again.path)
    assert [row["iteration"] for row in rows(whole.path)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert rows(whole.path)[-1]["log_likelihood"] > rows(whole.path)[0]["log_likelihood"]
    assert whole.summary["env_steps"]["train"] == whole.summary["env_steps"]["reward"] == 0
    assert whole.summary["env_steps"]["evaluation"] > 0
    env = gym.make("CartPole-v1")
    assert whole.policy.predict(env.reset(seed=0)[0], deterministic=True)[0] in (0, 1)
    with pytest.raises(ti.InputError, match="run of bc, which learns no reward"):
        _ = whole.reward
    page = (whole.path / "report.html").read_text()
    assert "BC on CartPole-v1" in page
    assert "Iterations to 90 % of the expert" in page
    assert "How carefully the reward moves" not in page  # there is none
    assert not ti.load(whole.path).rewards
    (again.path / "summary.json").unlink()
    (again.path / "report.html").unlink()
    assert rows(ti.resume(again.path).path) == rows(whole.path)


@pytest.mark.slow
def test_beside_learners_that_step_an_environment_a_clone_is_a_level(tmp_path: Path) -> None:
    question = {"task": "CartPole-v1", "demos": cartpole_demo(), "seeds": 2}
    clone = ti.train("bc", **question, steps=20, out=tmp_path / "bc", **SMALL)
    learner = ti.train("piro", **question, steps=260, out=tmp_path / "piro", **SETTINGS)
    clock, timed, others = _timed(read_study([clone.path, learner.path]).of_task("CartPole-v1"))
    assert clock == "env_steps"
    assert [row.label for row in timed] == ["piro"]
    assert [row.label for row in others] == ["bc"]
    page = write_comparison([clone.path, learner.path], tmp_path / "page.html").read_text()
    assert "environment steps" in page
    alone, timed, others = _timed(read_study([clone.path]).rows)
    assert (alone, len(timed), others) == ("iteration", 1, [])


VALUES = {"width": 8, "depth": 1, "updates": 10, "batch": 16, "reward_width": 8, "reward_depth": 1}
VALUES |= {"evaluation_episodes": 2, "evaluate_every": 1, "backend": "sync"}


@pytest.mark.slow
def test_who_learns_values_needs_no_environment_and_keeps_a_reward(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"task": "CartPole-v1", "demos": cartpole_demo(), "seeds": 2, "steps": 40} | VALUES
    whole = ti.train("p2il", out=tmp_path / "whole", offline=True, **asked)
    again = ti.train("p2il", out=tmp_path / "again", offline=True, checkpoint_every=2, **asked)
    assert rows(whole.path) == rows(again.path)
    assert whole.config["world"] == "offline"
    assert "plan" not in whole.config
    assert whole.summary["learns_reward"]
    steps = whole.summary["env_steps"]
    assert steps["train"] == steps["reward"] == 0 < steps["evaluation"]
    assert len(whole.rewards) == 2
    env = whole.reward.wrap(gym.make("CartPole-v1"))
    env.reset(seed=0)
    assert np.isfinite(env.step(0)[1])
    assert whole.evaluate(2).returns.shape == (2, 2)
    assert "P2IL on CartPole-v1" in (whole.path / "report.html").read_text()
    # Without a summary the run goes on, offline as its configuration says.
    (again.path / "summary.json").unlink()
    (again.path / "report.html").unlink()
    assert rows(ti.resume(again.path).path) == rows(whole.path)
    assert len(ti.load(again.path).rewards) == 2


def test_minibatches_are_of_steps_whose_successors_are_known() -> None:
    """Episodes of three and two steps: what followed is known of three of five, and all of these are drawn."""
    obs = np.arange(5, dtype=np.float32)[:, None]
    demos = ti.Demos.from_numpy(obs, np.zeros(5, int), [3, 5], [False, False])
    expert = expert_data(demos, obs, np.zeros(5, np.int32), Weighing(10, 0.9, discounted=False, absorb=True))
    batch = demonstrated(expert, 200)(jax.random.key(0))
    assert batch.expert is not None
    assert batch.next_obs is not None
    assert bool(batch.expert.all())
    np.testing.assert_array_equal(np.unique(batch.obs), [0, 1, 3])
    np.testing.assert_array_equal(batch.next_obs, batch.obs + 1)


def test_settings_offline_are_those_on_simulators_without_what_gathers_experience() -> None:
    here, there = (setting_groups("iq-learn", "CartPole-v1", offline=offline) for offline in (True, False))
    assert here.keys() == {"algorithm_config", "solver", "fit", "control"}
    assert vars(here["fit"]).keys() == {"updates", "batch"}
    assert here["fit"].batch == there["plan"].batch
    assert vars(here["solver"]).keys() == vars(there["solver"]).keys()


def test_a_command_line_and_a_suite_can_ask_for_it() -> None:
    told = train_question(["iq-learn", "--task", "CartPole-v1", "--offline", "--updates", "7"])
    assert told["offline"]
    assert told["updates"] == 7
    assert not train_question(["iq-learn", "--task", "CartPole-v1", "--offline", "--no-offline"])["offline"]
    asked = Question("iq-learn", "CartPole-v1", offline=True, overrides={"updates": 7})
    assert asked.name == "CartPole-v1-iq-learn-offline"
    assert train_question(command_line(asked))["updates"] == 7


def test_a_clone_is_the_same_with_the_flag_and_without() -> None:
    one, other = (world_of("bc", "CartPole-v1", flag) for flag in (True, False))
    assert one is other
    assert setting_groups("bc", "CartPole-v1", offline=True) == setting_groups("bc", "CartPole-v1")


@pytest.mark.parametrize(
    ("algorithm", "changes", "words"),
    [
        ("dac", {}, "dac cannot learn without stepping an environment: .* choose one of bc, .*iq-learn"),
        ("iq-learn", {"task": "gridworld"}, "no steps of gridworld are recorded"),
        ("iq-learn", {"warmup": 3}, "warmup"),
        ("iq-learn", {"steps": 5}, "5 steps are too few; use at least 10"),
        (
            "p2il",
            {"demos": ti.Demos.from_numpy(np.zeros((3, 4)), np.zeros(3, int), [1, 2, 3])},
            "p2il must know what followed a demonstrated step",
        ),
    ],
)
def test_what_cannot_be_learned_offline_is_refused(
    algorithm: str, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"task": "CartPole-v1", "demos": cartpole_demo(), "out": tmp_path / "run"} | VALUES
    with pytest.raises(ti.InputError, match=words):
        ti.train(algorithm, **{"offline": True} | asked | changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 5}, "5 steps are too few; use at least 10"),
        ({"updates": 0}, "updates must be at least 1"),
        ({"fit_step": 0.0}, "fit_step must be positive"),
        ({"task": "gridworld"}, "bc learns from recorded steps: give it a Gymnasium task"),
        ({"demos": pendulum_demo()}, "3 observation dimensions and CartPole-v1"),
        ({"mu": 1.0}, "mu"),
    ],
)
def test_bad_questions_are_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"task": "CartPole-v1", "demos": cartpole_demo(), "out": tmp_path / "run"} | SMALL
    with pytest.raises(ti.InputError, match=words):
        ti.train("bc", **asked | changes)
    assert not (tmp_path / "run").exists()


def test_actions_on_the_border_leave_the_fit_finite(tmp_path: Path) -> None:
    demos = ti.Demos.from_numpy(np.random.default_rng(0).normal(size=(50, 3)), np.full((50, 1), 2.0))
    run = ti.train(
        "bc", "Pendulum-v1", demos, steps=200, out=tmp_path / "run", **SMALL | {"updates": 100, "fit_step": 0.03}
    )
    action = run.policy.predict(np.zeros(3, np.float32), deterministic=True)[0]
    assert 1.0 < action[0] <= 2.0
