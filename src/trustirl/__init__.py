"""TrustIRL: learn reward functions from demonstrations, stably."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trustirl.algorithms import ALGORITHMS, register
    from trustirl.core.errors import DemoError, InputError, Interrupted, NumericalError, RewardError, TrustIRLError
    from trustirl.core.precision import double_precision
    from trustirl.demos import Demos
    from trustirl.report.compare import report as compare_runs
    from trustirl.rewards.reward import LearnedReward, Rewards
    from trustirl.rewards.saved import load_reward, load_rewards
    from trustirl.runs.comparing import compare_rewards
    from trustirl.runs.inspecting import inspect_reward
    from trustirl.runs.run import Run, load
    from trustirl.tasks.changed import changed
    from trustirl.tasks.registry import TASKS
    from trustirl.training.train import resume, train, train_expert
    from trustirl.training.transfer import retrain, transfer
    from trustirl.worlds.table import World

# Names are imported when they are first used (PEP 562): a process that only steps environments never loads JAX.
_HOMES = {
    "ALGORITHMS": "trustirl.algorithms",
    "TASKS": "trustirl.tasks.registry",
    "DemoError": "trustirl.core.errors",
    "Demos": "trustirl.demos",
    "InputError": "trustirl.core.errors",
    "Interrupted": "trustirl.core.errors",
    "LearnedReward": "trustirl.rewards.reward",
    "NumericalError": "trustirl.core.errors",
    "RewardError": "trustirl.core.errors",
    "Rewards": "trustirl.rewards.reward",
    "Run": "trustirl.runs.run",
    "TrustIRLError": "trustirl.core.errors",
    "World": "trustirl.worlds.table",
    "changed": "trustirl.tasks.changed",
    "compare_rewards": "trustirl.runs.comparing",
    "compare_runs": "trustirl.report.compare:report",
    "double_precision": "trustirl.core.precision",
    "inspect_reward": "trustirl.runs.inspecting",
    "load": "trustirl.runs.run",
    "load_reward": "trustirl.rewards.saved",
    "load_rewards": "trustirl.rewards.saved",
    "register": "trustirl.algorithms",
    "resume": "trustirl.training.train",
    "retrain": "trustirl.training.transfer",
    "train": "trustirl.training.train",
    "train_expert": "trustirl.training.train",
    "transfer": "trustirl.training.transfer",
}

__all__ = [
    "ALGORITHMS",
    "TASKS",
    "DemoError",
    "Demos",
    "InputError",
    "Interrupted",
    "LearnedReward",
    "NumericalError",
    "RewardError",
    "Rewards",
    "Run",
    "TrustIRLError",
    "World",
    "changed",
    "compare_rewards",
    "compare_runs",
    "double_precision",
    "inspect_reward",
    "load",
    "load_reward",
    "load_rewards",
    "register",
    "resume",
    "retrain",
    "train",
    "train_expert",
    "transfer",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("trustirl.core.machine").installed("trustirl") or "0+unknown"
    if name not in _HOMES:
        raise AttributeError(f"module 'trustirl' has no attribute {name!r}")
    module, _, called = _HOMES[name].partition(":")
    return getattr(import_module(module), called or name)


def __dir__() -> list[str]:
    return __all__
