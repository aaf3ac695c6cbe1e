"""The Python API: train, act, reuse the reward, load it all again."""

import json
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import trustirl as ti
from trustirl.core.files import write_bytes
from trustirl.runs.folder import RunFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ti.Run:
    return ti.train(
        "trro",
        task="gridworld",
        task_args={"size": 3},
        steps=20,
        minorizer="curvature",
        out=tmp_path_factory.mktemp("a"),
    )


def test_metrics_are_a_table_of_described_columns(run: ti.Run) -> None:
    table = run.metrics()
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert {len(column) for column in table.values()} == {len(lines)}
    assert table["iteration"].tolist() == [line["iteration"] for line in lines]
    assert table["ell"].tolist() == [line["ell"] for line in lines]
    assert np.isnan(table["mu"]).all()  # of PIRO alone
    described = Path("docs/runs.md").read_text()
    assert not [name for name in table if f"`{name}`" not in described]


def test_a_run_tells_itself_in_one_line_and_in_a_notebook(run: ti.Run, drawn: None) -> None:
    assert repr(run).startswith(f"<Run {run.path}: trro on gridworld, 1 seed, return ")
    assert "\n" not in repr(run)
    shown = run._repr_html_()
    assert "<svg" in shown
    assert str(run.path / "report.html") in shown
    assert run.demos is None  # an exact occupancy
    assert ti.__version__ == version("trustirl")


def test_whoever_asks_is_told_every_evaluation(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    told: list[dict[str, object]] = []
    run = ti.train(
        "ml-irl",
        task="gridworld",
        task_args={"size": 3},
        demo_episodes=4,
        seeds=2,
        steps=2,
        out=tmp_path / "run",
        on_evaluation=told.extend,
    )
    assert told == [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert f"ml-irl on gridworld, 2 seeds, 2 iterations, in {run.path}" in capfd.readouterr().err
    with pytest.raises(ti.InputError, match="give the folders as a list"):
        ti.compare_runs(str(run.path))
    assert ti.compare_runs([str(run.path)], tmp_path / "page.html").exists()


def test_sources_that_are_not_installed_can_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def only_others(package: str) -> str:
        if package == "trustirl":
            raise PackageNotFoundError(package)
        return version(package)

    monkeypatch.setattr("trustirl.core.machine.version", only_others)
    run = ti.train("ml-irl", task="chain", steps=2, seeds=2, out=tmp_path / "run")
    versions = json.loads((run.path / "manifest.json").read_text())["versions"]
    assert versions["trustirl"] == "not installed"
    assert versions["jax"] == version("jax")


def test_policy_predicts_like_stable_baselines(run: ti.Run) -> None:
    actions, state = run.policy.predict(np.array([0, 8]), deterministic=True)
    assert state is None
    assert actions.shape == (2,)
    action, _ = run.policy.predict(1, deterministic=True)
    assert action == 2  # the cell above the middle moves down, to the target
    assert run.policy.predict([1], None, None, True)[0].shape == (1,)
    frequencies = np.bincount(run.policy.predict(np.zeros(20_000, int))[0], minlength=5) / 20_000
    np.testing.assert_allclose(frequencies, np.exp(run.policy.log_prob[0]), atol=0.02)
    drawn = [int(run.policy.predict(0)[0]) for _ in range(40)]
    assert len(set(drawn)) > 1  # each call draws anew


def test_reward_is_batched_numpy_and_recovers_the_distance(run: ti.Run) -> None:
    rewards = run.reward(np.arange(9), np.zeros(9, int), np.arange(9), np.zeros(9, bool))
    assert isinstance(rewards, np.ndarray)
    distance = np.hypot(*(np.stack(np.divmod(np.arange(9), 3)) - 1))
    assert np.corrcoef(rewards, -distance)[0, 1] > 0.999
    np.testing.assert_array_equal(run.reward.table()[:, 3], rewards)
    assert run.reward([4], [0]).shape == (1,)
    with pytest.raises(ti.InputError, match=r"0\.\.8"):
        run.reward(np.array([9]), np.array([0]))


@pytest.mark.parametrize(
    "kind", ["table", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("linear", "mlp"))]
)
def test_saved_runs_load_to_the_same(kind: str, tmp_path: Path) -> None:
    run = ti.train("ml-irl", task="chain", steps=2, reward=kind, seeds=2, out=tmp_path / "run")
    loaded = ti.load(tmp_path / "run")
    for one, other in zip(run.rewards, loaded.rewards, strict=True):
        np.testing.assert_array_equal(one.table(), other.table())
    np.testing.assert_array_equal(ti.load_reward(tmp_path / "run").table(), run.reward.table())
    assert not np.array_equal(run.rewards[0].table(), run.rewards[1].table())  # seeds differ
    np.testing.assert_array_equal(run.policy.log_prob, loaded.policy.log_prob)


def test_a_run_that_lost_its_reward_is_damaged_not_without_one(run: ti.Run, tmp_path: Path) -> None:
    copy = shutil.copytree(run.path, tmp_path / "copy")
    (copy / "reward.json").unlink()
    with pytest.raises(ti.InputError, match=r"reward\.json"):
        ti.load(copy)


def test_demos_given_as_arrays_are_kept_with_the_run(tmp_path: Path) -> None:
    demos = ti.Demos.from_numpy([0, 1, 2, 0, 1], [1, 1, 1, 1, 0], episode_ends=[3, 5])
    run = ti.train("piro", task="chain", demos=demos, steps=2, out=tmp_path / "run")
    again = ti.Demos.from_npz(run.config["demos"])
    assert again.content_hash() == demos.content_hash()
    np.testing.assert_array_equal(demos.time_in_episode(), [0, 1, 2, 0, 1])
    assert len(demos.take(1).observations) == 3
    maps = load_file(run.path / "maps.safetensors")
    seen = np.bincount([0, 1, 2, 0, 1], weights=0.9 ** np.array([0, 1, 2, 0, 1]), minlength=5)
    np.testing.assert_allclose(maps["demo_visits"] / maps["demo_visits"].sum(), seen / seen.sum())
    assert run.summary["demo_return"] == 0  # nobody came to the end of the chain, which pays
    assert "who demonstrated need not act like it" in (run.path / "report.html").read_text()
    told = [json.loads(line)["log_likelihood"] for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert max(told) <= 0


def test_episodes_are_chosen_by_place_length_or_return() -> None:
    demos = ti.Demos.from_numpy(
        np.arange(9), np.arange(9), [2, 5, 9], [True, False, True], [1, 1, 9, 0, 0, 1, 1, 1, 1]
    )
    np.testing.assert_array_equal(demos.returns(), [2, 9, 4])
    np.testing.assert_array_equal(demos.take(1).observations, [0, 1])
    np.testing.assert_array_equal(demos.take(1, "longest").observations, [5, 6, 7, 8])
    best = demos.take(2, "best")
    np.testing.assert_array_equal(best.observations, np.arange(2, 9))
    np.testing.assert_array_equal(best.episode_ends, [3, 7])
    np.testing.assert_array_equal(best.terminated, [False, True])
    np.testing.assert_array_equal(best.returns(), [9, 4])
    with pytest.raises(ti.InputError, match="hold no rewards"):
        ti.Demos.from_numpy([0], [0]).take(1, "best")


def test_unknown_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ti.InputError, match="did you mean 'inner_steps'"):
        ti.train("piro", task="chain", inner_step=3, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("task", "given", "ours"),
    [
        ("CartPole-v1", "gamma", "'discount' here"),
        ("chain", "gamma", "in task_args, as discount=VALUE"),
        ("chain", "horizon", "in task_args, as horizon=VALUE"),
        ("chain", "total_timesteps", "'steps' here"),
        ("CartPole-v1", "lr", "'learning_rate' here"),
        ("chain", "lr", "'reward_step' here"),
        ("chain", "seed", "'first_seed' here"),
        ("CartPole-v1", "n_envs", "'envs' here"),
        ("CartPole-v1", "device", "JAX_PLATFORMS"),
    ],
)
def test_names_of_other_libraries_are_answered_by_ours(task: str, given: str, ours: str, tmp_path: Path) -> None:
    with pytest.raises(ti.InputError, match=ours):
        ti.train("piro", task=task, out=tmp_path / "run", **{given: 1})
    assert not (tmp_path / "run").exists()


UNCHECKED = """
import json
import numpy as np
import trustirl as ti
demos = ti.Demos.from_numpy([0, 1, 2, 0], [0, 1, 1, 0])
bad = [{name: value} for name in ("steps", "seeds", "demo_episodes", "first_seed") for value in (1e5, "5", True)]
for given in [*bad, {"task_args": ["size=3"]}, {"demos": demos, "demo_episodes": 1, "demo_choice": "longst"}]:
    try:
        ti.train("piro", task="chain", out="run", **given)
    except ti.InputError as error:
        print(error)
from trustirl.training.train import question
one = dict.fromkeys(("seeds", "first_seed", "steps", "demo_episodes"), np.int64(1))
asked = question("piro", "chain", "packaged", demo_choice="first", preset="tuned", task_args={}, **one)
print(json.dumps([asked.config()[name] for name in one]))
"""


def test_counts_and_choices_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    """In a process of its own, for here types are checked before we are asked."""
    done = subprocess.run([sys.executable, "-c", UNCHECKED], cwd=tmp_path, capture_output=True, text=True, check=True)
    *counts, task_args, choice, of_numpy = done.stdout.splitlines()
    names = ("steps", "seeds", "demo_episodes", "first_seed")
    expected = [
        f"{name} must be a whole number, got {value}." for name in names for value in ("100000.0", "'5'", True)
    ]
    assert counts == expected
    assert task_args == "task_args must be a mapping of names to values, got ['size=3']."
    assert choice == "unknown choice of demo episodes, 'longst': did you mean 'longest'?"
    assert not (tmp_path / "run").exists()
    assert of_numpy == "[1, 1, 1, 1]"


def test_a_nan_stops_the_run_and_is_named(tmp_path: Path) -> None:
    with pytest.raises(ti.NumericalError, match=r"became (nan|inf|-inf) at iteration \d+ of seed 0"):
        ti.train("ml-irl", task="chain", steps=5, reward_step=1e308, decay=0.0, out=tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "latest.json").exists()


def test_values_too_large_for_the_temperature_stop_the_run(tmp_path: Path) -> None:
    """They are finite, but their differences, which decide what is done, are lost in rounding."""
    words = r"a value became -?\d\S*e\+3\d at iteration 1 of seed 3, so large that rounding hides the temperature 1; "
    with pytest.raises(ti.NumericalError, match=words + r".*The last good checkpoint is kept\."):
        ti.train("ml-irl", task="chain", steps=5, reward_step=1e38, first_seed=3, out=tmp_path / "run")


def test_nothing_is_said_to_be_kept_where_nothing_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise ti.NumericalError("it became nan at iteration 0.")

    monkeypatch.setattr("trustirl.training.train.check_finite", stopped)
    with pytest.raises(ti.NumericalError, match=r"iteration 0\. No checkpoint was made before it\.$"):
        ti.train("ml-irl", task="chain", steps=1, out=tmp_path / "run")


def test_damaged_files_are_named(run: ti.Run, tmp_path: Path) -> None:
    import shutil

    broken = tmp_path / "run"
    shutil.copytree(run.path, broken)
    write_bytes(broken / "reward.safetensors", (broken / "reward.safetensors").read_bytes()[:-3])
    with pytest.raises(ti.InputError, match=r"reward\.safetensors is damaged"):
        ti.load(broken)
    (broken / "summary.json").unlink()
    with pytest.raises(ti.InputError, match=r"summary\.json does not exist"):
        ti.load(broken)


def test_a_checkpoint_of_another_configuration_is_refused(run: ti.Run, tmp_path: Path) -> None:
    import json
    import shutil

    broken = tmp_path / "run"
    shutil.copytree(run.path, broken)
    (broken / "summary.json").unlink()
    config = RunFolder(broken).config()
    config["algorithm_config"]["halvings"] = 7
    (broken / "config.json").write_text(json.dumps(config))
    with pytest.raises(ti.InputError, match="belongs to another config"):
        ti.resume(broken)
