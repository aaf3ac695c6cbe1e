"""Runs that train an expert: which seed it is, what it demonstrates, and the card that says where both come from."""

import io
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from jaxtyping import Float

from trustirl.core.files import read_json, write_bytes, write_json
from trustirl.core.types import Metrics, TrainState
from trustirl.demos.schema import Demos
from trustirl.irl.practice import Schedule
from trustirl.learned import save_policies
from trustirl.rl.config import SolverConfig
from trustirl.rollouts.host import SEED_BITS
from trustirl.rollouts.policy import HostPolicy
from trustirl.rollouts.spaces import flatten_observations, to_env_actions
from trustirl.tasks.control import ControlTask
from trustirl.worlds.control_run import columns, memory_note, stage_facts, summary_of
from trustirl.worlds.expert import ExpertOptions, Task, build, iterations
from trustirl.worlds.job import Experiment, Job, Row

FIRST_SEED = 3 << SEED_BITS  # of demonstrations: episodes of training and evaluation have lower ones
SELECTION = "the seed with the highest mean true return in the last evaluation, the same episodes for all"


def expert_job(experiment: Experiment, task: Task | None = None) -> Job:
    """The training of an expert, ready to run."""
    schedule, options = Schedule(**experiment.settings["plan"]), ExpertOptions(**experiment.settings["expert"])
    config = SolverConfig(**experiment.settings["solver"])
    last = iterations(experiment.steps, schedule)
    parts = build(experiment, task)

    def observe(state: TrainState, metrics: Metrics) -> dict[str, np.ndarray]:
        returns = parts.evaluate(state.irl.policy)
        return {f"return_{name}": values for name, values in spread(returns).items()} | columns(metrics)

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
        recorded = record_expert(parts.to_host(actors).of(seed), parts.task, options.episodes, FIRST_SEED)
        parts.ledger.add("evaluation", len(recorded["actions"]))
        save_demos(path / "demos.npz", recorded)
        demos = Demos.from_npz(path / "demos.npz")
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
            "demonstrations": described(demos, recorded),
            "demo_hash": demos.content_hash(),
        }
        write_json(path / "card.json", card | _provenance(read_json(path / "manifest.json"), parts.task))
        summary |= {"expert_seed": seed, "demo_return": card["demonstrations"]["mean"]}
        write_json(path / "summary.json", summary | {"env_steps": parts.ledger.counts})

    return Job(
        loop=parts.loop,
        iterations=last,
        evaluate_every=options.evaluate_every,
        checkpoint_every=options.checkpoint_every,
        ledger=parts.ledger,
        observe=observe,
        finish=finish,
        facts=stage_facts(parts.task, parts.backend, parts.replay_bytes),
        notes=(memory_note(parts.replay_bytes),),
        close=parts.close,
    )


def spread(returns: Float[np.ndarray, "*seeds episodes"]) -> dict[str, Any]:
    """Mean, deviation and extremes over episodes."""
    return {name: getattr(returns, name)(axis=-1) for name in ("mean", "std", "min", "max")}


def record_expert(policy: HostPolicy, task: ControlTask, episodes: int, first_seed: int) -> dict[str, np.ndarray]:
    """Episodes of the deterministic policy, one per seed, with the simulator's state before each action.

    Demos.record will take this function's place.
    """
    steps: dict[str, list[Any]] = {name: [] for name in ("observations", "actions", "rewards", "states")}
    ends: dict[str, list[Any]] = {name: [] for name in ("episode_ends", "terminated", "final_observations")}
    env = task.make()
    for seed in range(first_seed, first_seed + episodes):
        observation, _ = env.reset(seed=seed)
        terminated = truncated = False
        while not (terminated or truncated):
            obs = flatten_observations(observation, 1)
            action = to_env_actions(task, policy.mode(obs))[0]
            before = simulator_state(env)
            observation, reward, terminated, truncated, _ = env.step(action)
            for name, value in zip(steps, (obs[0], action, reward, before), strict=True):
                steps[name].append(value)
        final = flatten_observations(observation, 1)[0]
        for name, value in zip(ends, (len(steps["actions"]), terminated, final), strict=True):
            ends[name].append(value)
    env.close()
    if steps["states"][0] is None:
        del steps["states"]
    return {name: np.array(values) for name, values in (steps | ends).items()}


def simulator_state(env: gym.Env) -> Float[np.ndarray, " numbers"] | None:
    """What must be restored to act again from here: positions and velocities, or what classic control keeps."""
    inner: Any = env.unwrapped
    if hasattr(inner, "data") and hasattr(inner.data, "qpos"):
        return np.concatenate([inner.data.qpos, inner.data.qvel])
    state = getattr(inner, "state", None)
    return None if state is None else np.array(state, np.float64)


def save_demos(path: Path, recorded: dict[str, np.ndarray]) -> None:
    """Write what `Demos.from_npz` reads; floats but the states' as float32."""
    small: dict[str, Any] = {
        name: array.astype(np.float32) if array.dtype.kind == "f" and name != "states" else array
        for name, array in recorded.items()
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **small)
    write_bytes(path, buffer.getvalue())


def described(demos: Demos, recorded: dict[str, np.ndarray]) -> dict[str, Any]:
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
        "states": list(recorded["states"].shape) if "states" in recorded else None,
    }


def _provenance(manifest: dict[str, Any], task: ControlTask) -> dict[str, Any]:
    """Where and with what an expert was trained; its demonstrations are Gymnasium's, whatever it practised in."""
    versions = manifest["versions"] | manifest["task_versions"] | dict(task.versions)
    return {"versions": versions} | {name: manifest[name] for name in ("command", "created", "device", "backend")}
