"""Parameters of ops that moved between attributes and inputs from one opset to the next."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.ir.types import Shape
from gecompiler.passes.rewriting import Rewriter

INT64_MAX = (1 << 63) - 1


def axes(r: Rewriter, op: Op) -> tuple[int, ...] | None:
    """The ``axes`` of Squeeze, Unsqueeze or a reduction, as written; None: not given or unknown."""
    if op.input(1):
        return r.facts.ints(op.input(1))
    found = op.attr("axes")
    return tuple(found) if found is not None else None


def new_axes(r: Rewriter, op: Op) -> tuple[int, ...] | None:
    """The positions, in the output, of the dims that an Unsqueeze inserts; sorted."""
    given, rank = axes(r, op), _rank(r, op.inputs[0])
    if given is None or rank is None:
        return None
    return normal_axes(given, rank + len(given))


def normal_axes(given: tuple[int, ...], rank: int) -> tuple[int, ...] | None:
    """Axes made non-negative and sorted; None when one is out of range or given twice."""
    found = sorted(a + rank if a < 0 else a for a in given)
    if len(set(found)) < len(found) or any(not 0 <= a < rank for a in found):
        return None
    return tuple(found)


def perm(r: Rewriter, op: Op) -> tuple[int, ...] | None:
    """The permutation of a Transpose."""
    given = op.attr("perm")
    if given is not None:
        return tuple(given)
    rank = _rank(r, op.inputs[0])
    return None if rank is None else tuple(reversed(range(rank)))


def _rank(r: Rewriter, value: str) -> int | None:
    shape = r.facts.shape(value)
    return None if shape is None else len(shape)


@dataclass(frozen=True, slots=True)
class SliceAxis:
    """One axis of a Slice: ``x[start:stop:step]`` with Python's meaning of the three."""

    axis: int
    start: Dim
    stop: Dim
    step: int


def slice_axes(r: Rewriter, op: Op) -> tuple[SliceAxis, ...] | None:
    """What a Slice takes of each axis it names, by axis; None where something is not known."""
    shape = r.facts.shape(op.inputs[0])
    if shape is None:
        return None
    if r.opset < 10:
        starts, stops = op.attr("starts"), op.attr("ends")
        given, steps = op.attr("axes"), None
    else:
        starts, stops = r.facts.contents(op.input(1)), r.facts.contents(op.input(2))
        given = r.facts.ints(op.input(3)) if op.input(3) else None
        steps = r.facts.ints(op.input(4)) if op.input(4) else None
        if (op.input(3) and given is None) or (op.input(4) and steps is None):
            return None
    if starts is None or stops is None or None in starts or None in stops:
        return None
    steps = steps or (1,) * len(starts)
    where = normal_order(tuple(given or range(len(starts))), len(shape))
    if where is None or not len(where) == len(starts) == len(stops) == len(steps):
        return None
    parts = [
        SliceAxis(axis, start, stop, step)
        for axis, start, stop, step in zip(where, starts, stops, steps, strict=True)
    ]
    return tuple(sorted(parts, key=lambda p: p.axis))


def normal_order(given: tuple[int, ...], rank: int) -> tuple[int, ...] | None:
    """Axes made non-negative, in the order given; None when out of range or given twice."""
    found = tuple(a + rank if a < 0 else a for a in given)
    if len(set(found)) < len(found) or any(not 0 <= a < rank for a in found):
        return None
    return found


def elements(shape: Shape) -> int | None:
    """The number of elements, if every size is a number."""
    sizes = [d for d in shape if isinstance(d, int)]
    return prod(sizes) if len(sizes) == len(shape) else None
