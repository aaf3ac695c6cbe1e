"""The worlds in which a question can be asked, and which one it is; nothing else asks what kind a task is."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym

from trustirl.algorithms import ALGORITHMS, Entry
from trustirl.core.errors import InputError, unknown_name
from trustirl.core.precision import double_precision
from trustirl.core.worlds import FACTS, WorldFacts
from trustirl.demos.schema import Demos
from trustirl.tasks.gym import name_of, task_of_file
from trustirl.tasks.registry import TASKS, resolved_arguments
from trustirl.worlds import (
    exact,
    exact_run,
    fixed_reward,
    fixed_reward_run,
    learned_reward,
    offline,
    simulator,
    simulator_run,
)
from trustirl.worlds.job import Experiment, Groups, Job, Preset

Task = str | gym.Env | Callable[..., gym.Env]
EXPERT = "expert"  # stands for an algorithm in the files of a run that trains one
RETRAIN = "retrain"  # and in those of one that trains on a learned reward
SIMULATOR_STEPS: Mapping[Preset, int] = {"smoke": 20_000, "paper": 1_000_000, "tuned": 1_000_000}
OFFLINE_STEPS: Mapping[Preset, int] = {"smoke": 2000, "paper": 20_000, "tuned": 20_000}


@dataclass(frozen=True)
class World:
    """What is done with a question, in one kind of world."""

    facts: WorldFacts
    defaults: Callable[[str, Task, Mapping[str, Any], Preset], tuple[Groups, int]]
    """Every setting of an algorithm on a task with such arguments, by group, and the number of steps."""
    check: Callable[[Experiment], int]
    """Refuses what the job would refuse, opening nothing; bytes of replay that each seed will need."""
    job: Callable[[Experiment, Demos | None, Task], Job]
    seconds: Callable[[Experiment], float]
    """What one seed takes, roughly, on two ARM cores; starting is not counted."""
    offers: frozenset[str] = frozenset()
    """What an algorithm may need, by word."""
    each: Callable[[Experiment], int] = lambda _: 1
    """Steps of an iteration, where no environment counts them."""
    arguments: Callable[[str, Mapping[str, Any]], dict[str, Any]] = lambda _, given: dict(given)
    """The arguments of a task, with those that are not given as far as they are known."""
    precision: Callable[[], AbstractContextManager[None]] = nullcontext
    looked_at: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ where somebody at a command line waits for one run."""


def _on_simulators(
    groups: Callable[[Entry, str, bool], Groups],
    told: Callable[[Entry, str, bool], Mapping[str, Any]],
    steps: Mapping[Preset, int],
    algorithm: str,
    task: Task,
    _arguments: Mapping[str, Any],
    preset: Preset,
) -> tuple[Groups, int]:
    """Defaults that an algorithm's entry gives; the number of steps, too, except where all is to be brief."""
    entry, name, paper = ALGORITHMS.find(algorithm), task_name(task), preset == "paper"
    if paper and entry.defaults.paper is None:
        raise _no_paper(algorithm)
    own = {} if preset == "smoke" else told(entry, name, paper)
    return groups(entry, name, paper), int(own.get("steps", steps[preset]))


def _exact(algorithm: str, task: Task, _arguments: Mapping[str, Any], preset: Preset) -> tuple[Groups, int]:
    if preset == "paper":
        raise _no_paper(task_name(task))
    return exact.groups(ALGORITHMS.find(algorithm)), 20 if preset == "smoke" else 200


def _no_paper(where: str) -> InputError:
    have = ", ".join(entry.name for entry in ALGORITHMS.usable() if entry.defaults.paper is not None)
    return InputError(
        f"the preset 'paper' has settings of papers for {have} on simulators and none for {where}; leave it out."
    )


def _experts(_algorithm: str, task: Task, arguments: Mapping[str, Any], _preset: Preset) -> tuple[Groups, int]:
    preset = fixed_reward.preset(task, arguments)
    return fixed_reward.groups(preset), int(preset["steps"])


WORLDS: Mapping[str, World] = {
    world.facts.name: world
    for world in (
        World(
            FACTS["exact"],
            defaults=_exact,
            check=exact.check,
            job=lambda experiment, demos, _: exact_run.exact_job(experiment, demos),
            seconds=exact.rough_seconds,
            arguments=resolved_arguments,
            precision=double_precision,
            looked_at={"compare": True},
        ),
        World(
            FACTS["simulator"],
            defaults=partial(_on_simulators, simulator.groups, simulator.defaults, SIMULATOR_STEPS),
            check=lambda experiment: simulator.prepared(experiment).bytes_per_seed,
            job=simulator_run.control_job,
            seconds=simulator.rough_seconds,
            offers=simulator.OFFERS,
        ),
        World(
            FACTS["offline"],
            defaults=partial(_on_simulators, offline.groups, offline.defaults, OFFLINE_STEPS),
            check=offline.check,
            job=offline.offline_job,
            each=offline.updates,
            seconds=offline.rough_seconds,
            offers=offline.OFFERS,
        ),
        World(
            FACTS["fixed reward"],
            defaults=_experts,
            check=fixed_reward.check,
            job=lambda experiment, _, task: fixed_reward_run.expert_job(experiment, task),
            seconds=simulator.rough_seconds,
        ),
        World(
            FACTS["learned reward"],
            defaults=lambda _algorithm, _task, _arguments, preset: (learned_reward.groups(), SIMULATOR_STEPS[preset]),
            check=learned_reward.check,
            job=lambda experiment, _, task: learned_reward.learned_reward_job(experiment, task),
            seconds=simulator.rough_seconds,
        ),
    )
}


def world_of(algorithm: str, task: Task, offline_only: bool = False) -> World:
    """Where an algorithm is trained on a task, or with its demonstrations alone; what cannot be is refused."""
    if algorithm == RETRAIN:
        return WORLDS["learned reward"]
    entry = None if algorithm == EXPERT else ALGORITHMS.find(algorithm)
    known = _is_known(task)
    if entry is None:
        if known:
            raise InputError(f"{task} has an exact expert already: train on it with `--demos packaged`.")
        return WORLDS["fixed reward"]
    if offline_only and "offline" not in entry.worlds:
        able = ", ".join(ALGORITHMS.trained_in("offline"))
        raise InputError(
            f"{algorithm} cannot learn without stepping an environment: leave --offline out, or choose one of {able}."
        )
    if offline_only and known:
        raise InputError(f"no steps of {task} are recorded, which --offline learns from: give it a Gymnasium task.")
    if known and "exact" not in entry.worlds:
        steps = "sampled" if "simulator" in entry.worlds else "recorded"
        example = "CartPole-v1" if "discrete" in entry.actions else "Pendulum-v1"
        raise InputError(f"{algorithm} learns from {steps} steps: give it a Gymnasium task, such as {example}.")
    fitting = [name for name in entry.worlds if (name == "exact") == known]
    first = "offline" if offline_only else "simulator"
    fitting.sort(key=lambda name: name != first)
    if not fitting:
        others = ", ".join(ALGORITHMS.trained_in("simulator"))
        raise InputError(
            f"{algorithm} needs a known MDP, which a simulator does not give; choose another algorithm ({others}), "
            "or a task of the exact world (such as gridworld)."
        )
    world = WORLDS[fitting[0]]
    if missing := entry.needs - world.offers:
        raise InputError(f"{algorithm} needs {', '.join(sorted(missing))}, which this version does not offer.")
    return world


def task_name(task: Task) -> str:
    """What a run calls its task."""
    if isinstance(task, gym.Env):
        return task.spec.id if task.spec else type(task.unwrapped).__name__
    return task if isinstance(task, str) else name_of(task)


def task_in(name: str, file: Path) -> str:
    """The task that a run's file names; what would be imported for it is given by the user."""
    return name if name in TASKS else task_of_file(name, file)


def _is_known(task: Task) -> bool:
    """Whether the task is one whose MDP is known; a name that can be neither is refused."""
    if not isinstance(task, str) or task in TASKS:
        return isinstance(task, str)
    if task not in gym.registry and "-v" not in task and ":" not in task:
        raise unknown_name("task", task, {*TASKS, *gym.registry})
    return False
