"""Stepping environments on the host: what is recorded is what happened."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.rollouts.policies import always, falling, linear, pushing, upright
from tests.rollouts.worlds import CoinLength, Confession, Counter, Fragile, NanAt, Recycler, limited
from trustirl.core.errors import InputError, NumericalError
from trustirl.rollouts import host
from trustirl.rollouts.host import (
    Backend,
    FixedHorizon,
    HostEnvs,
    Rollout,
    episode_seeds,
    evaluate_episodes,
    evaluate_returns,
    evaluation_envs,
    first_observations,
    resolve_backend,
)
from trustirl.rollouts.ledger import Ledger
from trustirl.rollouts.policy import Policies
from trustirl.tasks.gym import ControlTask, make_control_task


def judged(
    task: ControlTask, seeds: int, episodes: int, seed_root: int, ledger: Ledger, policies: Policies | None = None
) -> np.ndarray:
    """Returns of one evaluation, its environments opened and closed; by default of action 0."""
    with evaluation_envs(task, seeds, episodes, ledger) as envs:
        return evaluate_returns(envs, policies or always(task, 0, seeds), episodes, seed_root)


def counter(length: int, limit: int) -> ControlTask:
    return make_control_task(limited(Counter, limit, length))


def grid_of_seeds(seeds: int, envs: int, iteration: int = 0) -> np.ndarray:
    return np.stack([episode_seeds(seed, iteration, envs, "train") for seed in range(seeds)])


def roll(
    task: ControlTask,
    steps: int,
    backend: Backend = "sync",
    envs: int = 2,
    policies: Policies | None = None,
    **options: object,
) -> Rollout:
    """Two seeds, by default at random."""
    with HostEnvs(task, 2, envs, Ledger(), backend, **options) as vector:  # type: ignore[arg-type]
        vector.reset(grid_of_seeds(2, envs))
        return vector.rollout(policies, steps)


def assert_same(one: Rollout, other: Rollout) -> None:
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize(("length", "limit"), [(3, 100), (100, 3)])
def test_the_true_final_observation_survives_the_reset(length: int, limit: int, backend: Backend) -> None:
    """Episodes of 3 steps, ended by the environment or by the clock; random actions tell the step apart."""
    with HostEnvs(counter(length, limit), 1, 2, Ledger(), backend) as envs:
        envs.reset(np.array([[5, 6]]))
        rollout = envs.rollout(None, 7)
    assert len(np.unique(rollout.action)) > 2
    for env in range(2):
        obs, successor = rollout.obs[:, 0, env], rollout.next_obs[:, 0, env]
        np.testing.assert_array_equal(obs[:, 0], [0, 0, 0, 1, 1, 1, 2])  # episode
        np.testing.assert_array_equal(obs[:, 1], [0, 1, 2, 0, 1, 2, 0])  # steps in it
        np.testing.assert_array_equal(successor[:, 0], [0, 0, 0, 1, 1, 1, 2])
        np.testing.assert_array_equal(successor[:, 1], [1, 2, 3, 1, 2, 3, 1])
        np.testing.assert_array_equal(successor[:, 2], rollout.action[:, 0, env])  # s_{t+1} follows from a_t
        np.testing.assert_array_equal(rollout.time[:, 0, env], [0, 1, 2, 0, 1, 2, 0])
        np.testing.assert_array_equal(rollout.true_reward[:, 0, env], [1, 2, 3, 1, 2, 3, 1])
        ends = np.array([0, 0, 1, 0, 0, 1, 0], bool)
        np.testing.assert_array_equal(rollout.terminated[:, 0, env], ends if length == 3 else ~ends & False)
        np.testing.assert_array_equal(rollout.truncated[:, 0, env], ends if limit == 3 else ~ends & False)


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_the_unpaid_see_all_but_the_true_reward(backend: Backend) -> None:
    seen = []
    for paid in (True, False):
        with HostEnvs(counter(3, 9), 1, 2, Ledger(), backend, "T3", paid=paid) as envs:
            envs.reset(np.array([[5, 6]]))
            seen.append(envs.rollout(None, 7))
        assert envs.ledger.train == 6  # of 14 rows; the others repeat the end
    assert np.isnan(seen[1].true_reward).all()
    assert_same(*(rollout._replace(true_reward=rollout.obs) for rollout in seen))


def test_going_on_equals_never_having_stopped() -> None:
    """With a policy so sure that noise, which each round draws anew, does not matter."""
    task = make_control_task("CartPole-v1")
    whole = roll(task, 90, policies=always(task, 1, 2))
    assert whole.terminated[:60].any()
    with HostEnvs(task, 2, 2, Ledger()) as envs:
        envs.reset(grid_of_seeds(2, 2))
        parts = [envs.rollout(always(task, 1, 2), steps, round_=round_) for round_, steps in enumerate((60, 30))]
    assert_same(Rollout(*map(np.concatenate, zip(*parts, strict=True))), whole)


def test_shapes_and_types() -> None:
    rollout = roll(make_control_task("CartPole-v1"), 5, envs=3)
    assert rollout.obs.shape == rollout.next_obs.shape == (5, 2, 3, 4)
    assert rollout.obs.dtype == rollout.next_obs.dtype == np.float32
    assert rollout.action.shape == rollout.time.shape == rollout.true_reward.shape == (5, 2, 3)
    assert rollout.action.dtype == np.int32
    assert roll(make_control_task("Pendulum-v1"), 5).action.dtype == np.float32


BEHAVIOURS = {"random": None, "policy": falling(2)}


@cache
def bundled(processes: int | None) -> dict[str, Rollout]:
    """What ten environments do, all in this process or in as many others; each behaviour from the start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "_processes", lambda count: processes)
        backend: Backend = "async" if processes else "sync"
        with HostEnvs(make_control_task("CartPole-v1"), 2, 5, Ledger(), backend) as envs:
            rollouts = {}
            for name, policies in BEHAVIOURS.items():
                envs.reset(grid_of_seeds(2, 5))
                rollouts[name] = envs.rollout(policies, 60)
            return rollouts


@pytest.mark.parametrize("processes", [1, 3, 4])
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_it_does_not_matter_how_environments_are_bundled(processes: int, behaviour: str) -> None:
    """Ten environments: all together, or 3 + 3 + 4, or 2 + 3 + 2 + 3."""
    here = bundled(None)[behaviour]
    assert here.terminated.any()
    assert_same(here, bundled(processes)[behaviour])


def wide(task: ControlTask, seeds: int) -> Policies:
    """A policy of 256 x 256 units, the first seed's whatever the others."""
    sizes = [task.obs_dim, 256, 256, task.action_dim]
    shapes = tuple(shape for a, b in pairwise(sizes) for shape in ((1, b, a), (1, b)))
    random = np.random.default_rng(0)
    design = linear([[0.0]], [0.0], 1).design._replace(shapes=shapes, layers=3)
    count = sum(int(np.prod(shape)) for shape in shapes)
    drawn = random.normal(0, 0.1, (seeds, count)).astype(np.float32)
    statistics = np.zeros((seeds, task.obs_dim), np.float32)
    return Policies(design, np.concatenate([statistics, statistics + 1, drawn], axis=1))


def test_adding_seeds_and_bundles_leaves_the_first_seed_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_processes", lambda count: 2)
    task, firsts = make_control_task("CartPole-v1"), []
    backends: tuple[Backend, ...] = ("sync", "async")
    for seeds, backend in zip((1, 3), backends, strict=True):
        with HostEnvs(task, seeds, 3, Ledger(), backend) as envs:
            envs.reset(grid_of_seeds(seeds, 3))
            rollouts = [envs.rollout(wide(task, seeds), 40, "train", 2, round_) for round_ in range(2)]
        firsts.append(Rollout(*(np.concatenate(arrays)[:, 0] for arrays in zip(*rollouts, strict=True))))
    assert 0 < firsts[0].action.mean() < 1
    assert_same(*firsts)


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_seeds_in_parts_do_what_they_do_together(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_processes", lambda count: 2)
    task, policies = make_control_task("CartPole-v1"), wide(make_control_task("CartPole-v1"), 3)

    def some(first: int, end: int) -> tuple[Rollout, Rollout, np.ndarray]:
        own, seeds = policies._replace(weights=policies.weights[first:end]), end - first
        with HostEnvs(task, seeds, 2, Ledger(), backend, first_seed=first) as envs:
            assert list(envs.seed_numbers) == list(range(first, end))
            envs.reset(np.stack([episode_seeds(seed, 1, 2, "train") for seed in envs.seed_numbers]))
            at_random, acting = (envs.rollout(policy, 30, "train", 1) for policy in (None, own))
        with evaluation_envs(task, seeds, 4, Ledger(), "sync", first) as envs:
            return at_random, acting, evaluate_returns(envs, own, 4, 0)

    whole, *parts = some(0, 3), some(0, 1), some(1, 3)
    for together, *apart in zip(whole[:2], *(part[:2] for part in parts), strict=True):
        assert_same(together, Rollout(*(np.concatenate(arrays, axis=1) for arrays in zip(*apart, strict=True))))
    np.testing.assert_array_equal(whole[2], np.concatenate([part[2] for part in parts]))
    assert len(np.unique(whole[2], axis=0)) == 3  # and no two seeds do the same


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_some_actions_are_random_where_the_policy_trembles(backend: Backend) -> None:
    task = make_control_task("CartPole-v1")
    policies = always(task, 1, 1)
    with HostEnvs(task, 1, 2, Ledger(), backend) as envs:
        envs.reset(grid_of_seeds(1, 2))
        shaken, steady = (envs.rollout(policies, 1500, tremble=chance) for chance in (0.3, 0.0))
        returns = envs.play(policies, grid_of_seeds(1, 2))["true_return"]
    assert pytest.approx((shaken.action == 0).mean(), abs=0.03) == 0.15  # half of the random ones
    assert (steady.action == 1).all()
    assert (returns <= 12).all()  # without a random action the pole falls at once


def test_a_policy_that_trembles_does_what_it_would_otherwise() -> None:
    task = make_control_task("Pendulum-v1")
    policies = linear(np.zeros((2, 3)), [0.0, -1.0], 1, discrete=False)
    actions = []
    for chance in (0.0, 0.2):
        with HostEnvs(task, 1, 1, Ledger()) as envs:
            envs.reset(np.array([[3]]))
            actions.append(envs.rollout(policies, 500, tremble=chance).action[:, 0, 0, 0])
    assert pytest.approx((actions[0] == actions[1]).mean(), abs=0.06) == 0.8


def test_noise_depends_on_purpose_iteration_round_and_place() -> None:
    keys = [("train", 0, 0), ("train", 0, 1), ("train", 1, 0), ("reward", 0, 0), ("train", 0, 0)]
    with HostEnvs(counter(3, 9), 2, 2, Ledger()) as envs:
        envs.reset(grid_of_seeds(2, 2))
        *draws, again = [envs.rollout(None, 30, *key).action for key in keys]  # type: ignore[arg-type]
    np.testing.assert_array_equal(draws[0], again)
    assert len(np.unique(np.stack(draws, -1).reshape(30, -1), axis=1).T) == 4 * 4


def test_new_weights_reach_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_processes", lambda count: 2)
    task = counter(3, 9)
    with HostEnvs(task, 2, 2, Ledger(), "async") as envs:
        envs.reset(grid_of_seeds(2, 2))
        for action in (3, 1):
            assert (envs.rollout(always(task, action, 2), 4).action == action).all()
        mixed = Policies(
            always(task, 0, 1).design, np.concatenate([always(task, seed, 1).weights for seed in (4, 2)])
        )
        np.testing.assert_array_equal(envs.rollout(mixed, 4).action[:, :, 0], [[4, 2]] * 4)
        assert len(np.unique(envs.rollout(None, 30).action)) == 5
        assert (envs.rollout(mixed, 4).action[:, 1] == 2).all()


def test_processes_leave_no_files_and_this_process_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    before = dict(os.environ)
    with HostEnvs(counter(3, 9), 1, 2, Ledger(), "async") as envs:
        assert dict(os.environ) == before
        envs.reset(np.array([[5, 6]]))
        envs.rollout(always(envs.task, 0, 1), 4)
        assert not list(tmp_path.glob("trustirl-*"))  # so even a killed process leaves nothing


def test_processes_share_the_environments_and_leave_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cores", lambda: 16)
    assert [host._processes(count) for count in (1, 2, 3, 25, 64)] == [1, 2, 3, 15, 15]
    monkeypatch.setattr(host, "cores", lambda: 1)
    assert host._processes(9) == 1


def test_workers_are_other_processes_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "jax" in sys.modules
    monkeypatch.setattr(host, "_processes", lambda count: 2)
    process, has_jax, _ = np.moveaxis(roll(make_control_task(limited(Confession, 9)), 1, "async").next_obs, -1, 0)
    assert len(np.unique(process)) == 2
    assert os.getpid() not in process
    np.testing.assert_array_equal(has_jax, 0.0)


def test_importing_the_rollouts_does_not_import_jax() -> None:
    """Worker processes import the package before they step anything."""
    program = "import sys, trustirl.rollouts.host; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


def test_an_environment_may_use_the_memory_of_its_observations_again() -> None:
    ordinary, recycled = counter(3, 100), make_control_task(limited(Recycler, 100, 3))
    for termination in ("T0", "T3"):
        expected, actual = (roll(task, 7, termination=termination) for task in (ordinary, recycled))
        assert_same(expected, actual)


def test_results_are_not_overwritten_by_the_next_round() -> None:
    with HostEnvs(counter(3, 9), 1, 2, Ledger()) as envs:
        envs.reset(np.array([[5, 6]]))
        first = envs.rollout(None, 5)
        kept = Rollout(*(array.copy() for array in first))
        envs.rollout(None, 5)
    assert_same(first, kept)


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_an_error_of_an_environment_reaches_the_user(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_processes", lambda count: 3)
    with HostEnvs(make_control_task(limited(Fragile, 9)), 1, 5, Ledger(), backend) as envs:
        envs.reset(np.array([[2, 4, 6, 7, 8]]))
        with pytest.raises(RuntimeError, match="environment 3 failed: Breakdown: the axle broke after 3 steps"):
            envs.rollout(None, 5)


def test_a_process_that_dies_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_processes", lambda count: 2)
    with HostEnvs(make_control_task(limited(Fragile, 9)), 1, 4, Ledger(), "async") as envs:
        envs.reset(np.array([[2, 4, 6, -1]]))
        with pytest.raises(RuntimeError, match="a process that steps environments died"):
            envs.rollout(None, 5)


def test_an_environment_that_cannot_be_made_says_why() -> None:
    good = make_control_task("CartPole-v1")

    def broken() -> gym.Env:
        raise OSError("no such model file")

    refused = pytest.raises(RuntimeError, match="environment 0 failed: OSError: no such model file")
    with HostEnvs(replace(good, make=broken), 1, 2, Ledger(), "async") as envs, refused:
        envs.reset(np.zeros((1, 2), int))


def test_a_script_without_a_main_guard_can_use_processes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('started')\n"
        "import gymnasium as gym, numpy as np\n"
        "from trustirl.rollouts.host import HostEnvs\n"
        "from trustirl.rollouts.ledger import Ledger\n"
        "from trustirl.tasks.gym import make_control_task\n"
        "class Mine(gym.Wrapper): pass\n"
        "task = make_control_task(lambda: Mine(gym.make('CartPole-v1')))\n"
        "with HostEnvs(task, 1, 2, Ledger(), 'async') as envs:\n"
        "    envs.reset(np.zeros((1, 2), int))\n"
        "    print(envs.rollout(None, 3).obs.shape)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n") == ["started", "(3, 1, 2, 4)", ""], done.stderr


def test_auto_uses_processes_for_slow_simulators_on_many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, slow = counter(3, 9), replace(counter(3, 9), versions={"mujoco": "3.1.6"})
    monkeypatch.setattr(host, "cores", lambda: 16)
    assert (resolve_backend("auto", slow), resolve_backend("auto", quick)) == ("async", "sync")
    assert resolve_backend("sync", slow) == "sync"
    monkeypatch.setattr(host, "cores", lambda: 4)
    assert resolve_backend("auto", slow) == "sync"


def test_a_reset_forgets_what_happened_before() -> None:
    runs = []
    with HostEnvs(make_control_task("CartPole-v1"), 2, 2, Ledger()) as envs:
        for iteration in (3, 4, 3):
            envs.reset(grid_of_seeds(2, 2, iteration))
            runs.append(envs.rollout(falling(2), 40))
    first, other, again = runs
    assert first.terminated.any()  # so an unseeded reset lies within
    assert_same(first, again)
    assert not np.array_equal(first.obs, other.obs)


def test_seeds_depend_on_their_own_run_iteration_and_purpose_only() -> None:
    few, many = episode_seeds(7, 3, 4, "train"), episode_seeds(7, 3, 9, "train")
    np.testing.assert_array_equal(few, many[:4])
    np.testing.assert_array_equal(grid_of_seeds(2, 4), grid_of_seeds(5, 4)[:2])
    different = [
        few,
        episode_seeds(7, 4, 4, "train"),
        episode_seeds(8, 3, 4, "train"),
        episode_seeds(7, 3, 4, "reward"),
    ]
    assert len(np.unique(different)) == 16
    assert few.min() >= 0


def test_first_observations_are_those_of_resets() -> None:
    task = make_control_task("Pendulum-v1")
    rows = first_observations(task, 40)
    np.testing.assert_array_equal(rows, first_observations(task, 40))
    assert rows.shape == (40, 3)
    np.testing.assert_allclose(np.hypot(rows[:, 0], rows[:, 1]), 1, rtol=1e-5)
    assert np.abs(rows[:, 2]).max() <= 1  # speeds, which steps would change at once
    assert len(np.unique(rows[:, 2])) == 40


def test_purposes_never_share_a_seed() -> None:
    for high, purpose in enumerate(("train", "reward", "evaluation")):
        seeds = episode_seeds(0, 0, 2000, purpose)  # type: ignore[arg-type]
        assert (seeds >> host.SEED_BITS == high).all()
        assert len(np.unique(seeds)) > 1990
    assert seeds.max() < 2**31


def test_every_step_is_counted_by_purpose() -> None:
    ledger = Ledger(train=100)
    task = counter(3, 9)
    with HostEnvs(task, 2, 3, ledger) as envs:
        envs.reset(grid_of_seeds(2, 3))
        envs.rollout(None, 5)
        envs.rollout(None, 2, "reward")
    judged(task, 2, 4, 0, ledger)
    assert ledger.counts == {"train": 130, "reward": 12, "evaluation": 24}
    assert ledger.total == 166
    assert Ledger(**ledger.counts) == ledger


def test_evaluation_steps_and_counts_no_idle_environment() -> None:
    """The ledger against the environments' own count; every step of an episode pays 1."""
    asked = []

    class Watched(CoinLength):
        def step(self, action):  # type: ignore[no-untyped-def]
            asked.append(action)
            return super().step(action)

    ledger = Ledger()
    returns = judged(make_control_task(limited(Watched, 20)), 2, 5, 0, ledger)
    assert set(np.unique(returns)) == {1.0, 9.0}
    assert ledger.evaluation == len(asked) == returns.sum()


def test_evaluation_has_no_bias_towards_short_episodes() -> None:
    """The first episodes to end would average near 1; every environment's own first episode averages 5."""
    returns = judged(make_control_task(limited(CoinLength, 20)), 4, 512, 0, Ledger())
    assert returns.shape == (4, 512)
    assert set(np.unique(returns)) == {1.0, 9.0}
    assert abs(returns.mean() - 5) < 4 * 4 / np.sqrt(returns.size)


class Reports(gym.Wrapper):
    """Says at one step that the goal was reached, by one of the usual names, or never says anything."""

    def __init__(self, env: gym.Env, name: str, after: int) -> None:
        super().__init__(env)
        self._name, self._after = name, after

    def reset(self, **arguments: Any) -> Any:
        self._steps = 0
        return self.env.reset(**arguments)

    def step(self, action: Any) -> Any:
        self._steps += 1
        *seen, info = self.env.step(action)
        return *seen, info | ({self._name: np.bool(self._steps == self._after)} if self._name else {})


@pytest.mark.parametrize(("name", "after"), [("success", 3), ("is_success", 1), ("success", 10**6), ("", 0)])
def test_success_is_what_the_environment_reports(name: str, after: int) -> None:
    task = make_control_task(lambda: Reports(gym.make("CartPole-v1"), name, after))
    with HostEnvs(task, 1, 2, Ledger()) as envs:
        episodes = evaluate_episodes(envs, always(task, 1, 1), 4, 0)
    told, lengths = host.judged(episodes), episodes["steps"]
    np.testing.assert_allclose(told["return_mean"], lengths.mean(axis=1))  # CartPole pays 1 a step
    if not name:
        assert told.keys() == {"return_mean", "return_std"}
        return
    reached = after <= lengths.min()
    assert told["success"].tolist() == [float(reached)]
    np.testing.assert_allclose(told["steps_to_success"], after if reached else lengths.mean(axis=1))


def test_evaluation_repeats_and_is_played_to_the_end() -> None:
    task = make_control_task("CartPole-v1")
    first, again = (judged(task, 2, 3, 11, Ledger(), upright(2)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, judged(task, 2, 3, 11, Ledger()))
    np.testing.assert_array_equal(first, judged(task, 3, 3, 11, Ledger(), upright(3))[:2])
    assert (first > 100).all()
    truncated = judged(counter(100, 6), 1, 2, 0, Ledger())
    np.testing.assert_array_equal(truncated, [[21.0, 21.0]])  # 1 + 2 + ... + 6


def test_processes_play_the_same_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_processes", lambda count: 3)
    task, played = make_control_task("CartPole-v1"), []
    backends: tuple[Backend, ...] = ("sync", "async")
    for backend in backends:
        ledger = Ledger()
        with evaluation_envs(task, 2, 4, ledger, backend) as envs:
            played.append(evaluate_returns(envs, upright(2), 4, 0))
        assert ledger.evaluation == played[-1].sum()
    np.testing.assert_array_equal(*played)


def test_rounds_do_not_change_the_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_control_task(limited(CoinLength, 20))
    at_once = judged(task, 2, 12, 3, Ledger())
    monkeypatch.setattr(host, "MAX_EVALUATION_ENVS", 8)
    np.testing.assert_array_equal(at_once, judged(task, 2, 12, 3, Ledger()))
    assert len(np.unique(at_once)) == 2


def test_fixed_horizon_stays_at_the_end() -> None:
    env = FixedHorizon(gym.wrappers.TimeLimit(Counter(3), 6), 6)
    for _ in range(2):
        env.reset(seed=0)
        steps = [env.step(2) for _ in range(6)]
        np.testing.assert_array_equal([obs[1] for obs, *_ in steps], [1, 2, 3, 3, 3, 3])
        assert [reward for _, reward, *_ in steps] == [1, 2, 3, 0, 0, 0]
        assert not any(terminated for _, _, terminated, *_ in steps)
        assert [truncated for *_, truncated, _ in steps] == [False] * 5 + [True]


@pytest.mark.parametrize("length", [6, 100])
def test_fixed_horizon_at_the_horizon_itself(length: int) -> None:
    env = FixedHorizon(gym.wrappers.TimeLimit(Counter(length), 6), 6)
    env.reset(seed=0)
    _, reward, terminated, truncated, _ = [env.step(0) for _ in range(6)][-1]
    assert (reward, terminated, truncated) == (6, False, True)


def test_seeds_that_compete_are_judged_on_the_same_episodes() -> None:
    still = linear(np.zeros((2, 3)), np.zeros(2), 3, discrete=False)
    with host.evaluation_envs(make_control_task("Pendulum-v1"), 3, 2, Ledger(), "sync") as envs:
        returns = evaluate_returns(envs, still, 2, 0, alike=True)
        np.testing.assert_array_equal(returns, returns[:1].repeat(3, axis=0))
        assert len(np.unique(evaluate_returns(envs, still, 2, 0))) == 6


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_t3_gives_all_episodes_the_same_length(backend: Backend) -> None:
    rollout = roll(counter(2, 5), 10, backend, termination="T3")
    assert not rollout.terminated.any()
    np.testing.assert_array_equal(rollout.truncated[:, 0, 0], [0, 0, 0, 0, 1] * 2)
    np.testing.assert_array_equal(rollout.next_obs[:, 0, 0, 1], [1, 2, 2, 2, 2] * 2)
    np.testing.assert_array_equal(rollout.time[:, 0, 0], [0, 1, 2, 3, 4] * 2)


def test_repeated_observations_are_no_steps() -> None:
    with HostEnvs(counter(2, 5), 1, 3, Ledger(), termination="T3") as envs:
        envs.reset(grid_of_seeds(1, 3))
        envs.rollout(None, 10)
    assert envs.ledger.train == 3 * 2 * 2  # environments, episodes, steps before each end


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_nan_is_traced_to_its_environment_and_step(backend: Backend) -> None:
    task = make_control_task(limited(NanAt, 9))
    with HostEnvs(task, 2, 3, Ledger(), backend) as envs:
        envs.reset(np.array([[2, 4, 6], [8, 3, 10]]))
        with pytest.raises(NumericalError, match=r"environment 1 of seed 1 gave a NaN .* at step 3 after its reset"):
            envs.rollout(None, 5)


def test_a_nan_in_a_final_observation_is_seen() -> None:
    task = make_control_task(limited(NanAt, 3))
    with HostEnvs(task, 1, 2, Ledger()) as envs:
        envs.reset(np.array([[2, 3]]))
        with pytest.raises(NumericalError, match="environment 1 of seed 0"):
            envs.rollout(None, 5)


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_nan_action_is_not_given_to_the_environment(backend: Backend) -> None:
    broken = linear(np.full((2, 3), np.nan), np.zeros(2), 1, discrete=False)
    with HostEnvs(make_control_task("Pendulum-v1"), 1, 2, Ledger(), backend) as envs:
        envs.reset(np.array([[5, 6]]))
        with pytest.raises(NumericalError, match=r"an action of the policy is NaN or outside \[-1, 1\]"):
            envs.rollout(broken, 5)


def test_wrong_shapes_are_refused() -> None:
    task = counter(3, 9)
    with HostEnvs(task, 2, 1, Ledger()) as envs:
        with pytest.raises(InputError, match="expected 2 x 1 environment seeds"):
            envs.reset(np.zeros((1, 2), int))
        envs.reset(np.zeros((2, 1), int))
        with pytest.raises(InputError, match="expected the policies of 2 seeds, not of 3"):
            envs.rollout(always(task, 0, 3), 5)
        assert envs.ledger.total == 0


def test_hopper_runs_and_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("mujoco", "imageio"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    task = make_control_task("Hopper-v4")
    runs = []
    monkeypatch.setattr(host, "_processes", lambda count: 2)
    for backend in ("sync", "async"):
        with HostEnvs(task, 1, 3, Ledger(), backend) as envs:  # type: ignore[arg-type]
            envs.reset(grid_of_seeds(1, 3))
            runs.append(envs.rollout(pushing(1), 60))
    assert runs[0].terminated.any()
    assert_same(*runs)
    inside = ~(runs[0].terminated | runs[0].truncated)[:-1]
    np.testing.assert_array_equal(runs[0].next_obs[:-1][inside], runs[0].obs[1:][inside])
    assert not np.array_equal(runs[0].next_obs[:-1][~inside], runs[0].obs[1:][~inside])
