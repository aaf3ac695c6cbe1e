"""Makes a small reward of every kind with what it pays: python -m tests.rewards.golden FOLDER.

The folders in tests/rewards/golden were made once and are never made again: every later version opens them. Another
kind, or another format, is another folder beside them.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from trustirl.core.precision import double_precision
from trustirl.core.spaces import Finite, Spaces, Termination
from trustirl.core.types import Transition
from trustirl.nets.agent_rewards import log_ratio_reward, value_reward
from trustirl.nets.critics import DiscreteQEnsemble, QEnsemble
from trustirl.nets.policies import GaussianActor, StationaryActor
from trustirl.nets.rewards import (
    RewardInputs,
    expected_reward_factory,
    network_reward_factory,
    numbered_transitions,
    reward_factory,
)
from trustirl.rewards.kinds import TableCard, card_of
from trustirl.rewards.origin import Origin
from trustirl.rewards.saved import Shown, load_rewards, save_rewards

BOX = Spaces(
    name="Box-v0",
    obs_dim=3,
    action_dim=2,
    discrete=False,
    action_low=np.float32([-2, 0]),
    action_high=np.float32([2, 1]),
)
CHOICE = Spaces(name="Choice-v0", obs_dim=3, action_dim=4, discrete=True, action_start=1)
WORLD = Finite(5, 2)
SEEDS, ROWS = 2, 8
MEAN, STD = np.float32([1.0, -2.0, 0.5]), np.float32([2.0, 0.5, 1.0])
GOLDEN = Path(__file__).parent / "golden"


def calls(spaces: Spaces | Finite) -> dict[str, Any]:
    """Transitions as people give them; some end."""
    random = np.random.default_rng(0)
    if isinstance(spaces, Finite):
        state, action = (grid.ravel().tolist() for grid in np.indices((spaces.states, spaces.actions)))
        return {"obs": state, "action": action}
    action: Any = random.integers(1, 5, ROWS)
    if not spaces.discrete:
        action = random.uniform([-2, 0], [2, 1], (ROWS, 2)).round(3)
    obs, after = (random.normal(size=(ROWS, 3)).round(3).tolist() for _ in range(2))
    return {"obs": obs, "action": action.tolist(), "next_obs": after, "terminated": [i % 3 == 0 for i in range(ROWS)]}


def moved(tree: Any) -> Any:
    """Networks begin at zero."""
    random = np.random.default_rng(1)
    leaves, structure = jax.tree.flatten(eqx.filter(tree, eqx.is_inexact_array))
    leaves = [leaf + random.normal(0, 0.5, leaf.shape).astype(leaf.dtype) for leaf in leaves]
    return eqx.combine(jax.tree.unflatten(structure, leaves), tree)


def save(folder: Path, stacked: Any, card: Any, spaces: Spaces | Finite) -> None:
    """As a run would."""
    origin = Origin(
        run="golden", algorithm="piro", task="made up", seeds=[3, 4], steps=10, demos="0" * 64, version="0.1.0"
    )
    given = calls(spaces)
    following = np.asarray(given["next_obs"]) if "next_obs" in given else None
    folder.mkdir(parents=True)
    save_rewards(
        folder, stacked, card, origin, Shown(np.asarray(given["obs"]), np.asarray(given["action"]), following)
    )
    paid = [np.asarray(reward(**given)).tolist() for reward in load_rewards(folder)]
    (folder / "reward.md").unlink()  # for people; nothing reads it
    (folder / "expected.json").write_text(json.dumps({"given": given, "paid": paid}))


def exact(kind: Any, inputs: RewardInputs) -> Callable[[Path], None]:
    """A reward of the exact world."""

    def make(folder: Path) -> None:
        with double_precision():
            features = np.random.default_rng(2).normal(size=(5, 3))
            factory: Any = reward_factory(kind, features, 2, inputs == "state-action", 8, 1)
            sizes = {"states": 5, "actions": 2, "features": 3, "width": 8, "depth": 1}
            if inputs == "transition":
                numbers, both = numbered_transitions(np.arange(20).reshape(5, 2, 2) % 5, features)
                factory = expected_reward_factory(kind, both, numbers, np.full((5, 2, 2), 0.5), 8, 1)
                sizes |= {"features": 6, "transitions": len(both), "successors": 2}
            stacked = eqx.filter_vmap(factory)(jax.random.split(jax.random.key(0), SEEDS))
            card = TableCard(kind=kind, reward_inputs=inputs, seeds=SEEDS, **sizes)
            save(folder, stacked, card, WORLD)

    return make


def network(spaces: Spaces, inputs: RewardInputs, termination: Termination) -> Callable[[Path], None]:
    """A reward that is a network."""

    def make(folder: Path) -> None:
        given = calls(spaces)
        obs, after = (jnp.asarray(given[name], jnp.float32) for name in ("obs", "next_obs"))
        action = jnp.asarray(given["action"])
        action = action - 1 if spaces.discrete else (action / 2).astype(jnp.float32)
        demo = Transition(obs, action, jnp.ones(ROWS), after)
        factory = network_reward_factory(demo, spaces.action_dim if spaces.discrete else 0, inputs, 8, 2, 5.0)
        made = eqx.filter_vmap(factory)(jax.random.split(jax.random.key(0), SEEDS))
        stacked = eqx.tree_at(lambda reward: reward.network, made, moved(made.network))
        save(folder, stacked, card_of(stacked, spaces, 0.9, termination), spaces)

    return make


def agent(make_one: Callable[[jax.Array], Any], spaces: Spaces) -> Callable[[Path], None]:
    """A reward that is read off an agent."""

    def make(folder: Path) -> None:
        stacked = eqx.filter_vmap(make_one)(jax.random.split(jax.random.key(0), SEEDS))
        name = "actor" if hasattr(stacked, "scale") else "critic"
        stacked = eqx.tree_at(lambda reward: getattr(reward, name), stacked, moved(getattr(stacked, name)))
        save(folder, stacked, card_of(stacked, spaces, 0.9, "T0"), spaces)

    return make


def choices(key: jax.Array) -> Any:
    """Values of finitely many actions."""
    return value_reward(DiscreteQEnsemble(3, 4, 8, 1, 2, key), None, 0.3, MEAN, STD, 0.9)


def values(key: jax.Array, layer_norm: bool = False, actor: Any = GaussianActor) -> Any:
    """Values of continuous actions."""
    critic = QEnsemble(3, 2, 8, 2, 2, key, layer_norm)
    return value_reward(critic, actor(3, 2, 8, 2, key), 0.3, MEAN, STD, 0.9)


def ratio(actor: Any) -> Callable[[jax.Array], Any]:
    """The log ratio of a policy."""
    return lambda key: log_ratio_reward(actor(3, 2, 8, 1, key), MEAN, STD, 0.5)


MAKERS: dict[str, Callable[[Path], None]] = {
    "table-state": exact("table", "state"),
    "table": exact("table", "state-action"),
    "table-transition": exact("table", "transition"),
    "linear": exact("linear", "state-action"),
    "mlp": exact("mlp", "state"),
    "mlp-transition": exact("mlp", "transition"),
    "network-state": network(CHOICE, "state", "T2"),
    "network": network(BOX, "state-action", "T2"),
    "network-choice": network(CHOICE, "state-action", "T0"),
    "network-transition": network(BOX, "transition", "T2"),
    "values-choice": agent(choices, CHOICE),
    "values": agent(values, BOX),
    "values-norm": agent(lambda key: values(key, True, StationaryActor), BOX),
    "log-ratio": agent(ratio(GaussianActor), BOX),
    "log-ratio-stationary": agent(ratio(StationaryActor), BOX),
}


if __name__ == "__main__":
    for name, make in MAKERS.items():
        if not (Path(sys.argv[1]) / name).exists():
            make(Path(sys.argv[1]) / name)
