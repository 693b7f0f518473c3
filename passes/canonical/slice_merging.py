"""Slices in canonical form, merged, or taken away when they take everything."""

from __future__ import annotations

from collections.abc import Iterable

from gecompiler.ir.dim_bounds import proven_le
from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.passes.op_params import INT64_MAX, SliceAxis, slice_axes
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable

_INT32_MAX = (1 << 31) - 1
"""An end from here on means "to the end": it is what exporters write, and no axis is as long."""


def canonical_slice(r: Rewriter, op: Op) -> Result | None:
    """One Slice with sorted axes and numbers only, of the value that a chain of them starts at.

    Axes that are taken whole are left out; an end at or beyond the size is the greatest integer.
    """
    parts = slice_axes(r, op)
    shape = r.facts.shape(op.inputs[0])
    if parts is None or shape is None:
        return None
    kept = _significant(parts, shape)
    if kept is None:
        return None
    if not kept:
        return op.inputs[0]
    inner = _inner(r, op.inputs[0])
    if inner is not None:
        merged = _numbers(_compose(inner[1], kept))
        if merged is not None:
            return _spell(r, op, inner[0], merged)
    numbers = _numbers(kept)
    return None if numbers is None else _spell(r, op, op.inputs[0], numbers)


def _significant(parts: Iterable[SliceAxis], shape: tuple[Dim, ...]) -> list[SliceAxis] | None:
    """The axes that are cut, with ends beyond the size made the greatest integer."""
    found = []
    for part in parts:
        size = shape[part.axis]
        stop = part.stop
        if part.step > 0 and (stop == size or _beyond(stop, size)):
            stop = INT64_MAX
        start = part.start
        if isinstance(size, int) and part.step > 0:
            start, stop = _from_front(start, size), _from_front(stop, size)
        if part.step == 1 and stop == INT64_MAX and (start == 0 or _at_front(start, size)):
            continue
        found.append(SliceAxis(part.axis, start, stop, part.step))
    return found


def _from_front(index: Dim, size: int) -> Dim:
    return max(index + size, 0) if isinstance(index, int) and index < 0 else index


def _beyond(stop: Dim, size: Dim) -> bool:
    """Whether an end lies at or after the end of the axis (negative ends count from it)."""
    if isinstance(stop, int):
        if stop >= _INT32_MAX:
            return True
        return stop >= 0 and isinstance(size, int) and stop >= size
    return proven_le(size, stop)


def _at_front(start: Dim, size: Dim) -> bool:
    """Whether a negative start reaches back to the front: ``-size``."""
    return start == -size and start != 0


def _inner(r: Rewriter, value: str) -> tuple[str, tuple[SliceAxis, ...]] | None:
    maker = r.graph.producer(value)
    if maker is None or not maker.is_("Slice"):
        return None
    parts = slice_axes(r, maker)
    return None if parts is None else (maker.inputs[0], parts)


def _compose(inner: tuple[SliceAxis, ...], outer: list[SliceAxis]) -> list[SliceAxis] | None:
    """The one Slice that equals ``inner`` and then ``outer``; None when it is not plain."""
    found = {part.axis: part for part in inner}
    for part in outer:
        first = found.get(part.axis)
        merged = part if first is None else _compose_axis(first, part)
        if merged is None:
            return None
        found[part.axis] = merged
    return [found[axis] for axis in sorted(found)]


def _compose_axis(first: SliceAxis, then: SliceAxis) -> SliceAxis | None:
    both = [d for d in (first.start, first.stop, then.start, then.stop) if isinstance(d, int)]
    if first.step != 1 or then.step != 1 or len(both) < 4 or min(both) < 0:
        return None
    start, limit, then_start, then_stop = both
    stop = limit if then_stop >= _INT32_MAX else min(limit, start + then_stop)
    return SliceAxis(first.axis, start + then_start, stop, 1)


def _numbers(parts: list[SliceAxis] | None) -> list[tuple[int, int, int, int]] | None:
    found = []
    for p in parts or ():
        if not isinstance(p.start, int) or not isinstance(p.stop, int):
            return None
        found.append((p.axis, p.start, p.stop, p.step))
    return found or None


def _spell(
    r: Rewriter, op: Op, source: str, parts: list[tuple[int, int, int, int]]
) -> Result | None:
    """The op with those parameters, None when it has them already."""
    axes, starts, stops, steps = (tuple(column) for column in zip(*parts, strict=True))
    if r.opset < 10:
        attrs = {"axes": axes, "starts": starts, "ends": stops}
        if source == op.inputs[0] and dict(op.attrs) == attrs:
            return None
        return op.with_(inputs=(source,), attrs=attrs)
    wanted = [starts, stops, axes] + ([] if set(steps) == {1} else [steps])
    now = [r.facts.ints(v) if v in r.graph.constants else None for v in op.inputs[1:]]
    if source == op.inputs[0] and now == wanted:
        return None
    names = ("starts", "ends", "axes", "steps")
    inputs = [r.ints(w, f"{op.name}_{n}") for w, n in zip(wanted, names, strict=False)]
    return op.with_(inputs=(source, *inputs), attrs={})


RULES: RuleTable = {"Slice": (canonical_slice,)}
