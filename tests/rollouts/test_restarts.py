"""Episodes that begin at demonstrated states: where, when they end, what counts them, and who never sees them."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trustirl as ti
from tests.control.small import SETTINGS, experiment, pendulum_demo
from trustirl.core.errors import InputError
from trustirl.core.types import Transition
from trustirl.demos.schema import Demos, find_demos
from trustirl.irl.loop import seed_keys
from trustirl.irl.measures import weighted, with_past
from trustirl.rollouts.host import HostEnvs
from trustirl.rollouts.ledger import Ledger
from trustirl.rollouts.restarts import Starts
from trustirl.tasks.gym import make_control_task
from trustirl.worlds.simulator import build

SEEDS = np.array([[3, 4, 5], [6, 7, 8]])


def starts_in(demos: Demos) -> Starts:
    assert demos.states is not None
    return Starts(demos.states, demos.observations.astype(np.float32), demos.time_in_episode())


def roll(task: str, steps: int, shown: int, backend: Any = "sync") -> tuple[Any, Ledger, Starts]:
    ledger, starts = Ledger(), starts_in(find_demos("packaged", task).take(2, "first"))
    with HostEnvs(make_control_task(task), 2, 3, ledger, backend, starts=starts) as envs:
        envs.reset(SEEDS, shown)
        return envs.rollout(None, steps), ledger, starts


@pytest.mark.parametrize("task", ["Pendulum-v1", "Hopper-v4"])
def test_from_a_demonstrated_state_the_demonstrated_action_leads_where_it_led(task: str) -> None:
    demos = find_demos("packaged", task).take(1, "first")
    starts = replace_all(starts_in(demos), 17)
    with HostEnvs(make_control_task(task), 1, 1, Ledger(), starts=starts) as envs:
        envs.reset(np.array([[0]]), 1)
        (copy,) = envs._simulator._copies  # type: ignore[union-attr]
        np.testing.assert_array_equal(copy.obs, demos.observations[17].astype(np.float32))
        low, high = copy._task.action_low, copy._task.action_high
        row = copy.step(2 * (demos.actions[17] - low) / (high - low) - 1)
    np.testing.assert_allclose(row[2], demos.observations[18], rtol=1e-4, atol=1e-4)
    assert row[5] == 17


def replace_all(starts: Starts, row: int) -> Starts:
    return Starts(*(values[row : row + 1] for values in starts))


def test_each_demonstrated_step_is_as_likely_and_the_clock_goes_on_from_there() -> None:
    rows, ledger, starts = roll("Pendulum-v1", 3000, shown=2)
    shown, others = rows.time[:, :, :2], rows.time[:, :, 2]
    assert (others == np.arange(3000)[:, None] % 200).all()
    begins = np.concatenate([np.full((1, 2, 2), True), rows.truncated[:-1, :, :2]])
    first_times = shown[begins]
    assert len(first_times) > 80
    assert abs(first_times.mean() - starts.times.mean()) < 3 * starts.times.std() / np.sqrt(len(first_times))
    seen = {tuple(obs) for obs in starts.observations}
    assert all(tuple(obs) in seen for obs in rows.obs[:, :, :2][begins])
    assert (shown[rows.truncated[:, :, :2]] == 199).all()  # an episode ends when the demonstration's would
    assert ledger.resets == 4 + rows.truncated[:, :, :2].sum()
    assert ledger.train == ledger.total == 3000 * 6


def test_nothing_changes_where_none_is_shown() -> None:
    rows, ledger, _ = roll("Pendulum-v1", 250, shown=0)
    with HostEnvs(make_control_task("Pendulum-v1"), 2, 3, Ledger()) as envs:
        envs.reset(SEEDS)
        plain = envs.rollout(None, 250)
    for one, other in zip(rows, plain, strict=True):
        np.testing.assert_array_equal(one, other)
    assert ledger.resets == 0


def test_other_processes_begin_where_this_one_does() -> None:
    here, there = (roll("Pendulum-v1", 250, 2, backend)[0] for backend in ("sync", "async"))
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one, other)


def recorded() -> Demos:
    with gym.make("Pendulum-v1") as env:
        return Demos.record(lambda _: env.action_space.sample(), env, 1, 0)


def test_the_reward_sees_only_episodes_that_begin_where_the_task_begins_them() -> None:
    changes = {"resets": 0.5, "extra_steps": 40}
    parts = build(experiment("ml-irl", "Pendulum-v1", 1, **changes), recorded())
    state, _ = parts.loop.start(seed_keys(1))
    parts.close()
    (added,) = state.replay.added
    remembered = jax.tree.map(lambda x: np.asarray(x[0, :added]), state.replay.rows)
    np.testing.assert_array_equal(remembered.weight, np.arange(added) % 2)  # the first of two environments is shown
    learner = jax.tree.map(lambda x: np.asarray(x[0]), state.data.learner)
    acted = learner.obs[~learner.absorbing]
    assert len(acted) == 40 + 40
    shown = {tuple(obs) for obs in remembered.obs[remembered.weight == 0]}
    own = {tuple(obs) for obs in remembered.obs[remembered.weight == 1]}
    assert sum(tuple(obs) in own for obs in acted) == 40
    assert not any(tuple(obs) in shown for obs in acted)


def test_past_steps_that_weigh_nothing_stay_out_of_the_mixture() -> None:
    def rows(weight: list[float]) -> Transition:
        count = len(weight)
        return Transition(jnp.ones((count, 1)), jnp.zeros(count, int), jnp.array(weight, float))

    mixture = with_past(weighted(rows([0.5, 0.5])), weighted(rows([1, 0, 1, 0])), 0.5)
    np.testing.assert_allclose(mixture.weight, [0.25, 0.25, 0.25, 0, 0.25, 0])


@pytest.mark.slow
def test_a_run_counts_its_resets(tmp_path: Any) -> None:
    runs = [
        ti.train("ml-irl", "Pendulum-v1", recorded(), steps=420, out=tmp_path / name, **SETTINGS | {"resets": share})
        for name, share in (("none", 0.0), ("half", 0.5))
    ]
    assert [run.summary["resets"] for run in runs] == [0, 5 * 1]  # an environment of two, in five iterations
    assert runs[0].summary["env_steps"] == runs[1].summary["env_steps"]


def test_what_cannot_be_reset_is_refused_before_anything_runs(tmp_path: Any) -> None:
    def refused(demos: Any, **settings: Any) -> str:
        with pytest.raises(InputError) as error:
            ti.train("ml-irl", "Pendulum-v1", demos, steps=420, out=tmp_path / "run", **SETTINGS | settings)
        assert not (tmp_path / "run").exists()
        return str(error.value)

    assert "do not hold" in refused(pendulum_demo(), resets=0.5)
    assert "states of 2 numbers" in refused(replace(recorded(), states=np.zeros((200, 3))), resets=0.5)
    assert "begin where the task begins them" in refused(recorded(), resets=1.0)
    assert "is none" in refused(recorded(), resets=0.1)
    assert "resets must lie in" in refused(recorded(), resets=1.5)
