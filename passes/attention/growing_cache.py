"""A cache with new entries put in at a place that may differ from batch entry to batch entry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gecompiler.ir.dim_bounds import proven_le
from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, Shape
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.refusal import at


@dataclass(frozen=True, slots=True)
class Places:
    """Where new entries begin: ``known`` for all batch entries, else ``first`` (B,) int64."""

    known: Dim | None = None
    first: str = ""

    def indices(self, build: Builder, batch: Dim, count: Dim) -> tuple[str, Shape]:
        """The places of ``count`` entries from there on: (B, count), or (count,) for all alike."""
        steps = build.arange(count)
        if self.known is not None:
            if self.known == 0:
                return steps, (count,)
            start = build.runtime_dim(self.known, build.sources)
            return build.binary("Add", steps, start), (count,)
        first = build.reshape(self.first, (batch, 1))
        return build.binary("Add", first, build.reshape(steps, (1, count))), (batch, count)


@dataclass(frozen=True, slots=True)
class Held:
    """A cache (B, G, T, D) with its new entries; ``length`` of T, if fewer, are handed on."""

    value: str
    length: str = ""

    def present(self, build: Builder, op: Op, shape: Shape | None) -> str:
        """The cache as it is handed on."""
        if not self.length:
            return self.value
        if shape is None:
            raise at(op, "hands out a cache of unknown shape")
        return build.cut(self.value, 2, self.length, shape[2])


def grown(build: Builder, past: str, new: str, places: Places, total: Dim | None, op: Op) -> Held:
    """``new`` (B, G, S, D) put into ``past`` (B, G, P, D); ``total`` is the most keys then.

    The result has max(P, total) places: a cache that is large enough keeps its size, one that
    grows ends with the new entries.
    """
    shape, rows = build.shape(past), build.shape(new)[2]
    if len(shape) != 4:
        raise at(op, f"has a cache {past!r} of rank {len(shape)}")
    room = shape[2]
    if places.known is not None and places.known == room:
        return Held(build.concat((past, new), 2))
    if total is not None and proven_le(total, room):
        return Held(_written(build, past, new, places))
    zero = build.constant(np.zeros((1, 1, 1, 1)), build.dtype(past), "empty")
    more = build.expand(zero, (*shape[:2], rows, shape[3]))
    whole = _written(build, build.concat((past, more), 2), new, places)
    if total is not None and total == room + rows:
        return Held(whole)
    given = build.reshape(build.cast(op.inputs[6], DType.I64), (1,))
    own = build.runtime_dim(room, (past,))
    longer = build.binary("Greater", given, own, DType.BOOL)
    return Held(whole, build.where(longer, given, own))


def _written(build: Builder, cache: str, new: str, places: Places) -> str:
    """The cache with the new entries over what is at their places."""
    batch, groups, rows, width = build.shape(new)
    shape, dtype = build.shape(cache), build.dtype(cache)
    if places.known is None and build.opset >= 24:
        inputs = (cache, new, places.first)
        return build.emit("TensorScatter", inputs, dtype, shape, axis=2)
    index, lead = places.indices(build, batch, rows)
    lead = lead if len(lead) == 2 else (1, rows)
    column = build.reshape(index, (lead[0], 1, rows, 1))
    full = build.expand(column, (batch, groups, rows, width))
    op_type = "ScatterElements" if build.opset >= 11 else "Scatter"
    return build.emit(op_type, (cache, full, new), dtype, shape, axis=2)
