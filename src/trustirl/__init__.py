"""TrustIRL: learn reward functions from demonstrations, stably."""

from trustirl.algorithms import ALGORITHMS
from trustirl.core.errors import InputError, NumericalError, TrustIRLError
from trustirl.core.precision import double_precision
from trustirl.demos import Demos
from trustirl.experiment import resume, train
from trustirl.run import LearnedReward, Run, load, load_reward
from trustirl.tasks.registry import TASKS

__all__ = [
    "ALGORITHMS",
    "TASKS",
    "Demos",
    "InputError",
    "LearnedReward",
    "NumericalError",
    "Run",
    "TrustIRLError",
    "double_precision",
    "load",
    "load_reward",
    "resume",
    "train",
]
