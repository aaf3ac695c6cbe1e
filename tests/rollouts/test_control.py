"""Tasks from Gymnasium: what they say about themselves, and what they refuse."""

import importlib.util
import platform
import re
import sys
from types import ModuleType

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

from tests.rollouts.worlds import Counter, Static, dict_space, limited
from trustirl.core.errors import InputError
from trustirl.tasks.gym import make_control_task

VECTOR, CHOICE = Box(-1, 1, (2,)), Discrete(3)


def test_an_id_describes_itself() -> None:
    cart = make_control_task("CartPole-v1")
    assert (cart.name, cart.env_id, cart.obs_dim, cart.action_dim, cart.horizon) == (
        ("CartPole-v1", "CartPole-v1", 4, 2, 500)
    )
    assert cart.discrete
    assert cart.action_shape == ()
    assert cart.expert_return == 500.0
    assert cart.versions == {"gymnasium": gym.__version__}
    pendulum = make_control_task("Pendulum-v1")
    assert not pendulum.discrete
    assert pendulum.action_shape == (1,)
    np.testing.assert_array_equal(pendulum.action_high, [2.0])


def test_env_kwargs_reach_the_environment_and_void_the_reference_returns() -> None:
    assert make_control_task("Pendulum-v1").random_return is not None
    heavy = make_control_task("Pendulum-v1", {"g": 20.0})
    assert heavy.make().unwrapped.g == 20.0  # type: ignore[attr-defined]
    assert heavy.random_return is None
    assert heavy.env_kwargs == {"g": 20.0}


def test_a_module_in_the_id_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("registers_a_counter")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(
        gym.registry, "Count-v0", gym.envs.registration.EnvSpec("Count-v0", Counter, max_episode_steps=7)
    )
    task = make_control_task("registers_a_counter:Count-v0")
    assert (task.env_id, task.horizon, task.obs_dim) == ("Count-v0", 7, 3)


def test_an_environment_is_copied_by_its_spec() -> None:
    original = gym.make("CartPole-v1", max_episode_steps=30, render_mode="rgb_array")
    task = make_control_task(original)
    copy = task.make()
    assert copy.unwrapped is not original.unwrapped
    assert copy.render_mode is None
    assert task.horizon == 30
    assert task.expert_return is None  # 500 cannot be had in 30 steps


def test_a_function_is_called_with_env_kwargs() -> None:
    def build(length: int = 3) -> gym.Env:
        return gym.wrappers.TimeLimit(Counter(length), 8)

    task = make_control_task(build, {"length": 5})
    assert (task.name, task.env_id, task.horizon) == ("build", "Counter", 8)
    assert task.make().unwrapped.length == 5  # type: ignore[attr-defined]


def test_dicts_count_all_their_entries() -> None:
    assert make_control_task(limited(Static, 5, dict_space(), CHOICE)).obs_dim == 6


def refuse(task: object, sentence: str, env_kwargs: dict[str, object] | None = None) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        make_control_task(task, env_kwargs)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_errors_say_how_to_mend_them() -> None:
    refuse("Hoppr-v4", "unknown environment 'Hoppr-v4': did you mean 'Hopper-v4'")
    refuse("CartPole", "did you mean 'CartPole-v1' or 'CartPole-v0'")
    refuse("no_such_module:Env-v0", "cannot import 'no_such_module'")
    refuse("Hopper-v2", "cannot make Hopper-v2: .*moved to the gymnasium-robotics project")
    refuse("CartPole-v1", "cannot make CartPole-v1: .*wheels.*check task_args", {"wheels": 4})
    refuse(Counter(), "Counter was not made by gymnasium.make.*pass a function that returns the environment")
    refuse(Counter, "Counter has no time limit: register it with max_episode_steps.*TimeLimit")
    refuse(gym.make("CartPole-v1").unwrapped, "CartPole-v1 has no time limit")
    refuse(lambda: 3, "must return a gymnasium.Env, not int")


@pytest.mark.parametrize("odd", [[1], None, "5", {}])
def test_whatever_a_constructor_raises_is_one_sentence(odd: object) -> None:
    def build(length: int) -> gym.Env:
        if odd is None:
            raise AssertionError
        return gym.wrappers.TimeLimit(Counter(length.bit_count()), 8)  # an AttributeError of anything else

    refuse(build, "cannot make build: .*; check task_args, or pass a function", {"length": odd})
    refuse("CartPole-v1", "cannot make CartPole-v1: .*; check task_args", {"max_episode_steps": odd or {}})


def test_a_wrapper_that_cannot_be_rebuilt_is_refused() -> None:
    class Forgetful(gym.Wrapper):
        pass

    refuse(Forgetful(gym.make("CartPole-v1")), "Forgetful.*pass a function that returns the environment")


@pytest.mark.parametrize(
    ("observation", "action", "sentence"),
    [
        (Box(0, 255, (8, 8, 3), np.uint8), CHOICE, r"observations of Box\(0, 255, \(8, 8, 3\).*only Box vectors"),
        (Tuple((VECTOR, VECTOR)), CHOICE, "observations of Tuple.*sorted key order"),
        (Dict({"deep": Dict({"a": VECTOR})}), CHOICE, "observations of Dict"),
        (CHOICE, CHOICE, "observations of Discrete"),
        (VECTOR, MultiDiscrete([2, 2]), "actions of MultiDiscrete.*only Discrete and bounded Box vectors"),
        (VECTOR, Box(-np.inf, np.inf, (2,)), "actions of Box.*bounded"),
        (VECTOR, Box(-1, 1, (2, 2)), "actions of Box.*vectors"),
    ],
)
def test_unsupported_spaces_are_named(observation: gym.Space, action: gym.Space, sentence: str) -> None:
    refuse(limited(Static, 5, observation, action), sentence)


@pytest.mark.parametrize(
    ("task", "package", "machine", "command"),
    [
        ("Hopper-v4", "mujoco", "aarch64", "pip install 'trustirl[mujoco]'"),
        ("LunarLander-v3", "Box2D", "x86_64", "pip install 'trustirl[box2d]'"),
        (
            "LunarLanderContinuous-v3",
            "Box2D",
            "aarch64",
            "pip install setuptools wheel swig pygame-ce && pip install --no-build-isolation box2d-py",
        ),
        ("AntMaze_UMazeDense-v4", "gymnasium_robotics", "aarch64", "pip install 'trustirl[robotics]'"),
    ],
)
def test_missing_packages_are_named_with_the_command_that_installs_them_here(
    task: str, package: str, machine: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for loaded in [
        name for name in sys.modules if name.startswith(("gymnasium.envs.mujoco", "gymnasium.envs.box2d"))
    ]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    monkeypatch.setattr(platform, "machine", lambda: machine)
    refuse(task, re.escape(f"{task} needs packages that are not installed: run {command}."))


@pytest.mark.skipif(importlib.util.find_spec("Box2D") is None, reason="Box2D is not installed")
def test_the_lander_takes_wind() -> None:
    task = make_control_task("LunarLanderContinuous-v3", {"enable_wind": True, "wind_power": 12.0})
    assert not task.discrete
    assert task.make().unwrapped.wind_power == 12.0  # type: ignore[attr-defined]
    assert task.random_return is None


def test_hopper_names_its_simulator() -> None:
    import mujoco

    task = make_control_task("Hopper-v4")
    assert task.versions == {"gymnasium": gym.__version__, "mujoco": mujoco.__version__}
    assert (task.obs_dim, task.action_dim, task.horizon, task.expert_return) == (11, 3, 1000, 3633.0)
    assert make_control_task("Hopper-v5").expert_return is None
