"""Slices that cut a tensor into parts are one Split: the tensor is read once."""

from __future__ import annotations

from gecompiler.ir.op import Op
from gecompiler.ir.types import TensorType
from gecompiler.passes.op_params import INT64_MAX, slice_axes
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable

_SPLIT_TAKES_SIZES = 13


def slices_to_split(r: Rewriter, op: Op) -> Result | None:
    """The Slice at the front of an axis, and those that go on where it ends, up to the last."""
    shape = r.facts.shape(op.inputs[0])
    first = _cut(r, op)
    if shape is None or first is None or first[1] != 0 or r.opset < _SPLIT_TAKES_SIZES:
        return None
    axis, size = first[0], shape[first[0]]
    if not isinstance(size, int):
        return None
    parts = _partition(r, op, axis, size)
    known = [r.graph.tensor(part.outputs[0]) for part in parts]
    if any(r.is_pinned(part) for part in parts):
        return None
    if len(parts) < 2 or any(t is None or t.shape is None for t in known):
        return None
    sizes = [_size(t, axis) for t in known]
    if sum(sizes) != size:
        return None
    inputs = (op.inputs[0], r.ints(sizes, f"{op.name}_sizes"))
    values = r.emit_many("Split", inputs, known, attrs={"axis": axis}, info=op.info, stem=op.name)
    for part, value in zip(parts[1:], values[1:], strict=True):
        r.forward(part, (value,))
    return values[0]


def _size(type_: TensorType | None, axis: int) -> int:
    size = type_.shape[axis] if type_ is not None and type_.shape is not None else 0
    return size if isinstance(size, int) else 0


def _partition(r: Rewriter, op: Op, axis: int, size: int) -> list[Op]:
    """Slices that follow each other along the axis from ``op`` to the end; [] when some lack."""
    starts: dict[int, tuple[int, Op]] = {}
    for user in r.graph.users(op.inputs[0]):
        cut = _cut(r, user)
        if cut is not None and cut[0] == axis:
            starts.setdefault(cut[1], (cut[2], user))
    parts, at = [op], (_cut(r, op) or (0, 0, 0))[2]
    while at < size:
        if at not in starts:
            return []
        following = starts.pop(at)
        if following[0] <= at:
            return []
        at = following[0]
        parts.append(following[1])
    return parts


def _cut(r: Rewriter, op: Op) -> tuple[int, int, int] | None:
    """(axis, start, end) of a canonical Slice along one axis, step 1, else None."""
    if not op.is_("Slice"):
        return None
    parts, shape = slice_axes(r, op), r.facts.shape(op.inputs[0])
    if parts is None or shape is None or len(parts) != 1:
        return None
    part, size = parts[0], shape[parts[0].axis]
    start, stop = part.start, part.stop
    if part.step != 1 or not (isinstance(start, int) and isinstance(stop, int)):
        return None
    if not isinstance(size, int) or start < 0 or stop < 0:
        return None
    return part.axis, start, size if stop == INT64_MAX else min(stop, size)


RULES: RuleTable = {"Slice": (slices_to_split,)}
