"""What algorithms whose reward moves all the while share: the defaults of whoever follows it, on simulators.

Adversaries, who tell the expert's pairs from the learner's, share their settings too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trustirl.core.checks import at_least, at_most, positive


@dataclass(frozen=True)
class AdversaryConfig:
    """Settings of an adversary's step."""

    reward_step: float = 1e-3
    """Adam's step size."""
    weight_decay: float = 0.0
    """Strength of an L2 penalty on the adversary's weights."""
    inner_steps: int = 100
    """Optimiser steps per reward update."""
    penalty: float = 10.0
    """Weight of the penalty that keeps the slope of a network near 1; tables have none."""

    def __post_init__(self) -> None:
        """Refuse steps that cannot be."""
        positive(self, "reward_step")
        at_least(0, self, "weight_decay", "penalty")
        at_least(1, self, "inner_steps")
        at_most(100_000, self, "inner_steps")


# What a policy needs that follows a moving reward (docs/results.md): a low temperature, or the reward must
# grow for long before it counts; LayerNorm and a quick target critic, or the values lag; a slower actor, or it runs
# after what the critic only guesses, and a cap on values, or they run away; an average over the latest iterations, or
# the last policy is a throw of the dice. Demonstrated steps in every minibatch, or it must find by itself what the
# reward asks for; soon for the critic alone, or it is promised what it cannot do.
FOLLOWER: dict[str, Any] = {"temperature": 0.02, "layer_norm": True, "tau": 0.02, "cap_values": True}
FOLLOWER |= {"learning_rate": 1e-3, "actor_learning_rate": 3e-4, "averaging": 0.08}
FOLLOWER |= {"demo_share": 0.25, "demo_fade": 60_000}

# Minibatches want small constant steps, unlike exact measures.
REWARD_STEP: dict[str, Any] = {"reward_step": 1e-3, "decay": 0.0, "inner_steps": 10}

# CartPole's expert drifts off the track, and a reward that saw actions would blame them for it; the episode is as
# long as the discount's horizon. It is not like robots in how long it takes, either.
CARTPOLE: dict[str, Any] = {"steps_per_iteration": 2500, "rounds": 5, "batch": 128, "reward_batch": 500}
CARTPOLE |= {"width": 64, "learning_rate": 5e-4, "discount": 0.997, "temperature": 0.02, "reward_step": 3e-4}
CARTPOLE |= {"reward_inputs": "state", "reward_width": 64, "evaluate_every": 2, "steps": 61_000}

# Small, and a pendulum that stands needs no more than that: what is far ahead counts little.
PENDULUM: dict[str, Any] = {"width": 64, "batch": 128, "reward_width": 64, "reward_batch": 256, "rounds": 5}
PENDULUM |= {"discount": 0.98, "evaluate_every": 2, "steps": 20_000}

# With few demonstrations a larger network knows them by heart.
SMALL: dict[str, Any] = {"reward_width": 64, "reward_depth": 1}

# A discriminator moves on as soon as the policy has: short iterations, each with few of its steps.
SHORT: dict[str, Any] = {"steps_per_iteration": 1000, "inner_steps": 50}
# With CartPole's settings of the others (its temperature, rewards of states) one of three seeds of a discriminator
# learned the task.
BALANCE: dict[str, Any] = {"reward_inputs": "state-action", "reward_step": 1e-3, "temperature": 0.05}
BALANCE |= {"learning_rate": 1e-3, "steps": 30_000}
DISCRIMINATED = {"CartPole-v1": CARTPOLE | SHORT | BALANCE, "Pendulum-v1": PENDULUM | SHORT}

# The table for MuJoCo of the paper with the trust region, but n = 10 where it says 1, with which there is none. SAC
# is the usual one.
PAPER: dict[str, Any] = REWARD_STEP | {"reward_step": 1e-4, "reward_batch": 256, "past_share": 0.0}
PAPER |= {"temperature": 0.2, "layer_norm": False, "tau": 0.005, "cap_values": False}
PAPER |= {"learning_rate": 3e-4, "actor_learning_rate": None, "averaging": 0.0, "demo_share": 0.0, "demo_fade": None}

# Robots that must not leave what they were shown, by the beginning of a task's name. An ant that acts at full range
# is on its back soon, from where this task has no way back; a hand drops what it holds. They begin as clones, near
# which they stay until the critic knows better, and see demonstrated steps all the time. Episodes differ in their
# goals, so that ten say little.
ROBOT: dict[str, Any] = {"clone_start": 5000, "clone_pull": 10.0, "clone_fade": 100_000, "steps": 300_000}
ROBOT |= {"demo_share": 0.5, "demo_fade": 300_000, "evaluation_episodes": 20, "evaluate_every": 10}
ROBOTS = {"AntMaze": ROBOT | {"action_margin": 0.025}, "AdroitHand": ROBOT | {"actor_learning_rate": 1e-4}}


def of_robots(task: str, ours: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a robot's task, for a method with such defaults of its own.

    What these rule out stays out, and demonstrated steps fade only where they do elsewhere.
    """
    found: Mapping[str, Any] = next((known for name, known in ROBOTS.items() if task.startswith(name)), {})
    out = {"demo_share", "demo_fade"} - {name for name, value in ours.items() if value}
    if not ours.get("clone_start", True):
        out |= {"clone_start", "clone_pull", "clone_fade"}
    return {name: value for name, value in found.items() if name not in out}
