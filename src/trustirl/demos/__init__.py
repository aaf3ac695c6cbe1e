"""Expert data -> measure."""

from trustirl.demos.schema import Demos

__all__ = ["Demos"]
