"""What onnxruntime's attention ops have in common: heads, projections, biases, scales, masks.

The ops are those of the domain ``com.microsoft``; their meaning is that of
``ContribOperators.md`` of onnxruntime 1.32 and of its kernels for the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gecompiler.ir.dims import Dim, floordiv
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, Shape
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.layout import Axis, Factor, Layout
from gecompiler.passes.attention.limits import limits
from gecompiler.passes.attention.refusal import at
from gecompiler.passes.attention.relayout import relayout
from gecompiler.passes.attention.terms import Bias, Term


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of one attention; ``heads`` are ``groups`` times what shares a KV head."""

    batch: Axis
    groups: Axis
    heads: Axis
    queries: Axis
    new_keys: Axis
    width: Axis
    value_width: Axis

    def flat(self, heads: Axis, rows: Axis, width: Axis) -> Layout:
        """(B, rows, heads * width)."""
        return self.batch, rows, (*heads, *width)

    def four(self, heads: Axis, rows: Axis, width: Axis) -> Layout:
        """(B, heads, rows, width)."""
        return self.batch, heads, rows, width


def axis(size: Dim) -> Axis:
    """A new axis of that size."""
    return () if size == 1 else (Factor(size),)


def shape_of(e: Elements, op: Op, index: int, rank: int | Sequence[int]) -> Shape:
    """The shape of an input; Refusal when its rank is another."""
    name = op.input(index)
    found = e.shape(name) if name else None
    ranks = (rank,) if isinstance(rank, int) else tuple(rank)
    if found is None or len(found) not in ranks:
        raise at(op, f"has {name or 'no input'!r} of shape {found} as input {index}")
    return found


def heads_of(op: Op, name: str) -> int:
    """A number of heads."""
    found = op.attr(name, 0)
    if not isinstance(found, int) or found < 1:
        raise at(op, f"has {name} {found}")
    return found


def head_size(op: Op, columns: Dim, heads: int) -> Dim:
    """The size of a head of a hidden size."""
    if isinstance(columns, int) and columns % heads:
        raise at(op, f"has {columns} columns in {heads} heads")
    return floordiv(columns, heads)


def scale_of(op: Op, width: Axis) -> float:
    """The scale: its attribute, else 1/sqrt(D)."""
    given = float(op.attr("scale", 0.0))
    size = lay.size(width)
    if given:
        return given
    if not isinstance(size, int):
        raise at(op, f"scales by a head size that is not known: {size}")
    return 1 / math.sqrt(size)


def no_input(e: Elements, op: Op, index: int, what: str) -> None:
    """Refuses an input that has no counterpart."""
    if op.input(index):
        raise at(op, f"{what} {op.input(index)!r}")


def no_output(e: Elements, op: Op, index: int, what: str) -> None:
    """Refuses an output that has no counterpart, if anything reads it."""
    name = op.outputs[index] if len(op.outputs) > index else ""
    if name and (e.graph.uses(name) or e.graph.is_output(name)):
        raise at(op, f"{what} {name!r}")


def with_bias(build: Builder, value: str, bias: str) -> str:
    """A value with a bias on its last axis, if there is one."""
    return build.binary("Add", value, bias) if bias else value


def pieces(build: Builder, value: str, axis_: int, sizes: Sequence[Dim], op: Op) -> list[str]:
    """A value in pieces along an axis; ``""`` three times for no value."""
    if not value:
        return [""] * len(sizes)
    numbers = [n for n in sizes if isinstance(n, int)]
    if len(numbers) < len(sizes):
        raise at(op, f"splits {value!r} into pieces of sizes that are not known")
    whole = build.shape(value)[axis_]
    if isinstance(whole, int) and whole != sum(numbers):
        raise at(op, f"has {whole} columns in {value!r}, not {sum(numbers)}")
    return list(build.split(value, axis_, numbers))


# ---------------------------------------------------------------- masks


def added(e: Elements, op: Op, index: int, standard: Layout) -> tuple[Term, ...]:
    """``attention_bias``: (B or 1, H or 1, S, T), added to the scores."""
    name = op.input(index)
    if not name:
        return ()
    shape_of(e, op, index, 4)
    return (Bias(op, name, standard, 1.0, (DType.F32,), None),)


def padding(
    e: Elements, build: Builder, op: Op, index: int, standard: Layout, past: Dim
) -> tuple[Term, ...]:
    """``key_padding_mask`` or ``mask_index`` of every shape.

    (B, T) and (B, S, T) are 1 where a key counts. (B,) are numbers of keys that count, (2B,) the
    first key that does not and the first that does, (3B + 2,) numbers and running sums of them.
    Keys that do not count get ``mask_filter_value`` added. Those after the query get the lowest
    number instead, which shows where ``mask_filter_value`` is no higher.
    """
    name = op.input(index)
    if not name:
        return ()
    shape = e.shape(name)
    batch, _, queries, keys = lay.shape_of(standard)
    build.sources = (*build.sources, name)
    if shape is not None and len(shape) == 1:
        kept = _in_bounds(build, op, name, shape[0], batch, keys)
    elif shape is not None and len(shape) in (2, 3) and _same(e, shape[-1], keys):
        kept = build.binary("Greater", name, _zero(build, name), DType.BOOL)
        kept = build.unsqueeze(kept, (1, 2) if len(shape) == 2 else (1,))
    else:
        raise at(op, f"has a mask {name!r} of shape {shape} over {keys} keys")
    dtype = DType.F32
    low = float(op.attr("mask_filter_value", -10000.0))
    zero, rest = (build.constant(np.array(n), dtype, "filter") for n in (0.0, low))
    term = build.where(kept, zero, rest)
    if op.attr("unidirectional", 0) and hides_later_keys(op):
        lowest = build.constant(np.array(-limits(dtype).largest), dtype, "lowest")
        term = build.where(_after(e, build, queries, keys, past), lowest, term)
    return (Bias(op, term, standard, 1.0, (dtype,), None),)


def _after(e: Elements, build: Builder, queries: Dim, keys: Dim, past: Dim) -> str:
    """(1, 1, S, T): whether a key comes after the query."""
    rows = build.reshape(build.arange(queries, build.sources), (1, 1, queries, 1))
    columns = build.reshape(build.arange(keys, build.sources), (1, 1, 1, keys))
    if past != 0:
        rows = build.binary("Add", rows, build.runtime_dim(past, build.sources))
    after = build.binary("Greater", columns, rows, DType.BOOL)
    if _same(e, keys, queries + past):
        return after
    last = build.runtime_dim(queries - 1 + past, build.sources)  # it sees all keys there are
    return build.binary("And", after, build.binary("Less", rows, last, DType.BOOL))


def hides_later_keys(op: Op) -> bool:
    """Whether `padding` has put causality into the mask already."""
    low = float(op.attr("mask_filter_value", -10000.0))
    return low <= -limits(DType.F32).swallowing


def _same(e: Elements, a: Dim, b: Dim) -> bool:
    return a == b or e.agree(a, b)


def _zero(build: Builder, like: str) -> str:
    return build.constant(np.array(0), build.dtype(like), "zero")


def _in_bounds(build: Builder, op: Op, name: str, count: Dim, batch: Dim, keys: Dim) -> str:
    """(B, 1, 1, T): whether a key lies between the bounds of its batch entry."""
    columns = build.reshape(build.arange(keys), (1, 1, 1, keys))
    bounds = build.cast(name, DType.I64)
    entries = build.runtime_dim(batch, build.sources)
    if count not in (batch, 2 * batch, 3 * batch + 2):
        raise at(op, f"has a mask {name!r} of {count} numbers for {batch} batch entries")
    end = bounds if count == batch else build.cut(bounds, 0, entries, batch)
    ends = build.reshape(end, (batch, 1, 1, 1))
    kept = build.binary("Less", columns, ends, DType.BOOL)
    if count == 2 * batch and count != batch:
        two = build.reshape(bounds, (2, batch))
        first = build.reshape(build.entry(two, 0, 1), (batch, 1, 1, 1))
        before = build.binary("Less", columns, first, DType.BOOL)
        kept = build.binary("And", kept, build.unary("Not", before))
    return kept


# ---------------------------------------------------------------- views


def brought(build: Builder, value: str, given: Layout, target: Layout) -> str:
    """The value in another layout."""
    return relayout(build, value, given, target)
