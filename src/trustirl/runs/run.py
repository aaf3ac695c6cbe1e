"""What training leaves: a policy to act with and a reward to reuse. Loading never executes code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Num, PyTree
from msgspec import Meta
from rich.console import Console
from rich.progress import track

from trustirl.core.checks import counts
from trustirl.core.errors import InputError
from trustirl.core.files import fitting, read_arrays, read_form, read_json, write_arrays, write_json
from trustirl.core.precision import double_precision
from trustirl.core.trees import tree_from_arrays, tree_to_arrays
from trustirl.core.types import Transition
from trustirl.nets.rewards import RewardKind, reward_factory
from trustirl.rollouts.host import evaluate_returns, evaluation_envs
from trustirl.rollouts.ledger import Ledger
from trustirl.runs import learned
from trustirl.tasks.gym import ControlTask, make_control_task, task_of_file

MOST_EPISODES = 100_000
NEW_EPISODES = 2  # their root; those of evaluations on the way are 0 and, of experts, 1
WholeNumbers = np.ndarray | Sequence[int] | int | np.integer


@dataclass(frozen=True)
class TabularPolicy:
    """A policy of the exact world, with Stable-Baselines3's `predict`."""

    log_prob: Float[np.ndarray, "states actions"]
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0), repr=False, compare=False)

    def predict(
        self,
        observation: WholeNumbers,
        state: None = None,  # noqa: ARG002  for recurrent policies, which this is not
        episode_start: Any = None,  # noqa: ARG002
        deterministic: bool = False,
    ) -> tuple[Any, None]:
        """Actions for one state or a batch: the likeliest, or drawn with the policy's own generator."""
        rows = self.log_prob[_indices(observation, len(self.log_prob), "state")]
        if not deterministic:
            rows = rows + self.random.gumbel(size=rows.shape)  # the Gumbel trick
        return rows.argmax(axis=-1), None


@dataclass(frozen=True)
class LearnedReward:
    """A recovered reward: NumPy in, NumPy out."""

    function: Callable[[Transition], Any]
    states: int
    actions: int

    def __call__(
        self,
        obs: WholeNumbers,
        action: WholeNumbers,
        next_obs: WholeNumbers | None = None,  # noqa: ARG002  the signature every reward shares
        terminated: np.ndarray | Sequence[bool] | bool | None = None,  # noqa: ARG002
    ) -> Float[np.ndarray, "..."]:
        """Rewards of a batch of transitions; tabular rewards depend on the state and perhaps the action."""
        states = _indices(obs, self.states, "state")
        actions = np.broadcast_to(_indices(action, self.actions, "action"), states.shape)
        with double_precision():
            batch = Transition(jnp.asarray(states), jnp.asarray(actions), jnp.ones(states.shape))
            return np.asarray(self.function(batch))

    def table(self) -> Float[np.ndarray, "states actions"]:
        """The reward of every state and action."""
        state, action = np.indices((self.states, self.actions))
        return self(state, action)


@dataclass(frozen=True)
class Asked:
    """What is read of config.json, whatever the world."""

    algorithm: str
    task: str
    task_args: dict[str, Any]
    seeds: learned.Size
    first_seed: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    demos: str = ""
    demo_episodes: learned.Size | None = None
    demo_choice: str = "first"


@dataclass(frozen=True)
class Summary:
    """What is read of summary.json, whatever the world."""

    returns: list[float]
    expert_return: float | None = None
    random_return: float | None = None
    expert_seed: Annotated[int, Meta(ge=0)] = 0


@dataclass(frozen=True)
class TableCard:
    """reward.json of the exact world."""

    kind: RewardKind
    action_inputs: bool
    states: learned.Size
    actions: learned.Size
    features: Annotated[int, Meta(ge=0, lt=2**31)]
    width: learned.Size
    depth: learned.Size
    seeds: learned.Size


@dataclass(frozen=True)
class Run:
    """A finished run: where it lies, what it was, and one policy and reward per seed."""

    path: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    policies: list[Any]
    rewards: list[Any]

    @property
    def policy(self) -> Any:
        """The first seed's policy; of an expert's run, the expert."""
        return self.policies[self.summary.get("expert_seed", 0)]

    @property
    def reward(self) -> Any:
        """The first seed's reward."""
        if not self.rewards:
            raise InputError(f"{self.path} is a run of {self.config['algorithm']}, which learns no reward.")
        return self.rewards[0]

    @property
    def exact(self) -> bool:
        """Whether the task's MDP was known, so that returns are expectations and not samples."""
        return isinstance(self.policies[0], TabularPolicy)

    def evaluate(
        self, episodes: int = 10, *, seed: int = 0, task: str | gym.Env | Callable[..., gym.Env] | None = None
    ) -> "Evaluation":
        """Play new episodes with every seed's policy, without noise, and tell their true returns.

        They start otherwise than those of the run's own evaluations; another `seed`, others again. A run whose task
        was given as an environment or a function needs it again.
        """
        if self.exact:
            raise InputError(
                f"the returns of {self.path} are exact expectations, which no episode can add to: "
                "they are in run.summary['returns']."
            )
        (episodes,), (seed,) = counts(1, episodes=episodes), counts(0, seed=seed)
        if episodes > MOST_EPISODES:
            raise InputError(f"at most {MOST_EPISODES:,} episodes are played at once, got {episodes:,}.")
        named = task or task_of_file(self.config["task"], self.path / "config.json")
        control_task = make_control_task(named, self.config["task_args"])
        self.check_task(control_task)
        policies, _ = learned.read_policies(self.path)
        ledger, first, console = Ledger(), self.config.get("first_seed", 0), Console(stderr=True)
        told = f"{self.config['algorithm']} on {self.config['task']}"
        shown = partial(track, description=told, console=console, transient=True, disable=not console.is_terminal)
        with evaluation_envs(control_task, len(self.policies), episodes, ledger, first_seed=first) as envs:
            returns = evaluate_returns(envs, policies, episodes, NEW_EPISODES + seed, shown=shown)
        return Evaluation(returns, ledger.evaluation)

    def check_task(self, task: ControlTask) -> None:
        """Refuse a task in which the policies cannot act."""
        spaces = getattr(self.policy, "spaces", None)  # policies of the exact world have none
        if any(getattr(spaces, name, None) != getattr(task, name) for name in ("obs_dim", "action_dim", "discrete")):
            made = self.config.get("task", "another task")
            raise InputError(
                f"the policy of {self.path} learned {made} and cannot act in {task.name}; name the run's own task."
            )


class Evaluation(NamedTuple):
    """What policies earned, and how many environment steps it took."""

    returns: Float[np.ndarray, "seeds episodes"]
    env_steps: int


def load(path: str | Path) -> Run:
    """Read a finished run."""
    folder = Path(path)
    summary_file, config_file = folder / "summary.json", folder / "config.json"
    summary, config = read_json(summary_file), read_json(config_file)
    told: Summary = fitting(summary, str(summary_file), Summary)
    fitting(config, str(config_file), Asked)
    if (folder / "policy.json").exists():
        policies: list[Any] = learned.load_policies(folder)
    else:
        policies = [TabularPolicy(table) for table in _tables(folder / "policy.safetensors")]
    without_reward = "expert_seed" in summary or "offline" in config
    rewards = [] if without_reward else load_rewards(folder)
    counts = {len(told.returns), len(policies), len(rewards or policies)}
    if len(counts) > 1 or told.expert_seed >= len(policies):
        raise InputError(f"{folder} holds returns, policies and rewards of different numbers of seeds; restore it.")
    return Run(folder, config, summary, policies, rewards)


def load_reward(path: str | Path) -> Any:
    """Read the first seed's reward of a run."""
    return load_rewards(path)[0]


def load_rewards(path: str | Path) -> list[Any]:
    """Read the rewards of all seeds of a run."""
    folder = Path(path)
    network = read_json(folder / "reward.json").get("kind") == "network"
    return learned.load_rewards(folder) if network else load_tables(folder)


def load_tables(folder: Path) -> list[LearnedReward]:
    """Read the rewards of a run of the exact world."""
    card_file, file = folder / "reward.json", folder / "reward.safetensors"
    card: TableCard = read_form(card_file, TableCard)
    arrays = read_arrays(file)
    stored = sum(array.size for array in arrays.values())
    width, depth = (card.width, card.depth) if card.kind == "mlp" else (1, 1)
    learned.check_sizes(arrays, card_file, card.seeds, depth, width=width)
    features = 0 if card.kind == "table" else card.features
    # A linear reward or a network keeps the features of every state, a table a number for it.
    if card.seeds * card.states * max(1, features) > stored:
        raise InputError(f"{card_file} tells of more states or features than are stored beside it; restore it.")
    with double_precision():
        blank = np.zeros((card.states, features))
        make = reward_factory(card.kind, blank, card.actions, card.action_inputs, width, depth)
        keys = jax.vmap(jax.random.key)(jnp.arange(card.seeds))
        stacked = tree_from_arrays(eqx.filter_eval_shape(eqx.filter_vmap(make), keys), arrays, file)
        return [LearnedReward(learned.one(stacked, seed), card.states, card.actions) for seed in range(card.seeds)]


def _tables(file: Path) -> Float[np.ndarray, "seeds states actions"]:
    """The policies of a run of the exact world."""
    log_prob = read_arrays(file).get("log_prob")
    if log_prob is None or log_prob.ndim != 3 or 0 in log_prob.shape or log_prob.dtype.kind != "f":
        raise InputError(f"{file} must hold log_prob, a table of states and actions for each seed; restore it.")
    return log_prob


def save_rewards(path: Path, stacked: PyTree, card: dict[str, Any]) -> None:
    """Write the rewards of all seeds and the card that says how to rebuild them."""
    write_arrays(path / "reward.safetensors", tree_to_arrays(stacked))
    write_json(path / "reward.json", {"format_version": 1} | card)


def save_policies(path: Path, log_prob: Float[np.ndarray, "seeds states actions"]) -> None:
    """Write the tables of all seeds."""
    write_arrays(path / "policy.safetensors", {"log_prob": log_prob})


def _indices(values: WholeNumbers, count: int, what: str) -> Num[np.ndarray, "..."]:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or (array.size and (array.min() < 0 or array.max() >= count)):
        raise InputError(f"a {what} must be a whole number in 0..{count - 1}, got {values!r}.")
    return array
