"""Grids: the paper's 7 x 7 world and a cliff walk."""

import numpy as np
from numpy.typing import NDArray

from trustirl.core.errors import InputError
from trustirl.core.mdp import make_mdp
from trustirl.tasks.exact import ExactTask, check_size

MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])  # stay, up, down, left, right


def gridworld(
    size: int = 7,
    slip: float = 0.0,
    horizon: int = 50,
    discount: float = 0.9,
    temperature: float = 1.0,
) -> ExactTask:
    """The paper's grid: random start, reward minus the Euclidean distance to the target in the middle.

    The target is terminal, as in the paper: whoever reaches it stays, at reward 0. With probability `slip` a move is
    replaced by one drawn at random.
    """
    if size < 2:
        raise InputError(f"the grid's size must be at least 2, got {size}.")
    check_size("the grid", size * size, _outcomes(slip))
    cells = _cells(size, size)
    target = (size // 2) * size + size // 2
    destinations = _destinations(size, size)
    destinations[target] = target
    successors, probabilities = _slippery(destinations, slip)
    start = np.ones(size * size)
    start[target] = 0.0
    distance = np.linalg.norm(cells - cells[target], axis=1)
    return ExactTask(
        "gridworld",
        make_mdp(successors, probabilities, start / start.sum(), discount, temperature),
        true_reward=np.repeat(-distance[:, None], len(MOVES), axis=1),
        features=_grid_features(cells),
        horizon=horizon,
        state_only=True,
        grid=(size, size),
        target=target,
    )


def cliff(
    width: int = 8,
    height: int = 4,
    slip: float = 0.0,
    horizon: int = 60,
    discount: float = 0.95,
    temperature: float = 1.0,
) -> ExactTask:
    """A walk along a cliff: falling costs 10 and leads back to the start.

    Values change steeply with the reward, so a greedy reward update overshoots: the task that shows what a trust
    region is for.
    """
    if width < 3 or height < 2:
        raise InputError(f"the cliff needs a width of at least 3 and a height of at least 2, got {width} x {height}.")
    check_size("the cliff", width * height, _outcomes(slip))
    cells = _cells(height, width)
    begin, target = (height - 1) * width, height * width - 1
    edge = np.arange(begin + 1, target)
    destinations = _destinations(height, width)
    destinations[edge] = begin  # whoever stands in the abyss is put back at the start
    destinations[target] = target
    successors, probabilities = _slippery(destinations, slip)
    reward = np.full(height * width, -1.0)
    reward[edge], reward[target] = -10.0, 0.0
    start = np.zeros(height * width)
    start[begin] = 1.0
    return ExactTask(
        "cliff",
        make_mdp(successors, probabilities, start, discount, temperature),
        true_reward=np.repeat(reward[:, None], len(MOVES), axis=1),
        features=_grid_features(cells),
        horizon=horizon,
        state_only=True,
        grid=(height, width),
        target=target,
    )


def _outcomes(slip: float) -> int:
    """Of all moves from a cell."""
    return len(MOVES) * (len(MOVES) if slip else 1)


def _cells(height: int, width: int) -> NDArray[np.int64]:
    return np.stack(np.divmod(np.arange(height * width), width), axis=1)


def _destinations(height: int, width: int) -> NDArray[np.int64]:
    """Where each move leads from each cell; walls hold."""
    moved = _cells(height, width)[:, None, :] + MOVES[None]
    moved = np.clip(moved, 0, [height - 1, width - 1])
    return moved[..., 0] * width + moved[..., 1]


def _slippery(destinations: NDArray[np.int64], slip: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    if not 0.0 <= slip <= 1.0:
        raise InputError(f"the slip probability must lie between 0 and 1, got {slip}.")
    if slip == 0.0:
        return destinations[..., None], np.ones((*destinations.shape, 1))
    states, actions = destinations.shape
    successors = np.broadcast_to(destinations[:, None, :], (states, actions, actions))
    intended = np.eye(actions)[None]
    probabilities = np.broadcast_to((1 - slip) * intended + slip / actions, successors.shape)
    return successors, probabilities


def _grid_features(cells: NDArray[np.int64]) -> NDArray[np.float64]:
    """Coordinates in [-1, 1]: what a network needs to draw a smooth map."""
    return 2.0 * cells / np.maximum(cells.max(axis=0), 1) - 1.0
