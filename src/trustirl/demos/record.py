"""Record demonstrations by letting a policy act, and go back to a recorded simulator state."""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from jaxtyping import Float

from trustirl.core.errors import DemoError
from trustirl.core.observations import flatten
from trustirl.core.versions import simulator_versions
from trustirl.demos.checks import Fields


def recorded(policy: Any, env: gym.Env, episodes: int, seed: int) -> Fields:
    """See `Demos.record`."""
    if episodes < 1:
        raise DemoError(f"recording needs at least one episode, got {episodes}.")
    act = _actor(policy)
    simulator = _simulator(env)
    rows: dict[str, list[Any]] = {name: [] for name in ("observations", "actions", "rewards", "states")}
    final, ends, terminated = [], [], []
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed + episode)
        over = False
        while not over:
            action = act(observation)
            rows["observations"].append(_row(observation))
            rows["actions"].append(np.array(action))
            if simulator:
                rows["states"].append(simulator.read())
            observation, reward, ended, truncated, _ = env.step(action)
            rows["rewards"].append(float(reward))
            over = bool(ended or truncated)
        final.append(_row(observation))
        ends.append(len(rows["rewards"]))
        terminated.append(bool(ended))
    per_episode = {"episode_ends": ends, "terminated": terminated, "final_observations": final}
    arrays = {name: np.array(content) for name, content in (rows | per_episode).items() if content}
    return arrays | {"provenance": _provenance(env, seed)}


# What a reset draws and writes into the model: by the class of the environment, fields and the places in them.
DRAWN = {
    "AdroitHandPenEnv": (("body_quat", "target_obj_body_id"),),
    "AdroitHandDoorEnv": (("body_pos", "door_body_id"),),
    "AdroitHandHammerEnv": (("body_pos", "target_body_id"),),
    "AdroitHandRelocateEnv": (("body_pos", "obj_body_id"), ("site_pos", "target_obj_site_id")),
}


def read_state(env: gym.Env) -> Float[np.ndarray, " size"]:
    """The state an environment is in, to which `restore_state` goes back."""
    simulator = _simulator(env)
    if simulator is None:
        raise DemoError(f"{env} has no state that can be read: give it get_state() and set_state(state).")
    return simulator.read()


def has_goal_of_its_own(env: gym.Env) -> bool:
    """Whether the goal of an environment is a vector that can be set."""
    return isinstance(getattr(env.unwrapped, "goal", None), np.ndarray)


def restore_state(env: gym.Env, state: Float[np.ndarray, " size"]) -> None:
    """Put an environment into a recorded state: the next `step` repeats the recorded one.

    That is known of MuJoCo and classic control; others may have methods `get_state()` and `set_state(state)`.

    A goal, and what the tasks of Adroit's hand draw at a reset, are part of the state. What else an environment keeps
    outside of the simulator, such as the steps to its time limit, stays as it is.
    A reward may differ slightly where it reads positions of bodies, as Ant's does: those lag behind the state.
    """
    simulator = _simulator(env)
    if simulator is None:
        raise DemoError(f"{env} has no state that can be set: give it get_state() and set_state(state).")
    size = simulator.read().shape
    if state.shape != size:
        raise DemoError(
            f"the simulator of {env} has states of {size[0]} numbers, got {state.shape}; use the same task."
        )
    simulator.write(np.array(state, np.float64))


def _actor(policy: Any) -> Callable[[Any], Any]:
    """A function from observations to actions; Stable-Baselines3's `predict` is one."""
    if hasattr(policy, "predict"):
        return lambda observation: policy.predict(observation, deterministic=True)[0]
    if callable(policy):
        return policy
    raise DemoError(f"a policy is a function of the observation or has predict, not {type(policy).__name__}.")


def _row(observation: Any) -> np.ndarray:
    if isinstance(observation, dict | tuple):
        return flatten(observation, 1)[0]
    return np.array(observation)


class _Simulator(NamedTuple):
    """The way to a simulator's state, and back."""

    read: Callable[[], np.ndarray]
    write: Callable[[np.ndarray], None]


def _simulator(env: gym.Env) -> _Simulator | None:
    inner: Any = env.unwrapped
    data, model = (getattr(inner, name, None) for name in ("data", "model"))
    if hasattr(data, "qpos") and hasattr(model, "nq"):
        return _with_drawn(inner, _mujoco(model, data))
    if type(inner).__module__.startswith("gymnasium.envs.classic_control"):
        return _Simulator(lambda: np.array(inner.state, np.float64), lambda state: setattr(inner, "state", state))
    if callable(getattr(inner, "get_state", None)) and callable(getattr(inner, "set_state", None)):
        return _Simulator(lambda: np.array(inner.get_state(), np.float64), inner.set_state)
    return None


def _mujoco(model: Any, data: Any) -> _Simulator:
    """All that integration starts from: time, positions, velocities, actuators, and what warms the solver up."""
    import mujoco

    parts = mujoco.mjtState.mjSTATE_INTEGRATION

    def read() -> np.ndarray:
        state = np.empty(mujoco.mj_stateSize(model, parts))
        mujoco.mj_getState(model, data, state, parts)
        return state

    def write(state: np.ndarray) -> None:
        mujoco.mj_setState(model, data, state, parts)
        mujoco.mj_forward(model, data)  # positions of bodies, which rewards read, follow from the state
        mujoco.mj_setState(model, data, state, parts)  # and may have moved a part of it

    return _Simulator(read, write)


def _with_drawn(inner: Any, simulator: _Simulator) -> _Simulator:
    """The same with what a reset draws beside it: a goal, or where something stands."""
    places = DRAWN.get(type(inner).__name__, ())
    drawn = [getattr(inner.model, field)[getattr(inner, place)] for field, place in places]  # views of the model

    def goal() -> np.ndarray:
        found = getattr(inner, "goal", None)  # there is none before the first reset
        return found if isinstance(found, np.ndarray) else np.zeros(0)

    def read() -> np.ndarray:
        return np.concatenate([simulator.read(), *map(np.ravel, (goal(), *drawn))])

    def write(state: np.ndarray) -> None:
        first = len(simulator.read())
        rest = state[first:]
        if (before := goal()).size:
            inner.goal, rest = rest[: before.size].reshape(before.shape).copy(), rest[before.size :]
            if hasattr(inner, "update_target_site_pos"):
                inner.update_target_site_pos()  # so that it is drawn where it is
        for view in drawn:
            view[...], rest = rest[: view.size].reshape(view.shape), rest[view.size :]
        simulator.write(state[:first])

    return _Simulator(read, write)


def _provenance(env: gym.Env, seed: int) -> dict[str, Any]:
    simple = (bool, int, float, str, type(None))
    given = env.spec.kwargs if env.spec else {}
    return {
        "env_id": env.spec.id if env.spec else type(env.unwrapped).__name__,
        "env_kwargs": {key: value if isinstance(value, simple) else repr(value) for key, value in given.items()},
        "versions": simulator_versions(env),
        "seed": seed,
    }
