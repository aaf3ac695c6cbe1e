"""`trustirl demos` from the command line: what it prints is what the data are, and mistakes are one line."""

import contextlib
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from trustirl.cli import demos as demo_commands
from trustirl.cli.main import main
from trustirl.demos import Demos
from trustirl.demos.origin import env_arguments
from trustirl.rewards.reward import Rewards
from trustirl.runs.run import Run
from trustirl.tasks.gym import make_control_task

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Pendulum's, two entries of whose actions lie outside the space."""
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1.9, 1.9, (400, 1)).astype(np.float32)
    actions[[3, 250], 0] = 2.5, -4.0
    demos = Demos.from_numpy(
        rng.normal(size=(400, 3)).astype(np.float32),
        actions,
        episode_ends=[200, 400],
        rewards=-np.arange(400.0),
        final_observations=rng.normal(size=(2, 3)).astype(np.float32),
        provenance={"env_id": "Pendulum-v1", "source": "a [red]test[/red]"},
    )
    demos.save(tmp_path / "demos.npz")
    return tmp_path / "demos.npz"


def run(capsys: Capture, *arguments: object) -> str:
    main(["demos", *map(str, arguments)])
    return capsys.readouterr().out


def refused(capsys: Capture, *arguments: object) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["demos", *map(str, arguments)])
    output = capsys.readouterr()
    assert stop.value.code == 2
    assert output.out == ""
    assert output.err.startswith("trustirl: ")
    assert output.err.count("\n") == 1
    return output.err


def test_inspect_prints_what_the_data_are(capsys: Capture, file: Path) -> None:
    text, demos = run(capsys, "inspect", file), Demos.load(file)
    told = dict(line.split("  ", 1) for line in text.splitlines() if "  " in line)
    told = {name.strip(): value.strip() for name, value in told.items()}
    assert told["Source"] == str(file)
    assert told["Episodes"] == "2, with 400 steps in all"
    assert told["Lengths"] == "200 to 200 steps, median 200"
    assert told["Returns"] == "mean -39,900.00, deviation 20,000.00, from -59,900.00 to -19,900.00"
    assert told["Ends"] == "0 in a terminal state, 2 at the limit of 200 steps, 0 cut before it"
    assert told["Observations"].startswith("3 columns, float32, from ")
    assert told["Actions"] == "1 column, float32, from -4 to 2.5"
    assert told["Outside"] == "2 of 400 action entries"
    assert told["Content hash"] == demos.content_hash()
    assert told["From: source"] == "a [red]test[/red]"
    assert (
        "warning action column 0: 2 of 400 action entries (0.5%) lie outside the action space of Pendulum-v1" in text
    )


def test_inspect_for_programs(capsys: Capture, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trustirl.report.demos._sections", lambda _: ())  # drawing takes seconds
    told, demos = json.loads(run(capsys, "inspect", file, "--json", "-o", tmp_path / "page.html")), Demos.load(file)
    returns = demos.returns()
    assert returns is not None
    assert (told["source"], told["task"], told["about_task"]) == (str(file), "Pendulum-v1", None)
    assert (told["episodes"], told["steps"], told["actions"]["outside"]) == (2, 400, 2)
    assert told["returns"] == {name: getattr(returns, name)() for name in ("mean", "std", "min", "max")}
    assert told["observations"]["high"] == pytest.approx(demos.observations.max(axis=0).tolist())
    assert [finding["where"] for finding in told["findings"]] == ["action column 0"]
    assert told["page"] == str(tmp_path / "page.html")
    assert "Demonstrations of Pendulum-v1" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_texts_of_a_file_do_not_steer_the_terminal(capsys: Capture, file: Path, tmp_path: Path) -> None:
    demos, other = Demos.load(file), tmp_path / "other.npz"
    told = {"env_id": "Ant\x1b[2J-v0", "source": "a\x1b]0;title\x07\u202eb\nc"}
    Demos.from_numpy(demos.observations, demos.actions, provenance=told).save(other)
    text = run(capsys, "inspect", other)
    assert all(line.isprintable() for line in text.splitlines())
    assert "a ]0;title  b c" in text


def test_inspect_without_a_task_says_why(capsys: Capture, file: Path, tmp_path: Path) -> None:
    def renamed(**provenance: Any) -> Path:
        demos = Demos.load(file)
        other = tmp_path / "other.npz"
        Demos.from_numpy(demos.observations, demos.actions, [200, 400], provenance=provenance).save(other)
        return other

    assert "name it by --task" in run(capsys, "inspect", renamed())
    assert "Zork-v0, not compared: unknown environment" in run(capsys, "inspect", renamed(env_id="Zork-v0"))
    broken = renamed(env_id="Pendulum-v1", env_kwargs={"max_episode_steps": 0})
    assert "Pendulum-v1, not compared: " in run(capsys, "inspect", broken)
    text = run(capsys, "inspect", renamed(env_id="this:Danger-v0"))
    assert "is not made because a file names it" in text
    assert "Outside" not in text
    assert "2 of 400 action entries" in run(capsys, "inspect", renamed(), "--task", "Pendulum-v1")
    assert "3 observation columns, but CartPole-v1 has 4" in run(capsys, "inspect", file, "--task", "CartPole-v1")


@pytest.mark.parametrize(
    ("given", "used"),
    [
        (
            {"continuous": True, "gravity": -9.0, "xml_file": "x.xml"},
            {"continuous": True, "gravity": -9.0},
        ),
        ("{'continuous': True}", {"continuous": True}),
        ('{"continuous": true}', {"continuous": True}),
        ("__import__('os')", {}),
        ("[1]", {}),
        (None, {}),
    ],
)
def test_only_switches_and_numbers_of_a_file_reach_an_environment(given: Any, used: dict[str, Any]) -> None:
    assert demo_commands._harmless(env_arguments({"env_kwargs": given})) == used


def test_what_the_loader_refuses_is_what_inspect_says(capsys: Capture, tmp_path: Path) -> None:
    observations = np.zeros((4, 2))
    observations[2, 1] = np.nan
    np.savez(tmp_path / "nan.npz", observations=observations, actions=np.zeros((4, 1)))
    assert "observations must be finite; step 2 of episode 0" in refused(capsys, "inspect", tmp_path / "nan.npz")
    assert "does not exist" in refused(capsys, "inspect", tmp_path / "none.npz")
    assert "did you mean 'inspect'" in refused(capsys, "inspct", "x")
    assert "demos inspect --help" in refused(capsys, "inspect")
    assert "Acrobot-v1" in refused(capsys, "inspect", "packaged", "--task", "Acrobot-v1")


def test_list(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trustirl.demos.sources.FOLDER", tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    assert run(capsys, "list").startswith("Nothing")
    assert json.loads(run(capsys, "list", "--json")) == []
    (tmp_path / "Hopper-v4.npz").touch()
    (tmp_path / "Hopper-v4.json").write_text('{"demonstrations": {"episodes": 4, "steps": 4000, "mean": 3.25}}')
    assert [line.split() for line in run(capsys, "list").splitlines()] == [
        ["Name", "Task", "Episodes", "Steps", "Return"],
        ["packaged:Hopper-v4", "Hopper-v4", "4", "4,000", "3.2"],
    ]
    assert json.loads(run(capsys, "list", "--json")) == [
        {"name": "packaged:Hopper-v4", "task": "Hopper-v4", "episodes": 4, "steps": 4000, "mean_return": 3.25}
    ]


def test_convert_there_and_back(capsys: Capture, file: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.npz", tmp_path / "two.npz"
    assert run(capsys, "convert", file, one) == f"{one}: 2 episodes, 400 steps, mean return -39,900.00\n"
    assert Demos.load(one).content_hash() == Demos.load(file).content_hash()
    assert Demos.load(one).provenance == Demos.load(file).provenance
    told = run(capsys, "convert", one, two, "--episodes", 1, "--choice", "best", "--env-id", "Mine-v0")
    assert told.startswith(f"{two}: 1 episode, 200 steps,")
    kept = Demos.load(two)
    assert kept.content_hash() == Demos.load(file)[0].content_hash()  # -19,900 is more than -59,900
    assert kept.provenance["env_id"] == "Mine-v0"
    assert "say --overwrite" in refused(capsys, "convert", file, two)
    assert Demos.load(two).content_hash() == kept.content_hash()
    run(capsys, "convert", file, two, "--overwrite")
    assert Demos.load(two).content_hash() == Demos.load(file).content_hash()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demos.npz", "one.npz", "two.npz"]


def test_convert_to_minari_and_back(
    capsys: Capture, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    run(capsys, "convert", file, "minari:mine/pendulum-v0")
    assert "minari:mine/pendulum-v0" in run(capsys, "list")
    run(capsys, "convert", "minari:mine/pendulum-v0", tmp_path / "back.npz")
    assert Demos.load(tmp_path / "back.npz").content_hash() == Demos.load(file).content_hash()
    assert "already exists" in refused(capsys, "convert", file, "minari:mine/pendulum-v0")


def test_convert_refuses(capsys: Capture, file: Path, tmp_path: Path) -> None:
    assert "ends in .npz" in refused(capsys, "convert", file, tmp_path / "demos.csv")
    assert "there is no folder" in refused(capsys, "convert", file, tmp_path / "none" / "demos.npz")
    assert "choose between 1 and 2" in refused(capsys, "convert", file, tmp_path / "x.npz", "--episodes", 3)
    assert "choose the next one" in refused(capsys, "convert", file, "minari:mine/x-v0", "--overwrite")
    assert not (tmp_path / "x.npz").exists()


def test_record_by_chance(capsys: Capture, tmp_path: Path) -> None:
    command = ("record", "CartPole-v1", "--random", "--episodes", 3, "--seed", 7, "-o")
    run(capsys, *command, tmp_path / "one.npz")
    run(capsys, *command, tmp_path / "two.npz")
    one, two = (Demos.load(tmp_path / f"{name}.npz") for name in ("one", "two"))
    assert one.content_hash() == two.content_hash()
    assert len(one) == 3
    assert one.provenance["policy"] == "random actions"
    start, _ = gym.make("CartPole-v1").reset(seed=8)
    np.testing.assert_array_equal(one[1].observations[0], start)
    assert "already exists" in refused(capsys, *command, tmp_path / "one.npz")


class Lever:
    """A policy that pushes right when it is to be likely, and left when it is to draw."""

    def __init__(self, env_id: str) -> None:
        self.spaces = make_control_task(env_id)

    def predict(self, observation: Any, deterministic: bool = False) -> tuple[int, None]:
        return int(deterministic), None


def test_record_the_policy_of_a_run(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"algorithm": "piro", "task": "CartPole-v1", "task_args": {"sutton_barto_reward": True}}
    monkeypatch.setattr(
        demo_commands, "load", lambda path: Run(path, config, {}, [Lever("CartPole-v1")], Rewards([]))
    )
    command = ("record", "CartPole-v1", "--run", tmp_path / "cart", "--episodes", 2, "-o")
    run(capsys, *command, tmp_path / "mode.npz")
    run(capsys, *command, tmp_path / "drawn.npz", "--stochastic")
    mode, drawn = (Demos.load(tmp_path / f"{name}.npz") for name in ("mode", "drawn"))
    assert (set(mode.actions), set(drawn.actions)) == ({1}, {0})
    assert mode.provenance["policy"] == "piro (cart), likeliest actions"
    assert drawn.provenance["policy"] == "piro (cart), drawn actions"
    assert mode.terminated.all()
    assert mode.returns().tolist() == [-1.0, -1.0]  # the reward that the run's own argument asks for
    told = refused(capsys, "record", "Pendulum-v1", "--run", tmp_path / "cart", "-o", tmp_path / "x.npz")
    assert "learned CartPole-v1 and cannot act in Pendulum-v1" in told


def test_record_refuses(capsys: Capture, tmp_path: Path) -> None:
    out = tmp_path / "x.npz"
    assert "give --run RUN, or --random" in refused(capsys, "record", "CartPole-v1", "-o", out)
    assert "not both" in refused(capsys, "record", "CartPole-v1", "--random", "--run", tmp_path, "-o", out)
    assert "a trustirl run?" in refused(capsys, "record", "CartPole-v1", "--run", tmp_path, "-o", out)
    assert "did you mean 'CartPole-v1'" in refused(capsys, "record", "CartPole-v7", "--random", "-o", out)
    assert not out.exists()


@pytest.mark.parametrize(
    "command", [(), ("--help",), ("list", "--help"), ("inspect", "--help"), ("record", "--help")]
)
def test_help(capsys: Capture, command: tuple[str, ...]) -> None:
    with contextlib.suppress(SystemExit):
        main(["demos", *command])
    assert "usage: trustirl demos" in capsys.readouterr().out
