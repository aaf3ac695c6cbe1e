"""Film strips show the episode they are said to show, and never stand in the way of a report."""

import re
from base64 import b64decode
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from synthetic_run import write_bench, write_control_run

from trustirl.core.worlds import FACTS
from trustirl.demos.record import restore_state
from trustirl.demos.schema import Demos
from trustirl.report import write_comparison, write_report
from trustirl.runs.film import FRAMES, _episodes, add_film, follow, png, strip


def grey(self: CartPoleEnv) -> np.ndarray:
    """A frame whose brightness is the cart's place, so that a strip can be read back."""
    return np.full((12, 18, 3), round(127 + 100 * float(self.state[0])), np.uint8)


def test_a_strip_is_evenly_spaced_over_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CartPoleEnv, "render", grey)
    env = gym.make("CartPole-v1", render_mode="rgb_array")
    states = Demos.record(lambda _: 1, env, 1, 0).states
    assert states is not None
    image = strip(env, states)
    assert image.shape == (12, FRAMES * 18, 3)
    places = np.linspace(0, len(states) - 1, FRAMES).round().astype(int)
    np.testing.assert_array_equal(image[0, ::18, 0], np.round(127 + 100 * states[places, 0]))


@pytest.mark.parametrize("task", ["Ant-v4", "HalfCheetah-v4", "Hopper-v4", "Humanoid-v4", "Walker2d-v4"])
def test_the_camera_goes_where_the_robot_goes(task: str) -> None:
    env = gym.make(task, render_mode="rgb_array")  # nothing is drawn, so that no screen is needed
    follow(env)
    simulator, states = env.unwrapped, Demos.packaged(task).states  # type: ignore[attr-defined]
    camera = simulator.mujoco_renderer.camera_id
    assert camera >= 0  # -1 is the one that stands still, and no index
    env.reset(seed=0)
    seen = []
    for state in states[[0, 500]]:
        restore_state(env, state)
        seen.append(simulator.data.cam_xpos[camera, 0] - simulator.data.subtree_com[0, 0])
    assert abs(states[500, 1] - states[0, 1]) > 1  # the time is first, then the place
    assert abs(seen[1] - seen[0]) < 0.5


def test_what_has_no_such_camera_is_left_alone() -> None:
    env = gym.make("CartPole-v1", render_mode="rgb_array")
    follow(env)
    pendulum = gym.make("InvertedPendulum-v4", render_mode="rgb_array")
    before = pendulum.unwrapped.mujoco_renderer.camera_id  # type: ignore[attr-defined]
    follow(pendulum)
    assert pendulum.unwrapped.mujoco_renderer.camera_id == before  # type: ignore[attr-defined]


@pytest.mark.parametrize("given", [{}, {"demo_episodes": 1, "demo_choice": "longest"}])
def test_the_expert_is_who_was_demonstrated(given: dict[str, Any]) -> None:
    config = {"task": "CartPole-v1", "demos": "packaged"} | given
    run = SimpleNamespace(policy=lambda _: 1, config=config, world=FACTS["simulator"])
    shown = dict(_episodes(run, gym.make("CartPole-v1")))
    demos = Demos.packaged("CartPole-v1")
    assert demos.states is not None
    assert list(shown) == ["learner", "expert"]
    np.testing.assert_array_equal(shown["expert"], demos.states[: demos.episode_ends[0]])
    of_an_expert = SimpleNamespace(policy=run.policy, config={"task": "CartPole-v1"}, world=FACTS["fixed reward"])
    assert [name for name, _ in _episodes(of_an_expert, gym.make("CartPole-v1"))] == ["learner"]


def test_a_run_that_cannot_be_filmed_says_why_in_a_line(tmp_path: Path) -> None:
    folder = write_control_run(tmp_path / "run", evaluations=3)
    said = add_film(folder)
    assert said is not None
    assert said.startswith(f"no film of {folder}: ")
    assert "\n" not in said
    assert not list(folder.glob("film-*"))


def test_a_comparison_shows_films_and_passes_over_what_is_none(tmp_path: Path) -> None:
    bench = write_bench(tmp_path / "bench")
    assert "trustirl report --films" in write_comparison([bench], tmp_path / "page.html").read_text()
    film = png(np.full((4, 8, 3), 200, np.uint8))
    run = bench / "runs" / "piro-Hopper-v4-0"
    (run / "film-learner.png").write_bytes(film)
    (run / "film-expert.png").write_bytes(b"<svg onload=alert(1)>")
    html = write_comparison([bench], tmp_path / "page.html").read_text()
    images = re.findall(r'<img [^>]*src="data:image/png;base64,([^"]*)"', html)
    assert [b64decode(image) for image in images] == [film]


def test_rows_that_share_an_expert_show_it_once(tmp_path: Path) -> None:
    bench = write_bench(tmp_path / "bench")
    films = [png(np.full((4, 8, 3), brightness, np.uint8)) for brightness in (50, 100, 150)]
    for label, film in zip(("piro", "ml-irl"), films, strict=False):
        (bench / "runs" / f"{label}-Hopper-v4-0" / "film-learner.png").write_bytes(film)
        (bench / "runs" / f"{label}-Hopper-v4-0" / "film-expert.png").write_bytes(films[2])
    html = write_comparison([bench], tmp_path / "page.html").read_text()
    assert re.findall(r"<h3>(Hopper-v4: .*?)</h3><img", html) == [
        f"Hopper-v4: {who}" for who in ("expert", "piro", "ml-irl")
    ]


def test_a_runs_own_page_shows_expert_and_learner_together(tmp_path: Path) -> None:
    run = write_control_run(tmp_path / "run", evaluations=3)
    assert "How they move" not in write_report(run).read_text()
    films = {whose: png(np.full((4, 8, 3), shade, np.uint8)) for whose, shade in (("expert", 50), ("learner", 200))}
    for whose, film in films.items():
        (run / f"film-{whose}.png").write_bytes(film)
    html = write_report(run).read_text()
    found = re.findall(r'<h3>(.*?)</h3><img [^>]*src="data:image/png;base64,([^"]*)"', html)
    assert [(whose, b64decode(image)) for whose, image in found] == list(films.items())
