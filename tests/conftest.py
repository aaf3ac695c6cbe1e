"""Test set-up: float64 for the exact world, reproducible examples, how many of them by TRUSTIRL_EXAMPLES."""

import os

import jax
from hypothesis import HealthCheck, settings

jax.config.update("jax_enable_x64", True)

settings.register_profile(
    "trustirl",
    max_examples=int(os.environ.get("TRUSTIRL_EXAMPLES", "200")),
    deadline=None,  # the first example of a shape compiles
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("trustirl")
