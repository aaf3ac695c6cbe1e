"""Task names and their parameters."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from trustirl.core.checks import of_kind
from trustirl.core.errors import unknown_name
from trustirl.tasks.exact import ExactTask
from trustirl.tasks.from_table import from_table, question
from trustirl.tasks.gridworld import cliff, gridworld
from trustirl.tasks.mdp import mdp
from trustirl.tasks.small import chain, random_mdp

TASKS: dict[str, Callable[..., ExactTask]] = {
    "gridworld": gridworld,
    "random-mdp": random_mdp,
    "chain": chain,
    "cliff": cliff,
    "mdp": mdp,
    "table": from_table,
}


def make_task(name: str, arguments: Mapping[str, Any] | None = None) -> ExactTask:
    """Build a task by name; text arguments (from a command line) become what the task's signature asks for."""
    if name not in TASKS:
        raise unknown_name("task", name, TASKS)
    return TASKS[name](**resolved_arguments(name, arguments))


def resolved_arguments(name: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Every argument of the task, defaults included: what a run's config.json records."""
    parameters = inspect.signature(TASKS[name]).parameters
    given = {key: _convert(name, key, value, parameters) for key, value in (arguments or {}).items()}
    known = {key: p.default for key, p in parameters.items()} | given
    return question(known) if known.get("file") and "sha256" in known else known


def _convert(task: str, key: str, value: Any, parameters: Mapping[str, inspect.Parameter]) -> Any:
    if key not in parameters:
        raise unknown_name(f"argument of task {task!r},", key, parameters)
    wanted: type = parameters[key].annotation
    if wanted is list and isinstance(value, str):
        value = [name for name in value.split(",") if name]
    if isinstance(value, str):
        with suppress(ValueError):
            value = wanted(value)
    return of_kind(wanted, f"task argument {key}", value)
