"""Episodes of policies and of chance, played in one environment: what rewards are looked at along."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import gymnasium as gym

from trustirl.demos.schema import Demos
from trustirl.tasks.gym import ControlTask


@contextmanager
def played(
    task: ControlTask, episodes: int, seed: int, **arguments: Any
) -> Iterator[tuple[gym.Env, Callable[[Any], Demos]]]:
    """An environment, and a function that lets a policy, or chance for None, play new episodes in it.

    Every call plays others than the calls before it; `arguments` are given to whatever makes the environment.
    """
    env, calls = task.make(**arguments), count()
    try:
        env.action_space.seed(seed)

        def play(policy: Any) -> Demos:
            acts = policy if policy is not None else lambda _: env.action_space.sample()
            return Demos.record(acts, env, episodes, seed + next(calls) * episodes)

        yield env, play
    finally:
        env.close()
