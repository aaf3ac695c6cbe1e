"""Changed dynamics: the numbers of the model really change, dead legs are dead, and no change is none, to the bit."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import trustirl as ti
from trustirl.tasks.changed import changed, changes_of
from trustirl.tasks.gym import make_control_task

pytest.importorskip("mujoco")
NOTHING = {"gravity": 9.81, "wind": 0, "mass": 1, "friction": 1}


def model_of(env: gym.Env) -> Any:
    inner: Any = env.unwrapped
    return inner.model


def walked(env: gym.Env, steps: int = 30) -> np.ndarray:
    """Observations under the same random actions, rewards beside them."""
    obs, _ = env.reset(seed=0)
    env.action_space.seed(0)
    seen = [obs]
    for _ in range(steps):
        obs, reward, *_ = env.step(env.action_space.sample())
        seen.append(np.append(obs, reward)[: len(seen[0])] + reward)
    env.close()
    return np.array(seen)


@pytest.mark.parametrize(("task", "more"), [("Ant-v4", {"disabled_leg": 0, "longer_leg": 1}), ("HalfCheetah-v4", {})])
def test_the_usual_numbers_change_nothing_to_the_bit(task: str, more: dict[str, float]) -> None:
    np.testing.assert_array_equal(walked(changed(task, **NOTHING, **more)), walked(gym.make(task)))


@pytest.mark.parametrize(
    ("change", "value", "number", "factor"),
    [
        ("gravity", 3.71, lambda model: model.opt.gravity[2], 3.71 / 9.81),
        ("mass", 1.5, lambda model: model.body_mass.sum(), 1.5),
        ("mass", 1.5, lambda model: model.body_subtreemass[0], 1.5),
        ("mass", 0.5, lambda model: model.body_inertia.sum(), 0.5),
        ("friction", 0.25, lambda model: model.geom_friction[0, 0], 0.25),
    ],
)
def test_the_models_numbers_change(change: str, value: float, number: Any, factor: float) -> None:
    before, after = gym.make("HalfCheetah-v4"), changed("HalfCheetah-v4", **{change: value})
    assert number(model_of(after)) == pytest.approx(factor * number(model_of(before)))
    assert np.abs(walked(after) - walked(before)).max() > 1e-3


def test_wind_blows_a_robot_along() -> None:
    places = []
    for wind in (-20, 0, 20):
        env = changed("HalfCheetah-v4", wind=wind)
        env.reset(seed=0)
        for _ in range(100):
            env.step(np.zeros(6, np.float32))
        places.append(env.unwrapped.data.qpos[0])
        env.close()
    assert places[0] < places[1] - 0.01
    assert places[2] > places[1] + 0.01


@pytest.mark.parametrize("leg", [1, 2, 3, 4])
def test_a_disabled_leg_does_not_move_the_ant(leg: int) -> None:
    def moved(action: np.ndarray, **changes: float) -> np.ndarray:
        env = changed("Ant-v4", **changes)
        env.reset(seed=0)
        for _ in range(10):
            obs, *_ = env.step(action)
        env.close()
        return np.asarray(obs)

    model = model_of(gym.make("Ant-v4"))
    own = [str(model.jnt(model.actuator_trnid[place, 0]).name).endswith(f"_{leg}") for place in range(8)]
    assert sum(own) == 2
    push = np.where(own, 1.0, 0.0).astype(np.float32)
    others = np.where(own, 0.0, 0.5).astype(np.float32)
    still = np.zeros(8, np.float32)
    np.testing.assert_array_equal(moved(push, disabled_leg=leg), moved(still, disabled_leg=leg))
    assert np.abs(moved(push) - moved(still)).max() > 0.1
    np.testing.assert_array_equal(moved(others, disabled_leg=leg), moved(others))


def test_a_longer_leg_is_longer_and_heavier_and_the_others_are_as_they_were() -> None:
    before, after = model_of(gym.make("Ant-v4")), model_of(changed("Ant-v4", longer_leg=1.5))
    for body, factor in ((before.body("aux_1").id, 1.5), (before.body("aux_1").id + 1, 1.5), (6, 1), (7, 1)):
        geom = int(np.flatnonzero(before.geom_bodyid == body)[0])
        assert after.geom_size[geom, 1] == pytest.approx(factor * before.geom_size[geom, 1])
        assert after.geom_size[geom, 0] == before.geom_size[geom, 0]
        assert after.body_mass[body] == pytest.approx(factor * before.body_mass[body])
    knee = before.body("aux_1").id + 1
    np.testing.assert_allclose(after.body_pos[knee], 1.5 * before.body_pos[knee])
    assert after.body_subtreemass[1] > before.body_subtreemass[1]
    assert np.isfinite(walked(changed("Ant-v4", longer_leg=1.5))).all()


def test_changes_are_task_arguments_and_travel_with_copies() -> None:
    asked = {"change": "gravity:3.71,mass:1.2"}
    task = make_control_task("Hopper-v4", asked)
    made = model_of(task.make())
    assert made.opt.gravity[2] == -3.71
    assert task.random_return is None  # that of other dynamics
    assert changes_of({"wind": 3}) == {"wind": 3}
    copy = make_control_task(changed("Hopper-v4", gravity=3.71)).make()
    assert model_of(copy).opt.gravity[2] == -3.71
    with_arguments = make_control_task("Ant-v4", {"change": {"disabled_leg": 2}, "terminate_when_unhealthy": False})
    assert (model_of(with_arguments.make()).actuator_gear[:, 0] == 0).sum() == 2


@pytest.mark.parametrize(
    ("task", "change", "sentence"),
    [
        ("Hopper-v4", "gravty:3", "did you mean 'gravity'"),
        ("Hopper-v4", "gravity", "written name:value"),
        ("Hopper-v4", "gravity:much", "written name:value"),
        ("Hopper-v4", "gravity:nan", "must be a finite number"),
        ("Hopper-v4", "mass:0", "a factor above 0"),
        ("Hopper-v4", "friction:-1", "a factor of at least 0"),
        ("Hopper-v4", "disabled_leg:1", "legs can be changed of ants"),
        ("Ant-v4", "disabled_leg:5", "numbered from 1 to 4"),
        ("CartPole-v1", "gravity:1", "only those of MuJoCo's robots"),
        ("Hopper-v4", 3, "given as a mapping"),
    ],
)
def test_what_cannot_be_changed_is_refused_in_a_sentence(task: str, change: object, sentence: str) -> None:
    with pytest.raises(ti.InputError, match=sentence):
        make_control_task(task, {"change": change})
