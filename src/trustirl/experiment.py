"""Training from end to end: resolve the question, run the loop, write the run."""

import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from trustirl.algorithms import ALGORITHMS
from trustirl.core.errors import InputError, NumericalError, unknown_name
from trustirl.core.precision import double_precision
from trustirl.core.types import Metrics
from trustirl.demos.schema import Demos
from trustirl.irl.loop import iterate, seed_keys
from trustirl.irl.store import RunFolder
from trustirl.nets.rewards import RewardKind
from trustirl.report.page import write_report
from trustirl.results import write_results
from trustirl.run import Run, load
from trustirl.tasks.registry import make_task, resolved_arguments
from trustirl.world import Experiment, World, build

Preset = Literal["smoke", "paper", "tuned"]
PRESET_STEPS = {"smoke": 20, "paper": 200, "tuned": 200}
CHECKPOINT_EVERY = 50


def train(
    algorithm: str,
    task: str = "gridworld",
    demos: Demos | str = "packaged",
    *,
    demo_episodes: int | None = None,
    seeds: int = 1,
    steps: int | None = None,
    out: str | Path | None = None,
    preset: Preset = "tuned",
    task_args: Mapping[str, Any] | None = None,
    reward: RewardKind = "table",
    reward_inputs: Literal["state", "state-action"] | None = None,
    policy_rounds: int = 0,
    suboptimality: float = 0.0,
    compare: bool = False,
    overwrite: bool = False,
    **algorithm_config: Any,
) -> Run:
    """Learn a reward and a policy from demonstrations and write the run to `out`.

    In the exact world nothing is sampled, so `steps` counts reward updates. `demos="packaged"` is the exact
    occupancy of the task's soft-optimal expert, or `demo_episodes` episodes sampled from it.
    """
    if algorithm not in ALGORITHMS:
        raise unknown_name("algorithm", algorithm, ALGORITHMS)
    if preset not in PRESET_STEPS:
        raise unknown_name("preset", preset, PRESET_STEPS)
    for name, number, least in (
        ("seeds", seeds, 1),
        ("steps", steps, 1),
        ("policy_rounds", policy_rounds, 0),
    ):
        if number is not None and number < least:
            raise InputError(f"{name} must be at least {least}, got {number}.")
    if not suboptimality >= 0:
        raise InputError(f"suboptimality must not be negative, got {suboptimality}.")
    config_class = ALGORITHMS[algorithm].config
    settings = [field.name for field in fields(config_class)]
    for name in algorithm_config:
        if name not in settings:
            raise unknown_name(f"setting of {algorithm},", name, settings)
    with double_precision():
        state_only = make_task(task, task_args).state_only
        folder = RunFolder(Path(out) if out else Path("runs") / f"{task}-{algorithm}")
        folder.check_free(overwrite)
        experiment = Experiment(
            algorithm=algorithm,
            task=task,
            task_args=resolved_arguments(task, task_args),
            demos=demos if isinstance(demos, str) else str(folder.path / "demos.npz"),
            demo_episodes=demo_episodes,
            seeds=seeds,
            steps=steps or PRESET_STEPS[preset],
            reward=reward,
            reward_inputs=reward_inputs or ("state" if state_only else "state-action"),
            policy_rounds=policy_rounds,
            suboptimality=suboptimality,
            compare=compare,
            algorithm_config=asdict(config_class(**algorithm_config)),
        )
        world = build(experiment, demos if isinstance(demos, Demos) else None)
        folder.begin(asdict(experiment), _manifest(experiment, world))
        if isinstance(demos, Demos):
            demos.save_npz(folder.path / "demos.npz")
        return _run(experiment, world, folder)


def resume(path: str | Path) -> Run:
    """Continue a run from its newest checkpoint; the result equals that of an uninterrupted run."""
    folder = RunFolder(Path(path))
    if not folder.holds_run():
        raise InputError(f"{path} holds no run; start one with `trustirl train`.")
    if (folder.path / "summary.json").exists():
        raise InputError(f"the run in {path} is finished; its page is {folder.path / 'report.html'}.")
    stored = folder.config()
    if stored.keys() != {field.name for field in fields(Experiment)}:
        raise InputError(f"{path}/config.json was written by another version of trustirl; use that version.")
    experiment = Experiment(**stored)
    with double_precision():
        world = build(experiment)
        if folder.manifest()["demo_hash"] != world.demo_hash:
            raise InputError(f"the demos {experiment.demos} have changed since the run began; restore them.")
        return _run(experiment, world, folder, resuming=True)


def _run(experiment: Experiment, world: World, folder: RunFolder, resuming: bool = False) -> Run:
    keys = seed_keys(experiment.seeds)
    start, spent = None, 0.0
    if resuming:
        start, iteration, spent = folder.load_checkpoint(like=world.loop.start(keys)[0])
        folder.forget_metrics_after(iteration)
    state, began = start, time.perf_counter() - spent
    with _progress(experiment) as show:
        for state, metrics in iterate(world.loop, keys, experiment.steps, start):
            iteration, seconds = int(state.iteration[0]), time.perf_counter() - began
            rows = _rows(metrics, iteration, experiment.seeds, seconds)
            folder.append_metrics(rows)
            show(rows)
            if iteration % CHECKPOINT_EVERY == 0:
                folder.save_checkpoint(state, iteration, seconds)
    assert state is not None  # the loop has yielded, or a finished state was read
    seconds = time.perf_counter() - began
    folder.save_checkpoint(state, experiment.steps, seconds)
    write_results(experiment, world, state, folder.metrics()[-experiment.seeds :], seconds, folder.path)
    write_report(folder.path)
    return load(folder.path)


def _rows(metrics: Metrics, iteration: int, seeds: int, seconds: float) -> list[dict[str, Any]]:
    """One record per seed; a quantity that is not finite stops the run and is named."""
    names = ("return_mean", "return_std", "gap", "drift", "mu", "ell", "suboptimality")
    host = {name: np.asarray(metrics[name], float) for name in names if name in metrics}
    for name, values in host.items():
        if not np.isfinite(values).all():
            seed = int(np.argmin(np.isfinite(values)))
            raise NumericalError(
                f"{name} became {values[seed]} at iteration {iteration} of seed {seed}; try a smaller step. The last "
                "good checkpoint is kept."
            )
    return [
        {"seed": seed, "iteration": iteration, "env_steps": 0}
        | {name: float(host[name][seed]) if name in host else None for name in names}
        | {"seconds": round(seconds, 3)}
        for seed in range(seeds)
    ]


def _manifest(experiment: Experiment, world: World) -> dict[str, Any]:
    """Where and with what a run was made."""
    packages = ("trustirl", "jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium")
    return {
        "format_version": 1,
        "command": " ".join(["trustirl", *sys.argv[1:]])
        if Path(sys.argv[0]).name == "trustirl"
        else "trustirl.train",
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "platform": platform.platform(),
        "device": str(jax.devices()[0].device_kind),
        "demo_hash": world.demo_hash,
        "seeds": list(range(experiment.seeds)),
    }


@contextmanager
def _progress(experiment: Experiment) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
    """A bar on a terminal, silence elsewhere."""
    columns = (
        TextColumn(f"{experiment.algorithm} on {experiment.task}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("return {task.fields[return_mean]:.2f}  ell {task.fields[ell]:.4f}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        job = bar.add_task("train", total=experiment.steps, return_mean=float("nan"), ell=float("nan"))

        def show(rows: list[dict[str, Any]]) -> None:
            mean_return, mean_ell = (float(np.mean([row[name] for row in rows])) for name in ("return_mean", "ell"))
            bar.update(job, completed=rows[0]["iteration"], return_mean=mean_return, ell=mean_ell)

        yield show
