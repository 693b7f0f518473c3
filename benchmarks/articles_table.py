"""A section of the comparison: a title, rows of published and modelled figures, and remarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Section:
    """Rows under columns; a cell of None is a figure that is not given."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    remarks: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "remarks": list(self.remarks),
        }


def show(section: Section) -> None:
    """Prints the section in columns as wide as they need to be."""
    cells = [list(section.columns), *([_text(cell) for cell in row] for row in section.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(section.columns))]
    print(f"\n{section.title}\n")
    for row in cells:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    for remark in section.remarks:
        print(_wrapped(remark))


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    return f"{cell:,.4g}" if isinstance(cell, float) else str(cell)


def _wrapped(text: str, width: int = 96) -> str:
    lines, line = [], "  *"
    for word in text.split():
        if len(line) + len(word) >= width:
            lines.append(line)
            line = "   "
        line += f" {word}"
    return "\n".join([*lines, line])


def ratio(before: float, after: float) -> float:
    """How many times as fast; rounded to what is compared."""
    return round(before / after, 3)


def percent(share: float) -> str:
    """A share as people write it."""
    return f"{share:.1%}"
