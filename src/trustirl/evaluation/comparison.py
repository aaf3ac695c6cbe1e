"""Two rewards beside each other: what each measure says, for every pair of seeds, with intervals.

The true reward is one of the two where somebody asks for it; here it is read, and nowhere that anything is learned.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from trustirl.core.errors import InputError
from trustirl.demos.schema import Demos
from trustirl.evaluation.distances import (
    Pays,
    Tabular,
    Values,
    all_transitions,
    correlation,
    dard,
    distance,
    epic,
    expected,
    paid,
    rank_correlation,
    regret,
    sampled_dard,
    sampled_epic,
    sampled_starc,
    starc,
    waves,
)
from trustirl.tasks.exact import ExactTask

RESAMPLES = 500
OTHERS = 64  # steps whose actions and successors stand for all in EPIC's expectations
WAVES = 100  # of a potential on samples
SAYS = {
    "pearson": "correlation of what is paid (1: alike up to shift and scale)",
    "spearman": "correlation of its ranks",
    "epic": "EPIC distance (0: alike up to potentials and scale, 1: opposed)",
    "dard": "DARD distance (likewise, along steps that may follow)",
    "starc": "STARC distance (likewise, and up to what may follow a step)",
    "regret": "what the best policy for A loses of B, as a share of what chance loses",
    "regret_back": "what the best policy for B loses of A",
}


@dataclass(frozen=True)
class Measure:
    """The value of every pair of seeds, and where their mean lies with 95 % confidence if that can be told."""

    values: list[float]
    low: float | None = None
    high: float | None = None

    @property
    def mean(self) -> float:
        """Of all pairs."""
        return float(np.mean(self.values))


@dataclass(frozen=True)
class RewardComparison:
    """What tells two rewards apart, and over which steps."""

    first: str
    second: str
    steps: str
    """The distribution, in words."""
    measures: Mapping[str, Measure]
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why there is no such measure, for those that cannot be had."""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        told = {name: asdict(measure) | {"mean": measure.mean} for name, measure in self.measures.items()}
        return asdict(self) | {"measures": {name: _plain(values) for name, values in told.items()}}


class Experience(NamedTuple):
    """Steps that were taken on a simulator and did not end an episode, and what else could have followed."""

    obs: np.ndarray
    action: np.ndarray
    following: np.ndarray
    true_reward: Values
    episode: Int[np.ndarray, " rows"]
    tried: "Tried | None"
    discount: float

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What a reward is asked about."""
        return self.obs, self.action, self.following


class Tried(NamedTuple):
    """The same random actions taken in the state of every step, and in the one that followed."""

    action: np.ndarray  # [rows, tries, ...]
    from_here: np.ndarray  # the observations that follow
    from_after: np.ndarray


def true_table(task: ExactTask) -> Float[np.ndarray, "states actions"]:
    """The true reward of a task of the exact world."""
    if task.true_reward is None:
        raise InputError(f"no true reward of {task.name} is known; compare two learned ones.")
    return np.asarray(task.true_reward, np.float64)


def compare_tables(
    first: Sequence[Tabular], second: Sequence[Tabular], task: ExactTask, names: tuple[str, str]
) -> RewardComparison:
    """Rewards of a known MDP, on all of its transitions; everything is exact, so that only seeds make an interval."""
    mdp, steps = task.mdp, all_transitions(task.mdp)
    alike, discount = np.ones(mdp.states * mdp.actions), float(mdp.discount)
    measured: dict[str, list[float]] = {name: [] for name in SAYS}
    for x, y in _pairs(first, second):
        seen = paid(x, steps), paid(y, steps)
        told: dict[str, Any] = {
            "pearson": correlation(*seen, steps.weight),
            "spearman": rank_correlation(*seen, steps.weight),
            "epic": distance(epic(x, steps, discount), epic(y, steps, discount), steps.weight),
            "dard": distance(dard(x, steps, mdp), dard(y, steps, mdp), steps.weight),
            "starc": distance(starc(x, mdp), starc(y, mdp), alike, centred=False),
            "regret": regret(mdp, expected(x, mdp), expected(y, mdp)),
            "regret_back": regret(mdp, expected(y, mdp), expected(x, mdp)),
        }
        for name, value in told.items():
            measured[name].append(float(value))
    words = "every state and action alike, followed as the known dynamics say"
    return RewardComparison(*names, words, {name: _over_seeds(values) for name, values in measured.items()})


def compare_functions(
    first: Sequence[Pays | None], second: Sequence[Pays | None], seen: Experience, words: str, names: tuple[str, str]
) -> RewardComparison:
    """Rewards of a simulator on steps that were taken there; None stands for the true one."""
    random = np.random.default_rng(0)
    episodes = int(seen.episode.max()) + 1
    drawn = random.multinomial(episodes, np.full(episodes, 1 / episodes), size=RESAMPLES)[:, seen.episode]
    weights = np.concatenate([np.ones((1, len(seen.obs))), drawn[drawn.sum(axis=1) > 1]]).astype(np.float64)
    shown = _canonical(seen)
    known = None not in (*first, *second)
    told: dict[str, list[np.ndarray]] = {}
    for x, y in _pairs([shown(each) for each in first], [shown(each) for each in second]):
        for name, of in (("pearson", correlation), ("spearman", rank_correlation)):
            told.setdefault(name, []).append(of(x["paid"], y["paid"], weights))
        for name in (name for name in ("epic", "dard", "starc") if x.keys() & y.keys() & {name}):
            told.setdefault(name, []).append(distance(x[name], y[name], weights, centred=name != "starc"))
    measures = {name: _over_episodes(np.array(values), random) for name, values in told.items()}
    unknown = "a simulator tells its true reward of steps that happen only, and {} asks about others"
    missing = {name: unknown.format(name.upper()) for name in ("epic", "dard") if not known}
    if known and seen.tried is None:
        missing["dard"] = "DARD asks what else could have followed, and this task cannot be put back into a state"
    missing |= dict.fromkeys(("regret", "regret_back"), "the best policy is known exactly in known MDPs only")
    return RewardComparison(*names, words, measures, missing)


def true_rewards(episodes: Demos) -> Values:
    """What a simulator paid."""
    assert episodes.rewards is not None
    return np.asarray(episodes.rewards, np.float64)


def _canonical(seen: Experience) -> Callable[[Pays | None], dict[str, Values]]:
    """What is compared of a reward."""
    others = np.random.default_rng(1).choice(len(seen.obs), min(OTHERS, len(seen.obs)), replace=False)
    features = waves(seen.obs, seen.following, WAVES)

    def of(pays: Pays | None) -> dict[str, Values]:
        reward = seen.true_reward if pays is None else np.asarray(pays(*seen.rows), np.float64)
        told = {"paid": reward, "starc": sampled_starc(reward, *features, seen.discount)}
        if pays is not None:
            told["epic"] = sampled_epic(pays, seen.rows, others, seen.discount)
            if seen.tried is not None:
                told["dard"] = sampled_dard(pays, seen.rows, seen.tried, seen.discount)
        return told

    return of


def _pairs(first: Sequence[Any], second: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Seeds by number; the fewer begin again."""
    return [(first[i % len(first)], second[i % len(second)]) for i in range(max(len(first), len(second)))]


def _over_seeds(values: list[float]) -> Measure:
    if len(values) < 2 or not np.isfinite(values).all():
        return Measure(values)
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(np.array(values)[drawn].mean(axis=1), (0.025, 0.975))
    return Measure(values, float(low), float(high))


def _over_episodes(values: Float[np.ndarray, "pairs resamples"], random: np.random.Generator) -> Measure:
    """The first column is what was measured; of the others, seeds are drawn anew as well."""
    pairs = len(values)
    chosen = random.integers(pairs, size=(pairs, values.shape[1] - 1))
    means = np.take_along_axis(values[:, 1:], chosen, axis=0).mean(axis=0)
    low, high = np.quantile(means, (0.025, 0.975))
    return Measure(values[:, 0].tolist(), float(low), float(high))


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """NaN, which is no JSON, as null."""

    def known(value: Any) -> Any:
        return [known(each) for each in value] if isinstance(value, list) else _or_none(value)

    return {name: known(value) for name, value in values.items()}


def _or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
