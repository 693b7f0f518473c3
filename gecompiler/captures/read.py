"""An operator table as records. Rows that say nothing usable are counted by their reason."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gecompiler.captures import cells
from gecompiler.captures.columns import Columns, find_columns
from gecompiler.captures.tables import read_table
from gecompiler.ir.errors import UsageError
from gecompiler.ir.types import DType


class Operand(NamedTuple):
    """A tensor of a measured operator; the shape is as stored, which ``layout`` explains."""

    shape: tuple[int, ...]
    dtype: DType
    layout: str = "ND"


@dataclass(frozen=True, slots=True)
class MeasuredOp:
    """One row: what ran, on what, for how long."""

    name: str
    op_type: str
    core: str
    """``AI_CORE``, ``AI_VECTOR_CORE``, ``MIX_AIC``, ``HCCL``, ..., '' where not said."""
    stream: str
    start_ns: int | None
    duration_us: float
    wait_us: float | None
    inputs: tuple[Operand | None, ...]
    outputs: tuple[Operand | None, ...]
    line: int

    @property
    def has_shapes(self) -> bool:
        """Whether anything is known of its operands."""
        return any(o is not None for o in (*self.inputs, *self.outputs))


@dataclass(frozen=True)
class Capture:
    """What a file measured."""

    path: str
    dialect: str
    """``msprof`` or ``torch_npu``."""
    ops: tuple[MeasuredOp, ...]
    left_out: tuple[tuple[str, int], ...]
    """Reasons and how many rows, the most frequent first."""

    @property
    def file_name(self) -> str:
        """The file's own name, for sources: no folder of this machine."""
        return Path(self.path).name


def read_capture(path: str | os.PathLike[str], *, shapes: bool = True) -> Capture:
    """The operators of ``op_summary_*.csv`` or ``kernel_details.csv``.

    UsageError for a file that is neither, naming the columns that are missing, and for one in
    which no row can be used. ``shapes``: whether operands are needed; without, rows are taken
    that have none.
    """
    where = os.fspath(path)
    header, rows = read_table(path)
    columns = find_columns(header, where, shapes=shapes)
    ops: list[MeasuredOp] = []
    reasons: Counter[str] = Counter()
    for line, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        try:
            ops.append(_record(columns, row, line))
        except cells.CellError as error:
            reasons[_reason(error)] += 1
    if not ops:
        said = "; ".join(f"{n} rows: {reason}" for reason, n in reasons.most_common(3))
        raise UsageError(
            f"no operator in it can be used ({said or 'it has a header and no rows'})", where=where
        )
    counts = sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))
    return Capture(where, columns.dialect, tuple(ops), tuple(counts))


def _reason(error: cells.CellError) -> str:
    kind = str(error).rpartition("' ")[2]
    return {
        "is no shape": "the shapes cannot be read (cells have shifted)",
        "is no number": "the duration is no number",
        "is no duration": "the duration is no time",
    }.get(kind, str(error))


def _record(columns: Columns, row: list[str], line: int) -> MeasuredOp:
    def cell(name: str) -> str:
        return columns.cell(row, name)

    if len(row) < columns.count and not cell("duration"):
        raise cells.CellError("the row is cut off")
    if not cell("duration"):
        raise cells.CellError("no duration")
    duration = cells.microseconds(cell("duration"), columns.unit_us["duration"])
    if duration <= 0:
        raise cells.CellError("the duration is 0")
    inputs = _operands(cell("inputs"), cell("input_types"), cell("input_formats"))
    outputs = _operands(cell("outputs"), cell("output_types"), cell("output_formats"))
    return MeasuredOp(
        name=cell("name"),
        op_type=cell("type"),
        core=cell("core").upper().replace(" ", "_"),
        stream=cell("stream"),
        start_ns=cells.nanoseconds(cell("start"), columns.unit_us.get("start", 1.0)),
        duration_us=duration,
        wait_us=_wait(cell("wait"), columns.unit_us.get("wait", 1.0)),
        inputs=inputs,
        outputs=outputs,
        line=line,
    )


def _wait(text: str, unit_us: float) -> float | None:
    try:
        return cells.microseconds(text, unit_us)
    except cells.CellError:
        return None


def _operands(shapes: str, types: str, formats: str) -> tuple[Operand | None, ...]:
    """One for each type: scalars have an empty shape, absent operands an empty or no type."""
    sizes, kinds, layouts = cells.shapes(shapes), cells.types(types), cells.formats(formats)
    found: list[Operand | None] = []
    for index, kind in enumerate(kinds):
        shape = sizes[index] if index < len(sizes) else None
        layout = layouts[index] if index < len(layouts) else "ND"
        if kind is None or (shape is None and not _is_scalar(index, sizes)):
            found.append(None)
        else:
            found.append(Operand(shape or (), kind, layout or "ND"))
    return tuple(found)


def _is_scalar(index: int, sizes: tuple[tuple[int, ...] | None, ...]) -> bool:
    return index < len(sizes) or not sizes
