"""Texts for people."""

from operator import index
from typing import SupportsIndex


def count(number: SupportsIndex, noun: str, nouns: str = "") -> str:
    """`1 seed`, `5 seeds`; `1 entry`, `2 entries` where the plural is given."""
    return f"{index(number):,} {noun if index(number) == 1 else nouns or noun + 's'}"


def printable(text: str) -> str:
    """Texts out of files may hold anything: what would break a line, or steer a terminal, becomes a space."""
    return "".join(character if character.isprintable() else " " for character in text)
