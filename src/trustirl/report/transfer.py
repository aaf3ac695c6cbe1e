"""What a learned reward taught a fresh policy, beside the alternatives: as rows, and as a page like that of a run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from trustirl.report.drawing import BLUE, INK, WIDE, Layout, name_axes, svg
from trustirl.report.html import Card, Section, document, figure, table
from trustirl.report.words import count, number

RESAMPLES = 2000
SHORT = {
    "learned": "learned reward",
    "carried": "policy carried over",
    "clone": "cloning, carried over",
    "true": "true reward",
    "zero": "a reward of zero",
    "random": "random actions",
}
HEAD = ("Mean return", "95 % interval", "Share of the true reward's", "The learned reward's is higher by")


@dataclass(frozen=True)
class Arm:
    """Who played, and the true return of every seed and episode."""

    told: str
    returns: list[list[float]]


class Estimate(NamedTuple):
    """A mean, and where it lies with 95 % confidence; seeds and episodes are drawn anew."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number(self.mean)} ({number(self.low)} to {number(self.high)})"


@dataclass(frozen=True)
class Transfer:
    """True returns in one task, of the same episodes for all but random actions."""

    run: str
    algorithm: str
    learned_in: str
    task: str
    steps: int
    true_steps: int
    episodes: int
    arms: Mapping[str, Arm]

    def mean(self, name: str) -> Estimate:
        """An arm's return."""
        return estimate(np.asarray(self.arms[name].returns))

    def advantage(self, name: str) -> Estimate | None:
        """How much more the learned reward brings than an arm, in the same episodes, seeds paired by number."""
        if name in ("learned", "random"):
            return None
        ours, theirs = (np.asarray(self.arms[who].returns) for who in ("learned", name))
        seeds = max(len(ours), len(theirs))
        one, other = (values[np.arange(seeds) % len(values)] for values in (ours, theirs))
        return estimate(one - other)

    def share(self, name: str) -> float | None:
        """Where random actions are 0 and the true reward is 1."""
        chance, most = self.mean("random").mean, self.mean("true").mean
        return (self.mean(name).mean - chance) / (most - chance) if most > chance else None

    def rows(self) -> list[tuple[str, ...]]:
        """A table: who, the mean return, its interval, the share of the true reward's, the learned reward's lead."""
        told: list[tuple[str, ...]] = []
        for name in self.arms:
            mean, share, lead = self.mean(name), self.share(name), self.advantage(name)
            between = f"{number(mean.low)} to {number(mean.high)}"
            words = ("–" if share is None else f"{share:.2f}", "–" if lead is None else str(lead))
            told.append((SHORT[name], number(mean.mean), between, *words))
        return told

    def plain(self) -> dict[str, Any]:
        """For JSON: every return, and what the table tells."""
        told = {
            name: {"mean": self.mean(name)._asdict(), "share": self.share(name), "lead": _plain(self.advantage(name))}
            for name in self.arms
        }
        return asdict(self) | {"summary": told}


def estimate(values: np.ndarray) -> Estimate:
    """Of [seeds, episodes]: the mean, and the middle 95 % of those of drawn seeds and drawn episodes."""
    seeds, episodes = values.shape
    random = np.random.default_rng(0)
    of_seeds = random.multinomial(seeds, np.full(seeds, 1 / seeds), size=RESAMPLES) / seeds
    of_episodes = random.multinomial(episodes, np.full(episodes, 1 / episodes), size=RESAMPLES) / episodes
    means = np.einsum("bs,se,be->b", of_seeds, values, of_episodes, optimize=True)
    low, high = np.quantile(means, (0.025, 0.975))
    return Estimate(float(values.mean()), float(low), float(high))


def render(found: Transfer) -> str:
    """The whole page; the same returns always give the same text."""
    lead = f"learned by {found.algorithm} in {found.learned_in} · {found.run}"
    seeds = count(len(found.arms["learned"].returns), "seed")
    about = (
        f"The learned reward was frozen with its absorbing value, its bounds and its normaliser, and fresh policies "
        f"learned from it alone for {found.steps:,} steps ({seeds}). All play the same "
        f"{count(found.episodes, 'episode')}, without noise; random actions play others. Policies on the true reward "
        f"had {found.true_steps:,} steps. Intervals draw seeds and episodes anew."
    )
    rows = table("Who earns what", about, ("", *HEAD), found.rows())
    section = Section(
        "transfer",
        "Is the reward enough?",
        "Mean true returns. If the learned reward tells what the expert wanted, its bar ends near that of the true "
        "reward, and well beyond that of a reward of zero. Where policies are carried over as well, nothing new had "
        "to be learned.",
        partial(_bars, found),
    )
    title = f"A learned reward in {found.task}"
    return document("TrustIRL transfer", title, lead, _cards(found), (figure(section), rows))


def _plain(lead: Estimate | None) -> dict[str, float] | None:
    return None if lead is None else lead._asdict()


def _cards(found: Transfer) -> tuple[Card, ...]:
    learned, share = found.mean("learned"), found.share("learned")
    lead, idle = found.advantage("carried"), found.advantage("zero")
    assert lead is not None
    assert idle is not None
    return (
        ("True return", number(learned.mean), f"{number(learned.low)} to {number(learned.high)}"),
        (
            "Share of the true reward's",
            "–" if share is None else f"{share:.2f}",
            "random actions are 0, a policy that learned from the true reward is 1",
        ),
        ("More than the policy carried over", number(lead.mean), f"{number(lead.low)} to {number(lead.high)}"),
        ("More than a reward of zero", number(idle.mean), f"{number(idle.low)} to {number(idle.high)}"),
    )


def _bars(found: Transfer, layout: Layout) -> str:
    names = list(found.arms)
    means = [found.mean(name) for name in names]

    def paint(drawn: Figure) -> None:
        axes = drawn.subplots()
        places = np.arange(len(names))[::-1]
        colours = [BLUE if name == "learned" else "#9aa0a6" for name in names]
        axes.barh(places, [mean.mean for mean in means], 0.6, color=colours)
        for place, name, mean in zip(places, names, means, strict=True):
            axes.plot([mean.low, mean.high], [place, place], color=INK, lw=1.5)
            each = np.asarray(found.arms[name].returns).mean(axis=1)
            axes.plot(each, np.full(len(each), place - 0.38), "o", ms=3, color=INK, alpha=0.6)
        axes.set_yticks(places, [SHORT[name] for name in names])
        axes.axvline(0, color=INK, lw=0.8)
        name_axes(axes, "true return (line: 95 % interval, dots: seeds)", "")
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")

    return svg("transfer", layout, 3.2 if layout is WIDE else 3.6, paint)
