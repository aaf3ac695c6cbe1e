"""Tables as people see them at a command line."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trustirl.core.words import printable


def print_rows(rows: Sequence[tuple[str, ...]], heading: bool = True) -> None:
    """A table on a terminal, aligned text elsewhere; the first row may be its heading."""
    rows = [tuple(map(printable, row)) for row in rows]  # texts out of files must not steer the terminal
    console = Console()
    if console.is_terminal:
        table = Table(*(rows[0] if heading else ("",) * len(rows[0])), show_header=heading)
        for row in rows[1:] if heading else rows:
            table.add_row(*map(Text, row))  # plain: brackets in a file's texts are no markup
        console.print(table)
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
