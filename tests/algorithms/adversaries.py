"""What tests of adversaries share: measures with absorbing rows, a linear network, finite differences."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from trustirl.core.measure import whole
from trustirl.core.records import Algorithm, Parts
from trustirl.core.types import ExpertData, IrlState, RewardData, Transition
from trustirl.irl.measures import after_steps
from trustirl.nets.rewards import NetworkReward, blank_network_reward
from trustirl.rl.config import SolverConfig
from trustirl.rl.softq import softq

OBS = np.array([[0.5, 2.0, 0.0], [-1.0, 1.5, 0.0]])  # two steps of each side, and what follows an end
WEIGHT = np.array([[1.0, 1.0, 3.0], [1.0, 1.0, 5.0]])
ENDED = np.array([0.0, 0.0, 1.0])
INPUTS = np.stack([np.stack([obs, ENDED], axis=1) for obs in OBS])  # what a network of states sees: a flag last
SETTINGS = SolverConfig(width=4, discount=0.9, temperature=0.5)


def side(expert: bool) -> Transition:
    """Three rows, of which the last stands for the state after an end."""
    which = 0 if expert else 1
    obs, weight = jnp.asarray(OBS[which], jnp.float32)[:, None], jnp.asarray(WEIGHT[which], jnp.float32)
    action, ended = jnp.asarray([0, 1, 0]), jnp.asarray(ENDED, bool)
    return Transition(obs, action, weight, obs + 1, jnp.asarray([False, True, False]), ended)


def linear() -> NetworkReward:
    """A linear reward of states, far from its bound."""
    make = blank_network_reward(np.zeros(1, np.float32), np.ones(1, np.float32), 0, "state", 1, 0, 1e4)
    weight = jnp.asarray([[0.7, -0.4]], jnp.float32)
    return eqx.tree_at(lambda net: net.network.layers[-1].weight, make(jax.random.key(0)), weight)


def stepped(build: Callable[..., Algorithm], config: Any) -> tuple[Algorithm, IrlState, IrlState]:
    """The algorithm, and its state before and after an update on whole measures."""
    make = lambda _: linear()  # noqa: E731
    solver = lambda: softq(1, 2, SETTINGS)  # noqa: E731
    parts = Parts(solver, make, whole, config=SETTINGS, make_potential=make, after=after_steps)
    algorithm = build(parts, config)
    demo, learner = side(True), side(False)
    state = algorithm.init(jax.random.key(0), ExpertData(demo, 2))
    assert algorithm.update_reward is not None
    new, _ = eqx.filter_jit(algorithm.update_reward)(state, RewardData(demo, learner, learner), jax.random.key(1))
    return algorithm, state, new


def differences(loss: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    """A gradient by central differences."""
    nudges = 1e-5 * np.eye(len(at))
    return np.array([(loss(at + nudge) - loss(at - nudge)) / 2e-5 for nudge in nudges])
