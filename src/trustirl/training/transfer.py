"""What a learned reward teaches somebody new, in its own task or in changed dynamics, beside the alternatives."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from trustirl.algorithms import CLONING
from trustirl.core.checks import counts, of_kind
from trustirl.core.errors import InputError
from trustirl.core.files import write_json
from trustirl.core.spaces import acting_as
from trustirl.report.html import write_drawn
from trustirl.report.transfer import Arm, Transfer, render
from trustirl.rollouts.host import evaluate_returns, evaluation_envs
from trustirl.rollouts.ledger import Ledger
from trustirl.runs.folder import RunFolder
from trustirl.runs.playing import played
from trustirl.runs.policies import read_policies
from trustirl.runs.run import Run, load
from trustirl.tasks.gym import ControlTask, make_control_task, task_of_file
from trustirl.training.train import ask, resume, setting_groups, train, train_expert
from trustirl.worlds.fixed_reward import iterations
from trustirl.worlds.job import Experiment, settle
from trustirl.worlds.learned_reward import groups
from trustirl.worlds.world import EXPERT, RETRAIN, Task, task_name

ROOT = 3  # of the episodes; those of training, of experts and of `trustirl evaluate` have others
ARMS = {
    "learned": "a fresh policy, trained on the learned reward",
    "carried": "the run's own policy, carried over",
    "clone": "behavioural cloning of its demonstrations, carried over",
    "true": "a fresh policy, trained on the true reward",
    "zero": "a fresh policy, trained on a reward of zero",
    "random": "random actions",
}


def retrain(
    run: Run | str | Path,
    task: Task | None = None,
    *,
    task_args: Mapping[str, Any] | None = None,
    seeds: int | None = None,
    steps: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> Run:
    """Train fresh policies on the frozen rewards of a finished run; the true reward is not seen.

    Seed i learns from the reward of the run's seed i. Task, settings and steps are the run's own if they are not
    given; `paid="zero"` pays nothing instead.
    """
    learned = run if isinstance(run, Run) else load(run)
    asked = _experiment(learned, task, task_args, seeds, steps, settings)
    folder = RunFolder(Path(out) if out else learned.path.with_name(f"{learned.path.name}-retrained"))
    folder.check_free(overwrite)
    return ask(asked, _task_of(learned, task), folder, overwrite)


def transfer(
    run: Run | str | Path,
    task: Task | None = None,
    *,
    task_args: Mapping[str, Any] | None = None,
    seeds: int | None = None,
    steps: int | None = None,
    bc_steps: int | None = None,
    episodes: int = 100,
    out: str | Path | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> Transfer:
    """Retrain on the learned reward, and play the same episodes with it and with whatever else could be done.

    That is: the run's own policy and a clone of its demonstrations carried over, policies that were trained on the
    true reward and on a reward of zero for as many steps, and random actions. Everything lies in `out`: a run each,
    transfer.json and transfer.html. Who asks again goes on where it was stopped.
    """
    learned = run if isinstance(run, Run) else load(run)
    (episodes,) = counts(1, episodes=episodes)
    folder = Path(out) if out else learned.path.with_name(f"{learned.path.name}-transfer")
    control_task = make_control_task(_task_of(learned, task), _arguments(learned, task, task_args))
    learned.check_task(control_task)
    if folder.resolve() == learned.path.resolve():
        raise InputError(f"{folder} is the run whose reward is transferred; choose another --out.")
    if overwrite and folder.exists():
        for name in ARMS:
            if (folder / name / "config.json").exists():
                shutil.rmtree(folder / name)
    named = _task_of(learned, task)
    schedules = groups(learned.config)["plan"], setting_groups(EXPERT, named)["plan"]
    for schedule in schedules:  # what nobody could keep is refused before anything is trained
        iterations(steps or learned.config["steps"], schedule)
    folder.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {"task_args": dict(control_task.env_kwargs), "steps": steps, "seeds": seeds}

    def again(**more: Any) -> Callable[[Path], Run]:
        return lambda place: retrain(learned, named, out=place, **told, **settings, **more)

    def clone(place: Path) -> Run:
        config = learned.config
        return train(
            CLONING,
            task_of_file(config["task"], learned.path / "config.json") if task is None else named,
            config["demos"],
            demo_episodes=config["demo_episodes"],
            demo_choice=config["demo_choice"],
            task_args=config["task_args"],
            seeds=seeds or len(learned.policies),
            steps=bc_steps,
            out=place,
        )

    def expert(place: Path) -> Run:
        given: dict[str, Any] = {
            "steps": steps or learned.config["steps"],
            "seeds": seeds or len(learned.policies),
            "episodes": 1,
        }
        return train_expert(named, task_args=told["task_args"], out=place, **given)

    makers = {"learned": again(), "zero": again(paid="zero"), "true": expert, "clone": clone}
    made = {name: _made(folder / name, make, named) for name, make in makers.items()}
    made["carried"] = learned
    returns = {name: _returns(made[name].path, control_task, episodes) for name in ARMS if name in made}
    returns["random"] = _by_chance(control_task, episodes)[None]
    found = Transfer(
        run=str(learned.path),
        algorithm=str(learned.config["algorithm"]),
        learned_in=_in_words(str(learned.config["task"]), learned.config["task_args"]),
        task=_in_words(control_task.name, control_task.env_kwargs),
        steps=int(made["learned"].config["steps"]),
        true_steps=int(made["true"].config["steps"]),
        episodes=episodes,
        arms={name: Arm(ARMS[name], returns[name].tolist()) for name in ARMS},
    )
    write_json(folder / "transfer.json", found.plain())
    write_drawn(lambda: render(found), folder / "transfer.html")
    return found


def _experiment(
    learned: Run,
    task: Task | None,
    task_args: Mapping[str, Any] | None,
    seeds: int | None,
    steps: int | None,
    settings: Mapping[str, Any],
) -> Experiment:
    if not learned.rewards:
        raise InputError(f"{learned.path} is a run of {learned.config['algorithm']}, which learns no reward.")
    if learned.world.expectations:
        raise InputError(
            f"{learned.path} learned in a known MDP, where the best policy for a reward is known: `trustirl reward "
            "compare` tells what it loses."
        )
    seeds, steps = counts(1, seeds=seeds, steps=steps)
    asked = settle(groups(learned.config), {"reward": str(learned.path)} | dict(settings), "retraining")
    return Experiment(
        algorithm=RETRAIN,
        task=task_name(_task_of(learned, task)),
        task_args=_arguments(learned, task, of_kind(dict, "task_args", task_args) if task_args else task_args),
        demos="",
        demo_episodes=None,
        demo_choice="first",
        seeds=seeds or len(learned.rewards),
        steps=steps or learned.config["steps"],
        settings=asked,
        world="learned reward",
        first_seed=0,
    )


def _task_of(learned: Run, task: Task | None) -> Task:
    return task_of_file(learned.config["task"], learned.path / "config.json") if task is None else task


def _arguments(learned: Run, task: Task | None, task_args: Mapping[str, Any] | None) -> dict[str, Any]:
    """The run's own, where neither another task nor others are named."""
    if task_args is not None:
        return dict(task_args)
    return dict(learned.config["task_args"]) if task is None else {}


def _made(place: Path, make: Callable[[Path], Run], task: Task) -> Run:
    """A run that is there is not made again, and one that was stopped goes on."""
    if (place / "summary.json").exists():
        return load(place)
    if place.is_dir() and RunFolder(place).holds_run():
        return resume(place, None if isinstance(task, str) else task)
    return make(place)


def _returns(run: Path, task: ControlTask, episodes: int) -> Float[np.ndarray, "seeds episodes"]:
    """True returns in the task, of episodes that are the same for everybody and every seed."""
    policies, spaces = read_policies(run)
    with evaluation_envs(acting_as(task, spaces), len(policies.weights), episodes, Ledger()) as envs:
        return evaluate_returns(envs, policies, episodes, ROOT, alike=True)


def _by_chance(task: ControlTask, episodes: int) -> Float[np.ndarray, " episodes"]:
    with played(task, episodes, ROOT) as (_, play):
        returns = play(None).returns()
    assert returns is not None
    return np.asarray(returns, np.float64)


def _in_words(task: str, arguments: Mapping[str, Any]) -> str:
    """A task with its arguments, as a sentence has it."""
    told = ", ".join(f"{name} {_plainly(value)}" for name, value in arguments.items())
    return f"{task} with {told}" if told else task


def _plainly(value: Any) -> str:
    return (
        " ".join(f"{name} {number:g}" for name, number in value.items()) if isinstance(value, Mapping) else f"{value}"
    )
