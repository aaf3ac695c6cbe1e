"""What training leaves on a Gymnasium task: a policy to act with and a reward to reuse, NumPy in and NumPy out."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree
from msgspec import Meta

from trustirl.core.errors import InputError
from trustirl.core.files import read_arrays, read_form, write_arrays, write_json
from trustirl.core.observations import leaves
from trustirl.core.records import Solver
from trustirl.core.trees import tree_from_arrays, tree_to_arrays
from trustirl.core.types import Transition
from trustirl.nets.critics import DiscreteQEnsemble
from trustirl.nets.mlp import CONSTANT, OBS_LIMIT
from trustirl.nets.policies import LOG_STD_MAX, LOG_STD_MIN, GaussianActor
from trustirl.nets.rewards import network_reward_factory
from trustirl.rl.config import SolverConfig
from trustirl.rl.sac import sac
from trustirl.rl.softq import softq
from trustirl.rollouts.policy import Design, HostPolicy, Policies
from trustirl.rollouts.spaces import flatten_observations, from_env_actions, to_env_actions
from trustirl.tasks.gym import Spaces, described_spaces

FORMAT_VERSION = 1
Size = Annotated[int, Meta(ge=1, le=2**31 - 1)]


@dataclass(frozen=True)
class SpacesCard:
    """`Spaces` in JSON."""

    name: str
    obs_dim: Size
    action_dim: Size
    discrete: bool
    action_low: list[float] | None
    action_high: list[float] | None
    action_start: Annotated[int, Meta(ge=-(2**31), le=2**31)]

    def checked(self, where: Path) -> Spaces:
        """The spaces, if their parts fit together."""
        bounds = [
            None if given is None else np.asarray(given, np.float32) for given in (self.action_low, self.action_high)
        ]
        shapes = {None if bound is None else bound.shape for bound in bounds}
        if shapes != {None if self.discrete else (self.action_dim,)}:
            raise InputError(f"{where} gives other bounds of actions than {self.action_dim} each; restore it.")
        low, high = bounds
        return Spaces(
            name=self.name,
            obs_dim=self.obs_dim,
            action_dim=self.action_dim,
            discrete=self.discrete,
            action_low=low,
            action_high=high,
            action_start=self.action_start,
        )


@dataclass(frozen=True)
class PolicyCard:
    """policy.json."""

    format_version: Literal[1]
    spaces: SpacesCard
    solver: SolverConfig
    seeds: Size


@dataclass(frozen=True)
class RewardCard:
    """reward.json of a network."""

    format_version: Literal[1]
    kind: Literal["network"]
    spaces: SpacesCard
    seeds: Size
    action_inputs: bool
    width: Size
    depth: Size
    bound: Annotated[float, Meta(gt=0)]
    discount: Annotated[float, Meta(ge=0, lt=1)]
    termination: Literal["T0", "T2", "T3"]


def make_solver(
    spaces: Spaces, config: SolverConfig, mean: np.ndarray | None, std: np.ndarray | None, **slots: Any
) -> Solver:
    """The solver for a task's kind of actions, on observations standardised by frozen statistics if there are any."""
    return (softq if spaces.discrete else sac)(spaces.obs_dim, spaces.action_dim, config, mean, std, **slots)


def host_policies(
    actors: GaussianActor | DiscreteQEnsemble, config: SolverConfig, mean: np.ndarray | None, std: np.ndarray | None
) -> Policies:
    """The actors of all seeds, as they act outside JAX: the same functions as the solver's `mode` and `act`."""
    discrete = isinstance(actors, DiscreteQEnsemble)
    net = actors.nets if isinstance(actors, DiscreteQEnsemble) else actors.net
    parameters = jax.device_get(jax.tree.leaves(eqx.filter(net, eqx.is_array)))
    if not discrete:
        parameters = [array[:, None] for array in parameters]  # an ensemble of one
    seeds, obs_dim = len(parameters[0]), parameters[0].shape[-1]
    deviation = np.asarray(np.ones(obs_dim) if std is None else std, np.float32)
    shift = np.asarray(np.zeros(obs_dim) if mean is None else mean, np.float32)
    statistics = shift, np.where(deviation > CONSTANT, deviation, np.float32(1))
    design = Design(
        discrete,
        tuple(array.shape[1:] for array in parameters),
        len(net.layers),
        config.temperature,
        np.inf if mean is None else OBS_LIMIT,
        (LOG_STD_MIN, LOG_STD_MAX),
    )
    columns = [np.broadcast_to(array, (seeds, *array.shape)) for array in statistics]
    return Policies(design, np.concatenate([array.reshape(seeds, -1) for array in (*columns, *parameters)], axis=1))


class ControlPolicy:
    """A trained policy with Stable-Baselines3's `predict`."""

    def __init__(self, policy: HostPolicy, spaces: Spaces) -> None:
        """The very policy that was evaluated; acting needs no JAX."""
        self.spaces, self._policy = spaces, policy
        self._random = np.random.default_rng(0)

    def predict(
        self,
        observation: Any,
        state: None = None,  # noqa: ARG002  for recurrent policies, which this is not
        episode_start: Any = None,  # noqa: ARG002
        deterministic: bool = False,
    ) -> tuple[Any, None]:
        """Actions for one observation or a batch: the likeliest, or drawn with the policy's own generator."""
        obs, batched = _rows(observation, self.spaces)
        if deterministic:
            action = self._policy.mode(obs)
        else:
            action = self._policy.act(obs, self._policy.noise(self._random, len(obs)))
        actions = to_env_actions(self.spaces, action)
        return (actions if batched else actions[0]), None


class ControlReward:
    """A recovered reward."""

    def __init__(self, function: Callable[[Transition], Any], spaces: Spaces, end_share: float) -> None:
        """`end_share` is how often an end counts its absorbing reward: g/(1-g) in mode T2, else 0."""
        self.spaces, self._function, self._end_share = spaces, eqx.filter_jit(function), end_share

    def __call__(
        self,
        obs: Any,
        action: Any,
        next_obs: Any = None,  # noqa: ARG002  the signature every reward shares
        terminated: Any = None,
    ) -> Float[np.ndarray, " batch"] | np.floating:
        """Rewards of a batch of transitions, or of one.

        A step that `terminated` also earns what the absorbing state pays for ever after (mode T2), so that any
        learner, for which nothing follows an end, sees the return that this reward was trained with.
        """
        rows, batched = _rows(obs, self.spaces)
        given = np.asarray(action)
        if given.shape[given.ndim - len(self.spaces.action_shape) :] != self.spaces.action_shape:
            raise InputError(
                f"actions of {self.spaces.name} have shape {self.spaces.action_shape}, got {given.shape}."
            )
        actions, _ = from_env_actions(self.spaces, given.reshape(-1, *self.spaces.action_shape))
        if len(actions) != len(rows):
            raise InputError(f"a reward needs one action per observation, got {len(actions)} and {len(rows)}.")
        ended = np.zeros(len(rows), bool) if terminated is None else np.asarray(terminated, bool).reshape(-1)
        values = self._values(rows, actions, np.zeros(len(rows), bool))
        if self._end_share and ended.any():
            after = self._values(np.zeros_like(rows), np.zeros_like(actions), np.ones(len(rows), bool))
            values = values + np.where(ended, self._end_share * after, 0.0)
        return values if batched else values[0]

    def wrap(self, env: gym.Env) -> "RewardReplaced":
        """The environment with this reward in place of its own, which stays in info["true_reward"]."""
        return RewardReplaced(env, self)

    def _values(self, obs: np.ndarray, action: np.ndarray, absorbing: np.ndarray) -> Float[np.ndarray, " batch"]:
        action = action if self.spaces.discrete else action.astype(np.float32)
        weight = jnp.ones(len(obs), jnp.float32)
        batch = Transition(jnp.asarray(obs), jnp.asarray(action), weight, absorbing=jnp.asarray(absorbing))
        return np.asarray(self._function(batch))


class RewardReplaced(gym.Wrapper):
    """A Gymnasium environment that pays a learned reward."""

    def __init__(self, env: gym.Env, reward: ControlReward) -> None:
        """Wrap any environment with the observations and actions that the reward was learned for."""
        name = env.spec.id if env.spec else type(env.unwrapped).__name__
        here, learned = described_spaces(name, env), reward.spaces
        if differ := [word for word, value in here.items() if not np.array_equal(value, getattr(learned, word))]:
            told = ", ".join(f"{word} {here[word]} instead of {getattr(learned, word)}" for word in differ)
            raise InputError(f"the reward was learned for {learned.name}, and {name} has {told}; wrap that task.")
        super().__init__(env)
        self.learned_reward = reward

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._obs, info = self.env.reset(**arguments)
        return self._obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, and pay what the learned reward says."""
        before = self._obs
        self._obs, true_reward, terminated, truncated, info = self.env.step(action)
        learned = float(self.learned_reward(before, action, self._obs, terminated))
        return self._obs, learned, terminated, truncated, info | {"true_reward": float(true_reward)}


def save_policies(
    folder: Path,
    actors: PyTree,
    spaces: Spaces,
    config: SolverConfig,
    mean: np.ndarray | None,
    std: np.ndarray | None,
) -> None:
    """Write the actors of all seeds and the card that says how to rebuild them."""
    statistics = {} if mean is None or std is None else {"obs_mean": np.asarray(mean), "obs_std": np.asarray(std)}
    write_arrays(folder / "policy.safetensors", tree_to_arrays(actors) | statistics)
    write_json(folder / "policy.json", _card(spaces) | {"solver": asdict(config), "seeds": _seeds(actors)})


def load_policies(folder: Path) -> list[ControlPolicy]:
    """Read the policies of all seeds."""
    policies, spaces = read_policies(folder)
    return [ControlPolicy(policies.of(seed), spaces) for seed in range(len(policies.weights))]


def read_policies(folder: Path) -> tuple[Policies, Spaces]:
    """Read the policies of all seeds as environments on the host take them, and what they see and do."""
    card_file, file = folder / "policy.json", folder / "policy.safetensors"
    card: PolicyCard = read_form(card_file, PolicyCard)
    arrays, spaces = read_arrays(file), card.spaces.checked(card_file)
    statistics = arrays.pop("obs_mean", None), arrays.pop("obs_std", None)
    if any(moment is not None and moment.shape != (spaces.obs_dim,) for moment in statistics):
        raise InputError(f"{file} holds statistics of other observations than {card_file} tells of; restore it.")
    check_sizes(arrays, card_file, card.seeds, card.solver.depth, width=card.solver.width, obs_dim=spaces.obs_dim)
    solver = make_solver(spaces, card.solver, *statistics)
    keys = jax.vmap(jax.random.key)(jnp.arange(card.seeds))
    like = eqx.filter_eval_shape(eqx.filter_vmap(lambda key: solver.actor(solver.init(key))), keys)
    stacked = tree_from_arrays(like, arrays, file)
    return host_policies(stacked, card.solver, *statistics), spaces


def save_rewards(folder: Path, stacked: PyTree, spaces: Spaces, card: Mapping[str, Any]) -> None:
    """Write the rewards of all seeds and the card that says how to rebuild them."""
    write_arrays(folder / "reward.safetensors", tree_to_arrays(stacked))
    write_json(folder / "reward.json", _card(spaces) | {"kind": "network", "seeds": _seeds(stacked)} | dict(card))


def load_rewards(folder: Path) -> list[ControlReward]:
    """Read the rewards of all seeds."""
    card_file, file = folder / "reward.json", folder / "reward.safetensors"
    card: RewardCard = read_form(card_file, RewardCard)
    arrays, spaces = read_arrays(file), card.spaces.checked(card_file)
    check_sizes(arrays, card_file, card.seeds, card.depth, width=card.width, obs_dim=spaces.obs_dim)
    nothing = np.zeros((1, *spaces.action_shape), np.int32 if spaces.discrete else np.float32)
    make = network_reward_factory(
        Transition(jnp.zeros((1, spaces.obs_dim), jnp.float32), jnp.asarray(nothing), jnp.ones(1, jnp.float32)),
        spaces.action_dim if spaces.discrete else 0,
        card.action_inputs,
        card.width,
        card.depth,
        card.bound,
    )
    end_share = card.discount / (1 - card.discount) if card.termination == "T2" else 0.0
    like = eqx.filter_eval_shape(eqx.filter_vmap(make), jax.vmap(jax.random.key)(jnp.arange(card.seeds)))
    stacked = tree_from_arrays(like, arrays, file)
    return [ControlReward(one(stacked, seed), spaces, end_share) for seed in range(card.seeds)]


def check_sizes(arrays: Mapping[str, np.ndarray], card: Path, seeds: int, depth: int, **sizes: int) -> None:
    """Refuse a card whose numbers its arrays cannot have, before anything of that size is built."""
    axes = [length for array in arrays.values() for length in array.shape]
    if {array.shape[:1] for array in arrays.values()} != {(seeds,)} or depth > len(arrays):
        raise InputError(f"{card} tells of other seeds or layers than are stored beside it; restore it.")
    for name, size in sizes.items():
        if size > max(axes):
            raise InputError(f"{card} says {name} {size}, more than any array beside it has; restore it.")


def one(stacked: PyTree, index: int) -> PyTree:
    """One seed's part of a stacked pytree."""
    return jax.tree.map(lambda x: x[index] if eqx.is_array(x) else x, stacked)


def _seeds(stacked: PyTree) -> int:
    return int(jax.tree.leaves(eqx.filter(stacked, eqx.is_array))[0].shape[0])


def _card(spaces: Spaces) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.ndarray) else value

    return {
        "format_version": FORMAT_VERSION,
        "spaces": {field.name: plain(getattr(spaces, field.name)) for field in fields(Spaces)},
    }


def _rows(observation: Any, spaces: Spaces) -> tuple[Float[np.ndarray, "batch obs"], bool]:
    """Observations as rows, and whether they were a batch, be it of one."""
    try:
        given = observation if isinstance(observation, Mapping) else np.asarray(observation)
        with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused below
            parts = [np.asarray(part, np.float32) for part in leaves(given)]
            axes = max((part.ndim for part in parts), default=0)
            # An entry is a vector or a number: two axes are a batch, and so is one if the entries are numbers.
            single = axes < 2 and sum(part.size for part in parts) == spaces.obs_dim
            rows = flatten_observations(given, 1 if single else len(parts[0]))
    except (ValueError, TypeError, IndexError, ZeroDivisionError):
        raise InputError(
            f"observations of {spaces.name} are {spaces.obs_dim} numbers each, got {observation!r:.60}."
        ) from None
    if rows.shape[1] != spaces.obs_dim:
        told = ", ".join(str(part.shape) for part in parts)
        raise InputError(f"observations of {spaces.name} have {spaces.obs_dim} dimensions, got shape {told}.")
    if not np.isfinite(rows).all():
        place, entry = np.argwhere(~np.isfinite(rows))[0]
        raise InputError(
            f"observation {place} has {rows[place, entry]} at entry {entry}; there is no answer to what is no number."
        )
    return rows, not single
