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
from trustirl.rewards.saved import Shown, load_rewards, save_rewards
from trustirl.rl.exact import occupancy, optimal_value
from trustirl.rollouts.ledger import Ledger
from trustirl.runs.policies import save_tables
from trustirl.tasks.exact import ExactTask
from trustirl.worlds.exact import ExactOptions, Question, build, reward_inputs, transitions
from trustirl.worlds.job import Experiment, Job, Row, columns, origin_of
from trustirl.worlds.story import bootstrapped, story

CHECKPOINT_EVERY = 50  # reward updates
JUDGED = (
    "returns",
    "deterministic_returns",
    "expert_return",
    "demo_return",
    "random_return",
    "reward_correlation",
    "ell_expert",
)  # what summary.json says of a task whose true reward is known
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

    notes = world.task.table.notes if world.task.table else ()
    facts = {"demo_hash": world.demo_hash}
    if world.task.file_hash:
        facts["task_hash"] = world.task.file_hash
    return Job(world.loop, experiment.steps, 1, CHECKPOINT_EVERY, ledger, observe, finish, facts, notes=notes)


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
    world: Question,
    state: TrainState,
    last_rows: list[Row],
    seconds: float,
    path: Path,
) -> None:
    """Everything that is known only at the end; the summary comes last and marks the run as finished."""
    task, mdp = world.task, world.mdp
    save_tables(path, np.asarray(state.irl.policy.log_prob))
    demo = world.demo
    taken = Shown(np.asarray(demo.obs), np.asarray(demo.action), weight=np.asarray(demo.weight))
    origin = origin_of(experiment, path, world.demos, world.demo_hash)
    save_rewards(path, world.kept(state.irl), _reward_card(experiment, task), origin, taken)
    tables = np.stack([reward.table() for reward in load_rewards(path)])
    visits = jax.jit(jax.vmap(occupancy, (None, 0)))
    learner = visits(mdp, state.irl.policy.log_prob)
    uniform = jnp.full((mdp.states, mdp.actions), -np.log(mdp.actions))
    others = [uniform] if world.expert is None else [uniform, world.expert.log_prob]
    start, *expert = visits(mdp, jnp.stack(others))
    demonstrated = demonstrated_visits(world)
    maps = {"recovered_reward": tables.mean(axis=2), "learner_visits": np.asarray(learner.sum(axis=2))}
    if task.true_reward is not None:
        maps |= {"true_reward": task.true_reward.mean(axis=1), "expert_visits": np.asarray(expert[0].sum(axis=1))}
    if world.demos:
        maps["demo_visits"] = np.asarray(demonstrated.sum(axis=1))
    options = ExactOptions(**experiment.settings["exact"])
    if options.compare:
        comparison, sampled = _compare(experiment, world)
        maps |= sampled
        write_json(path / "comparison.json", comparison)
    write_arrays(path / "maps.safetensors", maps)
    write_json(path / "certificate.json", certificate_curve(mdp, demonstrated, start))
    if task.table is not None:
        write_json(path / "table.json", _story(experiment, world, state, tables[0]))
    summary = {
        **_judged(world, state.irl.policy.log_prob, tables, last_rows),
        "ell": [row["ell"] for row in last_rows],
        "env_steps": {"train": 0, "reward": 0, "evaluation": 0},
        "wall_seconds": round(seconds, 3),
        "updates_per_second": round(experiment.steps * experiment.seeds / seconds, 3),
        "picture": {"kind": "grid", "shape": task.grid, "target": task.target} if task.grid else {"kind": "list"},
    }
    write_json(path / "summary.json", summary)


def _story(
    experiment: Experiment, world: Question, state: TrainState, reward: Float[np.ndarray, "states actions"]
) -> dict[str, Any]:
    """Of the first seed, and of rewards from groups drawn anew if they are asked for."""
    entry, options = ALGORITHMS[experiment.algorithm], ExactOptions(**experiment.settings["exact"])
    drawn = options.bootstrap and bootstrapped(
        world.task, entry, experiment.settings["algorithm_config"], experiment.steps, options.bootstrap
    )
    policy = np.exp(np.asarray(state.irl.policy.log_prob[0]))
    return story(world.task, world.mdp, reward, policy, drawn or ())


def _judged(
    world: Question,
    log_prob: Float[Array, "seeds states actions"],
    tables: Float[np.ndarray, "seeds states actions"],
    last_rows: list[Row],
) -> dict[str, Any]:
    """What only the true reward can say; None of each where it is not known."""
    task, expert = world.task, world.expert
    if task.true_reward is None or expert is None:
        return dict.fromkeys(JUDGED)
    true = jnp.asarray(task.true_reward)
    score = jax.jit(lambda log_prob: episode_return(task.mdp, log_prob, true, task.horizon)[0])
    uniform = jnp.full_like(expert.log_prob, -np.log(task.mdp.actions))
    best = jax.jit(optimal_value)(true, world.mdp)
    values = (
        [row["return_mean"] for row in last_rows],
        [float(score(deterministic)) for deterministic in jax.vmap(mode)(log_prob)],
        float(score(expert.log_prob)),
        demonstrated_return(world.demos, task.true_reward) if world.demos else None,
        float(score(uniform)),
        [_correlation(table, task) for table in tables],
        float(world.mdp.mass * expect(TableReward(true), world.demo) - best),
    )
    return dict(zip(JUDGED, values, strict=True))


def demonstrated_visits(world: Question) -> Float[Array, "states actions"]:
    """How often each pair was demonstrated, discounted and with the mass of an occupancy."""
    demo = world.demo
    counted = jnp.zeros((world.mdp.states, world.mdp.actions)).at[demo.obs, demo.action].add(demo.weight)
    return world.mdp.mass * counted / counted.sum()


def demonstrated_return(demos: Demos, true_reward: Float[np.ndarray, "states actions"]) -> float:
    """The mean true return of the demonstrated episodes, as long as each of them is."""
    return float(true_reward[demos.observations, demos.actions].sum() / len(demos))


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
    assert task.true_reward is not None
    if task.state_only:
        return align(table.mean(axis=1), task.true_reward.mean(axis=1)).correlation
    return align(table, task.true_reward).correlation


def _compare(experiment: Experiment, world: Question) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Other algorithms on the same question, and this one on episodes sampled from the expert, if there is one."""

    def variant(
        algorithm: str, config: Mapping[str, Any], **changes: Any
    ) -> tuple[list[float], Question, TrainState]:
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
    if world.expert is None:
        return {"curves": curves, "sampled": None}, {}
    _, parts, state = variant(
        experiment.algorithm,
        experiment.settings["algorithm_config"],
        demos="packaged",
        demo_episodes=SAMPLED_EPISODES,
    )
    mdp = parts.task.mdp
    reward = jax.tree.map(lambda x: x[0], parts.kept(state.irl))
    table = np.asarray(mdp.table(reward(mdp.pairs())))
    policy = jax.tree.map(lambda x: x[0], state.irl.policy)
    sampled = {
        "episodes": SAMPLED_EPISODES,
        "reward_correlation": _correlation(table, world.task),
        "return": float(parts.observe(policy, reward)["return_mean"]),
    }
    return {"curves": curves, "sampled": sampled}, {"sampled_recovered_reward": table.mean(axis=1)}
