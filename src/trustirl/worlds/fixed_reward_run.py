"""Runs that train an expert: which seed it is, what it demonstrates, and the card that says where both come from."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from trustirl.core.files import read_json, write_json
from trustirl.core.types import Metrics, TrainState
from trustirl.demos.schema import Demos
from trustirl.irl.plan import Schedule
from trustirl.rl.config import SolverConfig
from trustirl.rollouts.host import SEED_BITS, judged
from trustirl.runs.policies import ControlPolicy, save_policies
from trustirl.tasks.gym import ControlTask
from trustirl.worlds.fixed_reward import ExpertOptions, Task, build, iterations
from trustirl.worlds.job import Experiment, Job, Row, columns, told_steps
from trustirl.worlds.simulator_run import memory_note, staged, summary_of

FIRST_SEED = 3 << SEED_BITS  # of demonstrations: episodes of training and evaluation have lower ones
SELECTION = "the seed with the highest mean true return in the last evaluation, the same episodes for all"


def expert_job(experiment: Experiment, task: Task | None = None) -> Job:
    """The training of an expert, ready to run."""
    schedule, options = Schedule(**experiment.settings["plan"]), ExpertOptions(**experiment.settings["expert"])
    config = SolverConfig(**experiment.settings["solver"])
    last = iterations(experiment.steps, schedule)
    parts = build(experiment, options, task)

    def observe(state: TrainState, metrics: Metrics) -> dict[str, np.ndarray]:
        episodes = parts.evaluate(state.irl.policy)
        spreads = {f"return_{name}": values for name, values in spread(episodes["true_return"]).items()}
        return columns(metrics) | judged(episodes) | spreads

    def finish(state: TrainState, last_rows: list[Row], seconds: float, path: Path) -> None:
        actors = parts.solver.outcome(state.irl.policy)
        save_policies(path, actors, parts.task, config, None, None)
        summary = summary_of(
            parts.task,
            parts.ledger,
            last_rows,
            seconds,
            experiment.seeds * (last + 1) * schedule.rounds * schedule.updates,
        )
        seed = int(np.argmax(summary["returns"]))
        policy = ControlPolicy(parts.to_host(actors).of(seed), parts.task)
        demos = record_expert(policy, parts.task, options.episodes)
        parts.ledger.add("evaluation", len(demos.actions))
        card = {
            "format_version": 1,
            "task": parts.task.env_id,
            "task_args": experiment.task_args,
            "horizon": parts.task.horizon,
            "solver": "soft Q-learning" if parts.task.discrete else "soft actor-critic",
            "seeds": experiment.seeds,
            "seed_returns": summary["returns"],
            "expert_seed": seed,
            "selection": SELECTION,
            "steps_per_seed": last_rows[seed]["env_steps"],
            "policy": "deterministic",
            "evaluation": {"episodes": options.evaluation_episodes}
            | {name: last_rows[seed][f"return_{name}"] for name in ("mean", "std", "min", "max")},
            "demonstrations": described(demos),
            "demo_hash": demos.content_hash(),
        }
        made = _provenance(read_json(path / "manifest.json"), parts.task)
        write_json(path / "card.json", card | made)
        told = dict(demos.provenance) | {"source": "trustirl expert"} | made
        replace(demos, provenance=told).save(path / "demos.npz")
        summary |= {"expert_seed": seed, "demo_return": card["demonstrations"]["mean"]}
        summary |= {"practice_seconds": parts.watch.seconds}
        write_json(path / "summary.json", summary | {"env_steps": parts.ledger.counts})

    notes = told_steps(experiment.steps, last + 1, schedule.whole, schedule.random_steps)
    return staged(parts, options, last, observe, finish, {}, [*notes, memory_note(parts.replay_bytes)])


def spread(returns: Float[np.ndarray, "*seeds episodes"]) -> dict[str, Any]:
    """Mean, deviation and extremes over episodes."""
    return {name: getattr(returns, name)(axis=-1) for name in ("mean", "std", "min", "max")}


def record_expert(policy: ControlPolicy, task: ControlTask, episodes: int) -> Demos:
    """Episodes of the deterministic policy; all but the simulator's states as float32, as networks see them."""
    env = task.make()
    demos = Demos.record(policy, env, episodes, FIRST_SEED)
    env.close()
    floats = ("observations", "actions", "rewards", "next_observations")
    kept = {name: getattr(demos, name) for name in floats}
    small = {name: array.astype(np.float32) for name, array in kept.items() if array.dtype == np.float64}
    return replace(demos, **small)


def described(demos: Demos) -> dict[str, Any]:
    """What a card says of recorded episodes."""
    returns = demos.returns()
    assert returns is not None
    return {
        "file": "demos.npz",
        "episodes": len(demos),
        "steps": len(demos.actions),
        **{name: float(value) for name, value in spread(returns).items()},
        "terminated": int(demos.terminated.sum()),
        "first_seed": FIRST_SEED,  # of env.reset, one more for each episode
        "states": None if demos.states is None else list(demos.states.shape),
    }


def _provenance(manifest: dict[str, Any], task: ControlTask) -> dict[str, Any]:
    """Where and with what an expert was trained; its demonstrations are Gymnasium's, whatever it practised in."""
    versions = manifest["versions"] | manifest["task_versions"] | dict(task.versions)
    return {"versions": versions} | {name: manifest[name] for name in ("command", "created", "device", "backend")}
