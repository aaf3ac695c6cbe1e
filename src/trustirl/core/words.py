"""Counts the way people say them."""

from operator import index
from typing import SupportsIndex


def count(number: SupportsIndex, noun: str, nouns: str = "") -> str:
    """`1 seed`, `5 seeds`; `1 entry`, `2 entries` where the plural is given."""
    return f"{index(number):,} {noun if index(number) == 1 else nouns or noun + 's'}"
