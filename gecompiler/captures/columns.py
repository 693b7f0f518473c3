"""The columns of an operator table, found by their names in either dialect.

msprof writes ``Op Name, OP Type, Task Type, Task Start Time(us), Task Duration(us), ...``,
torch_npu ``Name, Type, Accelerator Core, Start Time(us), Duration(us), ...``; both changed over
the years (``Block Dim`` became ``Block Num``, ``Step Id`` and ``Device_id`` come and go). Names
are compared without regard to case and blanks; the unit of a time is in brackets after it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gecompiler.ir.errors import UsageError, shown_name

NAMES: dict[str, tuple[str, ...]] = {
    "name": ("op name", "name", "kernel name"),
    "type": ("op type", "type", "kernel type"),
    "core": ("task type", "accelerator core", "core type", "kernel type"),
    "device": ("device id",),
    "step": ("step id",),
    "task": ("task id",),
    "stream": ("stream id",),
    "start": ("task start time", "start time", "task start"),
    "duration": ("task duration", "duration", "task time"),
    "wait": ("task wait time", "wait time"),
    "blocks": ("block num", "block dim"),
    "inputs": ("input shapes",),
    "input_types": ("input data types",),
    "input_formats": ("input formats",),
    "outputs": ("output shapes",),
    "output_types": ("output data types",),
    "output_formats": ("output formats",),
}
"""What a column is for, and what it may be called, lower case and without its unit."""

_SHAPES = ("inputs", "input_types", "outputs", "output_types")
UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
"""Microseconds in each unit."""


@dataclass(frozen=True)
class Columns:
    """Where each thing stands, and the microseconds in each time's unit."""

    at: dict[str, int]
    unit_us: dict[str, float]
    count: int
    dialect: str

    @property
    def has_shapes(self) -> bool:
        """Whether shapes and types of operands are there."""
        return all(name in self.at for name in _SHAPES)

    def cell(self, row: Sequence[str], name: str) -> str:
        """The cell under that column, '' where it is absent or says N/A."""
        index = self.at.get(name)
        text = row[index].strip() if index is not None and index < len(row) else ""
        return "" if text in ("N/A", "NA", "null", "None", "-") else text


def find_columns(header: Sequence[str], where: str, *, shapes: bool) -> Columns:
    """The columns of a header; UsageError says which are missing and what was there instead.

    ``shapes``: whether the shapes and types of the operands are needed as well.
    """
    at: dict[str, int] = {}
    unit_us: dict[str, float] = {}
    plain = [split_name(cell) for cell in header]
    for name, spellings in NAMES.items():
        for spelling in spellings:
            index = next((i for i, (text, _) in enumerate(plain) if text == spelling), None)
            if index is not None:
                at[name] = index
                unit_us[name] = _unit(plain[index][1], header[index], where)
                break
    needed = ("name", "type", "duration", *(_SHAPES if shapes else ()))
    missing = [name for name in needed if name not in at]
    if missing:
        raise _missing(missing, header, where)
    dialect = "msprof" if plain[at["name"]][0] == "op name" else "torch_npu"
    return Columns(at, unit_us, len(header), dialect)


def split_name(cell: str) -> tuple[str, str]:
    """A column's name without its unit, and the unit: ``Duration(us)`` is duration, us."""
    found = re.fullmatch(r"\s*(.*?)\s*(?:[(\[]\s*([^()\[\]]*?)\s*[)\]])?\s*", cell)
    name, unit = (found[1], found[2] or "") if found else (cell, "")
    return re.sub(r"[\s_]+", " ", name).strip().lower(), unit.lower().replace("μ", "u").replace(
        "µ", "u"
    )


def _unit(unit: str, column: str, where: str) -> float:
    if not unit:
        return 1.0
    if unit not in UNITS:
        raise UsageError(
            f"column {column.strip()!r} has the unit {unit!r}",
            where=where,
            hint=f"times are expected in {', '.join(UNITS)}",
        )
    return UNITS[unit]


def _missing(names: Sequence[str], header: Sequence[str], where: str) -> UsageError:
    wanted = ", ".join(" or ".join(repr(s.title()) for s in NAMES[n][:2]) for n in names)
    shown = ", ".join(shown_name(cell.strip()[:40]) for cell in header[:8]) + (
        ", ..." if len(header) > 8 else ""
    )
    hint = "expected msprof's op_summary_*.csv or torch_npu's kernel_details.csv"
    plain = {split_name(cell)[0] for cell in header}
    if "avg time" in plain:
        hint += "; this looks like op_statistic.csv, which has no single operators"
    elif "computing" in plain:
        hint += "; this looks like step_trace_time.csv, which has no operators"
    elif set(names) <= set(_SHAPES):
        hint += " written with shapes (record_shapes=True, or msprof's default)"
    return UsageError(f"no column {wanted}; found {shown}", where=where, hint=hint)
