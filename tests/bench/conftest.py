"""Jobs of these tests compile much and compute little; their processes inherit what is said here."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _compile_quickly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        yield
