"""Rotary embedding as ai.onnx's, or as products and sums of the lanes of each pair."""

from __future__ import annotations

from collections.abc import Sequence

from gecompiler.ir.block_ops import ROTARY_EMBEDDING, Rotary
from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.attention.builder import Builder

_END = (1 << 63) - 1


def expand_rotary(build: Builder, op: Op, primitives: bool) -> tuple[str, ...]:
    """X with its pairs turned."""
    spec = Rotary.of(op)
    build.sources = op.inputs
    standard = None if primitives else _standard(build, op, spec)
    return (_primitive(build, op, spec) if standard is None else standard,)


def _standard(build: Builder, op: Op, spec: Rotary) -> str | None:
    """RotaryEmbedding of (B, N, S, D) with tables (B, S, R/2), which it does not broadcast."""
    x, shape = op.inputs[0], build.shape(op.inputs[0])
    if build.opset < 23 or len(shape) != 4 or spec.start or spec.style == "interleaved_to_half":
        return None
    if any(not _fits(build, op, table, spec.dim) for table in op.inputs[1:]):
        return None
    full = (shape[0], shape[2], spec.dim // 2)
    tables = [_without_heads(build, table) for table in op.inputs[1:]]
    inputs = (x, *(build.expand(table, full) for table in tables))
    attrs = {"interleaved": int(spec.style == "interleaved"), "rotary_embedding_dim": 0}
    if shape[3] != spec.dim:
        attrs["rotary_embedding_dim"] = spec.dim
        attrs["num_heads"] = shape[1] if isinstance(shape[1], int) else 0
    return build.emit(ROTARY_EMBEDDING, inputs, build.dtype(x), shape, **attrs)


def _fits(build: Builder, op: Op, table: str, dim: int) -> bool:
    """Whether a table is of X's type, has a column for each pair, and is one for all heads."""
    shape = build.shape(table)
    heads_alike = len(shape) < 3 or shape[-3] == 1
    narrow = bool(shape) and shape[-1] == dim // 2
    return narrow and heads_alike and build.dtype(table) is build.dtype(op.inputs[0])


def _without_heads(build: Builder, table: str) -> str:
    """A table (..., 1, S, R/2) without the axis of heads."""
    shape = build.shape(table)
    return table if len(shape) < 3 else build.reshape(table, (*shape[:-3], *shape[-2:]))


def _primitive(build: Builder, op: Op, spec: Rotary) -> str:
    x, kind = op.inputs[0], build.dtype(op.inputs[0])
    cos, sin = op.inputs[1:]
    types = {build.dtype(v) for v in op.inputs}
    work = kind if len(types) == 1 else DType.F64 if DType.F64 in types else DType.F32
    reads = spec.style if spec.style == "half" else "interleaved"
    a, b = (build.cast(v, work) for v in _pair(build, x, spec.start, spec.dim, reads))
    writes = "interleaved" if spec.style == "interleaved" else "half"
    cosines, sines = (_columns(build, build.cast(t, work), spec.dim, writes) for t in (cos, sin))
    first = _sum(build, "Sub", a, cosines[0], b, sines[0])
    second = _sum(build, "Add", b, cosines[1], a, sines[1])
    parts = [build.cast(v, kind) for v in (first, second)]
    if spec.style == "interleaved":
        parts = [_interleaved(build, parts, spec.dim)]
    return _joined(build, [*_before(build, x, spec), *parts, *_after(build, x, spec)])


def _sum(build: Builder, op_type: str, a: str, x: str, b: str, y: str) -> str:
    return build.binary(op_type, build.binary("Mul", a, x), build.binary("Mul", b, y))


def _pair(build: Builder, value: str, start: int, dim: int, style: str) -> tuple[str, str]:
    """The lanes that are first in their pair, and those that are second."""
    half = dim // 2
    if style == "interleaved":
        return (
            _cut(build, value, start, start + dim, half, 2),
            _cut(build, value, start + 1, start + dim, half, 2),
        )
    return (
        _cut(build, value, start, start + half, half),
        _cut(build, value, start + half, start + dim, half),
    )


def _columns(build: Builder, table: str, dim: int, style: str) -> tuple[str, str]:
    """The table for the first and for the second lane of each pair made."""
    if build.shape(table)[-1] != dim:
        return table, table
    return _pair(build, table, 0, dim, style)


def _before(build: Builder, x: str, spec: Rotary) -> list[str]:
    return [_cut(build, x, 0, spec.start, spec.start)] if spec.start else []


def _after(build: Builder, x: str, spec: Rotary) -> list[str]:
    end, last = spec.start + spec.dim, build.shape(x)[-1]
    return [] if last == end else [_cut(build, x, end, _END, last - end)]


def _interleaved(build: Builder, parts: Sequence[str], dim: int) -> str:
    shape = build.shape(parts[0])
    pairs = _joined(build, [build.unsqueeze(v, (len(shape),)) for v in parts])
    return build.reshape(pairs, (*shape[:-1], dim))


def _joined(build: Builder, parts: Sequence[str]) -> str:
    """The parts side by side along the last axis."""
    if len(parts) == 1:
        return parts[0]
    shape = build.shape(parts[0])
    width: Dim = 0
    for part in parts:
        width = width + build.shape(part)[-1]
    kind = build.dtype(parts[0])
    return build.emit("Concat", parts, kind, (*shape[:-1], width), axis=len(shape) - 1)


def _cut(build: Builder, value: str, start: int, stop: int, size: Dim, step: int = 1) -> str:
    """Columns of a value."""
    shape = build.shape(value)
    kind, axis, out = build.dtype(value), len(shape) - 1, (*shape[:-1], size)
    if build.opset < 10:  # before slices with steps
        if step == 1:
            attrs = {"axes": (axis,), "starts": (start,), "ends": (stop,)}
            return build.emit("Slice", (value,), kind, out, **attrs)
        places = build.ints(range(start, stop, step))
        return build.emit("Gather", (value, places), kind, out, axis=axis)
    limits = [build.ints([n]) for n in (start, stop, axis, step)]
    return build.emit("Slice", (value, *limits), kind, out)
