"""Gymnasium environments as tasks.

Nothing here imports JAX: processes that step environments need only what this module builds.
"""

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Dict, Discrete, Space

from trustirl.core.errors import InputError, unknown_name
from trustirl.core.machine import install_command
from trustirl.core.observations import Goal, Seen, goal_in
from trustirl.core.spaces import Spaces
from trustirl.core.versions import simulator_versions
from trustirl.tasks.changed import changed, changes_of
from trustirl.tasks.robots import SEEN, Blind, blind
from trustirl.tasks.table_env import ENV_ID

MakeEnv = Callable[[], gym.Env]


class ReferenceReturns(NamedTuple):
    """Mean true returns of a uniformly random policy, of an expert, and of actions of zero; None: not measured."""

    random: float | None = None
    expert: float | None = None
    still: float | None = None


gym.register(ENV_ID, entry_point="trustirl.tasks.table_env:table_env")

# Random: 100 episodes (classic control, Box2D) or 50 (MuJoCo) with gymnasium 1.4.0 and mujoco 3.1.6.
# Robots: 50 episodes, gymnasium-robotics 1.4.2; Pen's vary so much that they are known to 40 and 250.
# Expert: the paper's, on v4; CartPole's is its maximum.
REFERENCES: dict[str, ReferenceReturns] = {
    "CartPole-v1": ReferenceReturns(21.9, 500.0),
    "Pendulum-v1": ReferenceReturns(-1267.2),
    "LunarLander-v3": ReferenceReturns(-192.1),
    "LunarLanderContinuous-v3": ReferenceReturns(-212.7),
    "Hopper-v4": ReferenceReturns(16.3, 3633.0),
    "Walker2d-v4": ReferenceReturns(1.8, 5525.0),
    "HalfCheetah-v4": ReferenceReturns(-264.4, 12266.0),
    "Ant-v4": ReferenceReturns(-47.7, 5926.0),
    "Humanoid-v4": ReferenceReturns(127.4, 5501.0),
    "Hopper-v5": ReferenceReturns(16.4),
    "Walker2d-v5": ReferenceReturns(2.1),
    "HalfCheetah-v5": ReferenceReturns(-285.4),
    "Ant-v5": ReferenceReturns(-63.0),
    "Humanoid-v5": ReferenceReturns(119.1),
    "AdroitHandPen-v1": ReferenceReturns(-666.4, still=475.1),
    "AdroitHandDoor-v1": ReferenceReturns(-45.8, still=-44.5),
    "AdroitHandHammer-v1": ReferenceReturns(-267.7, still=-232.9),
    "AdroitHandRelocate-v1": ReferenceReturns(10.8, still=3.6),
}
# Of mazes the dense return; of the sparse one, the steps at the goal. The ant of v5 moves as that of v4.
MAZES = {"UMaze": (14.2, 5.2, 3.8), "Medium": (3.2, 1.2, 0.0), "Large": (0.8, 0.5, 0.0)}
REFERENCES |= {
    f"AntMaze_{maze}{kind}-{version}": returns
    for maze, (random, still, at_goal) in MAZES.items()
    for kind, returns in (
        ("Dense", ReferenceReturns(random, still=still)),
        ("", ReferenceReturns(at_goal, still=0.0)),
    )
    for version in ("v4", "v5")
}

# The part of an environment's entry point that tells which optional packages it needs.
EXTRAS = {"gymnasium_robotics": "robotics", "mujoco": "mujoco", "box2d": "box2d"}
ROBOTICS_FAMILIES = ("AntMaze", "PointMaze", "AdroitHand", "Fetch", "FrankaKitchen", "HandManipulate", "HandReach")
SUPPORTED_OBSERVATIONS = "Box vectors and Dicts of Box vectors (flattened in sorted key order)"
SUPPORTED_ACTIONS = "Discrete and bounded Box vectors"


@dataclass(frozen=True, kw_only=True)
class ControlTask(Spaces):
    """A Gymnasium environment, how to make copies of it, and what its returns are compared with.

    `horizon` is the time limit of an episode, `goal` where position and goal are among the observations, and `seen`
    which of them a blind agent sees.
    """

    env_id: str
    make: MakeEnv
    env_kwargs: Mapping[str, Any]
    horizon: int
    random_return: float | None = None
    expert_return: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    goal: Goal | None = None
    still_return: float | None = None
    seen: Seen | None = None


def make_control_task(
    task: str | gym.Env | Callable[..., gym.Env], env_kwargs: Mapping[str, Any] | None = None
) -> ControlTask:
    """Build a task from a Gymnasium id ("module:Id-v0" too), an environment, or a function that returns one."""
    env_kwargs = dict(env_kwargs or {})
    given = {key: value for key, value in env_kwargs.items() if key not in ("change", "blind")}
    name, make = _maker(task, given)
    if "change" in env_kwargs:
        make = partial(_changed_by, make, changes_of(env_kwargs["change"]))
    if "blind" in env_kwargs:
        make = partial(_blind, make, env_kwargs["blind"])
    probe = _probe(name, make)
    try:
        return _describe(name, make, env_kwargs, probe)
    finally:
        probe.close()


def _changed_by(make: MakeEnv, changes: Mapping[str, Any], **arguments: Any) -> gym.Env:
    """What is made, in other dynamics."""
    return changed(make(**arguments), **changes)


def _blind(make: MakeEnv, given: Any, **arguments: Any) -> gym.Env:
    """What is made, without its goal among the observations."""
    return blind(make(**arguments), given)


def name_of(make: Callable[..., gym.Env]) -> str:
    """What a task is called that is made by a function; a lambda's own name would make an awkward folder."""
    name = getattr(make, "__name__", type(make).__name__)
    return name if name.isidentifier() else "own-task"


def task_of_file(name: str, where: Path) -> str:
    """A task that a file names: opening somebody's folder must import nothing that it names."""
    if ":" in name:
        raise InputError(
            f"{where} names the task {name}, whose module would be imported; if you trust it, name the task "
            f"yourself: --task {name}, or task={name!r} in Python."
        )
    if name not in gym.registry and name not in REFERENCES and not name.startswith(ROBOTICS_FAMILIES):
        raise InputError(
            f"{where} names the task {name}, which no id here means: give it again, as --task module:Id or, in "
            "Python, as task=... (a function or an environment)."
        )
    return name


def _describe(name: str, make: MakeEnv, env_kwargs: Mapping[str, Any], probe: gym.Env) -> ControlTask:
    reference = _reference(probe.spec)
    return ControlTask(
        name=name,
        env_id=probe.spec.id if probe.spec else type(probe.unwrapped).__name__,
        make=make,
        env_kwargs=env_kwargs,
        obs_dim=observation_size(name, probe.observation_space),
        **action_fields(name, probe.action_space),
        horizon=_horizon(name, probe),
        random_return=reference.random,
        expert_return=reference.expert,
        versions=simulator_versions(probe),
        goal=goal_of(probe.observation_space),
        still_return=reference.still,
        seen=_seen(probe),
    )


def _maker(
    task: str | gym.Env | Callable[..., gym.Env], env_kwargs: Mapping[str, Any]
) -> tuple[str, partial[gym.Env]]:
    if isinstance(task, str):
        # A spec, unlike an id, also works in a process where nobody registered the environment.
        return task, partial(gym.make, _find_spec(task), **env_kwargs)
    if isinstance(task, gym.Env):
        return _maker_of_copies(task, env_kwargs)
    if callable(task):
        return name_of(task), partial(task, **env_kwargs)
    raise InputError(
        f"a task is a Gymnasium id, an environment or a function that returns one, not {type(task).__name__}."
    )


def _maker_of_copies(env: gym.Env, env_kwargs: Mapping[str, Any]) -> tuple[str, partial[gym.Env]]:
    if env.spec is None:
        raise InputError(
            f"{type(env.unwrapped).__name__} was not made by gymnasium.make, so no copies of it can be made: "
            "pass a function that returns the environment instead."
        )
    silent = {"render_mode": None} if "render_mode" in env.spec.kwargs else {}
    return env.spec.id, partial(gym.make, env.spec, **(silent | dict(env_kwargs)))


def _find_spec(task: str) -> EnvSpec:
    module, _, env_id = task.rpartition(":")
    if module:
        _import_registering(module, task)
    elif env_id not in gym.registry and env_id.startswith(ROBOTICS_FAMILIES):
        _register_robotics(task)
    if env_id not in gym.registry:
        raise unknown_name("environment", env_id, {*gym.registry, *REFERENCES})
    return gym.registry[env_id]


def _import_registering(module: str, task: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"cannot import {module!r}, which {task!r} names as the module that registers it: {error}."
        ) from error


def _register_robotics(task: str) -> None:
    try:
        gym.register_envs(importlib.import_module("gymnasium_robotics"))
    except ImportError:
        raise _missing_extra(task, "robotics") from None


def _missing_extra(task: str, extra: str) -> InputError:
    return InputError(f"{task} needs packages that are not installed: run {install_command(extra)}.")


def _probe(name: str, make: partial[gym.Env]) -> gym.Env:
    """One environment, to learn the spaces from; what goes wrong here is the user's to mend."""
    try:
        env = make()
    except (ImportError, gym.error.DependencyNotInstalled) as error:
        raise _import_failure(name, make, error) from error
    except InputError:  # a change of dynamics that cannot be, or a table
        raise
    except Exception as error:  # a constructor may raise anything on arguments that it does not expect
        mend = "check task_args, or pass a function that returns the environment"
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise InputError(f"cannot make {name}: {reason}; {mend}.") from error
    if not isinstance(env, gym.Env):
        raise InputError(f"{name} must return a gymnasium.Env, not {type(env).__name__}.")
    return env


def _import_failure(name: str, make: partial[gym.Env], error: Exception) -> InputError:
    entry_point = getattr(make.args[0], "entry_point", None) if make.args else None
    # An entry point that is a function says nothing about packages: gymnasium's obsolete ids raise on purpose.
    extra = next((e for part, e in EXTRAS.items() if isinstance(entry_point, str) and part in entry_point), None)
    return _missing_extra(name, extra) if extra else InputError(f"cannot make {name}: {error}")


def observation_size(name: str, space: Space) -> int:
    """How many numbers an observation is, or why it is none of ours."""
    parts = space.spaces.values() if isinstance(space, Dict) else [space]
    if not all(isinstance(part, Box) and len(part.shape) <= 1 for part in parts):
        raise InputError(
            f"{name} has observations of {space}, and only {SUPPORTED_OBSERVATIONS} are supported: "
            "wrap it with gymnasium.wrappers.FlattenObservation or your own features."
        )
    goal = goal_of(space)
    return sum(math.prod(part.shape or ()) for part in parts) + (0 if goal is None else goal.size)


def _seen(env: gym.Env) -> Seen | None:
    if not isinstance(env, Blind):
        return None
    whole = env.env.observation_space
    assert isinstance(whole, Dict)
    before = sum(math.prod(part.shape or ()) for name, part in whole.spaces.items() if name < SEEN)
    return Seen(before, observation_size("", env.observation_space), observation_size("", whole))


def goal_of(space: Space) -> Goal | None:
    """Where position and goal are in flattened observations of a space, if it tells both."""
    if not isinstance(space, Dict) or any(part.shape is None for part in space.spaces.values()):
        return None
    return goal_in({name: math.prod(part.shape or ()) for name, part in space.spaces.items()})


def action_fields(name: str, space: Space) -> dict[str, Any]:
    """What `Spaces` says of actions, or why they are none of ours."""
    if isinstance(space, Discrete):
        return {"action_dim": int(space.n), "discrete": True, "action_start": int(space.start)}
    if isinstance(space, Box) and len(space.shape) == 1 and space.is_bounded() and np.all(space.low < space.high):
        size, low, high = space.shape[0], space.low, space.high
        return {"action_dim": size, "discrete": False, "action_low": low, "action_high": high}
    raise InputError(
        f"{name} has actions of {space}, and only {SUPPORTED_ACTIONS} are supported: "
        "wrap it with gymnasium.wrappers.TransformAction or your own wrapper."
    )


def _horizon(name: str, env: gym.Env) -> int:
    limit = env.spec.max_episode_steps if env.spec else None
    if limit is None and env.has_wrapper_attr("_max_episode_steps"):  # a TimeLimit around an env without a spec
        limit = env.get_wrapper_attr("_max_episode_steps")
    if limit is None:
        raise InputError(
            f"{name} has no time limit: register it with max_episode_steps, or pass a function that returns "
            "gymnasium.wrappers.TimeLimit(env, max_episode_steps)."
        )
    return int(limit)


def _reference(spec: EnvSpec | None) -> ReferenceReturns:
    """Reference returns hold for the environment as registered, not for one with other physics or wrappers."""
    stock = gym.registry.get(spec.id) if spec else None
    if (
        spec is None
        or stock is None
        or any(added.name != Blind.__name__ for added in spec.additional_wrappers)
        or spec.max_episode_steps != stock.max_episode_steps
    ):
        return ReferenceReturns()
    changed = {key for key, value in spec.kwargs.items() if key != "render_mode" and value != stock.kwargs.get(key)}
    return ReferenceReturns() if changed else REFERENCES.get(spec.id, ReferenceReturns())
