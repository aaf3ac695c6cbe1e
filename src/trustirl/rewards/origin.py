"""Where a reward comes from, and what it pays where it was learned: what reward.json tells beside its kind."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, lt=2**62)]


@dataclass(frozen=True, kw_only=True)
class Paid:
    """What the reward of each seed pays for a demonstrated step, and on top for a step that ends."""

    mean: list[float]
    low: list[float]
    high: list[float]
    end: list[float]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The run, the task and the demonstrations that a reward was learned from."""

    run: str
    """The name of the run's folder."""
    algorithm: str
    task: str
    task_args: dict[str, Any] = field(default_factory=dict)
    seeds: list[Count]
    """The number of each stored reward's seed."""
    steps: Count
    """Environment steps per seed or, in the exact world, reward updates."""
    demos: str
    """The hash of the demonstrations; in the exact world perhaps that the expert was known exactly."""
    demo_episodes: Count | None = None
    demo_steps: Count | None = None
    obs_low: list[float] | None = None
    """The least value of every entry of the demonstrated observations."""
    obs_high: list[float] | None = None
    paid: Paid | None = None
    version: str = ""
    """Of trustirl."""
    created: str = ""
