"""What training leaves to act with: policies of all worlds, NumPy in and NumPy out."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PyTree

from trustirl.core.errors import InputError
from trustirl.core.files import Size, read_arrays, read_form, write_arrays, write_json
from trustirl.core.records import Solver
from trustirl.core.spaces import Spaces
from trustirl.core.trees import check_sizes, stacked_shapes, tree_from_arrays, tree_to_arrays
from trustirl.nets.critics import DiscreteQEnsemble
from trustirl.nets.mlp import CONSTANT, OBS_LIMIT
from trustirl.nets.policies import (
    ACTORS,
    LEAST_VARIANCE,
    LOG_STD_MAX,
    LOG_STD_MIN,
    MOST_STD,
    WAVE_HEIGHT,
    GaussianActor,
    MixtureActor,
    PolicyHead,
    StationaryActor,
    head_of,
)
from trustirl.rl.config import SolverConfig
from trustirl.rl.sac import MakeActor, sac
from trustirl.rl.softq import softq
from trustirl.rollouts.policy import Design, HostPolicy, Policies, Stationary
from trustirl.rollouts.spaces import SpacesCard, observation_rows, to_env_actions, whole_numbers


@dataclass(frozen=True)
class PolicyCard:
    """policy.json."""

    format_version: Literal[1]
    spaces: SpacesCard
    solver: SolverConfig
    seeds: Size
    head: PolicyHead = "gaussian"  # of continuous actions
    components: Size = 1  # of a mixture


def make_solver(
    spaces: Spaces, config: SolverConfig, mean: np.ndarray | None, std: np.ndarray | None, **slots: Any
) -> Solver:
    """The solver for a task's kind of actions, on observations standardised by frozen statistics if there are any."""
    return (softq if spaces.discrete else sac)(spaces.obs_dim, spaces.action_dim, config, mean, std, **slots)


def actor_maker(head: PolicyHead, spaces: Spaces, config: SolverConfig, components: int = 1) -> MakeActor:
    """For `make_solver`'s `make_actor`: actors of continuous actions with such a head."""
    if head == "mixture":
        sizes = spaces.obs_dim, spaces.action_dim, config.width, config.depth
        return lambda key: MixtureActor(*sizes, key, components)
    return lambda key: ACTORS[head](spaces.obs_dim, spaces.action_dim, config.width, config.depth, key)


def host_policies(
    actors: GaussianActor | StationaryActor | MixtureActor | DiscreteQEnsemble,
    config: SolverConfig,
    mean: np.ndarray | None,
    std: np.ndarray | None,
) -> Policies:
    """The actors of all seeds, as they act outside JAX: the same functions as the solver's `mode` and `act`."""
    discrete = isinstance(actors, DiscreteQEnsemble)
    net = actors.nets if isinstance(actors, DiscreteQEnsemble) else actors.net
    parameters = jax.device_get(jax.tree.leaves(eqx.filter(net, eqx.is_array)))
    stationary = None
    if isinstance(actors, StationaryActor):
        parameters += jax.device_get(eqx.filter_vmap(StationaryActor.head)(actors))
        stationary = Stationary(WAVE_HEIGHT, MOST_STD, LEAST_VARIANCE)
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
        stationary,
        actors.components if isinstance(actors, MixtureActor) else 0,
    )
    columns = [np.broadcast_to(array, (seeds, *array.shape)) for array in statistics]
    return Policies(design, np.concatenate([array.reshape(seeds, -1) for array in (*columns, *parameters)], axis=1))


@dataclass(frozen=True)
class TabularPolicy:
    """A policy of the exact world, with Stable-Baselines3's `predict`."""

    log_prob: Float[np.ndarray, "states actions"]
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0), repr=False, compare=False)

    def predict(
        self,
        observation: np.ndarray | Sequence[int] | int | np.integer,
        state: None = None,  # noqa: ARG002  for recurrent policies, which this is not
        episode_start: Any = None,  # noqa: ARG002
        deterministic: bool = False,
    ) -> tuple[Any, None]:
        """Actions for one state or a batch: the likeliest, or drawn with the policy's own generator."""
        rows = self.log_prob[whole_numbers(observation, len(self.log_prob), "state")]
        if not deterministic:
            rows = rows + self.random.gumbel(size=rows.shape)  # the Gumbel trick
        return rows.argmax(axis=-1), None


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
        obs, batched = observation_rows(observation, self.spaces)
        if deterministic:
            action = self._policy.mode(obs)
        else:
            action = self._policy.act(obs, self._policy.noise(self._random, len(obs)))
        actions = to_env_actions(self.spaces, action)
        return (actions if batched else actions[0]), None


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
    seeds = len(jax.tree.leaves(eqx.filter(actors, eqx.is_array))[0])
    components = actors.components if isinstance(actors, MixtureActor) else 1
    head: PolicyHead = "mixture" if isinstance(actors, MixtureActor) else head_of(actors)
    card = PolicyCard(1, SpacesCard.of(spaces), config, seeds, head, components)
    write_json(folder / "policy.json", asdict(card))


def save_tables(folder: Path, log_prob: Float[np.ndarray, "seeds states actions"]) -> None:
    """Write the policies of all seeds of the exact world."""
    write_arrays(folder / "policy.safetensors", {"log_prob": log_prob})


def load_tables(folder: Path) -> list[TabularPolicy]:
    """Read the policies of all seeds of the exact world."""
    return [TabularPolicy(table) for table in _tables(folder / "policy.safetensors")]


def load_policies(folder: Path) -> list[ControlPolicy]:
    """Read the policies of all seeds that learned a Gymnasium task."""
    policies, spaces = read_policies(folder)
    return [ControlPolicy(policies.of(seed), spaces) for seed in range(len(policies.weights))]


def _tables(file: Path) -> Float[np.ndarray, "seeds states actions"]:
    log_prob = read_arrays(file).get("log_prob")
    if log_prob is None or log_prob.ndim != 3 or 0 in log_prob.shape or log_prob.dtype.kind != "f":
        raise InputError(f"{file} must hold log_prob, a table of states and actions for each seed; restore it.")
    return log_prob


def read_policies(folder: Path) -> tuple[Policies, Spaces]:
    """Read the policies of all seeds as environments on the host take them, and what they see and do."""
    card_file, file = folder / "policy.json", folder / "policy.safetensors"
    card: PolicyCard = read_form(card_file, PolicyCard)
    card.spaces.check(card_file)
    arrays, spaces = read_arrays(file), card.spaces.spaces
    statistics = arrays.pop("obs_mean", None), arrays.pop("obs_std", None)
    if any(moment is not None and moment.shape != (spaces.obs_dim,) for moment in statistics):
        raise InputError(f"{file} holds statistics of other observations than {card_file} tells of; restore it.")
    sizes = {"width": card.solver.width, "obs_dim": spaces.obs_dim, "components": card.components}
    check_sizes(arrays, card_file, card.seeds, card.solver.depth, **sizes)
    if spaces.discrete:
        solver = make_solver(spaces, card.solver, *statistics)
    else:
        make_actor = actor_maker(card.head, spaces, card.solver, card.components)
        solver = make_solver(spaces, card.solver, *statistics, make_actor=make_actor)
    like = stacked_shapes(lambda key: solver.actor(solver.init(key)), card.seeds)
    stacked = tree_from_arrays(like, arrays, file)
    return host_policies(stacked, card.solver, *statistics), spaces
