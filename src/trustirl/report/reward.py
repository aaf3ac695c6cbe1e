"""A page on what a learned reward wants: what it pays to whom, which inputs move it, and where its seeds disagree."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from itertools import cycle

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from trustirl.report.drawing import BLUE, GREEN, INK, ORANGE, PURPLE, VERMILION, WIDE, Layout, name_axes, svg
from trustirl.report.figures import draw_recovered
from trustirl.report.films import strips
from trustirl.report.html import Card, Section, details, document, figure, table
from trustirl.report.runs import Picture
from trustirl.report.words import count, number

Numbers = np.ndarray
WHO = {"expert": GREEN, "learner": BLUE, "random": VERMILION}
CALLED = {"expert": "the expert", "learner": "the learner", "random": "random actions"}
SHOWN_INPUTS, SHOWN_CURVES = 12, 6
CLEAR = 0.15  # deviations of the reward: what moves it less is said to have no clear direction
UNSEEN = "No episode that was looked at ended before its time, so this says little."
UNIT = "reward (deviations from its mean)"


@dataclass(frozen=True)
class Course:
    """Rewards of one episode: [seeds, steps], in deviations from the mean, and whether it ended."""

    who: str
    paid: Numbers
    ended: bool


@dataclass(frozen=True)
class Effect:
    """What the mean reward is where an input is set to each of some values, the others being as they were."""

    name: str
    values: Numbers
    paid: Numbers  # [seeds, values]
    low: float  # where nine in ten of the expert's values lie, or of all where there is no expert
    high: float


@dataclass(frozen=True)
class Surface:
    """The same of two inputs at once, and where the expert was."""

    names: tuple[str, str]
    values: tuple[Numbers, Numbers]
    paid: Numbers  # [second, first], mean of the seeds
    expert: Numbers  # [steps, 2]


@dataclass(frozen=True)
class Looked:
    """All that the page of a reward on a simulator shows."""

    title: str
    lead: str
    form: str
    courses: Sequence[Course]
    means: Mapping[str, Numbers]  # per step, raw, of each seed, by who acted
    deviation: Numbers  # of the reward over all steps, raw, of each seed
    importance: Sequence[tuple[str, Numbers]]  # how far shuffling moves it, in deviations, of each seed
    effects: Sequence[Effect]
    surface: Surface | None
    end: Numbers | None  # what an end is paid on top, raw, of each seed; None where ends are paid nothing
    agreement: Numbers  # correlations between seeds
    disputed: Sequence[tuple[str, float]]  # inputs, by how they go with disagreement
    ends_seen: bool = True  # whether any episode ended before its time
    films: Mapping[str, bytes] = field(default_factory=dict)
    no_film: str = ""
    details: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Mapped:
    """All that the page of a reward of numbered states shows."""

    title: str
    lead: str
    form: str
    paid: Numbers  # [seeds, states], in deviations, means over actions
    actions: Numbers  # [states, actions], mean of the seeds
    visits: Mapping[str, Numbers]
    agreement: Numbers
    shape: tuple[int, int] | None
    target: int | None
    details: Sequence[tuple[str, str]] = ()


# --- in words --------------------------------------------------------------------------------------------


def wishes(seen: Looked) -> list[str]:
    """What the reward wants, in a few sentences."""
    told = []
    who = [name for name in CALLED if name in seen.means]
    order = sorted(who, key=lambda name: -float(seen.means[name].mean() if len(seen.means[name]) else 0))
    scale = float(seen.deviation.mean()) or 1.0
    if len(order) > 1:
        first, last = order[0], order[-1]
        lead = float((seen.means[first] - seen.means[last]).mean()) / scale
        told.append(
            f"It pays {CALLED[first]} most and {CALLED[last]} least, {number(lead, 2)} deviations less per step."
        )
    for effect in seen.effects[:3]:
        told.append(f"It pays {_direction(effect)}.")
    if seen.end is None:
        told.append("An end of an episode is paid nothing of its own.")
    else:
        worth = float(np.mean(seen.end / seen.deviation))
        kind = "punishes" if worth < 0 else "rewards"
        unseen = "" if seen.ends_seen else f" {UNSEEN}"
        told.append(
            f"It {kind} the end of an episode, by {number(abs(worth), 2)} deviations of a step's reward.{unseen}"
        )
    if len(seen.agreement) > 1:
        told.append(f"Its {len(seen.agreement)} seeds {_agree(seen.agreement)}.")
    return told


def _direction(effect: Effect) -> str:
    """More with higher values, with lower ones, near a value, or away from it."""
    curve = effect.paid.mean(axis=0)
    inside = (effect.values >= effect.low) & (effect.values <= effect.high)
    if inside.sum() >= 3:
        curve, values = curve[inside], effect.values[inside]
    else:
        values = effect.values
    reach = float(curve.max() - curve.min())
    if reach < CLEAR:
        return f"hardly more or less for any {effect.name} that the expert shows, alone"
    rise = float(np.corrcoef(values, curve)[0, 1])
    if rise > 0.7:
        return f"more for higher {effect.name} ({number(reach, 2)} deviations from the lowest to the highest)"
    if rise < -0.7:
        return f"more for lower {effect.name} ({number(reach, 2)} deviations from the highest to the lowest)"
    best, worst = values[curve.argmax()], values[curve.argmin()]
    return f"most for {effect.name} near {number(float(best), 2)} and least near {number(float(worst), 2)}"


def _agree(agreement: Numbers) -> str:
    between = agreement[~np.eye(len(agreement), dtype=bool)]
    mean, least = float(between.mean()), float(between.min())
    words = "agree" if least > 0.9 else "agree in the main" if mean > 0.6 else "disagree"
    return f"{words}: their rewards correlate by {mean:.2f} on average, at least by {least:.2f}"


def _wanted(sentences: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<section><h2>What it wants, in words</h2><ul class="findings">{items}</ul></section>'


# --- pages -----------------------------------------------------------------------------------------------


def render(seen: Looked) -> str:
    """The page of a reward on a simulator; the same numbers always give the same text."""
    sections = (
        Section(
            "courses",
            "What it pays along episodes",
            f"One episode each of {_listed([CALLED[who] for who in seen.means])}; rewards are in deviations from "
            "their mean over all steps that were looked at, so 0 is usual and 1 is good. The band is the range of "
            "the seeds. A dot marks an episode that ended before its time.",
            partial(_draw_courses, seen),
        ),
        Section(
            "importance",
            "Which inputs move it",
            "How far the reward moves on average when one input is taken from another step, in its own deviations. "
            "Dots are seeds. What is near 0 is of no account to this reward.",
            partial(_draw_importance, seen),
        ),
        Section(
            "effects",
            "How they move it",
            "The mean reward when one input is set to a value and all others stay as they were. Thin lines are "
            "seeds. In the shaded range lie nine in ten of the expert's values; outside of it a reward has been "
            "taught little.",
            partial(_draw_effects, seen),
        ),
        Section(
            "map",
            "Two of them at once",
            "The mean reward for every pair of values of two inputs (`--map FIRST SECOND` chooses others). Dots are "
            "where the expert was.",
            partial(_draw_surface, seen),
            absent="This reward has fewer than two inputs.",
        ),
        Section(
            "seeds",
            "Where its seeds disagree",
            f"How the rewards of every two seeds correlate over all steps. {_disputed(seen)}",
            partial(_draw_agreement, seen.agreement),
            absent="There is one seed, so nothing to disagree with: train with --seeds 5 to know.",
        ),
    )
    drawn = "".join(map(figure, sections))
    parts = (_wanted(wishes(seen)), _films(seen), drawn, _ends(seen), details("How to see it again", seen.details))
    return document("TrustIRL reward", seen.title, seen.lead, _cards(seen), parts)


def render_map(seen: Mapped) -> str:
    """The page of a reward of numbered states."""
    rows, columns = seen.shape or (0, 0)
    mean, spread = seen.paid.mean(axis=0), seen.paid.std(axis=0)
    best, worst = int(mean.argmax()), int(mean.argmin())

    def place(state: int) -> str:
        return f"row {state // columns + 1}, column {state % columns + 1}" if rows else f"state {state}"

    sentences = [f"It pays most for being at {place(best)} and least at {place(worst)}."]
    varies = float(np.ptp(seen.actions, axis=1).mean())
    sentences.append(
        "What is done there is of no account to it."
        if varies < 1e-6
        else f"What is done matters too: the best and the worst action of a state differ by {number(varies, 2)} "
        "deviations on average."
    )
    if len(seen.agreement) > 1:
        sentences.append(f"Its {len(seen.agreement)} seeds {_agree(seen.agreement)}.")
    picture = Picture(seen.shape, seen.target)
    panels = [("Reward", mean[None])]
    if len(seen.paid) > 1:
        panels.append(("Where seeds differ (deviation)", spread[None]))
    star = " The star marks the target." if seen.target is not None else ""
    sections = [
        Section(
            "map",
            "What it pays where",
            "The mean over actions and seeds, in deviations from its mean over states; scale and zero of a reward "
            f"have no meaning of their own. Beside it, how far seeds lie apart, on the same scale.{star}",
            partial(_draw_maps, "map", panels, picture),
        )
    ]
    if seen.visits:
        shares = [(name, np.sqrt(visits / max(visits.sum(), 1e-300))[None]) for name, visits in seen.visits.items()]
        sections.append(
            Section(
                "visits",
                "Who goes where",
                "Shares of visits. A reward is known best where the demonstrations went; elsewhere it may say "
                "anything.",
                partial(_draw_maps, "visits", shares, picture, label="square root of the share of visits"),
            )
        )
    top = np.argsort(-mean)
    chosen = [*top[:5], *top[-5:]] if len(top) > 10 else list(top)
    lines = [(place(int(state)), number(float(mean[state]), 3), number(float(spread[state]), 2)) for state in chosen]
    listed = table("The best and the worst places", "", ("Place", "Reward", "Deviation of the seeds"), lines)
    between = seen.agreement[~np.eye(len(seen.agreement), dtype=bool)]
    cards: tuple[Card, ...] = (
        ("Reward", seen.form, count(len(seen.paid), "seed")),
        ("Best place", place(best), f"{number(float(mean[best]), 2)} deviations above the mean"),
        ("Worst place", place(worst), f"{number(float(-mean[worst]), 2)} deviations below it"),
        (
            "Agreement of seeds",
            f"{between.mean():.2f}" if between.size else "–",
            "mean correlation" if between.size else "one seed",
        ),
    )
    drawn = "".join(map(figure, sections))
    parts = (_wanted(sentences), drawn, listed, details("How to see it again", seen.details))
    return document("TrustIRL reward", seen.title, seen.lead, cards, parts)


def _cards(seen: Looked) -> tuple[Card, ...]:
    scale = float(seen.deviation.mean()) or 1.0
    told = [(name, float(values.mean())) for name, values in seen.means.items()]
    per_step = ", ".join(f"{CALLED[name]}\u00a0{number(value, 3)}" for name, value in told)
    between = seen.agreement[~np.eye(len(seen.agreement), dtype=bool)]
    top, moved = seen.importance[0]
    return (
        ("Reward", seen.form, count(len(seen.deviation), "seed")),
        ("Paid per step", number(told[0][1], 3), f"{per_step}; deviation\u00a0{number(scale, 3)}"),
        ("Moved most by", top, f"{number(float(moved.mean()), 2)} deviations when it is shuffled"),
        (
            "Agreement of seeds",
            f"{between.mean():.2f}" if between.size else "–",
            "mean correlation" if between.size else "one seed",
        ),
    )


def _ends(seen: Looked) -> str:
    if seen.end is None:
        return (
            "<section><h2>What an end is worth</h2><p>Nothing follows an end for this reward, and an end itself is "
            "paid like any step: whoever wants to stay must be paid for staying.</p></section>"
        )
    rows = [
        (
            str(seed),
            number(float(end), 4),
            number(float(end / seen.deviation[seed]), 3),
        )
        for seed, end in enumerate(seen.end)
    ]
    head = (
        "Seed",
        "Paid on top",
        "In deviations of a step",
        *(["In steps of the expert"] if len(rows[0]) > 3 else []),
    )
    caption = (
        "A step that ends an episode also earns all that the absorbing state pays for ever after, discounted. Below "
        "zero, the reward wants episodes to go on; above, to be over." + ("" if seen.ends_seen else f" {UNSEEN}")
    )
    return table("What an end is worth", caption, head, rows)


def _films(seen: Looked) -> str:
    if not seen.films:
        return f"<section><h2>What it looks like</h2><p>{escape(seen.no_film)}</p></section>"
    told = "Moments of all episodes that were looked at: those that are paid best, and those that are paid worst."
    return f"<section><h2>What it looks like</h2><p>{told}</p>{strips(seen.films.items())}</section>"


def _disputed(seen: Looked) -> str:
    clear = [(name, value) for name, value in seen.disputed if abs(value) > 0.2][:3]
    if not clear:
        return "Where they disagree has little to do with any single input."
    words = _listed([f"{'high' if value > 0 else 'low'} {name}" for name, value in clear])
    return f"They lie furthest apart at {words}."


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# --- drawings --------------------------------------------------------------------------------------------


def _draw_courses(seen: Looked, layout: Layout) -> str:
    def paint(drawn: Figure) -> None:
        axes = drawn.subplots()
        for course in seen.courses:
            colour, steps = WHO[course.who], np.arange(course.paid.shape[1])
            mean = course.paid.mean(axis=0)
            if len(course.paid) > 1:
                axes.fill_between(steps, *np.quantile(course.paid, (0, 1), axis=0), color=colour, alpha=0.15, lw=0)
            axes.plot(steps, mean, color=colour, lw=1.4, label=CALLED[course.who])
            if course.ended:
                axes.plot(steps[-1], mean[-1], "o", color=colour, ms=5)
        name_axes(axes, "step of the episode", UNIT)
        drawn.legend(loc="outside upper left", ncols=3)

    return svg("reward-courses", layout, 3.6, paint)


def _draw_importance(seen: Looked, layout: Layout) -> str:
    shown = seen.importance[:SHOWN_INPUTS][::-1]

    def paint(drawn: Figure) -> None:
        axes = drawn.subplots()
        places = np.arange(len(shown))
        axes.barh(places, [float(moved.mean()) for _, moved in shown], 0.65, color=BLUE)
        for place, (_, moved) in zip(places, shown, strict=True):
            axes.plot(moved, np.full(len(moved), place), "o", ms=2.5, color=INK, alpha=0.6)
        axes.set_yticks(places, [name for name, _ in shown])
        name_axes(axes, "mean change when shuffled (deviations)", "")
        axes.grid(visible=False, axis="y")
        axes.grid(axis="x")

    return svg("reward-importance", layout, 1.0 + 0.27 * len(shown), paint)


def _draw_effects(seen: Looked, layout: Layout) -> str:
    shown = seen.effects[:SHOWN_CURVES]
    columns = min(len(shown), 3 if layout is WIDE else 2)
    rows = -(-len(shown) // columns)

    def paint(drawn: Figure) -> None:
        grid = drawn.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for axes, effect, colour in zip(grid, shown, cycle((BLUE, PURPLE, ORANGE, GREEN, VERMILION)), strict=False):
            axes.axvspan(effect.low, effect.high, color=GREEN, alpha=0.1, lw=0)
            if len(effect.paid) > 1:
                for seed in effect.paid:
                    axes.plot(effect.values, seed, color=colour, lw=0.6, alpha=0.6)
            axes.plot(effect.values, effect.paid.mean(axis=0), color=colour, lw=2)
            axes.xaxis.set_major_locator(MaxNLocator(4))
            name_axes(axes, effect.name, "")
        for axes in grid[len(shown) :]:
            axes.set_axis_off()
        drawn.supylabel(UNIT, fontsize=9)

    return svg("reward-effects", layout, 0.4 + 2.0 * rows, paint)


def _draw_surface(seen: Looked, layout: Layout) -> str | None:
    if seen.surface is None:
        return None
    surface = seen.surface

    def paint(drawn: Figure) -> None:
        axes = drawn.subplots()
        colours = ScalarMappable(Normalize(surface.paid.min(), surface.paid.max()), "cividis")
        mesh = axes.pcolormesh(*surface.values, surface.paid, shading="nearest", rasterized=True)
        mesh.set(norm=colours.norm, cmap=colours.cmap)
        axes.plot(*surface.expert.T, ".", ms=2.5, color="white", alpha=0.5, rasterized=True)
        axes.set(
            xlim=(surface.values[0][0], surface.values[0][-1]), ylim=(surface.values[1][0], surface.values[1][-1])
        )
        axes.set(xlabel=surface.names[0], ylabel=surface.names[1])
        bar = drawn.colorbar(colours, ax=axes, location="bottom", aspect=50, shrink=0.6)
        bar.outline.set_visible(False)
        bar.set_label(UNIT)

    return svg("reward-map", layout, 4.6 if layout is WIDE else 4.2, paint)


def _draw_agreement(agreement: Numbers, layout: Layout) -> str | None:
    if len(agreement) < 2:
        return None

    def paint(drawn: Figure) -> None:
        axes = drawn.subplots()
        seeds = np.arange(len(agreement))
        mesh = axes.pcolormesh(agreement, cmap="cividis", vmin=-1, vmax=1)
        if len(seeds) <= 8:
            for one in seeds:
                for other in seeds:
                    value = float(agreement[one, other])
                    light = "black" if value > 0.2 else "white"
                    axes.text(other + 0.5, one + 0.5, f"{value:.2f}", ha="center", va="center", color=light)
        axes.set(aspect="equal", ylim=(len(seeds), 0), xlabel="seed", ylabel="seed")
        axes.set_xticks(seeds + 0.5, seeds)
        axes.set_yticks(seeds + 0.5, seeds)
        drawn.colorbar(mesh, ax=axes, label="correlation")

    return svg("reward-agreement", layout, 2.9, paint, ConstrainedLayoutEngine(compress=True))


def _draw_maps(
    name: str, panels: Sequence[tuple[str, Numbers]], picture: Picture, layout: Layout, label: str = "reward"
) -> str:
    return draw_recovered(f"reward-{name}", None, panels, picture, layout, label)
