"""Robots' tasks: goals that are not seen, and simulator states that observations tell.

Nothing here imports JAX.
"""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Dict
from gymnasium.utils import RecordConstructorArgs
from jaxtyping import Float

from trustirl.core.errors import InputError
from trustirl.core.observations import Goal, Seen
from trustirl.demos.record import read_state
from trustirl.demos.schema import Demos

SEEN = "observation"  # the entry of a goal task's dictionary that tells neither position nor goal
ANT = 13, 14  # numbers of a mazed ant's observation that are positions, without x and y, and velocities


class Blind(gym.ObservationWrapper, RecordConstructorArgs):
    """A goal task in which neither the own position nor the goal is seen, as in the paper's experiments."""

    def __init__(self, env: gym.Env) -> None:
        """Wrap an environment whose observations are a dictionary with an entry `observation`."""
        RecordConstructorArgs.__init__(self)
        gym.ObservationWrapper.__init__(self, env)
        space = env.observation_space
        if not isinstance(space, Dict) or SEEN not in space.spaces:
            name = env.spec.id if env.spec else type(env.unwrapped).__name__
            raise InputError(f"{name} tells no goal apart from what else is seen, so blind cannot leave it out.")
        self.observation_space = space.spaces[SEEN]

    def observation(self, observation: Any) -> Any:
        """What is left to see."""
        return observation[SEEN]


def blind(env: gym.Env, given: Any = True) -> gym.Env:
    """The environment, blind if that is given."""
    if not isinstance(given, bool):
        raise InputError(f"blind must be true or false, got {given!r:.60}.")
    return Blind(env) if given else env


def as_seen(demos: Demos, seen: Seen | None) -> Demos:
    """Demonstrations that tell position and goal, as a blind task shows them; all others as they are."""
    if seen is None or demos.observations.shape[1:] != (seen.whole,):
        return demos
    kept = slice(seen.first, seen.first + seen.size)
    after = demos.next_observations
    return replace(
        demos,
        observations=demos.observations[:, kept],
        next_observations=None if after is None else after[:, kept],
    )


def told_states(env: gym.Env, goal: Goal | None, demos: Demos) -> Float[np.ndarray, "steps size"] | None:
    """Simulator states of an ant in a maze, from demonstrations that tell position and goal; None of others.

    Its observation is all of its positions and velocities. What else a state has, such as forces of the step before,
    is that of an ant that has just been put there.
    """
    inner: Any = env.unwrapped
    if goal is None or not hasattr(inner, "ant_env"):
        return None
    env.reset(seed=0)
    positions, velocities = ANT
    first = 2 * goal.size  # achieved_goal and desired_goal come before observation
    states = []
    for row in demos.observations.astype(np.float64):
        place, posed, moving = np.split(row[: first + positions + velocities], [goal.size, first + positions])
        inner.ant_env.set_state(np.concatenate([place, posed[goal.size :]]), moving)
        inner.goal = posed[: goal.size].copy()
        states.append(read_state(env))
    return np.array(states)
