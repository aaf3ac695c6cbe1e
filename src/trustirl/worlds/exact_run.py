"""Runs of the exact world: rewards, policies, maps, comparisons, the summary."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from trustirl.algorithms import ALGORITHMS, MODULES
from trustirl.core.errors import NumericalError
from trustirl.core.files import write_arrays, write_json
from trustirl.core.measure import expect
from trustirl.core.types import Metrics, TrainState
from trustirl.demos.schema import Demos
from trustirl.evaluation.certificate import certificate_curve
from trustirl.evaluation.recovery import align
from trustirl.evaluation.returns import episode_return, mode
from trustirl.irl.loop import iterate, seed_keys
from trustirl.nets.rewards import DEPTH, WIDTH, TableReward
from trustirl.rewards.kinds import TableCard
from trustirl.rewards.saved import load_rewards, save_rewards
from trustirl.rl.exact import occupancy, optimal_value
from trustirl.rollouts.ledger import Ledger
from trustirl.runs.policies import save_tables
from trustirl.tasks.exact import ExactTask
from trustirl.worlds.exact import ExactOptions, Parts, build, reward_inputs, transitions
from trustirl.worlds.job import Experiment, Job, Row, columns

CHECKPOINT_EVERY = 50  # reward updates
SAMPLED_EPISODES = 50  # how many episodes the comparison with sampled demonstrations uses


def exact_job(experiment: Experiment, demos: Demos | None = None) -> Job:
    """An experiment of the exact world, ready to run; a reward update costs no environment step."""
    world, ledger = build(experiment, demos), Ledger()
    temperature = float(world.mdp.temperature)

    def observe(state: TrainState, metrics: Metrics) -> dict[str, np.ndarray]:
        check_precise(state, temperature, experiment.first_seed)
        return columns(metrics)

    def finish(state: TrainState, last_rows: list[Row], seconds: float, path: Path) -> None:
        write_results(experiment, world, state, last_rows, seconds, path)

    facts = {"demo_hash": world.demo_hash}
    return Job(world.loop, experiment.steps, 1, CHECKPOINT_EVERY, ledger, observe, finish, facts)


def check_precise(state: TrainState, temperature: float, first_seed: int = 0) -> None:
    """Stop where rounding of the values is larger than the temperature, which is to weigh their differences."""
    values = np.asarray(state.irl.policy.value)
    seed, place = np.unravel_index(np.abs(values).argmax(), values.shape)
    if np.spacing(np.abs(values[seed, place])) > temperature:
        raise NumericalError(
            f"a value became {values[seed, place]:.3g} at iteration {int(state.iteration[0])} of seed "
            f"{first_seed + int(seed)}, so large that rounding hides the temperature {temperature:g}; try a smaller "
            "step."
        )


def write_results(
    experiment: Experiment,
    world: Parts,
    state: TrainState,
    last_rows: list[Row],
    seconds: float,
    path: Path,
) -> None:
    """Everything that is known only at the end; the summary comes last and marks the run as finished."""
    task, mdp = world.task, world.mdp
    truth = jnp.asarray(task.true_reward)
    save_tables(path, np.asarray(state.irl.policy.log_prob))
    save_rewards(path, state.irl.reward, _reward_card(experiment, task))
    tables = np.stack([reward.table() for reward in load_rewards(path)])
    visits = jax.jit(jax.vmap(occupancy, (None, 0)))
    learner = visits(mdp, state.irl.policy.log_prob)
    uniform = jnp.full_like(world.expert.log_prob, -np.log(mdp.actions))
    expert, start = visits(mdp, jnp.stack([world.expert.log_prob, uniform]))
    demonstrated = demonstrated_visits(world)
    maps = {
        "true_reward": task.true_reward.mean(axis=1),
        "recovered_reward": tables.mean(axis=2),
        "expert_visits": np.asarray(expert.sum(axis=1)),
        "learner_visits": np.asarray(learner.sum(axis=2)),
    }
    if world.demos:
        maps["demo_visits"] = np.asarray(demonstrated.sum(axis=1))
    options = ExactOptions(**experiment.settings["exact"])
    if options.compare:
        comparison, maps["sampled_recovered_reward"] = _compare(experiment, world)
        write_json(path / "comparison.json", comparison)
    write_arrays(path / "maps.safetensors", maps)
    write_json(path / "certificate.json", certificate_curve(mdp, demonstrated, start))
    score = jax.jit(lambda log_prob: episode_return(task.mdp, log_prob, truth, task.horizon)[0])
    deterministic = jax.vmap(mode)(state.irl.policy.log_prob)
    summary = {
        "returns": [row["return_mean"] for row in last_rows],
        "deterministic_returns": [float(score(log_prob)) for log_prob in deterministic],
        "expert_return": float(score(world.expert.log_prob)),
        "demo_return": demonstrated_return(world.demos, task) if world.demos else None,
        "random_return": float(score(uniform)),
        "reward_correlation": [_correlation(table, task) for table in tables],
        "ell": [row["ell"] for row in last_rows],
        "ell_expert": float(
            mdp.mass * expect(TableReward(truth), world.demo) - jax.jit(optimal_value)(truth, world.mdp)
        ),
        "env_steps": {"train": 0, "reward": 0, "evaluation": 0},
        "wall_seconds": round(seconds, 3),
        "updates_per_second": round(experiment.steps * experiment.seeds / seconds, 3),
        "picture": {"kind": "grid", "shape": task.grid, "target": task.target} if task.grid else {"kind": "list"},
    }
    write_json(path / "summary.json", summary)


def demonstrated_visits(world: Parts) -> Float[Array, "states actions"]:
    """How often each pair was demonstrated, discounted and with the mass of an occupancy."""
    demo = world.demo
    counted = jnp.zeros((world.mdp.states, world.mdp.actions)).at[demo.obs, demo.action].add(demo.weight)
    return world.mdp.mass * counted / counted.sum()


def demonstrated_return(demos: Demos, task: ExactTask) -> float:
    """The mean true return of the demonstrated episodes, as long as each of them is."""
    return float(task.true_reward[demos.observations, demos.actions].sum() / len(demos))


def _reward_card(experiment: Experiment, task: ExactTask) -> TableCard:
    options = ExactOptions(**experiment.settings["exact"])
    card = TableCard(
        kind=options.reward,
        reward_inputs=reward_inputs(options, task),
        states=task.mdp.states,
        actions=task.mdp.actions,
        features=task.features.shape[1],
        width=WIDTH,
        depth=DEPTH,
        seeds=experiment.seeds,
    )
    if card.reward_inputs != "transition":
        return card
    numbers, features = transitions(options, task)
    return replace(card, features=features.shape[1], transitions=len(features), successors=numbers.shape[2])


def _correlation(table: Float[np.ndarray, "states actions"], task: ExactTask) -> float:
    """Of the recovered reward with the truth, on states where the truth depends on nothing else."""
    if task.state_only:
        return align(table.mean(axis=1), task.true_reward.mean(axis=1)).correlation
    return align(table, task.true_reward).correlation


def _compare(experiment: Experiment, world: Parts) -> tuple[dict[str, Any], Float[np.ndarray, " states"]]:
    """Other algorithms on the same question, and this one on sampled episodes instead of exact demonstrations."""

    def variant(algorithm: str, config: Mapping[str, Any], **changes: Any) -> tuple[list[float], Parts, TrainState]:
        settings = experiment.settings | {"algorithm_config": asdict(ALGORITHMS[algorithm].config(**config))}
        question = replace(experiment, algorithm=algorithm, settings=settings, **changes)
        parts = build(question)
        ell = []
        for now in iterate(parts.loop, seed_keys(1), experiment.steps):
            ell.append(float(now[1]["ell"][0]))
        return ell, parts, now[0]

    curves = [
        {"label": label, "ell": variant(name, config)[0]}
        for name in MODULES
        if "exact" in ALGORITHMS[name].worlds
        for label, config in ALGORITHMS[name].compare.items()
    ]
    _, parts, state = variant(
        experiment.algorithm,
        experiment.settings["algorithm_config"],
        demos="packaged",
        demo_episodes=SAMPLED_EPISODES,
    )
    mdp = parts.task.mdp
    reward = jax.tree.map(lambda x: x[0], state.irl.reward)
    table = np.asarray(mdp.table(reward(mdp.pairs())))
    policy = jax.tree.map(lambda x: x[0], state.irl.policy)
    sampled = {
        "episodes": SAMPLED_EPISODES,
        "reward_correlation": _correlation(table, world.task),
        "return": float(parts.observe(policy, reward)["return_mean"]),
    }
    return {"curves": curves, "sampled": sampled}, table.mean(axis=1)
