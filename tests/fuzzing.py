"""What the fuzzing of demonstrations and of run files share: damaged bytes, and a time limit on every attempt."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

SECONDS = 10  # that one input may take
EXTREMES = [0, 1, 2**15, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1]


def limited(count: int) -> settings:
    """As many examples as asked for, without looking for smaller ones."""
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )


def attempt(load: Callable[[], Any], refusal: type[Exception], check: Callable[[Any], None] | None = None) -> str:
    """Whether something loads, and is sound, within the time limit, or is refused: by one sentence of this kind."""
    signal.alarm(SECONDS)  # nobody catches it
    try:
        found, refused = load(), ""
    except refusal as error:
        found, refused = None, str(error)
    signal.alarm(0)
    if refused:
        assert refused.endswith((".", "?"))
        assert len(refused.splitlines()) == 1
        return "refused"
    if check:
        check(found)
    return "loaded"


def peak_mib() -> float:
    """The most memory that this process had; getrusage counts its parent's, too, until it runs another program."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


@st.composite
def damage(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """A valid file, cut, flipped, spliced or with extreme numbers written into it."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        if not data:
            break
        place = draw(st.integers(0, len(data) - 1))
        kind = draw(st.sampled_from(["flip", "flip", "number", "number", "cut", "remove", "repeat", "insert"]))
        if kind == "flip":
            data[place] ^= draw(st.integers(1, 255))
        elif kind == "number":
            width = draw(st.sampled_from([2, 4, 8]))
            number = draw(st.sampled_from(EXTREMES)) % 2 ** (8 * width)
            data[place : place + width] = number.to_bytes(width, "little")
        elif kind == "cut":
            del data[place:]
        elif kind == "remove":
            del data[place : place + draw(st.integers(1, 64))]
        elif kind == "repeat":
            data[place:place] = data[place : place + draw(st.integers(1, 256))]
        else:
            data[place:place] = draw(st.binary(max_size=32))
    return bytes(data)
