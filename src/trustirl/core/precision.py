"""The exact world runs in float64, networks in float32; the choice is made once, at an entry point."""

from contextlib import AbstractContextManager

import jax


def double_precision() -> AbstractContextManager[None]:
    """Within this context JAX keeps float64. `train` enters it for tabular tasks."""
    return jax.enable_x64(True)
