"""A task counted from a table of categories: no simulator, no true reward; the table itself demonstrates."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from trustirl.core.files import file_hash
from trustirl.core.mdp import MDP, Shared, make_mdp
from trustirl.core.words import count
from trustirl.demos.schema import Demos
from trustirl.tasks.counting import ACTION_PRIOR, PRIOR, Kernel, Steps, asked, counted_policy, steps_and_kernel
from trustirl.tasks.exact import ExactTask, check_size

DISCOUNT = 0.95


class Known(NamedTuple):
    """What a task of a table keeps of it."""

    steps: Steps
    kernel: Kernel
    prior: float
    action_prior: float
    notes: tuple[str, ...]
    policy: Float[np.ndarray, "states actions"]
    """What was done in each state, counted; its exact visits demonstrate."""


def from_table(
    file: str = "",
    states: list = [],  # noqa: B006  the registry shows these defaults, and nobody changes them
    actions: str = "",
    episode: list = [],  # noqa: B006
    time: str = "",
    group: str = "",
    bins: dict = {},  # noqa: B006
    drop: dict = {},  # noqa: B006
    moves: str = "",
    previous: bool = False,
    window: int = 0,
    gap: float = 0.0,
    prior: float = PRIOR,
    action_prior: float = ACTION_PRIOR,
    mask: bool = True,
    sha256: str = "",
    discount: float = DISCOUNT,
    temperature: float = 1.0,
) -> ExactTask:
    """The world that a table shows (`Reading` has most of the arguments, `counting` the mathematics).

    `prior` are the pseudo-counts of what follows, `action_prior` those of what is done; with `mask`, moves that never
    happened are forbidden; `sha256` is that of the file, which is refused if it has another one.
    """
    how: dict[str, Any] = {
        "states": states,
        "actions": actions,
        "episode": episode,
        "time": time,
        "group": group,
        "bins": bins,
    }
    how |= {"drop": drop, "moves": moves, "previous": previous, "window": window, "gap": gap}
    steps, kernel = steps_and_kernel(file, prior, mask, sha256, **how)
    return replace(
        table_task(steps, kernel, prior, action_prior, discount, temperature), file_hash=file_hash(Path(file))
    )


def table_mdp(kernel: Kernel, discount: float, temperature: float) -> MDP:
    """What was counted, as an MDP."""
    pairs, width = kernel.which.size, kernel.successors.shape[1]
    check_size("the table's world", len(kernel.which), pairs // len(kernel.which) * width)
    mdp = make_mdp(
        kernel.successors[kernel.which], kernel.probabilities[kernel.which], kernel.initial, discount, temperature
    )
    lists = Shared(
        jnp.asarray(kernel.which, jnp.int32),
        jnp.asarray(kernel.successors, jnp.int32),
        jnp.asarray(kernel.probabilities),
    )
    allowed = None if kernel.allowed.all() else jnp.asarray(kernel.allowed)
    return replace(mdp, shared=lists, allowed=allowed)


def table_task(
    steps: Steps,
    kernel: Kernel,
    prior: float = PRIOR,
    action_prior: float = ACTION_PRIOR,
    discount: float = DISCOUNT,
    temperature: float = 1.0,
) -> ExactTask:
    """A task in which the steps are the demonstrations.

    As a measure, these are the exact visits of what was counted: windows end where tracks go on, and are too few for
    any policy to visit states just as often, so that rewards could grow without bound for what no policy can do.
    """
    policy = counted_policy(steps, kernel, action_prior)
    return ExactTask(
        "table",
        table_mdp(kernel, discount, temperature),
        true_reward=None,
        features=steps.features(),
        horizon=int(np.diff(steps.ends, prepend=0).max()),
        state_only=False,
        shown=demonstrated(steps),
        table=Known(steps, kernel, prior, action_prior, (*steps.told, *unseen(steps, kernel)), policy),
    )


def demonstrated(steps: Steps) -> Demos:
    """Windows as episodes of numbered states and actions, with what followed the last one."""
    following = steps.after if steps.before is None else steps.after * len(steps.actions) + steps.action
    return Demos.from_numpy(
        steps.obs, steps.action, steps.ends, next_observations=following, provenance={"source": "table"}
    )


def unseen(steps: Steps, kernel: Kernel) -> tuple[str, ...]:
    """What the data cannot say, in sentences without their full stops."""
    visited, taken = len(np.unique(steps.obs)), np.bincount(steps.action, minlength=len(steps.actions))
    never = [name for name, times in zip(steps.actions, taken, strict=True) if not times]
    told = [f"{visited:,} of {steps.states:,} states are ever visited; of the others nothing is known but the prior"]
    if never:
        told.append(f"never taken: {', '.join(never[:10])}{' and others' if len(never) > 10 else ''}")
    if forbidden := int((~kernel.allowed).sum()):
        pairs = f"{forbidden:,} of {kernel.allowed.size:,} pairs of state and action"
        told.append(f"{pairs} are moves never seen, and forbidden")
    groups = len(np.unique(steps.group))
    told.append(
        f"{len(steps.obs):,} steps of {count(groups, 'group')} tell where they are as precisely as "
        f"{effective_size(steps):,.0f} independent ones would"
    )
    if groups >= 4:
        told.append(f"two halves of the groups differ by {100 * halves(steps):.0f} % in where they are")
    return tuple(told)


def _visits(steps: Steps) -> np.ndarray:
    """How often each group is at each place (of the column that moves, or else in each state)."""
    places = np.unravel_index(np.arange(steps.combinations), steps.shape)
    place = places[steps.moving] if steps.moving is not None else np.arange(steps.combinations)
    times = np.zeros((len(steps.groups), int(place.max()) + 1))
    np.add.at(times, (steps.group[steps.window_of_steps()], place[steps.state]), 1.0)
    return times[times.sum(axis=1) > 0]


def effective_size(steps: Steps) -> float:
    """How many independent rows would tell the shares of places as precisely as these groups do."""
    times = _visits(steps)
    total, groups = times.sum(), len(times)
    share = times.sum(axis=0) / total
    if groups < 2:
        return float(groups)
    apart = times - times.sum(axis=1, keepdims=True) * share  # a ratio's error, group by group
    variance = (apart**2).sum(axis=0) * groups / (groups - 1) / total**2
    return float(min(total, (share * (1 - share)).sum() / max(variance.sum(), 1e-300)))


def halves(steps: Steps, times: int = 50) -> float:
    """The mean distance (L1) between random halves of the groups in where they are."""
    rows, random = _visits(steps), np.random.default_rng(0)
    apart = []
    for _ in range(times):
        order = random.permutation(len(rows))
        one, other = (rows[half].sum(axis=0) for half in np.array_split(order, 2))
        apart.append(np.abs(one / one.sum() - other / other.sum()).sum())
    return float(np.mean(apart))


def question(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a run: the file by its full path and its hash, so that it is known again."""
    file = asked(str(arguments.get("file", "")), str(arguments.get("sha256", "")))
    return dict(arguments) | {"file": str(file.absolute()), "sha256": file_hash(file)}
