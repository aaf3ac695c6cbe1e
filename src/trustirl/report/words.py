"""Numbers the way a reader wants them."""

import math


def count(number: int, noun: str) -> str:
    """`1 seed`, `5 seeds`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def number(value: float, digits: int = 4) -> str:
    """Large numbers whole and with separators, others with `digits` digits, what is unknown as a dash."""
    if not math.isfinite(value):
        return "–"
    whole = (float(value).is_integer() or abs(value) >= 1000) and abs(value) < 1e9
    return (f"{value:,.0f}" if whole else f"{value:.{digits}g}").replace("-", "−")


def percent(share: float) -> str:
    """`94.1 %`."""
    return f"{number(100 * share, 3)} %" if math.isfinite(share) else "–"


def duration(seconds: float) -> str:
    """`12.4 s`, `25 min`, `3 h 20 min`."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 120:
        return f"{number(seconds, 3)} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
