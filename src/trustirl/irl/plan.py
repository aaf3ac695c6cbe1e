"""How experience is gathered, and what policies and rewards make of it."""

from dataclasses import dataclass

from trustirl.core.checks import at_least, at_most, positive
from trustirl.core.errors import InputError
from trustirl.core.words import count


@dataclass(frozen=True)
class Schedule:
    """How experience is gathered and what the policy makes of it."""

    steps_per_iteration: int = 5000
    """Environment steps per seed and iteration."""
    envs: int = 5
    """Environments per seed."""
    rounds: int = 10
    """Times per iteration that collecting and updating take turns."""
    update_ratio: float = 1.0
    """Policy updates per environment step."""
    batch: int = 256
    """Pairs per policy minibatch."""
    warmup: int = 1000
    """Random steps per seed before the first update."""
    replay: int | None = None
    """Most steps per seed that are remembered; by default all."""

    def __post_init__(self) -> None:
        """Refuse a schedule that cannot be kept."""
        at_least(1, self, "steps_per_iteration", "envs", "rounds", "batch", "warmup")
        positive(self, "update_ratio")
        at_most(10_000, self, "envs")
        at_most(1000, self, "update_ratio")
        at_most(1_000_000, self, "batch")
        if self.steps_per_iteration % (self.rounds * self.envs):
            raise InputError(
                f"steps_per_iteration must be a multiple of rounds x envs = {self.rounds * self.envs}, got "
                f"{self.steps_per_iteration}."
            )
        if self.replay is not None and self.replay < self.least_replay:
            raise InputError(
                f"replay must hold an iteration's {count(self.steps_per_iteration, 'step')} and the "
                f"{count(self.warmup, 'random one')} of warmup, so at least {self.least_replay}, got {self.replay}."
            )

    @property
    def least_replay(self) -> int:
        """What is remembered at once must fit."""
        return max(self.steps_per_iteration, self.random_steps)

    @property
    def random_steps(self) -> int:
        """Of the warm-up, in which every environment makes as many."""
        return self.envs * max(1, self.warmup // self.envs)

    @property
    def whole(self) -> int:
        """Environment steps per seed of an iteration, all purposes together."""
        return self.steps_per_iteration

    @property
    def updates(self) -> int:
        """Policy updates per round."""
        return max(1, round(self.update_ratio * self.steps_per_iteration / self.rounds))


@dataclass(frozen=True)
class Plan(Schedule):
    """How experience is gathered, and what the policy and the reward make of it."""

    reward_batch: int = 1000
    """Expert pairs, and as many of the learner's, per reward minibatch."""
    reference: int = 256
    """Expert pairs, and as many of the learner's, on which drift is measured."""
    past_share: float = 0.0
    """Share of the learner's pairs in the reward step that are drawn from all steps it remembers."""
    extra_steps: int = 0
    """Further steps per seed and iteration with the improved policy, which only the reward update sees."""
    demo_share: float = 0.0
    """Share of demonstrated steps in a policy minibatch; where it falls, the first one."""
    demo_half_life: int | None = None
    """The share of demonstrated steps halves whenever the learner has made so many of its own; None: never."""
    demo_fade: int | None = None
    """SAC's policy learns from demonstrated states less and less, and no longer once it has made so many steps of its
    own; the critic always does. None: both always do."""
    clone_start: int = 0
    """Minibatches of demonstrated pairs to which SAC's policy is fitted before the first iteration; 0: it begins at
    random."""
    clone_pull: float = 0.0
    """What SAC's policy first pays for its divergence from that clone, in temperatures per nat."""
    clone_fade: int = 60_000
    """Own steps over which that falls to nothing."""
    resets: float = 0.0
    """Share of the training environments whose episodes begin at demonstrated states; the reward sees only the
    others'. For tasks whose state can be set, and demonstrations that hold it."""
    tremble: float = 0.0
    """Chance that a step of training, though not of an evaluation, takes an action at random."""
    discounted: bool = False
    """Weigh step t by discount^t in the reward step (the paper's occupancy) instead of equally."""

    def __post_init__(self) -> None:
        """Refuse a plan that cannot be carried out."""
        super().__post_init__()
        at_least(1, self, "reward_batch", "reference")
        at_most(1_000_000, self, "reward_batch", "reference", "clone_start", "clone_pull")
        at_least(0, self, "clone_start", "clone_pull")
        at_least(1, self, "clone_fade")
        if self.clone_pull and not self.clone_start:
            raise InputError("clone_pull holds the policy near its clone, and there is none: give clone_start, too.")
        for name in ("demo_half_life", "demo_fade"):
            if getattr(self, name) is not None:
                at_least(1, self, name)
        if self.extra_steps < 0 or self.extra_steps % self.envs:
            raise InputError(f"extra_steps must be a multiple of envs = {self.envs}, got {self.extra_steps}.")
        for name in ("demo_share", "past_share", "tremble"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise InputError(f"{name} must lie in [0, 1), got {getattr(self, name)}.")
        if not 0.0 <= self.resets <= 1.0:
            raise InputError(f"resets must lie in [0, 1], got {self.resets}.")
        if self.resets and not self.shown:
            raise InputError(f"resets = {self.resets} of {count(self.envs, 'environment')} is none: give more envs.")
        if self.shown == self.envs and (self.past_share or not self.extra_steps):
            raise InputError(
                "the reward needs episodes that begin where the task begins them: choose resets so that an "
                f"environment of {self.envs} is left, or give extra_steps and no past_share."
            )
        if self.past_share and self.discounted:
            raise InputError(
                "past steps are remembered without their times, which discounted needs: set past_share to 0."
            )

    @property
    def whole(self) -> int:
        """Environment steps per seed of an iteration, all purposes together."""
        return self.steps_per_iteration + self.extra_steps

    @property
    def shown(self) -> int:
        """Environments whose episodes begin at demonstrated states."""
        return round(self.resets * self.envs)

    @property
    def counted(self) -> int:
        """Steps of an iteration that the reward update sees."""
        return self.steps_per_iteration // self.envs * (self.envs - self.shown) + self.extra_steps
