"""What the numbers of observations and actions are called, where that is known."""

from typing import Any

from trustirl.tasks.gym import ControlTask

KNOWN: dict[
    str, tuple[tuple[str, ...], tuple[str, ...]]
] = {  # observations; continuous actions, or what numbers mean
    "CartPole": (("position", "speed", "angle of the pole", "angular speed"), ("action",)),
    "Pendulum": (("cosine of the angle", "sine of the angle", "angular speed"), ("torque",)),
    "MountainCar": (("position", "speed"), ("action",)),
    "LunarLander": (
        ("x", "height", "speed in x", "vertical speed", "tilt", "turning speed", "left foot down", "right foot down"),
        ("main engine", "side engines"),
    ),
}


def input_names(task: ControlTask) -> list[str]:
    """Names of all observation columns, then of actions; numbers where nothing is known."""
    seen, done = next((both for start, both in KNOWN.items() if task.env_id.startswith(start)), ((), ()))
    if not seen and "mujoco" in task.versions:
        seen, done = _joints(task)
    acts = 1 if task.discrete else task.action_dim
    if len(seen) != task.obs_dim:
        seen = tuple(f"observation {place}" for place in range(task.obs_dim))
    if len(done) != acts:
        done = ("action",) if acts == 1 else tuple(f"action {place}" for place in range(acts))
    return [*seen, *done]


def _joints(task: ControlTask) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of MuJoCo's robots: places and speeds of joints; the first places, which say where it is, are not observed."""
    env = task.make()
    try:
        model: Any = getattr(env.unwrapped, "model", None)
        if model is None or not hasattr(model, "nq"):
            return (), ()
        places, speeds = _named(model)
        unseen = len(places) + len(speeds) - task.obs_dim
        motors = tuple(f"motor {model.jnt(model.actuator_trnid[motor, 0]).name}" for motor in range(model.nu))
        if unseen not in (0, 1, 2):
            return (), motors
        return (*places[unseen:], *speeds), motors
    finally:
        env.close()


def _named(model: Any) -> tuple[list[str], list[str]]:
    """Names of generalised positions and velocities; a free joint has seven and six."""
    places, speeds = [], []
    for joint in range(model.njnt):
        name = model.jnt(joint).name or f"joint {joint}"
        if model.jnt_type[joint] == 0:
            places += [f"{name} {part}" for part in ("x", "y", "z", "qw", "qx", "qy", "qz")]
            speeds += [f"speed of {name} in {axis}" for axis in "xyz"] + [
                f"turning of {name} about {a}" for a in "xyz"
            ]
        else:
            places.append(name)
            speeds.append(f"speed of {name}")
    return places, speeds
