"""Stepping environments on the host: what is recorded is what happened."""

import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from tests.rollouts.worlds import CoinLength, Confession, Counter, NanAt, limited
from trustirl.core.errors import InputError, NumericalError
from trustirl.rollouts import host
from trustirl.rollouts.host import (
    Act,
    Backend,
    FixedHorizon,
    HostEnvs,
    Rollout,
    collect,
    episode_seeds,
    evaluate_returns,
    evaluation_envs,
    resolve_backend,
)
from trustirl.rollouts.ledger import Ledger
from trustirl.tasks.control import ControlTask, make_control_task


def judged(task: ControlTask, act: Act, seeds: int, episodes: int, seed_root: int, ledger: Ledger) -> np.ndarray:
    """Returns of one evaluation, its environments opened and closed."""
    with evaluation_envs(task, seeds, episodes, ledger) as envs:
        return evaluate_returns(envs, act, episodes, seed_root)


def counter(length: int, limit: int) -> ControlTask:
    return make_control_task(limited(Counter, limit, length))


def grid_of_seeds(seeds: int, envs: int, iteration: int = 0) -> np.ndarray:
    return np.stack([episode_seeds(seed, iteration, envs, "train") for seed in range(seeds)])


def zeros(obs: np.ndarray) -> np.ndarray:
    return np.zeros(obs.shape[:2], int)


def coins(obs: np.ndarray) -> np.ndarray:
    """A deterministic choice between two actions that depends on every entry."""
    return (np.abs(obs * 1e4).astype(np.int64).sum(-1)) % 2


def roll(task: ControlTask, steps: int, backend: Backend = "sync", envs: int = 2, **options: object) -> Rollout:
    with HostEnvs(task, 2, envs, Ledger(), backend, **options) as vector:  # type: ignore[arg-type]
        return collect(vector, coins, steps, vector.reset(grid_of_seeds(2, envs)))


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize(("length", "limit"), [(3, 100), (100, 3)])
def test_the_true_final_observation_survives_the_reset(length: int, limit: int, backend: Backend) -> None:
    """Episodes of 3 steps, ended by the environment or by the clock; actions tell the step apart."""
    task = counter(length, limit)
    clock = iter(range(100))
    with HostEnvs(task, 1, 2, Ledger(), backend) as envs:
        start = envs.reset(np.array([[5, 6]]))
        rollout = collect(envs, lambda obs: np.full(obs.shape[:2], next(clock) % 5), 7, start)
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


def test_going_on_equals_never_having_stopped() -> None:
    task = counter(4, 100)
    whole = roll(task, 10)
    with HostEnvs(task, 2, 2, Ledger()) as envs:
        first = collect(envs, coins, 6, envs.reset(grid_of_seeds(2, 2)))
        second = collect(envs, coins, 4, first.final_obs, first.final_time)
    for name in Rollout._fields[:-2]:
        joined = np.concatenate([getattr(first, name), getattr(second, name)])
        np.testing.assert_array_equal(joined, getattr(whole, name))
    np.testing.assert_array_equal(second.final_time, whole.final_time)
    assert (whole.final_time == 2).all()


def test_shapes_and_types() -> None:
    rollout = roll(make_control_task("CartPole-v1"), 5, envs=3)
    assert rollout.obs.shape == rollout.next_obs.shape == (5, 2, 3, 4)
    assert rollout.obs.dtype == rollout.next_obs.dtype == np.float32
    assert rollout.action.shape == rollout.time.shape == rollout.true_reward.shape == (5, 2, 3)
    assert rollout.final_obs.shape == (2, 3, 4)


def test_sync_and_async_agree() -> None:
    task = make_control_task("CartPole-v1")
    here, there = roll(task, 60, "sync"), roll(task, 60, "async")
    assert here.terminated.any()
    for mine, theirs in zip(here, there, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_workers_are_other_processes_without_jax() -> None:
    assert "jax" in sys.modules
    observed = roll(make_control_task(limited(Confession, 9)), 1, "async").next_obs
    assert len(np.unique(observed[..., 0])) == 4
    np.testing.assert_array_equal(observed[..., 1], 0.0)


def test_a_script_without_a_main_guard_can_use_processes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('started')\n"
        "import gymnasium as gym, numpy as np\n"
        "from trustirl.rollouts.host import HostEnvs\n"
        "from trustirl.rollouts.ledger import Ledger\n"
        "from trustirl.tasks.control import make_control_task\n"
        "class Mine(gym.Wrapper): pass\n"
        "task = make_control_task(lambda: Mine(gym.make('CartPole-v1')))\n"
        "with HostEnvs(task, 1, 2, Ledger(), 'async') as envs:\n"
        "    print(envs.reset(np.zeros((1, 2), int)).shape)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n") == ["started", "(1, 2, 4)", ""], done.stderr


def test_auto_uses_processes_for_slow_simulators_on_many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, slow = counter(3, 9), ControlTask("x", "x", Counter, {}, 3, 2, True, 9, versions={"mujoco": "3.1.6"})
    monkeypatch.setattr(host, "_cores", lambda: 16)
    assert (resolve_backend("auto", slow), resolve_backend("auto", quick)) == ("async", "sync")
    assert resolve_backend("sync", slow) == "sync"
    monkeypatch.setattr(host, "_cores", lambda: 4)
    assert resolve_backend("auto", slow) == "sync"


def test_a_reset_forgets_what_happened_before() -> None:
    task = make_control_task("CartPole-v1")
    with HostEnvs(task, 2, 2, Ledger()) as envs:
        first = collect(envs, coins, 40, envs.reset(grid_of_seeds(2, 2, iteration=3)))
        other = collect(envs, coins, 17, envs.reset(grid_of_seeds(2, 2, iteration=4)))
        again = collect(envs, coins, 40, envs.reset(grid_of_seeds(2, 2, iteration=3)))
    assert first.terminated.any()  # so an unseeded reset lies within
    for before, after in zip(first, again, strict=True):
        np.testing.assert_array_equal(before, after)
    assert not np.array_equal(first.obs[:17], other.obs)


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
        start = envs.reset(grid_of_seeds(2, 3))
        collect(envs, zeros, 5, start)
        collect(envs, zeros, 2, start, purpose="reward")
    judged(task, zeros, 2, 4, 0, ledger)
    assert ledger.counts == {"train": 130, "reward": 12, "evaluation": 24}
    assert ledger.total == 166
    assert Ledger(**ledger.counts) == ledger


def test_evaluation_counts_what_environments_were_asked() -> None:
    """The ledger against the environments' own count, idle steps included."""
    asked = []

    class Watched(CoinLength):
        def step(self, action):  # type: ignore[no-untyped-def]
            asked.append(action)
            return super().step(action)

    ledger = Ledger()
    judged(make_control_task(limited(Watched, 20)), zeros, 2, 5, 0, ledger)
    assert ledger.evaluation == len(asked) > 0


def test_evaluation_has_no_bias_towards_short_episodes() -> None:
    """The first episodes to end would average near 1; every environment's own first episode averages 5."""
    returns = judged(make_control_task(limited(CoinLength, 20)), zeros, 4, 512, 0, Ledger())
    assert returns.shape == (4, 512)
    assert set(np.unique(returns)) == {1.0, 9.0}
    assert abs(returns.mean() - 5) < 4 * 4 / np.sqrt(returns.size)


def test_evaluation_repeats_and_is_played_to_the_end() -> None:
    task = make_control_task("CartPole-v1")
    lean = lambda obs: (obs[..., 2] + obs[..., 3] > 0).astype(int)  # noqa: E731
    first, again = (judged(task, lean, 2, 3, 11, Ledger()) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, judged(task, zeros, 2, 3, 11, Ledger()))
    np.testing.assert_array_equal(first, judged(task, lean, 3, 3, 11, Ledger())[:2])
    truncated = judged(counter(100, 6), zeros, 1, 2, 0, Ledger())
    np.testing.assert_array_equal(truncated, [[21.0, 21.0]])  # 1 + 2 + ... + 6


def test_rounds_do_not_change_the_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_control_task(limited(CoinLength, 20))
    at_once = judged(task, zeros, 2, 12, 3, Ledger())
    monkeypatch.setattr(host, "MAX_EVALUATION_ENVS", 8)
    np.testing.assert_array_equal(at_once, judged(task, zeros, 2, 12, 3, Ledger()))
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


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_t3_gives_all_episodes_the_same_length(backend: Backend) -> None:
    rollout = roll(counter(2, 5), 10, backend, termination="T3")
    assert not rollout.terminated.any()
    np.testing.assert_array_equal(rollout.truncated[:, 0, 0], [0, 0, 0, 0, 1] * 2)
    np.testing.assert_array_equal(rollout.next_obs[:, 0, 0, 1], [1, 2, 2, 2, 2] * 2)
    np.testing.assert_array_equal(rollout.time[:, 0, 0], [0, 1, 2, 3, 4] * 2)


def test_a_nan_is_traced_to_its_environment_and_step() -> None:
    task = make_control_task(limited(NanAt, 9))
    with HostEnvs(task, 2, 3, Ledger()) as envs:
        start = envs.reset(np.array([[2, 4, 6], [8, 3, 10]]))
        with pytest.raises(NumericalError, match=r"environment 1 of seed 1 gave a NaN .* at step 3 after its reset"):
            collect(envs, zeros, 5, start)


def test_a_nan_in_a_final_observation_is_seen() -> None:
    task = make_control_task(limited(NanAt, 3))
    with HostEnvs(task, 1, 2, Ledger()) as envs:
        start = envs.reset(np.array([[2, 3]]))
        with pytest.raises(NumericalError, match="environment 1 of seed 0"):
            collect(envs, zeros, 5, start)


def test_wrong_shapes_are_refused() -> None:
    with HostEnvs(counter(3, 9), 2, 1, Ledger()) as envs:
        with pytest.raises(InputError, match="expected 2 x 1 environment seeds"):
            envs.reset(np.zeros((1, 2), int))
        envs.reset(np.zeros((2, 1), int))
        with pytest.raises(InputError, match=r"needs actions of shape \(2, 1\), not \(2, 1, 3\)"):
            envs.step(np.zeros((2, 1, 3), int), "train")
        assert envs.ledger.total == 0


def test_hopper_runs_and_repeats() -> None:
    for package in ("mujoco", "imageio"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    task = make_control_task("Hopper-v4")
    push = lambda obs: np.tanh(obs[..., :3] * 9)  # noqa: E731
    runs = []
    for backend in ("sync", "async"):
        with HostEnvs(task, 1, 2, Ledger(), backend) as envs:  # type: ignore[arg-type]
            runs.append(collect(envs, push, 60, envs.reset(grid_of_seeds(1, 2))))
    assert runs[0].terminated.any()
    for mine, theirs in zip(*runs, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    inside = ~(runs[0].terminated | runs[0].truncated)[:-1]
    np.testing.assert_array_equal(runs[0].next_obs[:-1][inside], runs[0].obs[1:][inside])
    assert not np.array_equal(runs[0].next_obs[:-1][~inside], runs[0].obs[1:][~inside])
