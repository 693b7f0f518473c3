"""One way to print tables: rich, with no colour on pipes and a fixed width there."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from gecompiler.terminal import printable, raw_stream

MOST_COLUMNS = 10_000
"""Lines of tables are no longer, whatever names say."""


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


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, one_line: bool = False
) -> None:
    """Prints rows under columns without lines between; line breaks within cells are spelled.

    Words are broken on a terminal alone, where it is too narrow; elsewhere lines become longer.
    With ``one_line`` a row has one of them there, however long.
    """
    out = console()
    terminal = out.is_terminal
    table = Table(box=None, pad_edge=False, header_style="bold")
    cells = [[cell.replace("\n", "\\n") for cell in row] for row in rows]
    for number, column in enumerate(columns):
        least = None if terminal else _least([column, *(row[number] for row in cells)])
        table.add_column(
            column, overflow="fold", min_width=least, no_wrap=one_line and not terminal
        )
    for row in cells:
        table.add_row(*row)
    if not terminal:
        wide = out.options.update(max_width=MOST_COLUMNS)
        needed = Measurement.get(out, wide, table)
        out.width = max(out.width, needed.maximum if one_line else needed.minimum)
    out.print(table)


def _least(cells: Sequence[str]) -> int:
    """The columns of the longest word."""
    return max((cell_len(printable(word)) for cell in cells for word in cell.split()), default=0)
