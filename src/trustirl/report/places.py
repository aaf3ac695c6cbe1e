"""What the page of a run on a table tells in words and tables: places by their names, and what is known of them."""

from dataclasses import dataclass, field
from pathlib import Path

from trustirl.core.files import read_form
from trustirl.report.html import table
from trustirl.report.words import number, percent


@dataclass(frozen=True)
class Place:
    """A place: shares of time, chances to leave, what is paid there, and what is done."""

    name: str
    seen: float
    model: float
    left: float
    model_left: float
    paid: float | None
    low: float | None
    high: float | None
    done: list[tuple[str, float]]


@dataclass(frozen=True)
class Group:
    """How a group spends its time."""

    name: str
    steps: int
    seen: list[float]


@dataclass(frozen=True)
class Moment:
    """Shares of the commonest places at a time of a window."""

    time: int
    seen: list[float]
    model: list[float]


@dataclass(frozen=True)
class Closed:
    """Where they would be without a place."""

    name: str
    model: list[float]


@dataclass(frozen=True)
class Story:
    """table.json."""

    notes: list[str]
    column: str
    measures: dict[str, float]
    samples: int
    places: list[Place]
    groups: list[Group]
    times: list[Moment]
    closed: list[Closed]
    moves: list[list[float]] = field(default_factory=list)
    """Shares of steps from each place to each other."""


def read_story(folder: Path) -> Story | None:
    """Of a run on a table."""
    file = folder / "table.json"
    return read_form(file, Story) if file.exists() else None


def where(told: Story) -> str:
    """Where they are and what they do there, beside the model."""
    rows = [
        (
            place.name,
            percent(place.seen),
            percent(place.model),
            f"{percent(place.left)} / {percent(place.model_left)}",
            ", ".join(f"{name} {percent(share)}" for name, share in place.done),
        )
        for place in told.places
    ]
    off = told.measures
    caption = (
        f"Shares of time at each {told.column}, seen and as the model has them, how often it is left from one row to "
        "the next (seen / model), and what is done there most. In all, time at places is off by "
        f"{number(off['visits'], 3)} %, moves between them by {number(off['flows'], 3)} %; what is done has a mean "
        f"log-likelihood of {number(-off['nll'], 3)}. This is said of the very data that were learned from: other "
        "groups differ more."
    )
    return table("Where they are, and what they do", caption, (told.column, "Seen", "Model", "Left", "Done"), rows)


def wants(told: Story) -> str:
    """What is paid, with intervals."""
    known = [place for place in told.places if place.paid is not None]
    known.sort(key=lambda place: -(place.paid or 0.0))
    rows = [(place.name, _signed(place.paid), _interval(place)) for place in known]
    how = (
        f" The interval holds 90 % of {told.samples} rewards learned from groups drawn anew with replacement."
        if told.samples
        else " Without intervals nobody knows how sure these are: train with --bootstrap 20."
    )
    caption = (
        "What the reward pays for a step of what is done there, less what is paid on average. A reward that may "
        "depend on every state and action is one of many that explain the same behaviour, so compare it with care."
        f"{how}"
    )
    return table("What they seem to want", caption, (told.column, "Paid", "Interval"), rows)


def _signed(value: float | None) -> str:
    return "–" if value is None else ("+" if value > 0 else "") + number(value, 3)


def _interval(place: Place) -> str:
    return "–" if place.low is None else f"{_signed(place.low)} to {_signed(place.high)}"


def how_groups_differ(told: Story) -> str:
    """Shares of time group by group."""
    names = [place.name for place in told.places]
    rows = [(group.name, f"{group.steps:,}", *map(percent, group.seen)) for group in told.groups]
    caption = "Shares of time of each group. Where rows differ much, a model of all of them describes none."
    return table("How groups differ", caption, ("Group", "Steps", *names), rows) if len(rows) > 1 else ""


def if_closed(told: Story) -> str:
    """Where they would be without each place."""
    names = [place.name for place in told.places]
    rows = [(row.name, *map(percent, row.model)) for row in told.closed]
    caption = (
        "Shares of time if nobody could begin at a place or go there, each row another place: the same reward, "
        "solved again. It is what the model says, and nothing in the table can confirm it."
    )
    return table("What if a place were closed", caption, ("Closed", *names), rows) if rows else ""


def what_was_read(told: Story) -> str:
    """What the data cannot say."""
    rows = [(note[0].upper() + note[1:] + ".",) for note in told.notes]
    return table("What was read, and what it cannot say", "Mind this before the rest.", ("",), rows)
