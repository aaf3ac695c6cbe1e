"""The page of a reward: what it says of rewards whose wishes are known, in words and drawings, and refusals."""

from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float

import trustirl as ti
from trustirl.cli.main import main
from trustirl.core.types import Transition
from trustirl.report.reward import Course, Effect, Looked, render, wishes
from trustirl.rewards.reward import LearnedReward
from trustirl.runs.inputs import input_names
from trustirl.runs.inspecting import _agreement, _Inputs
from trustirl.tasks.gym import make_control_task


def upright(batch: Transition) -> Float[np.ndarray, "..."]:
    """A pendulum that is up, and nothing else."""
    return 3 * batch.obs[:, 0]


def turning(batch: Transition) -> Float[np.ndarray, "..."]:
    """Speeds near 2, pushed for by actions."""
    return -((batch.obs[:, 2] - 2) ** 2) + 0.5 * batch.action[:, 0]


def looked(function: object, needs: tuple[str, ...] = ("action",)) -> _Inputs:
    task = make_control_task("Pendulum-v1")
    function.needs = needs  # type: ignore[attr-defined]
    random = np.random.default_rng(0)
    obs = random.uniform([-1, -1, -6], [1, 1, 6], (300, 3)).astype(np.float32)
    rows = obs, random.uniform(-2, 2, (300, 1)).astype(np.float32), obs
    rewards = [LearnedReward(function, task)] * 2
    return _Inputs(rewards, task, lambda paid: paid, rows, rows)


def test_inputs_that_count_are_found_and_the_others_count_nothing() -> None:
    asked = looked(upright, needs=())
    assert asked.names == ["cosine of the angle", "sine of the angle", "angular speed"]
    moved = [float(values.mean()) for values in asked.importance]
    assert moved[0] > 1
    assert moved[1:] == [0, 0]
    effect = asked.effect(0)
    np.testing.assert_allclose(effect.paid[0], 3 * effect.values, atol=1e-5)
    assert effect.paid.shape == (2, len(effect.values))
    assert -1 <= effect.low < effect.high <= 1


def test_actions_are_inputs_where_the_reward_depends_on_them() -> None:
    asked = looked(turning)
    assert asked.names[-1] == "torque"
    assert asked.importance[3].mean() > 0.1
    effect = asked.effect(2)
    assert effect.values[effect.paid[0].argmax()] == pytest.approx(2, abs=0.5)
    surface = asked.surface(2, 3)
    assert surface.paid.shape == (25, 25)
    np.testing.assert_array_less(surface.paid[0], surface.paid[-1])  # more for more torque
    assert asked.number("torque") == 3
    with pytest.raises(ti.InputError, match="did you mean 'torque'"):
        asked.number("torqe")


def shown(**changes: object) -> Looked:
    values = np.linspace(-1, 1, 9)
    told = {
        "title": "What PIRO found on Ours-v1",
        "lead": "runs/a",
        "form": "of states",
        "courses": [Course("expert", np.ones((2, 5)), True), Course("random", -np.ones((2, 7)), False)],
        "means": {"expert": np.array([1.0, 1.0]), "random": np.array([-1.0, -1.0])},
        "deviation": np.ones(2),
        "importance": [("height", np.array([0.9, 1.1])), ("<tilt>", np.zeros(2))],
        "effects": [
            Effect("height", values, np.stack([values, values]), -0.5, 0.5),
            Effect("<tilt>", values, -(np.stack([values, values]) ** 2), -1.0, 1.0),
            Effect("speed", values, np.zeros((2, 9)), -1.0, 1.0),
        ],
        "surface": None,
        "end": np.array([-40.0, -60.0]),
        "agreement": np.array([[1.0, 0.95], [0.95, 1.0]]),
        "disputed": [("speed", -0.5), ("height", 0.1)],
    }
    return Looked(**(told | changes))  # type: ignore[arg-type]


def test_a_stranger_is_told_in_words_what_the_reward_wants() -> None:
    assert wishes(shown()) == [
        "It pays the expert most and random actions least, 2 deviations less per step.",
        "It pays more for higher height (1 deviations from the lowest to the highest).",
        "It pays most for <tilt> near 0 and least near −1.",
        "It pays hardly more or less for any speed that the expert shows, alone.",
        "It punishes the end of an episode, by 50 deviations of a step's reward.",
        "Its 2 seeds agree: their rewards correlate by 0.95 on average, at least by 0.95.",
    ]
    assert "An end of an episode is paid nothing of its own." in wishes(shown(end=None))
    assert any("says little" in sentence for sentence in wishes(shown(ends_seen=False)))


@pytest.mark.usefixtures("drawn")
def test_the_page_needs_nothing_but_itself_and_escapes_names() -> None:
    html = render(shown(films={"Paid best": b"png"}))
    assert "&lt;tilt&gt;" in html
    assert "<tilt>" not in html
    assert "They lie furthest apart at low speed." in html
    assert "data:image/png;base64," in html
    assert html.count("<svg") >= 6
    assert "http" not in html.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert render(shown()) == render(shown())
    alone = render(shown(agreement=np.ones((1, 1)), deviation=np.ones(1), end=None, no_film="No pictures here."))
    assert "No pictures here." in alone
    assert "one seed" in alone


def test_constant_rewards_agree_with_none() -> None:
    found = _agreement(np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 1.0, 1.0]]))
    np.testing.assert_allclose(found, [[1, 1, 0], [1, 1, 0], [0, 0, 0]], atol=1e-9)


def test_numbers_are_called_by_name_where_names_are_known() -> None:
    assert input_names(make_control_task("CartPole-v1"))[2:] == ["angle of the pole", "angular speed", "action"]
    pytest.importorskip("mujoco")
    names = input_names(make_control_task("Hopper-v4"))
    assert names[:2] == ["rootz", "rooty"]
    assert names[5] == "speed of rootx"
    assert names[-1] == "motor foot_joint"


def test_the_map_of_a_grid_says_where_the_target_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ti.train("mce", "gridworld", task_args={"size": 3}, seeds=2, steps=30, out=tmp_path / "run")
    main(["reward", "inspect", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")])
    assert capsys.readouterr().out.strip().endswith("page.html")
    html = (tmp_path / "page.html").read_text()
    assert "It pays most for being at row 2, column 2" in html
    assert "What is done there is of no account to it." in html
    assert "seeds agree" in html


@pytest.mark.slow
def test_a_run_on_a_simulator_has_a_page(tmp_path: Path) -> None:
    from tests.control.small import SETTINGS, cartpole_demo

    run = ti.train("piro", "CartPole-v1", cartpole_demo(), seeds=2, steps=260, out=tmp_path / "run", **SETTINGS)
    page = ti.inspect_reward(run, inputs=("position", "speed"))
    assert page == tmp_path / "run" / "reward.html"
    assert "angle of the pole" in page.read_text()
    with pytest.raises(ti.InputError, match="unknown input of the reward"):
        ti.inspect_reward(run, inputs=("position", "weather"))
