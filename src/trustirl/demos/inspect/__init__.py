"""Look at demonstrations: what they hold (`seen`), and what looks wrong with them (`suspected`)."""

from dataclasses import replace

import numpy as np

from trustirl.demos.inspect.seen import (
    Columns,
    Inspection,
    TaskSpaces,
    action_bounds,
    amount,
    columns,
    described,
    facts,
    look,
)
from trustirl.demos.inspect.suspected import suspect
from trustirl.demos.schema import Demos

__all__ = ["Columns", "Inspection", "action_bounds", "amount", "columns", "described", "facts", "inspect"]


@np.errstate(over="ignore", invalid="ignore")
def inspect(demos: Demos, task: TaskSpaces | None = None) -> Inspection:
    """Look at demonstrations, and at how they fit a task if one is given."""
    seen = look(demos, task)
    return replace(seen, findings=suspect(seen))
