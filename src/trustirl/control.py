"""A control question and the parts that answer it: Gymnasium tasks, sampled experience."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from trustirl.algorithms import ALGORITHMS
from trustirl.core.errors import InputError
from trustirl.core.measure import minibatches
from trustirl.core.records import Solver
from trustirl.core.types import Transition
from trustirl.demos.schema import Demos
from trustirl.irl.loop import Loop
from trustirl.irl.practice import Plan, Steps, Weighing, control_loop, episode_measure
from trustirl.nets.rewards import network_reward_factory
from trustirl.rl.sac import SacConfig, sac
from trustirl.rl.softq import SoftQConfig, softq
from trustirl.rollouts.host import (
    Backend,
    HostEnvs,
    Termination,
    collect,
    episode_seeds,
    evaluate_returns,
    evaluation_envs,
)
from trustirl.rollouts.ledger import Ledger
from trustirl.rollouts.spaces import from_env_actions
from trustirl.tasks.control import ControlTask, make_control_task

# Algorithms that learn from samples (the others need to know the MDP), with what differs there from the exact world:
# minibatches want small constant steps, and mu starts near sqrt(1/256 + 1/256), where the plain norm begins to bind.
SAMPLED: dict[str, dict[str, Any]] = {
    "piro": {"reward_step": 3e-4, "decay": 0.0, "mu": 0.075},
    "ml-irl": {"reward_step": 3e-4, "decay": 0.0, "inner_steps": 10},
}


@dataclass(frozen=True)
class ControlExperiment:
    """A fully resolved question about a Gymnasium task."""

    algorithm: str
    task: str
    env_kwargs: dict[str, Any]
    demos: str
    demo_episodes: int | None
    seeds: int
    steps: int
    termination: Termination
    reward_inputs: Literal["state", "state-action"]
    reward_width: int
    reward_depth: int
    reward_bound: float
    backend: Backend
    evaluation_episodes: int
    plan: dict[str, Any]
    solver_config: dict[str, Any]
    algorithm_config: dict[str, Any]

    @property
    def iterations(self) -> int:
        """Reward updates that the steps allow; the first round of practice needs none."""
        return max(1, self.steps // Plan(**self.plan).steps_per_iteration)


class Control(NamedTuple):
    """The parts of a control experiment, put together."""

    task: ControlTask
    demo_hash: str
    clipped: int  # entries of demonstrated actions that lay outside the action space
    ledger: Ledger
    loop: Loop
    evaluate: Callable[[PyTree], Float[np.ndarray, "seeds episodes"]]
    close: Callable[[], None]


class Practice:
    """Environments of all seeds between two calls: where their episodes stand."""

    def __init__(self, envs: HostEnvs) -> None:
        """Nothing is stepped before the first `fresh`."""
        self.envs = envs
        self.time: np.ndarray | None = None

    def fresh(self, iteration: int) -> None:
        """Start new episodes whose seeds derive from the run's seeds and the iteration."""
        rows = [episode_seeds(seed, iteration, self.envs.envs_per_seed, "train") for seed in range(self.envs.seeds)]
        self.obs, self.time = self.envs.reset(np.stack(rows)), None
        self.random = np.random.default_rng(iteration)

    def collect(self, act: Callable[[np.ndarray], np.ndarray] | None, steps: int) -> Steps:
        """Go on for `steps` steps in every environment; without `act`, at random."""
        rollout = collect(self.envs, act or self._at_random, steps, self.obs, self.time)
        self.obs, self.time = rollout.final_obs, rollout.final_time
        return Steps(rollout.obs, rollout.action, rollout.next_obs, rollout.terminated, rollout.time)

    def _at_random(self, obs: np.ndarray) -> np.ndarray:
        task, shape = self.envs.task, obs.shape[:2]
        if task.discrete:
            return self.random.integers(task.action_dim, size=shape, dtype=np.int32)
        return self.random.uniform(-1, 1, size=(*shape, task.action_dim)).astype(np.float32)


def build_control(experiment: ControlExperiment, demos: Demos | None = None) -> Control:
    """Put task, demonstrations, solver and algorithm together; checks everything that a user gave."""
    if experiment.algorithm not in SAMPLED:
        raise InputError(
            f"{experiment.algorithm} needs a known MDP and {experiment.task} is a simulator; choose from "
            f"{', '.join(SAMPLED)}, or a task of the exact world."
        )
    task = make_control_task(experiment.task, experiment.env_kwargs)
    demos = demos or Demos.from_npz(experiment.demos)
    if experiment.demo_episodes is not None:
        demos = demos.take(experiment.demo_episodes)
    obs, action, clipped = _checked(demos, task)
    plan = Plan(**experiment.plan)
    absorb = experiment.termination == "T2"
    updates = plan.steps_per_iteration // plan.rounds
    solver_config = experiment.solver_config | {
        "updates": updates,
        "termination": "T2" if absorb else "T0",
    }
    statistics = obs.mean(axis=0), np.maximum(obs.std(axis=0), 1e-2)
    solver: Solver
    if task.discrete:
        solver = softq(task.obs_dim, task.action_dim, SoftQConfig(**solver_config), *statistics)
    else:
        solver = sac(task.obs_dim, task.action_dim, SacConfig(**solver_config), *statistics)
    weighing = Weighing(task.horizon, solver_config.get("discount", 0.99), plan.discounted, absorb)
    last = np.zeros(len(obs), bool)
    last[demos.episode_ends - 1] = demos.terminated
    time = jnp.asarray(demos.time_in_episode())
    demo = episode_measure(jnp.asarray(obs), jnp.asarray(action), jnp.asarray(last), time, weighing)
    make_reward = network_reward_factory(
        Transition(jnp.asarray(obs), jnp.asarray(action), jnp.ones(len(obs))),
        task.action_dim if task.discrete else 0,
        experiment.reward_inputs == "state-action",
        experiment.reward_width,
        experiment.reward_depth,
        experiment.reward_bound,
    )
    entry = ALGORITHMS[experiment.algorithm]
    algorithm = entry.build(
        solver, make_reward, entry.config(**experiment.algorithm_config), minibatches(plan.reward_batch)
    )
    ledger = Ledger()
    envs = HostEnvs(task, experiment.seeds, plan.envs, ledger, experiment.backend, experiment.termination)
    loop = control_loop(algorithm, solver, Practice(envs), demo, plan, weighing, experiment.steps + plan.warmup)

    judged = evaluation_envs(task, experiment.seeds, experiment.evaluation_episodes, ledger, experiment.backend)
    choose = jax.jit(jax.vmap(solver.mode))

    def evaluate(agent: PyTree) -> Float[np.ndarray, "seeds episodes"]:
        agent = jax.device_put(agent, jax.devices("cpu")[0])
        return evaluate_returns(judged, lambda obs: np.asarray(choose(agent, obs)), experiment.evaluation_episodes, 0)

    def close() -> None:
        envs.close()
        judged.close()

    return Control(task, demos.content_hash(), clipped, ledger, loop, evaluate, close)


def _checked(demos: Demos, task: ControlTask) -> tuple[np.ndarray, np.ndarray, int]:
    """Observations and actions as networks see them, after checking that they belong to the task."""
    obs = demos.observations.reshape(len(demos.observations), -1).astype(np.float32)
    if obs.shape[1] != task.obs_dim:
        raise InputError(
            f"the demos have {obs.shape[1]} observation dimensions and {task.name} has {task.obs_dim}; versions of a "
            "task differ (Ant: 27 in v4, 105 in v5; Humanoid: 376 and 348), so use the version that made the demos."
        )
    if demos.actions.shape[1:] != task.action_shape:
        raise InputError(
            f"the demos have actions of shape {demos.actions.shape[1:]}, {task.name} {task.action_shape}."
        )
    action, clipped = from_env_actions(task, demos.actions)
    return obs, action.astype(np.int32) if task.discrete else action, clipped
