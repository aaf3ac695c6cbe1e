"""Command lines: options as dataclasses, and complaints of one line."""

import contextlib
import io
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

import tyro

from trustirl.core.errors import InputError

NARROWEST = 40  # columns

# What should stand there, and what tyro says of a text that is no number: of plain settings, and of those that may be
# None.
NO_NUMBER = (
    ("a whole number", r"invalid literal for int\(\) with base 10: ('.*')"),
    ("a number", r"could not convert string to float: ('.*')"),
    ("a whole number", r"no type matching \{None\}\|INT could be instantiated from \[('.*?')\].*"),
    ("a number", r"no type matching \{None\}\|FLOAT could be instantiated from \[('.*?')\].*"),
)


def parse(options: type[Any], arguments: list[str], program: str) -> Any:
    """Parse with tyro; its boxed complaint becomes one line."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), _wide_enough():
            return tyro.cli(options, args=arguments, prog=program, config=(tyro.conf.OmitArgPrefixes,))
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(f"{_one_line(complaint.getvalue())}; see `{program} --help`.") from None


@contextlib.contextmanager
def _wide_enough() -> Iterator[None]:
    """Help needs room: in very few columns tyro's breaking of lines would never end."""
    width = shutil.get_terminal_size().columns
    if width >= NARROWEST:
        yield
        return
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(NARROWEST)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _one_line(box: str) -> str:
    """The complaint without its frame (lines or, on plain terminals, dashes), its help texts and its line breaks.

    Nor does it name the record to which a setting belongs, of which the command line shows nothing.
    """
    rows = [line.strip("│ ") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    sections = re.split(r"\n[─-]{3,}(?:\n|$)", "\n".join(rows).strip())
    unsaid = ("Value error", "For full helptext", "Argument helptext")
    said = "; ".join(_brief(text) for text in sections if not text.startswith(unsaid))
    for number, words in NO_NUMBER:
        said = re.sub(rf"Error parsing (--[\w-]+): {words}", rf"\1 must be {number}, got \2", said)
    return re.sub(r"Error parsing \w[\w-]*: ", "", said).rstrip(".")


def _brief(section: str) -> str:
    """In one line; of options that may have been meant their names alone."""
    if section.startswith("Perhaps you meant"):
        return f"perhaps you meant {' or '.join(dict.fromkeys(re.findall('^--[a-z-]+', section, re.MULTILINE)))}"
    return " ".join(section.split())
