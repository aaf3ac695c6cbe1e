"""Small MDPs for theory: random ones, and a chain whose answers can be written down."""

import numpy as np

from trustirl.core.checks import counts
from trustirl.core.mdp import make_mdp
from trustirl.tasks.exact import ExactTask, check_size


def random_mdp(
    states: int = 6,
    actions: int = 3,
    successors: int = 3,
    seed: int = 0,
    horizon: int = 50,
    discount: float = 0.9,
    temperature: float = 1.0,
) -> ExactTask:
    """Random successors, Dirichlet probabilities, a normal reward on states and actions."""
    counts(0, seed=seed)
    counts(1, states=states, successors=successors)
    counts(2, actions=actions)
    check_size("the MDP", states, max(actions * successors, states))
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.ones(successors), size=(states, actions))
    return ExactTask(
        "random-mdp",
        make_mdp(
            rng.integers(states, size=probabilities.shape),
            probabilities,
            rng.dirichlet(np.ones(states)),
            discount,
            temperature,
        ),
        true_reward=rng.normal(size=(states, actions)),
        features=np.eye(states),
        horizon=horizon,
        state_only=False,
    )


def chain(
    length: int = 5, horizon: int = 50, discount: float = 0.9, temperature: float = 1.0, goal: float = 1.0
) -> ExactTask:
    """Walk left or right along a line; the right end pays `goal` per step and holds whoever arrives."""
    counts(2, length=length)
    check_size("the chain", length, max(2, length))
    position = np.arange(length)
    destinations = np.stack([np.maximum(position - 1, 0), np.minimum(position + 1, length - 1)], axis=1)
    destinations[-1] = length - 1
    reward = np.zeros((length, 2))
    reward[-1] = goal
    return ExactTask(
        "chain",
        make_mdp(destinations[..., None], np.ones((length, 2, 1)), np.eye(length)[0], discount, temperature),
        true_reward=reward,
        features=np.eye(length),
        horizon=horizon,
        state_only=True,
    )
