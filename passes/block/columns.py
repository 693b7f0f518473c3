"""Columns of a tensor's last axis, and tensors with ones among the other axes."""

from __future__ import annotations

from math import prod

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.types import Shape, TensorType
from gecompiler.passes.block.lane_reader import LaneReader
from gecompiler.passes.block.rotary_form import Table
from gecompiler.passes.canonical.reshape_forms import inserted_ones
from gecompiler.passes.rewriting import Rewriter


def columns(r: Rewriter, value: str, start: int, width: int) -> str:
    """Some columns of a value: itself, a slice that is there already, or a new one."""
    kind = _tensor(r, value)
    shape = kind.shape or ()
    if shape[-1] == width:
        return value
    for user in r.graph.users(value):
        for out in user.outputs if user.is_("Slice", "Split") else ():
            if out and r.facts.shape(out) and _holds(r, out, value, start, width):
                return out
    limits = (start, start + width, len(shape) - 1)
    wanted = TensorType(kind.dtype, (*shape[:-1], width))
    if r.opset < 10:
        attrs = {k: (n,) for k, n in zip(("starts", "ends", "axes"), limits, strict=True)}
        return r.emit("Slice", (value,), wanted, attrs=attrs, stem=f"{value}_part")
    operands = [r.ints([n], f"{value}_limit") for n in limits]
    return r.emit("Slice", (value, *operands), wanted, stem=f"{value}_part")


def flattened(r: Rewriter, value: str, depth: int) -> str:
    """The value with its last ``depth`` axes as one."""
    if depth == 1:
        return value
    kind = _tensor(r, value)
    shape = kind.shape or ()
    lead = shape[: len(shape) - depth]
    width = prod(d for d in shape[len(lead) :] if isinstance(d, int))
    target = r.ints((*(0,) * len(lead), width), f"{value}_sizes")
    wanted = TensorType(kind.dtype, (*lead, width))
    return r.emit("Reshape", (value, target), wanted, stem=f"{value}_flat")


def picked(r: Rewriter, table: Table) -> str:
    """The columns that a table picks from its roots, with their signs."""
    parts = [aligned(r, flattened(r, t.root, t.depth), t.lead) for t in table.roots]
    kinds = [_tensor(r, part) for part in parts]
    widths = [k.shape[-1] for k in kinds if k.shape and isinstance(k.shape[-1], int)]
    starts = [sum(widths[:n]) for n in range(len(parts))]
    dtype, stem = kinds[0].dtype, f"{parts[0]}_columns"
    value = parts[0]
    if len(parts) > 1:
        wanted = TensorType(dtype, (*table.lead, sum(widths)))
        value = r.emit("Concat", parts, wanted, attrs={"axis": len(table.lead)}, stem=stem)
    index = r.ints((starts[n] + column for n, column, _ in table.picks), f"{stem}_index")
    wanted = TensorType(dtype, (*table.lead, table.width))
    attrs = {"axis": len(table.lead)}
    value = r.emit("Gather", (value, index), wanted, attrs=attrs, stem=stem)
    signs = [sign for _, _, sign in table.picks]
    if all(sign == 1 for sign in signs):
        return value
    row = r.constant(Constant.of(np.array(signs), dtype), f"{stem}_signs")
    return r.emit("Mul", (value, row), wanted, stem=stem)


def _holds(r: Rewriter, out: str, value: str, start: int, width: int) -> bool:
    form = LaneReader(r).moves(out)
    if form is None or form.root != value or form.tail != (width,):
        return False
    return bool((form.lane[0] == start + np.arange(width)).all() and (form.sign == 1).all())


def aligned(r: Rewriter, value: str, lead: Shape) -> str:
    """The value with the axes ``lead`` before its last; ones may come and go."""
    before = _tensor(r, value).shape or ()
    after = (*lead, before[-1])
    if before == after:
        return value
    more, fewer = inserted_ones(before, after), inserted_ones(after, before)
    if more is not None:
        return _view(r, value, "Unsqueeze", more, after)
    if fewer is not None:
        return _view(r, value, "Squeeze", fewer, after)
    ones = tuple(n for n, dim in enumerate(before[:-1]) if dim == 1)
    least = tuple(dim for n, dim in enumerate(before) if n not in ones)
    return aligned(r, _view(r, value, "Squeeze", ones, least), lead)


def _view(r: Rewriter, value: str, op_type: str, axes: tuple[int, ...], shape: Shape) -> str:
    wanted, stem = TensorType(_tensor(r, value).dtype, shape), f"{value}_view"
    if r.opset < 13:
        return r.emit(op_type, (value,), wanted, attrs={"axes": axes}, stem=stem)
    return r.emit(op_type, (value, r.ints(axes, f"{value}_axes")), wanted, stem=stem)


def _tensor(r: Rewriter, value: str) -> TensorType:
    kind = r.graph.tensor(value)
    assert kind is not None, "only values of known lanes are cut"
    return kind
