"""What is told of a run on a table, place by place, for its page: table.json."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from trustirl.algorithms import Entry
from trustirl.core.mdp import MDP
from trustirl.rl.exact import occupancy, solve
from trustirl.tasks.counting import Kernel, Steps, counted, counted_policy
from trustirl.tasks.exact import ExactTask
from trustirl.tasks.from_table import table_mdp
from trustirl.worlds.many import Question, fit_many
from trustirl.worlds.validation import judged, observed_flows, places, predicted_flows

MOST_PLACES, MOST_GROUPS, MOST_CLOSED, MOST_TIMES = 60, 40, 12, 40
Table = Float[np.ndarray, "states actions"]


def story(task: ExactTask, mdp: MDP, reward: Table, policy: Table, samples: Sequence[Table] = ()) -> dict[str, Any]:
    """Places, what is done at each, what the reward pays there, over time, by group, and if a place were closed.

    `samples` are rewards learned from groups drawn anew, which say how sure the payments are.
    """
    steps: Steps = task.table.steps
    kernel: Kernel = task.table.kernel
    place, names = places(steps), place_names(steps)
    seen, flows = observed_flows(steps)
    model, moved = predicted_flows(policy, kernel, steps)
    found = judged(policy, kernel, steps)
    kept: list[int] = np.argsort(-seen, kind="stable")[:MOST_PLACES].tolist()
    done = np.zeros((len(names), len(steps.actions)))
    np.add.at(done, (place[steps.obs], steps.action), 1.0)
    weight = np.zeros_like(reward)
    np.add.at(weight, (steps.obs, steps.action), 1 / len(steps.obs))
    paid = [_by_place(table, weight, place) for table in (reward, *samples)]
    return {
        "notes": list(task.table.notes),
        "column": steps.columns[steps.moving] if steps.moving is not None else " · ".join(steps.columns),
        "measures": {name: float(value) for name, value in found._asdict().items()},
        "samples": len(samples),
        "places": [
            {
                "name": names[number],
                "seen": float(seen[number]),
                "model": float(model[number]),
                "left": float(1 - flows[number, number] / max(seen[number], 1e-300)) if seen[number] else 0.0,
                "model_left": float(1 - moved[number, number] / max(model[number], 1e-300)) if model[number] else 0.0,
                "paid": paid[0][number],
                "low": _bound(paid, number, 5.0),
                "high": _bound(paid, number, 95.0),
                "done": _often(done[number], steps.actions),
            }
            for number in kept
        ],
        "moves": [[float(flows[one, other]) if one != other else 0.0 for other in kept] for one in kept],
        "groups": _groups(steps, place, kept),
        "times": _times(steps, kernel, policy, place, kept[:5]),
        "closed": _closed(mdp, steps, kernel, reward, place, kept),
    }


def place_names(steps: Steps) -> list[str]:
    """What places are called."""
    return list(steps.levels[steps.moving]) if steps.moving is not None else steps.state_names()


def _by_place(reward: Table, weight: Table, place: np.ndarray) -> list[float | None]:
    """What is paid per step at each place for what is done there, less what is paid everywhere."""
    count = int(place.max()) + 1
    total, paid = np.zeros(count), np.zeros(count)
    np.add.at(total, place, weight.sum(axis=1))
    np.add.at(paid, place, (weight * reward).sum(axis=1))
    overall = float(paid.sum())
    return [float(p / t) - overall if t > 0 else None for p, t in zip(paid, total, strict=True)]


def _bound(paid: Sequence[Sequence[float | None]], place: int, share: float) -> float | None:
    values = [each[place] for each in paid[1:]]
    known = [value for value in values if value is not None]
    return float(np.percentile(known, share)) if len(known) > 1 else None


def _often(times: np.ndarray, actions: Sequence[str]) -> list[list[Any]]:
    """The three commonest actions and their shares."""
    order = np.argsort(-times, kind="stable")[:3]
    return [[actions[number], float(times[number] / times.sum())] for number in order if times[number]]


def _groups(steps: Steps, place: np.ndarray, kept: list[int]) -> list[dict[str, Any]]:
    """How each group spends its time."""
    of_step = steps.group[steps.window_of_steps()]
    rows = []
    for group in np.unique(of_step)[:MOST_GROUPS]:
        here = place[steps.obs[of_step == group]]
        shares = np.bincount(here, minlength=int(place.max()) + 1) / len(here)
        rows.append({"name": steps.groups[group], "steps": len(here), "seen": [float(shares[p]) for p in kept]})
    return rows


def _times(steps: Steps, kernel: Kernel, policy: Table, place: np.ndarray, kept: list[int]) -> list[dict[str, Any]]:
    """Shares of the commonest places at several times of a window: seen, and as the model has them."""
    lengths, count = np.diff(steps.ends, prepend=0), int(place.max()) + 1
    horizon = int(np.quantile(lengths, 0.5))
    now = np.bincount(steps.obs[steps.starts], minlength=steps.states) / len(steps.ends)
    wanted, rows = set(np.linspace(0, horizon - 1, MOST_TIMES).astype(int).tolist()), []
    for time in range(horizon):
        if time in wanted:
            there = place[steps.obs[steps.starts[lengths > time] + time]]
            seen = np.bincount(there, minlength=count) / len(there)
            model = np.bincount(place, now, count)
            rows.append(
                {"time": time, "seen": [float(seen[p]) for p in kept], "model": [float(model[p]) for p in kept]}
            )
        chosen = np.zeros(len(kernel.successors))
        np.add.at(chosen, kernel.which, now[:, None] * policy)
        now = np.zeros(steps.states)
        np.add.at(now, kernel.successors, chosen[:, None] * kernel.probabilities)
    return rows


def _closed(
    mdp: MDP, steps: Steps, kernel: Kernel, reward: Table, place: np.ndarray, kept: list[int]
) -> list[dict[str, Any]]:
    """Where they would be, were a place closed: nobody begins there or moves there, and all is solved again."""
    if steps.moving is None:
        return []
    answer = jax.jit(lambda world, table: solve(world, table).log_prob)
    rows = []
    for number in kept[:MOST_CLOSED]:
        without = kernel.allowed.copy()
        without[:, steps.behaviours + number] = False
        initial = np.where(place == number, 0.0, kernel.initial)
        if not initial.sum():
            continue
        world = kernel._replace(allowed=without, initial=initial / initial.sum())
        log_prob = answer(table_mdp(world, float(mdp.discount), float(mdp.temperature)), jnp.asarray(reward))
        windows = np.flatnonzero(place[steps.obs[steps.starts]] != number)
        visits, _ = predicted_flows(np.exp(np.asarray(log_prob)), world, steps.part(windows))
        rows.append({"name": place_names(steps)[number], "model": [float(visits[p]) for p in kept]})
    return rows


def bootstrapped(task: ExactTask, entry: Entry, settings: dict[str, Any], updates: int, times: int) -> list[Table]:
    """Rewards learned from groups drawn anew with replacement, in worlds counted from the same."""
    known, steps = task.table, task.table.steps
    random, present, questions = np.random.default_rng(0), np.unique(steps.group), []
    for _ in range(times):
        drawn = random.choice(present, len(present))
        windows = np.concatenate([np.flatnonzero(steps.group == group) for group in drawn])
        some = steps.part(windows)
        kernel = counted(some, known.prior, seen=steps)._replace(allowed=known.kernel.allowed)
        mdp = table_mdp(kernel, float(task.mdp.discount), float(task.mdp.temperature))
        policy = counted_policy(some, kernel, known.action_prior)
        questions.append(Question(mdp, np.asarray(occupancy(mdp, jnp.log(jnp.maximum(policy, 1e-300))))))
    return list(fit_many(entry, settings, questions, task.features, updates).reward)
