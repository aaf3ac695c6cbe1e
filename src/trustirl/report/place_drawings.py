"""Drawings of a run on a table: a map of its places, what is paid there with intervals, and shares over time.

Nobody gave coordinates. The map sets places as far apart as the number of moves that lie between them, frequent moves
counting as shorter, and finds the plane that keeps these distances best (least squares, by majorisation).
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import Float
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from trustirl.report.drawing import BLUE, CURVES, INK, WIDE, Layout, name_axes, svg
from trustirl.report.html import Section, figure
from trustirl.report.places import Place, Story, how_groups_differ, if_closed, wants, what_was_read, where
from trustirl.report.words import percent

MOST_NAMED, MOST_PAID, LONGEST = 24, 30, 22
ABSENT = "There is nothing to draw."
Distances = Float[np.ndarray, "places places"]


def sections(told: Story) -> str:
    """The parts of the page: drawings, each with its table."""
    drawn = {
        "map": (
            "A map of their moves",
            "Nobody said where places lie: here, places with many moves between them lie near each other, and a line "
            "is as thick as moves are frequent. Larger places hold more of the time, and the colour is what the "
            "reward pays there.",
            draw_map,
        ),
        "paid": (
            "What is paid where",
            "Dots are the reward of a step of what is done there, less the mean; bars hold 90 % of those learned "
            "from groups drawn anew, where --bootstrap asked for them.",
            draw_paid,
        ),
        "times": (
            "As time goes by",
            "Shares of time at the commonest places, so many steps after a window began: seen, and dashed as the "
            "model has them.",
            draw_times,
        ),
    }
    shown = {
        name: figure(Section(name, heading, caption, partial(draw, told), absent=ABSENT))
        for name, (heading, caption, draw) in drawn.items()
    }
    tables = (where(told), wants(told), how_groups_differ(told), if_closed(told), what_was_read(told))
    return "".join((shown["map"], tables[0], shown["paid"], tables[1], shown["times"], *tables[2:]))


def distances(moves: Distances) -> Distances:
    """Lengths of the shortest ways: a rare move counts 1, the most frequent a half; no way at all is longest."""
    both = moves + moves.T
    most = both.max(initial=0.0)
    found = np.where(both > 0, 1 - np.sqrt(both / most) / 2 if most else np.inf, np.inf)
    np.fill_diagonal(found, 0.0)
    for between in range(len(found)):
        found = np.minimum(found, found[:, between, None] + found[None, between])
    known = found[np.isfinite(found)]
    return np.where(np.isfinite(found), found, known.max(initial=0.0) + 1.0)


def arranged(apart: Distances, rounds: int = 300) -> Float[np.ndarray, "places 2"]:
    """Points in a plane whose distances are nearly these, the longer axis first.

    Classical scaling is where it begins, and majorisation lessens what that misses.
    """
    count = len(apart)
    if count < 2:
        return np.zeros((count, 2))
    centred = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-centred @ apart**2 @ centred / 2)
    points = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0.0))
    angle = 2 * np.pi * np.arange(count) / count  # apart even where classical scaling puts them together
    points = points + 0.05 * apart.mean() * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    weight = np.where(apart > 0, 1 / np.maximum(apart, 1e-9) ** 2, 0.0)
    laplacian = np.diag(weight.sum(axis=1)) - weight
    inverse = np.linalg.pinv(laplacian)
    for _ in range(rounds):
        drawn = np.linalg.norm(points[:, None] - points[None], axis=2)
        ratio = weight * apart / np.maximum(drawn, 1e-9)
        points = inverse @ ((np.diag(ratio.sum(axis=1)) - ratio) @ points)
    points = points - points.mean(axis=0)
    turned: Float[np.ndarray, "places 2"] = points @ np.linalg.eigh(points.T @ points)[1][:, ::-1]
    first = np.abs(turned).argmax(axis=0)  # an axis has no sign of its own
    return turned * np.sign(turned[first, np.arange(2)])


def short(name: str) -> str:
    """A name that has room in a drawing."""
    return name if len(name) <= LONGEST else name[: LONGEST - 1].rstrip() + "…"


def draw_map(told: Story, layout: Layout) -> str | None:
    """Places by their names: their area is the share of time there, their colour what is paid, lines are moves."""
    if len(told.places) < 2 or not told.moves:
        return None
    moves = np.array(told.moves)
    points = arranged(distances(moves))
    points = points if layout is WIDE else points[:, ::-1]
    paid = np.array([np.nan if place.paid is None else place.paid for place in told.places])
    seen = np.array([place.seen for place in told.places])
    size = (260 if layout is WIDE else 150) * np.sqrt(seen / seen.max()) + 12
    most = moves.max()
    shown = np.isfinite(paid)
    colours = ScalarMappable(
        Normalize(*((paid[shown].min(), paid[shown].max()) if shown.any() else (0, 1))), "cividis"
    )

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for one, other in zip(*np.nonzero(moves + moves.T), strict=True):
            if one < other:
                width = 0.4 + 5 * np.sqrt(max(moves[one, other], moves[other, one]) / most)
                axes.plot(*points[[one, other]].T, color=INK, alpha=0.22, lw=width, zorder=1, solid_capstyle="round")
        for point, area, value, known in zip(points, size, paid, shown, strict=True):
            face = colours.to_rgba(value) if known else "none"
            axes.plot(*point, "o", ms=np.sqrt(area), mfc=face, mec=INK, mew=0.8, zorder=2)
        for number, place in enumerate(told.places[:MOST_NAMED]):
            offset = (0, -np.sqrt(size[number]) / 2 - 3)
            axes.annotate(
                f"{short(place.name)}\n{percent(place.seen)}",
                points[number],
                offset,
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize=8 if layout is WIDE else 7,
                zorder=3,
            )
        axes.set_aspect("equal", adjustable="datalim")
        axes.margins(0.2)
        axes.axis("off")
        figure.colorbar(colours, ax=axes, label="paid per step, less the mean", shrink=0.7, aspect=30)

    return svg("map", layout, 4.4 if layout is WIDE else 5.6, paint)


def draw_paid(told: Story, layout: Layout) -> str | None:
    """What the reward pays at each place, with the interval over groups drawn anew, if there is one."""
    known = sorted((place for place in told.places if place.paid is not None), key=_paid)[-MOST_PAID:]
    if not known:
        return None
    rows = np.arange(len(known))

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.axvline(0.0, color=INK, lw=0.8, ls=":")
        for row, place in zip(rows, known, strict=True):
            if place.low is not None and place.high is not None:
                axes.plot((place.low, place.high), (row, row), color=BLUE, lw=2, alpha=0.5, solid_capstyle="round")
        axes.plot([_paid(place) for place in known], rows, "o", color=BLUE, ms=5)
        axes.set_yticks(rows, [short(place.name) for place in known])
        axes.set_xlabel("paid per step, less the mean")
        axes.grid(axis="x")

    return svg("paid", layout, 1.0 + 0.26 * len(known), paint)


def _paid(place: Place) -> float:
    return 0.0 if place.paid is None else place.paid


def draw_times(told: Story, layout: Layout) -> str | None:
    """Shares of the commonest places as a window goes by: seen as lines, the model dashed."""
    if len(told.times) < 2:
        return None
    time = np.array([moment.time for moment in told.times])
    names: Sequence[str] = [place.name for place in told.places[: len(told.times[0].seen)]]

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for number, name in enumerate(names):
            colour, _ = CURVES[number % len(CURVES)]
            axes.plot(
                time, [100 * moment.seen[number] for moment in told.times], color=colour, lw=1.8, label=short(name)
            )
            axes.plot(time, [100 * moment.model[number] for moment in told.times], color=colour, lw=1.2, ls="--")
        axes.plot([], [], color=INK, lw=1.2, ls="--", label="model")
        axes.set_ylim(bottom=0.0)
        name_axes(axes, "steps since the window began", "share of time, %")
        figure.legend(loc=layout.legend)

    return svg("times", layout, 3.4 if layout is WIDE else 4.4, paint)
