"""One way to print tables: rich, with no colour on pipes and a fixed width there."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def console() -> Console:
    """A console on stdout; 100 columns where stdout is no terminal."""
    found = Console(highlight=False, soft_wrap=False)
    return found if found.is_terminal else Console(highlight=False, width=100, no_color=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints rows under columns without lines between them."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)
