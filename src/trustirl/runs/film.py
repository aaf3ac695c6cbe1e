"""Film strips of expert and learner, for reports: what a number cannot say about how someone moves."""

import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.image import imsave

from trustirl.core.files import write_bytes
from trustirl.demos.record import restore_state
from trustirl.demos.schema import Demos, find_demos
from trustirl.runs.run import load
from trustirl.tasks.gym import goal_of, make_control_task, task_of_file
from trustirl.tasks.robots import told_states

FRAMES = 8
WIDTH = 160  # pixels of a frame, about
SEED = 20_000  # of the learner's episode; evaluations use others
FOLLOWS = (1, 2)  # modes of MuJoCo's cameras that go where a body, or what hangs on it, goes


def add_film(folder: Path) -> str | None:
    """Write film-expert.png and film-learner.png into a run's folder; why not, in a sentence, where it cannot be."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # draws without a screen
    try:
        run = load(folder)
        if run.world.expectations:
            raise ValueError(f"{run.config['task']} is solved exactly, and has no simulator to draw.")
        arguments = run.config.get("task_args", {}) | {"render_mode": "rgb_array"}
        task = task_of_file(run.config["task"], folder / "config.json")
        env = make_control_task(task, arguments).make()
        try:
            follow(env)
            for name, states in _episodes(run, env):
                write_bytes(folder / f"film-{name}.png", png(strip(env, states)))
        finally:
            env.close()
    except Exception as error:  # renderers raise what they like, and no film is worth a report
        return f"no film of {folder}: {' '.join(str(error).split()) or type(error).__name__}"
    return None


def _episodes(run: Any, env: gym.Env) -> Iterator[tuple[str, Float[np.ndarray, "steps size"]]]:
    """Simulator states of an episode of the learner and, where the demonstrations hold them, of the expert."""
    learner = Demos.record(run.policy, env, 1, SEED).states
    if learner is None:
        raise ValueError(f"{run.config['task']} shows no simulator state to draw from.")
    yield "learner", learner
    if run.world.pays_truth:  # an expert's own run
        return
    demos = find_demos(run.config["demos"], run.config["task"])
    if run.config.get("demo_episodes"):
        demos = demos.take(run.config["demo_episodes"], run.config["demo_choice"])
    first = demos.take(1)
    states = first.states if first.states is not None else told_states(env, goal_of(env.observation_space), first)
    if states is not None:
        yield "expert", states


def follow(env: gym.Env) -> None:
    """Look through the camera of a MuJoCo model that follows the robot; Gymnasium's own stands still."""
    inner = getattr(env.unwrapped, "ant_env", env.unwrapped)  # mazes hide their simulator inside
    renderer: Any = getattr(inner, "mujoco_renderer", None)
    modes = () if renderer is None else renderer.model.cam_mode
    following = next((number for number, mode in enumerate(modes) if mode in FOLLOWS), None)
    if following is not None:
        renderer.camera_id = following


def strip(env: gym.Env, states: Float[np.ndarray, "steps size"]) -> UInt8[np.ndarray, "height width 3"]:
    """Frames from evenly spaced states of an episode, side by side."""
    env.reset(seed=0)
    frames = []
    for place in np.linspace(0, len(states) - 1, FRAMES).round().astype(int):
        restore_state(env, states[place])
        frames.append(smaller(np.asarray(env.render())))
    return np.concatenate(frames, axis=1)


def png(image: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """The image as a file."""
    file = io.BytesIO()
    imsave(file, image, format="png")
    return file.getvalue()


def smaller(frame: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "_ _ 3"]:
    """Averages of square blocks of pixels."""
    side = max(1, frame.shape[1] // WIDTH)
    height, width = (size // side for size in frame.shape[:2])
    blocks = frame[: height * side, : width * side].reshape(height, side, width, side, 3)
    return blocks.mean(axis=(1, 3)).astype(np.uint8)
