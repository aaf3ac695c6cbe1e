"""What training leaves: a policy to act with and a reward to reuse. Loading never executes code."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import gymnasium as gym
import numpy as np
from jaxtyping import Float
from msgspec import Meta
from rich.console import Console
from rich.progress import track

from trustirl.core.checks import counts
from trustirl.core.errors import InputError
from trustirl.core.files import Size, fitting, read_json
from trustirl.core.spaces import acting_as
from trustirl.core.words import count
from trustirl.core.worlds import WorldFacts, world_in
from trustirl.demos.schema import Demos, find_demos
from trustirl.report.page import summary_html
from trustirl.rewards.reward import LearnedReward, Rewards
from trustirl.rewards.saved import load_rewards
from trustirl.rollouts.host import evaluate_episodes, evaluation_envs
from trustirl.rollouts.ledger import Ledger
from trustirl.runs.folder import RunFolder
from trustirl.runs.policies import load_policies, load_tables, read_policies
from trustirl.tasks.gym import ControlTask, make_control_task, task_of_file
from trustirl.tasks.robots import as_seen

MOST_EPISODES = 100_000
NEW_EPISODES = 2  # their root; those of evaluations on the way are 0 and, of experts, 1


@dataclass(frozen=True)
class Asked:
    """What is read of config.json, whatever the world."""

    algorithm: str
    task: str
    task_args: dict[str, Any]
    seeds: Size
    first_seed: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    demos: str = ""
    demo_episodes: Size | None = None
    demo_choice: str = "first"


@dataclass(frozen=True)
class Summary:
    """What is read of summary.json, whatever the world."""

    returns: list[float] | None
    """None where no true reward is known."""
    expert_return: float | None = None
    random_return: float | None = None
    expert_seed: Annotated[int, Meta(ge=0)] = 0
    learns_reward: bool | None = None
    """Whether the algorithm learned one; None where the world tells."""


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run: where it lies, what it was, and one policy and reward per seed."""

    path: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    policies: list[Any]
    rewards: Rewards

    @property
    def policy(self) -> Any:
        """The first seed's policy; of an expert's run, the expert."""
        return self.policies[self.summary.get("expert_seed", 0)]

    @property
    def reward(self) -> LearnedReward:
        """The first seed's reward."""
        if not self.rewards:
            raise InputError(f"{self.path} is a run of {self.config['algorithm']}, which learns no reward.")
        return self.rewards[0]

    @property
    def world(self) -> WorldFacts:
        """What is true of every run in its kind of world."""
        return world_in(self.config, str(self.path / "config.json"))

    @property
    def demos(self) -> Demos | None:
        """The demonstrations that it learned from; None where these were an exact occupancy, or none."""
        own = self.path / "demos.npz"
        named = str(own) if own.exists() else self.config.get("demos", "")
        if not named or (named == "packaged" and self.world.expectations):
            return None
        demos = find_demos(named, self.config["task"])
        if "blind" in (arguments := self.config.get("task_args", {})):
            demos = as_seen(demos, make_control_task(self.config["task"], arguments).seen)
        episodes = self.config.get("demo_episodes")
        return demos if episodes is None else demos.take(episodes, self.config["demo_choice"])

    def metrics(self) -> dict[str, np.ndarray]:
        """Every evaluation of every seed, column by column: what `pandas.DataFrame` or `polars.DataFrame` take.

        A number that was not recorded is NaN. The file is metrics.jsonl, whose columns docs/runs.md describes.
        """
        rows = RunFolder(self.path).metrics()
        names = dict.fromkeys(chain.from_iterable(rows))
        columns = {name: [row.get(name) for row in rows] for name in names}
        return {
            name: np.array([np.nan if value is None else value for value in values])
            for name, values in columns.items()
        }

    def __repr__(self) -> str:
        """In one line."""
        return f"<Run {self.path}: {self._told()}>"

    def _repr_html_(self) -> str:
        """In a notebook: the same, the curve of its returns, and where its page is."""
        return summary_html(self.path, self._told())

    def _told(self) -> str:
        told = f"{self.config['algorithm']} on {self.config['task']}, {count(len(self.policies), 'seed')}"
        if (returns := self.summary["returns"]) is not None:
            told += f", return {np.mean(returns):,.2f}"
            if (expert := self.summary.get("expert_return")) is not None:
                told += f" (expert {expert:,.2f})"
        return told

    def evaluate(
        self, episodes: int = 10, *, seed: int = 0, task: str | gym.Env | Callable[..., gym.Env] | None = None
    ) -> "Evaluation":
        """Play new episodes with every seed's policy, without noise, and tell their true returns.

        They start otherwise than those of the run's own evaluations; another `seed`, others again. A run whose task
        was given as an environment or a function needs it again.
        """
        if self.summary["returns"] is None:
            raise InputError(
                f"the true reward of {self.path}'s task is not known, so its policies have no returns to tell; "
                "report.html shows what is known."
            )
        if self.world.expectations:
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
        policies, spaces = read_policies(self.path)
        control_task = acting_as(control_task, spaces)
        ledger, first, console = Ledger(), self.config.get("first_seed", 0), Console(stderr=True)
        told = f"{self.config['algorithm']} on {self.config['task']}"
        shown = partial(track, description=told, console=console, transient=True, disable=not console.is_terminal)
        with evaluation_envs(control_task, len(self.policies), episodes, ledger, first_seed=first) as envs:
            played = evaluate_episodes(envs, policies, episodes, NEW_EPISODES + seed, shown=shown)
        known = np.isfinite(played["success"]).any()
        return Evaluation(played["true_return"], ledger.evaluation, played["success"] if known else None)

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
    success: Float[np.ndarray, "seeds episodes"] | None = None  # 1 or 0, where the environment reports it


def load(path: str | Path) -> Run:
    """Read a finished run."""
    folder = Path(path)
    summary_file, config_file = folder / "summary.json", folder / "config.json"
    summary, config = read_json(summary_file), read_json(config_file)
    told: Summary = fitting(summary, str(summary_file), Summary)
    fitting(config, str(config_file), Asked)
    world = world_in(config, str(config_file))
    policies = load_tables(folder) if world.expectations else load_policies(folder)
    learned = world.learns_reward if told.learns_reward is None else told.learns_reward
    rewards = load_rewards(folder) if learned else Rewards(())
    counts = {len(policies if told.returns is None else told.returns), len(policies), len(rewards or policies)}
    if len(counts) > 1 or told.expert_seed >= len(policies):
        raise InputError(f"{folder} holds returns, policies and rewards of different numbers of seeds; restore it.")
    return Run(folder, config, summary, [*policies], rewards)
