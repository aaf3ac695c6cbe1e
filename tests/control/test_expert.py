"""Experts: what they learn from, what they leave, and that nobody else sees the true reward."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.wrappers import TimeLimit

import trustirl as ti
from tests.control.small import SETTINGS, stopping
from tests.control.test_runs import metrics
from trustirl.cli.main import main
from trustirl.core.types import Transition
from trustirl.demos import restore_state
from trustirl.irl.loop import iterate, seed_keys
from trustirl.irl.measures import Steps
from trustirl.rl.truth import PaidTransition, true_reward
from trustirl.training.train import setting_groups
from trustirl.worlds import fixed_reward as expert
from trustirl.worlds.fixed_reward_run import FIRST_SEED
from trustirl.worlds.job import Experiment, settle

OF_REWARDS = ("reward_batch", "reference", "reward_width", "reward_depth")
SMALL: dict[str, Any] = {name: SETTINGS[name] for name in SETTINGS if name not in OF_REWARDS} | {"episodes": 3}


class Ledge(gym.Env):
    """A walk that ends beyond 3; a step pays a known function of where it began and of the action."""

    observation_space, action_space = Box(-np.inf, np.inf, (2,)), Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=2)
        return self.state.astype(np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        paid = float(paid_for(self.state, action))
        self.state = self.state + self.np_random.normal(size=2) + float(action[0])
        return self.state.astype(np.float32), paid, bool(np.abs(self.state).max() > 3), False, {}


def paid_for(obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    return obs[..., 0] - 2 * obs[..., 1] + 10 * action[..., 0]


def ledge() -> gym.Env:
    return TimeLimit(Ledge(), 12)


def question(task: Any = "CartPole-v1", seeds: int = 2, **changes: Any) -> Experiment:
    """Three iterations, the first one included."""
    settings = settle(setting_groups("expert", task), SMALL | changes, "an expert")
    name = task if isinstance(task, str) else task.__name__
    return Experiment("expert", name, {}, "", None, "first", seeds, 260, settings, "fixed reward")


def built(asked: Experiment, task: Any = None) -> expert.Expert:
    return expert.build(asked, expert.ExpertOptions(**asked.settings["expert"]), task)


def test_replay_rows_carry_the_true_reward_of_their_own_transition_and_training_repeats_itself() -> None:
    parts = built(question(ledge), ledge)
    once, again = (list(iterate(parts.loop, seed_keys(2), 1)) for _ in range(2))
    parts.close()
    for (_, one), (_, other) in zip(once, again, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])
            assert one[name][0] != one[name][1]  # seeds differ
    state = once[-1][0]
    rows = state.replay.rows
    assert isinstance(rows, PaidTransition)
    assert int(state.replay.size[0]) == 180
    rows = jax.tree.map(lambda x: x[:, :180], rows)
    paid = np.asarray(rows.true_reward)
    np.testing.assert_allclose(paid, paid_for(np.asarray(rows.obs), np.asarray(rows.action)), rtol=1e-4, atol=1e-4)
    assert paid.dtype == np.float32
    assert np.std(paid) > 1
    ended = np.asarray(rows.terminated)
    np.testing.assert_array_equal(ended, (np.abs(np.asarray(rows.next_obs)) > 3).any(axis=-1))  # limits end nothing
    assert 0 < ended.mean() < 1


def test_nothing_follows_an_end_and_the_reward_is_what_was_paid() -> None:
    """With rows that all end, action values are regressed on the reward itself."""
    parts = built(question(seeds=1, learning_rate=3e-2, update_ratio=20.0))
    parts.close()
    obs = jnp.asarray(np.random.default_rng(0).normal(size=(64, 4)), jnp.float32)
    batch = PaidTransition(
        obs,
        jnp.arange(64) % 2,
        jnp.ones(64, jnp.float32),
        obs,
        jnp.ones(64, bool),
        true_reward=jnp.full(64, 7.0, jnp.float32),
    )
    improve = jax.jit(lambda agent, key: parts.solver.improve(agent, lambda _: batch, true_reward, key))
    agent, _ = improve(parts.solver.init(jax.random.key(0)), jax.random.key(1))
    _, learned = improve(agent, jax.random.key(2))
    assert float(learned["q"]) == pytest.approx(7.0, abs=0.5)  # 700 if the reward went on for ever


def test_whoever_learns_a_reward_is_told_none() -> None:
    for record in (Transition, Steps):
        names = {field.name for field in fields(record)} if record is Transition else set(Steps._fields)
        assert not any("reward" in name for name in names)
    with pytest.raises(AssertionError):
        true_reward(Transition(jnp.zeros((1, 2)), jnp.zeros((1, 1)), jnp.ones(1)))


@pytest.fixture(scope="module", params=[pytest.param("CartPole-v1", marks=pytest.mark.slow), "Pendulum-v1"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ti.Run:
    return ti.train_expert(request.param, seeds=2, steps=260, out=tmp_path_factory.mktemp("run"), **SMALL)


def test_a_card_says_where_the_demonstrations_come_from(run: ti.Run) -> None:
    card = json.loads((run.path / "card.json").read_text())
    rows = metrics(run.path)[-2:]
    best = max((0, 1), key=lambda seed: rows[seed]["return_mean"])
    assert card["expert_seed"] == run.summary["expert_seed"] == best
    assert card["seed_returns"] == [row["return_mean"] for row in rows]
    for name in ("mean", "std", "min", "max"):
        assert card["evaluation"][name] == rows[best][f"return_{name}"]
    assert (card["task"], card["seeds"], card["steps_per_seed"]) == (run.config["task"], 2, 260)
    assert {"trustirl", "jax", "gymnasium"} <= card["versions"].keys()
    assert card["command"] == "trustirl.train_expert"
    assert "highest mean true return" in card["selection"]
    demos = ti.Demos.from_npz(run.path / "demos.npz")
    assert card["demo_hash"] == demos.content_hash()
    returns = demos.returns()
    assert returns is not None
    assert len(demos) == card["demonstrations"]["episodes"] == 3
    told = [card["demonstrations"][name] for name in ("mean", "std", "min", "max")]
    np.testing.assert_allclose(told, [returns.mean(), returns.std(), returns.min(), returns.max()])
    assert run.summary["env_steps"]["train"] == 2 * 260
    with pytest.raises(ti.InputError, match="learns no reward"):
        _ = run.reward


def test_recorded_episodes_are_the_experts_and_can_be_taken_up_again(run: ti.Run) -> None:
    replayed(run, atol=1e-6)


def replayed(run: ti.Run, atol: float) -> None:
    """Play the episodes again by `run.policy`; then restore states and take single steps."""
    demos = ti.Demos.from_npz(run.path / "demos.npz")
    assert demos.states is not None
    assert demos.next_observations is not None
    assert demos.observations.dtype == demos.next_observations.dtype == np.float32
    assert demos.states.dtype == np.float64
    env = gym.make(run.config["task"])
    for number, episode in enumerate(demos):
        obs, _ = env.reset(seed=FIRST_SEED + number)
        for step, done in enumerate(episode.actions):
            np.testing.assert_array_equal(np.asarray(obs, np.float32), episode.observations[step])
            action, _ = run.policy.predict(obs, deterministic=True)
            np.testing.assert_allclose(action, done, atol=1e-5)
            obs, reward, terminated, _, _ = env.step(done)
            assert float(reward) == pytest.approx(episode.rewards[step], rel=1e-5)  # type: ignore[index,arg-type]
            np.testing.assert_array_equal(np.asarray(obs, np.float32), episode.next_observations[step])  # type: ignore[index]
        assert terminated == episode.terminated[0]
    for step in range(0, len(demos.actions), max(1, len(demos.actions) // 20)):
        env.reset(seed=0)
        restore_state(env, demos.states[step])
        obs, *_ = env.step(demos.actions[step])
        np.testing.assert_allclose(obs, demos.next_observations[step], atol=atol)


@pytest.mark.slow
def test_mujoco_states_can_be_taken_up_again(tmp_path: Path) -> None:
    replayed(ti.train_expert("Hopper-v4", steps=100, out=tmp_path / "run", **(SMALL | {"replay": None})), atol=1e-4)


def test_an_interrupted_expert_resumes_to_the_same_metrics_and_demonstrations(run: ti.Run, tmp_path: Path) -> None:
    make = stopping(run.config["task"], tmp_path / "run")
    settings = {name: value for group in ("solver", "plan", "expert") for name, value in run.config[group].items()}
    with pytest.raises(ti.Interrupted, match=r"stopped after \d of 2 .*trustirl resume"):
        ti.train_expert(make, seeds=2, steps=260, out=tmp_path / "run", **settings)
    again = ti.resume(tmp_path / "run", task=run.config["task"])  # a function is no task that a file can name
    assert metrics(tmp_path / "run") == metrics(run.path)
    assert again.summary["env_steps"] == run.summary["env_steps"]
    cards = [json.loads((path / "card.json").read_text()) for path in (run.path, tmp_path / "run")]
    assert cards[0]["demo_hash"] == cards[1]["demo_hash"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["CartPole-v9"], "CartPole"),
        (["gridworld"], "gridworld has an exact expert"),
        (["cartpole"], "unknown task"),
        (["CartPole-v1", "--steps", "0"], "steps must be at least 1"),
        (["CartPole-v1", "--steps", "300"], "300 steps are too few; use at least 2000"),
        (["CartPole-v1", "--episodes", "0"], "episodes must be at least 1"),
        (["CartPole-v1", "--learn-temperature"], "a setting of SAC"),
        (["CartPole-v1", "--reward-batch", "3"], "--reward-batch"),
        (["CartPole-v1", "--task-args", "speed"], "name=value"),
    ],
)
def test_bad_questions_are_one_line(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["expert", *words, "--out", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert complaint in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_an_expert_is_no_algorithm(tmp_path: Path) -> None:
    with pytest.raises(ti.InputError, match="unknown algorithm"):
        ti.train("expert", "CartPole-v1", out=tmp_path / "run")


@pytest.mark.parametrize("task", expert.PRESETS)
def test_presets_let_an_episode_be_seen_to_its_end(task: str) -> None:
    schedule = expert.groups(expert.PRESETS[task])["plan"]
    spec = gym.registry[task]
    assert spec.max_episode_steps is not None
    assert schedule.steps_per_iteration // schedule.envs >= spec.max_episode_steps
    assert expert.PRESETS[task].keys() <= {"steps"} | {
        field.name for default in expert.groups({}).values() for field in fields(default)
    }
