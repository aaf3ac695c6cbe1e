"""Environments stepped on the host, those of all seeds together: here, in processes, or by EnvPool.

An episode that ends is followed by the next one's first step, so every step is one true transition per environment,
with the true successor in `next_obs`, also where an episode ended. Later episodes of an environment draw on the
generator that `reset` seeded, and policies on noise that derives from the round: all that follows is reproducible.

Nothing here imports JAX.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from trustirl.core.errors import InputError
from trustirl.core.machine import cores
from trustirl.core.spaces import Termination
from trustirl.core.words import count
from trustirl.rollouts.bundles import Bundle, Episodes, FixedHorizon, Unpaid, Workers
from trustirl.rollouts.envpool import Pool
from trustirl.rollouts.ledger import Ledger, Purpose
from trustirl.rollouts.policy import Policies
from trustirl.rollouts.restarts import Restarting, Starts
from trustirl.rollouts.spaces import flatten_observations
from trustirl.tasks.gym import ControlTask, MakeEnv

Backend = Literal["auto", "sync", "async", "envpool"]

SEED_BITS = 29  # with the purpose on top, every seed fits a signed 32-bit integer, which some simulators ask for
MAX_EVALUATION_ENVS = 64
CORES_FOR_ASYNC = 4


class Rollout(NamedTuple):
    """Aligned transitions (s_t, a_t, s_{t+1}); `true_reward` is NaN where environments are not paid."""

    obs: Float[np.ndarray, "steps seeds envs obs_dim"]
    action: Num[np.ndarray, "steps seeds envs ..."]
    next_obs: Float[np.ndarray, "steps seeds envs obs_dim"]
    terminated: Bool[np.ndarray, "steps seeds envs"]
    truncated: Bool[np.ndarray, "steps seeds envs"]
    time: Int[np.ndarray, "steps seeds envs"]  # t within the episode
    true_reward: Float[np.ndarray, "steps seeds envs"]


class HostEnvs:
    """`seeds` x `envs_per_seed` copies of a task; arrays in and out are [seeds, envs, ...]."""

    def __init__(
        self,
        task: ControlTask,
        seeds: int,
        envs_per_seed: int,
        ledger: Ledger,
        backend: Backend = "auto",
        termination: Termination = "T0",
        first_seed: int = 0,
        paid: bool = True,
        starts: Starts | None = None,
    ) -> None:
        """`starts` are where episodes may begin beside where the task begins them.

        `paid`: whether anybody may see true rewards; EnvPool, whose rewards are numbers, always tells them.
        """
        self.task, self.seeds, self.envs_per_seed = task, seeds, envs_per_seed
        self.seed_numbers = range(first_seed, first_seed + seeds)
        self.ledger, self.termination = ledger, termination
        self.backend = resolve_backend(backend, task)
        self._shown = 0
        self._simulator = _open(task, self.count, envs_per_seed, self.backend, termination, first_seed, paid, starts)

    @property
    def count(self) -> int:
        """How many environments there are."""
        return self.seeds * self.envs_per_seed

    def reset(self, seeds: Int[np.ndarray, "seeds envs"], shown: int = 0) -> None:
        """Begin an episode in every environment; in the first `shown` of each seed all begin where `starts` say."""
        self._shown = shown
        self._simulator.reset(self._listed(seeds), shown)
        self.ledger.resets += self.seeds * shown

    def rollout(
        self,
        policies: Policies | None,
        steps: int,
        purpose: Purpose = "train",
        iteration: int = 0,
        round_: int = 0,
        tremble: float = 0.0,
    ) -> Rollout:
        """Go on for `steps` steps in every environment, each with its seed's policy; without policies, at random.

        Noise derives from the seed, the environment's place in it, and `purpose`, `iteration` and `round_`; `purpose`
        also says in which column the steps are counted. `tremble` is the chance of a random action.
        """
        if policies is not None:
            self._load(policies)
        key = get_args(Purpose).index(purpose), iteration, round_
        rows = self._simulator.rollout(steps, key, random=policies is None, tremble=tremble)
        self.ledger.add(purpose, int(rows["stepped"].sum()))
        grid = rows.reshape(steps, self.seeds, self.envs_per_seed)
        self.ledger.resets += int((grid["terminated"] | grid["truncated"])[:, :, : self._shown].sum())
        return Rollout(*(np.ascontiguousarray(grid[name]) for name in Rollout._fields))

    def play(self, policies: Policies, seeds: Int[np.ndarray, "seeds envs"]) -> Episodes:
        """One episode per environment, played without noise, as rows of `EPISODE`, [seeds, envs]."""
        self._load(policies)
        episodes = self._simulator.play(self._listed(seeds))
        self.ledger.add("evaluation", int(episodes["steps"].sum()))
        return episodes.reshape(seeds.shape)

    def close(self) -> None:
        """Close every environment, and the processes that ran them."""
        self._simulator.close()

    def __enter__(self) -> "HostEnvs":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _listed(self, seeds: Int[np.ndarray, "..."]) -> list[int]:
        if seeds.shape != (self.seeds, self.envs_per_seed):
            raise InputError(f"expected {self.seeds} x {self.envs_per_seed} environment seeds, not {seeds.shape}.")
        return seeds.reshape(-1).tolist()

    def _load(self, policies: Policies) -> None:
        if len(policies.weights) != self.seeds:
            raise InputError(f"expected the policies of {count(self.seeds, 'seed')}, not of {len(policies.weights)}.")
        self._simulator.load(policies)


def _open(
    task: ControlTask,
    count: int,
    envs_per_seed: int,
    backend: Literal["sync", "async", "envpool"],
    termination: Termination,
    first_seed: int,
    paid: bool,
    starts: Starts | None,
) -> Bundle | Workers | Pool:
    if backend == "envpool":
        if termination == "T3":
            raise InputError("EnvPool cannot repeat terminal observations (T3): use backend='sync' or 'async'.")
        if starts is not None:
            raise InputError("EnvPool cannot begin at demonstrated states: use backend='sync' or 'async'.")
        return Pool(task, count, envs_per_seed, first_seed)
    if starts is not None:
        task = replace(task, make=partial(_make_restarting, task.make, starts))
    if termination == "T3":
        task = replace(task, make=partial(_make_fixed, task.make, task.horizon))
    if not paid:
        task = replace(task, make=partial(_make_unpaid, task.make))
    if backend == "sync":
        return Bundle(task, range(count), envs_per_seed, first_seed)
    return Workers(task, count, envs_per_seed, _processes(count), first_seed)


def _make_restarting(make: MakeEnv, starts: Starts) -> Restarting:
    return Restarting(make(), starts)


def _make_fixed(make: MakeEnv, horizon: int) -> FixedHorizon:
    return FixedHorizon(make(), horizon)


def _make_unpaid(make: MakeEnv) -> Unpaid:
    return Unpaid(make())


def resolve_backend(backend: Backend, task: ControlTask) -> Literal["sync", "async", "envpool"]:
    """What "auto" means here: processes pay off for a slow simulator on a machine with cores to spare."""
    if backend == "auto":
        return "async" if "mujoco" in task.versions and cores() > CORES_FOR_ASYNC else "sync"
    return backend


def _processes(count: int) -> int:
    """One core is left to us."""
    return max(1, min(cores() - 1, count))


def episode_seeds(run_seed: int, iteration: int, envs: int, purpose: Purpose) -> Int[np.ndarray, "envs"]:
    """Environment seeds that depend on nothing else; those of different purposes never coincide."""
    column = get_args(Purpose).index(purpose)
    words = np.random.SeedSequence(run_seed, spawn_key=(column, iteration)).generate_state(envs)
    return (column << SEED_BITS) | (words.astype(np.int64) >> (32 - SEED_BITS))


def first_observations(task: ControlTask, count: int) -> Float[np.ndarray, "count obs"]:
    """Those of so many episodes, in which no step is made."""
    env = task.make()
    try:
        seeds = episode_seeds(0, 0, count, "train")
        return np.concatenate([flatten_observations(env.reset(seed=int(seed))[0], 1) for seed in seeds])
    finally:
        env.close()


def evaluation_envs(
    task: ControlTask, seeds: int, episodes: int, ledger: Ledger, backend: Backend = "auto", first_seed: int = 0
) -> HostEnvs:
    """Environments for `evaluate_returns`, to be opened once and used often: starting processes takes seconds."""
    return HostEnvs(task, seeds, _evaluation_envs(seeds, episodes), ledger, backend, first_seed=first_seed)


def evaluate_episodes(
    envs: HostEnvs,
    policies: Policies,
    episodes: int,
    seed_root: int,
    alike: bool = False,
    shown: Callable[[Sequence[np.ndarray]], Iterable[np.ndarray]] = iter,
) -> Episodes:
    """Full episodes that start the same way at every call, as many from every environment: [seeds, episodes].

    One episode per environment at a time, so short episodes are not seen more often than long ones. Seeds that are to
    be compared with each other start `alike`. `shown` passes the rounds on, and may show how far they are.
    """
    places = [0 if alike else seed for seed in envs.seed_numbers]
    starts = np.stack([episode_seeds(seed_root, place, episodes, "evaluation") for place in places])
    rounds = np.split(starts, episodes // envs.envs_per_seed, axis=1)
    return np.concatenate([envs.play(policies, round_) for round_ in shown(rounds)], axis=1)


def evaluate_returns(*given: Any, **named: Any) -> Float[np.ndarray, "seeds episodes"]:
    """True returns of `evaluate_episodes`."""
    returns: Float[np.ndarray, "seeds episodes"] = evaluate_episodes(*given, **named)["true_return"]
    return returns


def judged(episodes: Episodes) -> dict[str, np.ndarray]:
    """What an evaluation tells of each seed: returns and, where the environment reports it, success.

    An episode without success counts its whole length as steps to it.
    """
    returns = episodes["true_return"]
    told = {"return_mean": returns.mean(axis=1), "return_std": returns.std(axis=1)}
    if np.isfinite(episodes["success"]).any():
        told["success"] = np.nan_to_num(episodes["success"]).mean(axis=1)
        told["steps_to_success"] = episodes["steps_to_success"].mean(axis=1)
    return told


def _evaluation_envs(seeds: int, episodes: int) -> int:
    """The most environments per seed among which the episodes divide evenly."""
    at_most = max(1, MAX_EVALUATION_ENVS // seeds)
    return max(envs for envs in range(1, episodes + 1) if episodes % envs == 0 and envs <= at_most)
