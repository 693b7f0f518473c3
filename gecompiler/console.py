"""One way to print tables: rich, with no colour on pipes and a fixed width there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gecompiler.terminal import printable, raw_stream


class _Console(Console):
    """A console that writes colours of its own, and no control characters of anyone's texts."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


def console() -> Console:
    """A console on stdout; 100 columns where stdout is no terminal. Brackets are no markup."""
    file = raw_stream(sys.stdout)
    found = _Console(file=file, highlight=False, soft_wrap=False, markup=False)
    if found.is_terminal:
        return found
    return _Console(file=file, highlight=False, width=100, no_color=True, markup=False)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints rows under columns without lines between; line breaks within cells are spelled."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell.replace("\n", "\\n") for cell in row))
    console().print(table)
