"""Environments of a run: those to practise in, and those where policies are judged."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree

from trustirl.core.checks import at_least, at_most
from trustirl.core.records import Solver
from trustirl.core.spaces import Termination
from trustirl.irl.measures import Steps
from trustirl.rollouts.bundles import Episodes
from trustirl.rollouts.host import (
    Backend,
    HostEnvs,
    episode_seeds,
    evaluate_episodes,
    evaluation_envs,
)
from trustirl.rollouts.ledger import Ledger, Purpose
from trustirl.rollouts.policy import Policies
from trustirl.rollouts.restarts import Starts
from trustirl.tasks.gym import ControlTask

LEAST_MARGIN = 0.001  # an entry that was always the same must keep a range


@dataclass(frozen=True)
class StageOptions:
    """How environments are stepped, and how often a run is looked at."""

    backend: Backend = "auto"
    """How environments are stepped: in this process, in several, or by EnvPool."""
    evaluate_every: int = 4
    """Iterations between evaluations."""
    evaluation_episodes: int = 10
    """Episodes per evaluation and seed."""
    checkpoint_every: int = 10
    """Iterations between checkpoints."""

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        at_least(1, self, "evaluate_every", "evaluation_episodes", "checkpoint_every")
        at_most(100_000, self, "evaluation_episodes")


@dataclass(frozen=True)
class DemoOptions(StageOptions):
    """The same where there are demonstrations, and how their actions are taken."""

    strict: bool = False
    """Refuse demonstrated actions outside the action space instead of clipping them."""
    action_margin: float | None = None
    """Act only as far as demonstrated, and by this share of the action space further on each side; None: anywhere."""

    def __post_init__(self) -> None:
        """Refuse a margin that cannot be."""
        super().__post_init__()
        if self.action_margin is not None:
            at_least(LEAST_MARGIN, self, "action_margin")
            at_most(1, self, "action_margin")


class Practice:
    """Environments of all seeds, and the round of an iteration that they have reached."""

    def __init__(
        self,
        envs: HostEnvs,
        to_host: Callable[[PyTree], Policies],
        kept: type[Any] = Steps,
        shown: int = 0,
        tremble: float = 0.0,
    ) -> None:
        """`to_host` fetches the policies of stacked actors from the device; `kept` names what a learner may see.

        In training, the first `shown` environments of each seed begin at demonstrated states. `tremble` is the chance
        of a random action.
        """
        self.envs, self._to_host, self._kept, self._shown, self._tremble = envs, to_host, kept, shown, tremble

    def fresh(self, iteration: int, purpose: Purpose) -> None:
        """Start new episodes whose seeds derive from the run's seeds, the iteration and the purpose."""
        rows = [episode_seeds(seed, iteration, self.envs.envs_per_seed, purpose) for seed in self.envs.seed_numbers]
        self.envs.reset(np.stack(rows), self._shown if purpose == "train" else 0)
        self._iteration, self._purpose, self._round = iteration, purpose, 0

    def collect(self, actor: PyTree | None, steps: int) -> Any:
        """Go on for `steps` steps in every environment; without an actor, at random."""
        policies = None if actor is None else self._to_host(actor)
        rollout = self.envs.rollout(policies, steps, self._purpose, self._iteration, self._round, self._tremble)
        self._round += 1
        return self._kept(*(getattr(rollout, name) for name in self._kept._fields))


class Stage(NamedTuple):
    """Environments to practise in, and others where policies are judged."""

    practice: Practice
    backend: str
    evaluate: Callable[[PyTree], Episodes]  # of the agents' outcomes, [seeds, episodes]
    close: Callable[[], None]


def open_stage(
    task: ControlTask,
    seeds: int,
    envs_per_seed: int,
    options: StageOptions,
    termination: Termination,
    ledger: Ledger,
    solver: Solver,
    to_host: Callable[[PyTree], Policies],
    kept: type[Any] = Steps,
    contest: bool = False,
    first_seed: int = 0,
    starts: Starts | None = None,
    shown: int = 0,
    tremble: float = 0.0,
) -> Stage:
    """Open the environments of a run, the first `shown` of each seed to practise from `starts`.

    In a `contest` all seeds are judged on the same episodes, others than those on which imitators of the winner are.
    """
    paid = "true_reward" in kept._fields
    envs = HostEnvs(task, seeds, envs_per_seed, ledger, options.backend, termination, first_seed, paid, starts)
    judged = evaluation_envs(task, seeds, options.evaluation_episodes, ledger, options.backend, first_seed)

    def evaluate(agents: PyTree) -> Episodes:
        policies, root = to_host(solver.outcome(agents)), int(contest)
        return evaluate_episodes(judged, policies, options.evaluation_episodes, root, alike=contest)

    def close() -> None:
        envs.close()
        judged.close()

    return Stage(Practice(envs, to_host, kept, shown, tremble), envs.backend, evaluate, close)
