"""MuJoCo tasks in other dynamics: gravity, wind, masses, friction, a leg that is dead or longer.

    env = changed(gymnasium.make("Ant-v4"), disabled_leg=1)
    trustirl train ... --task HalfCheetah-v4 --task-args change=wind:-10,gravity:3.71

Rewards, ends and observations stay those of the task. Nothing here imports JAX.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from trustirl.core.errors import InputError, unknown_name

AIR = 1.2  # kg/m3; MuJoCo's robots live in a vacuum, where no wind blows
LEGS = ("aux_1", "aux_2", "aux_3", "aux_4")  # of an ant: the bodies that turn at its hips


class Changed(gym.Wrapper, RecordConstructorArgs):
    """A MuJoCo environment whose model was changed; like every wrapper it is named in its spec, so copies have it."""

    def __init__(self, env: gym.Env, **changes: Any) -> None:
        """See `CHANGES`; what is not named stays as it is, to the bit."""
        RecordConstructorArgs.__init__(self, _disable_deepcopy=False, **changes)
        gym.Wrapper.__init__(self, env)
        model: Any = getattr(env.unwrapped, "model", None)
        name = env.spec.id if env.spec else type(env.unwrapped).__name__
        if not hasattr(model, "opt"):
            raise InputError(
                f"the dynamics of {name} cannot be changed here, only those of MuJoCo's robots; see its arguments."
            )
        for change, value in changes.items():
            if change not in CHANGES:
                raise unknown_name("change of dynamics,", change, CHANGES)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InputError(f"the change {change} must be a finite number, got {value!r}.")
            CHANGES[change](model, float(value), type(env.unwrapped).__name__)
        if {"mass", "longer_leg"} & changes.keys():
            _settle(model, env.unwrapped)


def changed(env: gym.Env | str, **changes: Any) -> gym.Env:
    """The environment with other dynamics: gravity, wind, mass, friction, disabled_leg, longer_leg."""
    made = gym.make(env) if isinstance(env, str) else env
    return Changed(made, **changes) if changes else made


def changes_of(given: Any) -> dict[str, Any]:
    """Changes as a mapping, or as they are written: wind:-10,gravity:3.71."""
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, str):
        raise InputError(f"changes are written name:value,name:value or given as a mapping, got {given!r}.")
    found: dict[str, Any] = {}
    for part in filter(None, given.split(",")):
        name, colon, value = part.replace("=", ":").partition(":")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise InputError(f"changes are written name:value,name:value, such as wind:-10; got {part!r}.") from None
        if not colon:
            raise InputError(f"changes are written name:value,name:value, such as wind:-10; got {part!r}.")
    return found


def _gravity(model: Any, value: float, _: str) -> None:
    """Downwards, in m/s2; 9.81 on earth, 3.71 on Mars."""
    model.opt.gravity[2] = -value


def _wind(model: Any, value: float, _: str) -> None:
    """Along the robot's way, in m/s; below zero it blows against it."""
    if value:
        model.opt.wind[0] = value
        model.opt.density = max(float(model.opt.density), AIR)


def _mass(model: Any, factor: float, _: str) -> None:
    """Of all bodies, times this."""
    _positive("mass", factor)
    if factor != 1:
        model.body_mass[:] *= factor
        model.body_inertia[:] *= factor


def _friction(model: Any, factor: float, _: str) -> None:
    """Of all surfaces, times this."""
    if factor < 0:
        raise InputError(f"the change friction is a factor of at least 0, got {factor:g}.")
    if factor != 1:
        model.geom_friction[:] *= factor


def _disabled_leg(model: Any, number: float, kind: str) -> None:
    """Number of the ant's leg whose motors are dead; 0: none."""
    if not number:
        return
    body = _leg(number, kind)
    limb = _below(model, model.body(body).id)
    dead = [place for place in range(model.nu) if model.jnt_bodyid[model.actuator_trnid[place, 0]] in limb]
    model.actuator_gear[dead] = 0


def _longer_leg(model: Any, factor: float, kind: str) -> None:
    """The ant's first leg, so many times as long and as heavy, and as thick as before."""
    _positive("longer_leg", factor)
    if factor == 1:
        return
    limb = sorted(_below(model, model.body(_leg(1.0, kind)).id))
    for body in limb:
        geoms = np.flatnonzero(model.geom_bodyid == body)
        model.geom_size[geoms, 1] *= factor  # half the length of a capsule
        model.geom_pos[geoms] *= factor
        model.geom_rbound[geoms] *= factor
        model.body_ipos[body] *= factor
        model.body_mass[body] *= factor
        axial = int(np.argmin(model.body_inertia[body]))
        model.body_inertia[body] *= np.where(np.arange(3) == axial, factor, factor**3)  # of a rod
        if body != limb[0]:
            model.body_pos[body] *= factor


CHANGES: dict[str, Callable[[Any, float, str], None]] = {
    "gravity": _gravity,
    "wind": _wind,
    "mass": _mass,
    "friction": _friction,
    "disabled_leg": _disabled_leg,
    "longer_leg": _longer_leg,
}


def _positive(name: str, factor: float) -> None:
    if factor <= 0:
        raise InputError(f"the change {name} is a factor above 0, got {factor:g}.")


def _leg(number: float, kind: str) -> str:
    """The body of a leg by its number."""
    if not kind.startswith("Ant"):
        raise InputError(f"legs can be changed of ants, such as Ant-v4, and not of {kind}.")
    if number not in range(1, len(LEGS) + 1):
        raise InputError(f"the legs of an ant are numbered from 1 to {len(LEGS)}, got {number:g}.")
    return LEGS[int(number) - 1]


def _below(model: Any, root: int) -> set[int]:
    """A body and all that hang on it."""
    limb = {root}
    for body in range(root + 1, model.nbody):  # parents have lower numbers
        if model.body_parentid[body] in limb:
            limb.add(body)
    return limb


def _settle(model: Any, env: Any) -> None:
    """Have MuJoCo compute anew what it derives from masses, and forget what that did to the state."""
    import mujoco

    scratch = mujoco.MjData(model)
    mujoco.mj_setConst(model, scratch)
    mujoco.mj_forward(model, env.data)
