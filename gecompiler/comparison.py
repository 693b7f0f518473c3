"""Comparing what a run gave with what was expected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gecompiler.ir.errors import shown_name
from gecompiler.lang import say, translate


@dataclass(frozen=True, slots=True)
class Row:
    """One output: its largest differences (None where nothing was expected) and the verdict."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    max_abs: float | None
    max_rel: float | None
    ok: bool
    note: str = ""

    def as_dict(self) -> dict[str, object]:
        """As plain data; a difference that is no number is None, since JSON has no NaN."""
        found: dict[str, object] = asdict(self)
        for name in ("max_abs", "max_rel"):
            value = found[name]
            if isinstance(value, float) and not math.isfinite(value):
                found[name] = None
        return found


def compare_outputs(
    outputs: Mapping[str, Any], expected: Mapping[str, Any] | None, rtol: float, atol: float
) -> list[Row]:
    """A row per output, and one per expected name that is no output.

    An element agrees when ``|found - expected| <= atol + rtol * |expected|``; NaN agrees with
    NaN, an infinity with itself.
    """
    rows = [_row(name, np.asarray(v), expected, rtol, atol) for name, v in outputs.items()]
    missing = [name for name in expected or {} if name not in outputs]
    note = "the model has no such output"
    return rows + [Row(name, "", (), None, None, False, note) for name in missing]


def _row(
    name: str, found: Any, expected: Mapping[str, Any] | None, rtol: float, atol: float
) -> Row:
    dtype, shape = str(found.dtype), tuple(found.shape)
    if expected is None:
        return Row(name, dtype, shape, None, None, True)
    if name not in expected:
        return Row(name, dtype, shape, None, None, False, "nothing expected under this name")
    want = np.asarray(expected[name])
    if want.shape != found.shape:
        return Row(name, dtype, shape, None, None, False, f"expected shape {want.shape}")
    if found.dtype.kind in "OUS" or want.dtype.kind in "OUS":
        return Row(name, dtype, shape, None, None, bool((found == want).all()))
    wide = np.complex128 if "c" in (found.dtype.kind, want.dtype.kind) else np.float64
    a, b = found.astype(wide), want.astype(wide)
    ok = bool(np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True).all())
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = np.abs(a - b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        gap = np.where(same, 0.0, gap)
        relative = np.where(gap == 0, 0.0, gap / np.abs(b))
    largest = float(gap.max(initial=0.0))
    return Row(name, dtype, shape, largest, float(relative.max(initial=0.0)), ok)


def comparison_text(rows: list[Row], rtol: float, atol: float) -> str:
    """A line per output and a verdict."""
    lines = [_line(row) for row in rows] or [say("the model has no outputs")]
    compared = [row for row in rows if row.max_abs is not None or not row.ok]
    if compared:
        bad = sum(not row.ok for row in rows)
        verdict = say("PASSED")
        if bad:
            verdict = say("FAILED: {bad} of {count} outputs differ", bad=bad, count=len(rows))
        lines.append(f"{verdict} (rtol {rtol:g}, atol {atol:g})")
    return "\n".join(lines)


def _line(row: Row) -> str:
    shape = "x".join(map(str, row.shape)) or say("scalar")
    head = f"{'ok  ' if row.ok else 'FAIL'} {shown_name(row.name)}  {row.dtype} {shape}"
    if row.max_abs is not None:
        head += "  " + say(
            "max abs {absolute:.3g}  max rel {relative:.3g}",
            absolute=row.max_abs, relative=row.max_rel,
        )  # fmt: skip
    return f"{head}  ({translate(row.note)})" if row.note else head
