"""An algorithm of another package: plain gradient ascent on the gap, held back by a small weight on large rewards."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
import optax

from trustirl.algorithms import Defaults, Entry
from trustirl.core.checks import at_least, positive
from trustirl.core.descend import descend
from trustirl.core.measure import expect
from trustirl.irl.compose import explicit
from trustirl.irl.terms import gap


@dataclass(frozen=True)
class PlainConfig:
    """Settings of the reward step."""

    ascent: float = 1.0
    """Step size."""
    ridge: float = 0.01
    """Weight of the mean squared reward."""

    def __post_init__(self) -> None:
        """Refuse steps that cannot be."""
        positive(self, "ascent")
        at_least(0, self, "ridge")


def plain(parts, config):
    """Put the algorithm together."""
    optimizer = optax.sgd(config.ascent)

    def size(reward, learner):
        return expect(lambda batch: jnp.square(reward(batch)), learner)

    def misfit(reward, demo, learner):
        return config.ridge * size(reward, learner) - gap(reward, demo, learner)

    def update_reward(state, data, key):
        reward, kept = descend(misfit, optimizer, state.reward, state.optimizer, parts.draw(data, 1, key))
        return replace(state, reward=reward, optimizer=kept), {"reward_size": size(reward, data.learner)}

    return explicit(parts.make_solver(), parts.make_reward, optimizer, update_reward)


ENTRY = Entry(
    name="plain-gradient",
    config=PlainConfig,
    build=plain,
    reference="nobody's",
    worlds=("exact", "simulator"),
    defaults=Defaults(ours={"ascent": 0.01}, tasks={"CartPole-v1": {"width": 64, "steps": 50_000}}),
)
