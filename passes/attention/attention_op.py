"""Ops that are attention already: ai.onnx Attention (opset 23 and later), onnxruntime's.

They give the same `Match` as attention written out: their attributes say what walks over ops
find there. A row without any allowed key is 0 by their definition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from gecompiler.ir.dim_bounds import proven_le
from gecompiler.ir.dims import Dim, floordiv
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, Shape
from gecompiler.passes.attention import contrib_grouped, contrib_heads
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.element_logic import at_most
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.frame import Frame
from gecompiler.passes.attention.layout import Axis, Factor, Layout
from gecompiler.passes.attention.match import Match
from gecompiler.passes.attention.operands import Link, chain
from gecompiler.passes.attention.predicates import Predicate, conjunction
from gecompiler.passes.attention.refusal import at
from gecompiler.passes.attention.relayout import relayout
from gecompiler.passes.attention.terms import Bias, Overwrite, Term


def match_attention_op(e: Elements, build: Builder, op: Op) -> Match:
    """The op as an attention; Refusal when FlashAttention cannot mean the same."""
    return ATTENTION_OPS[op.kind](e, build, op)


@dataclass(frozen=True, slots=True)
class _Axes:
    """The axes of an Attention and the layouts of its operands as they are given."""

    batch: Axis
    groups: Axis
    repeats: Axis
    queries: Axis
    new_keys: Axis
    width: Axis
    value_width: Axis
    kv_batch: Axis
    flat: bool

    def layout(self, batch: Axis, heads: Axis, rows: Axis, width: Axis) -> Layout:
        """(B, heads, rows, width), or (B, rows, heads * width) for flat operands."""
        return (batch, rows, (*heads, *width)) if self.flat else (batch, heads, rows, width)


def _attention(e: Elements, build: Builder, op: Op) -> Match:
    if len(op.outputs) > 3 and op.outputs[3]:
        raise at(op, f"hands out its scores as {op.outputs[3]!r}")
    axes, out_dtype = _axes(e, op), e.dtype(op.outputs[0])
    if out_dtype is None:
        raise at(op, "has an output of unknown type")
    heads = (*axes.groups, *axes.repeats)
    keys, k, v, past, also = (_with_past if op.input(4) else _given)(e, build, op, axes)
    scale = op.attr("scale", 0.0) or 1 / math.sqrt(_number(op, lay.size(axes.width)))
    standard = (axes.batch, heads, axes.queries, keys)
    return Match(
        op=op,
        q=tuple(chain(e, op.inputs[0], axes.layout(axes.batch, heads, axes.queries, axes.width))),
        k=k,
        v=v,
        batch=axes.batch,
        heads=heads,
        queries=axes.queries,
        keys=keys,
        width=axes.width,
        value_width=axes.value_width,
        out=op.outputs[0],
        out_layout=axes.layout(axes.batch, heads, axes.queries, axes.value_width),
        out_dtype=out_dtype,
        ops=(op,),
        alpha=float(scale),
        softcap=float(op.attr("softcap", 0.0)),
        terms=(*_mask(e, build, op, standard), *_valid_keys(build, op, standard)),
        causal=_band(op, past),
        guarded=True,
        also=also,
    )


def _axes(e: Elements, op: Op) -> _Axes:
    q, k, v = (_shape(e, op, n) for n in range(3))
    if not len(q) == len(k) == len(v) or len(q) not in (3, 4):
        raise at(op, f"has operands of rank {len(q)}, {len(k)} and {len(v)}")
    flat = len(q) == 3
    heads = op.attr("q_num_heads", 0) if flat else q[1]
    groups = op.attr("kv_num_heads", 0) if flat else k[1]
    known = isinstance(heads, int) and isinstance(groups, int) and groups > 0
    if not known or heads % groups:
        raise at(op, f"has {heads} query heads over {groups} KV heads")
    return _Axes(
        batch := _axis(q[0]),
        _axis(groups),
        _axis(heads // groups),
        _axis(q[1] if flat else q[2]),
        _axis(k[1] if flat else k[2]),
        _axis(floordiv(q[2], heads) if flat else q[3]),
        _axis(floordiv(v[2], groups) if flat else v[3]),
        () if k[0] == 1 else batch,
        flat,
    )


def _shape(e: Elements, op: Op, index: int) -> Shape:
    found = e.shape(op.inputs[index])
    if found is None:
        raise at(op, f"has {op.inputs[index]!r} of unknown rank")
    return found


def _axis(size: Dim) -> Axis:
    return () if size == 1 else (Factor(size),)


def _number(op: Op, size: Dim) -> int:
    if not isinstance(size, int):
        raise at(op, f"scales by a head size that is not known: {size}")
    return size


# ---------------------------------------------------------------- K and V


_Keys = tuple[Axis, tuple[Link, ...], tuple[Link, ...], Dim, tuple[tuple[str, str], ...]]
"""The keys' axis, K, V, the length of the past, and what stands for the presents."""


def _given(e: Elements, build: Builder, op: Op, axes: _Axes) -> _Keys:
    """K and V as they are given."""
    k = axes.layout(axes.kv_batch, axes.groups, axes.new_keys, axes.width)
    v = axes.layout(axes.kv_batch, axes.groups, axes.new_keys, axes.value_width)
    links = tuple(chain(e, op.inputs[1], k)), tuple(chain(e, op.inputs[2], v))
    also: list[tuple[str, str]] = []
    for n, given, width in ((1, k, axes.width), (2, v, axes.value_width)):
        if len(op.outputs) > n and op.outputs[n]:  # without a past, presents are K and V
            four = (axes.kv_batch, axes.groups, axes.new_keys, width)
            present = relayout(build, op.inputs[n], given, four)
            same = present == op.inputs[n]
            also.append((op.outputs[n], build.unary("Identity", present) if same else present))
    return axes.new_keys, *links, 0, tuple(also)


def _with_past(e: Elements, build: Builder, op: Op, axes: _Axes) -> _Keys:
    """K and V behind their pasts."""
    past = _shape(e, op, 4)[2]
    whole = _axis(past + lay.size(axes.new_keys))
    found: list[tuple[Link, ...]] = []
    also: list[tuple[str, str]] = []
    for n, width in ((1, axes.width), (2, axes.value_width)):
        given = axes.layout(axes.kv_batch, axes.groups, axes.new_keys, width)
        four = (axes.kv_batch, axes.groups, axes.new_keys, width)
        new = relayout(build, op.inputs[n], given, four)
        layout = (axes.kv_batch, axes.groups, whole, width)
        parts = (op.inputs[n + 3], new)
        joined = build.emit("Concat", parts, build.dtype(new), lay.shape_of(layout), axis=2)
        if len(op.outputs) > n and op.outputs[n]:
            also.append((op.outputs[n], joined))
        found.append((Link(joined, layout),))
    return whole, found[0], found[1], past, tuple(also)


# ---------------------------------------------------------------- masks


def _band(op: Op, past: Dim) -> Callable[[Elements, Frame], Predicate] | None:
    """Causality and windows, counted from the end of the past."""
    left, right = op.attr("left_window_size", -1), op.attr("right_window_size", -1)
    if (left >= 0 or right >= 0) and op.input(6):
        raise at(op, "has a window over a number of keys that differs from batch to batch")
    if op.attr("is_causal", 0) and not op.input(6):
        right = 0  # the closer of the two bounds
    if left < 0 and right < 0:
        return None

    def allowed(e: Elements, frame: Frame) -> Predicate:
        distance = frame.j - frame.i - past
        after = at_most(e, distance - right) if right >= 0 else True
        before = at_most(e, -distance - left) if left >= 0 else True
        return conjunction(after, before)

    return allowed


def _mask(e: Elements, build: Builder, op: Op, standard: Layout) -> tuple[Term, ...]:
    value = op.input(3)
    if not value:
        return ()
    shape, dtype = e.shape(value), e.dtype(value)
    if shape is None or dtype is None or len(shape) > 4:
        raise at(op, f"has a mask {value!r} of unknown shape")
    keys = lay.size(standard[3])
    if e.graph.opsets.get("", 0) >= 24 and shape[-1] != keys and not e.agree(shape[-1], keys):
        value = _to_all_keys(build, op, value, keys)
    if dtype is DType.BOOL:
        return (Overwrite(op, value, standard, True, -math.inf, (DType.F32,), None),)
    return (Bias(op, value, standard, 1.0, (DType.F32,), None),)


def _to_all_keys(build: Builder, op: Op, mask: str, keys: Dim) -> str:
    """A mask for the first keys only, with the rest masked: runtimes do not pad it themselves."""
    *lead, given = build.shape(mask)
    known = isinstance(given, int) and given > 1
    if not known or proven_le(keys, given):
        raise at(op, f"has a mask {mask!r} for {given} of {keys} keys")
    dtype = build.dtype(mask)
    hidden = np.full((1,) * (len(lead) + 1), False if dtype is DType.BOOL else -np.inf)
    build.sources = (mask, *op.inputs[1:3])
    rest = build.expand(build.constant(hidden, dtype, "hidden"), (*lead, keys - given))
    return build.emit("Concat", (mask, rest), dtype, (*lead, keys), axis=len(lead))


def _valid_keys(build: Builder, op: Op, standard: Layout) -> tuple[Term, ...]:
    """``nonpad_kv_seqlen``: keys from there on are padding; causality counts from there too."""
    if not op.input(6):
        return ()
    _, _, s, t = lay.shape_of(standard)
    valid = build.reshape(op.inputs[6], (lay.size(standard[0]), 1, 1, 1))
    keys = build.reshape(build.arange(t, (op.inputs[1],)), (1, 1, 1, t))
    masks = [build.binary("Less", keys, valid, DType.BOOL)]
    if op.attr("is_causal", 0):
        queries = build.reshape(build.arange(s, (op.inputs[0],)), (1, 1, s, 1))
        first = build.binary("Sub", valid, build.runtime_dim(s, (op.inputs[0],)))
        last = build.binary("Add", queries, first)
        masks.append(build.binary("LessOrEqual", keys, last, DType.BOOL))
    return tuple(
        Overwrite(op, mask, standard, True, -math.inf, (DType.F32,), None) for mask in masks
    )


def _unpadded(e: Elements, build: Builder, op: Op) -> Match:
    raise at(op, "has the words of all batch entries behind each other, without padding")


ATTENTION_OPS: Mapping[str, Callable[[Elements, Builder, Op], Match]] = {
    "Attention": _attention,
    "com.microsoft.Attention": contrib_heads.attention,
    "com.microsoft.DecoderMaskedMultiHeadAttention": contrib_heads.decoder_masked,
    "com.microsoft.GroupQueryAttention": contrib_grouped.grouped,
    "com.microsoft.MultiHeadAttention": contrib_heads.multi_head,
    "com.microsoft.PackedAttention": _unpadded,
    "com.microsoft.PackedMultiHeadAttention": _unpadded,
}
"""Ops that are attention, by kind."""
