"""Expert data -> measure."""

from trustirl.demos.record import restore_state
from trustirl.demos.schema import Demos

__all__ = ["Demos", "restore_state"]
