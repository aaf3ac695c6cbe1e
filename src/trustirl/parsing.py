"""Command lines: options as dataclasses, and complaints of one line."""

import contextlib
import io
import re
from typing import Any

import tyro

from trustirl.core.errors import InputError


def parse(options: type[Any], arguments: list[str], program: str) -> Any:
    """Parse with tyro; its boxed complaint becomes one line."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(options, args=arguments, prog=program, config=(tyro.conf.OmitArgPrefixes,))
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(f"{_one_line(complaint.getvalue())}; see `{program} --help`.") from None


def _one_line(box: str) -> str:
    """The complaint without its frame (lines or, on plain terminals, dashes), its help texts and its line breaks.

    Nor does it name the record to which a setting belongs, of which the command line shows nothing.
    """
    rows = [line.strip("│ ") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    sections = re.split(r"\n[─-]{3,}(?:\n|$)", "\n".join(rows).strip())
    unsaid = ("Value error", "For full helptext", "Argument helptext")
    said = [" ".join(text.split()) for text in sections if not text.startswith(unsaid)]
    return re.sub(r"Error parsing \w[\w-]*: ", "", "; ".join(said)).rstrip(".")
