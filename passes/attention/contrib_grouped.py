"""``com.microsoft`` GroupQueryAttention: rotation, a cache filled up to a length, causality.

Batch entry b has ``seqlens_k[b] + 1`` keys, of which the S new ones are the last: they are put
into the cache from place ``first[b] = max(seqlens_k[b] + 1 - S, 0)`` on. Query i stands at place
``first[b] + i``, sees keys up to its own place, and with a window of w those less than w before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gecompiler.ir.dim_bounds import at_least
from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.attention import contrib_operands as ops
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.contrib_operands import Axes
from gecompiler.passes.attention.contrib_rotation import Rotation
from gecompiler.passes.attention.element_logic import at_most
from gecompiler.passes.attention.elements import Elements, Number
from gecompiler.passes.attention.frame import Frame
from gecompiler.passes.attention.growing_cache import Places, grown
from gecompiler.passes.attention.layout import Axis, Layout
from gecompiler.passes.attention.match import Match
from gecompiler.passes.attention.operands import Link, chain
from gecompiler.passes.attention.predicates import Predicate, conjunction
from gecompiler.passes.attention.refusal import at
from gecompiler.passes.attention.terms import Overwrite, Term

_LEFT_OUT = (
    (12, "has a cache of numbers of another type, scaled by"),
    (13, "has a cache of numbers of another type, scaled by"),
    (14, "normalises Q by"),
    (15, "normalises K by"),
    (16, "has queries that are padded from place"),
)


@dataclass(frozen=True)
class _Grouped:
    """The op with its parts: axes, new Q, K and V as (B, heads, S, D), and where they belong."""

    e: Elements
    build: Builder
    op: Op
    axes: Axes
    q: Link
    k: Link
    v: Link

    @property
    def rows(self) -> Dim:
        """S."""
        return lay.size(self.axes.queries)


def grouped(e: Elements, build: Builder, op: Op) -> Match:
    """The op as an attention; Refusal where FlashAttention cannot mean the same."""
    for index, what in _LEFT_OUT:
        ops.no_input(e, op, index, what)
    ops.no_output(e, op, 3, "hands out its scores as")
    if op.attr("sliding_window_cache", 0):
        raise at(op, "throws keys out of its cache")
    dtype = e.dtype(op.outputs[0])
    if dtype is None or not op.input(5):
        raise at(op, "has an output of unknown type, or no lengths")
    build.sources = tuple(n for n in (*op.inputs[:4], op.inputs[5], op.input(10)) if n)
    x = _operands(e, build, op)
    places = _places(x)
    if op.attr("do_rotary", 0):
        x = _rotated(x, places)
    keys, k, v, also = _keys(x, places)
    axes = x.axes
    standard: Layout = axes.four(axes.heads, axes.queries, keys)
    return Match(
        op=op,
        q=(x.q,) if op.attr("do_rotary", 0) else tuple(chain(e, x.q.value, x.q.layout)),
        k=k,
        v=v,
        batch=axes.batch,
        heads=axes.heads,
        queries=axes.queries,
        keys=keys,
        width=axes.width,
        value_width=axes.value_width,
        out=op.outputs[0],
        out_layout=axes.flat(axes.heads, axes.queries, axes.value_width),
        out_dtype=dtype,
        ops=(op,),
        alpha=ops.scale_of(op, axes.width),
        softcap=float(op.attr("softcap", 0.0)),
        terms=(*_allowed(x, places, keys, standard), *ops.added(e, op, 10, standard)),
        sinks=_sinks(x, dtype),
        causal=_band(op, places.known),
        guarded=True,
        also=also,
    )


def _operands(e: Elements, build: Builder, op: Op) -> _Grouped:
    heads, groups = ops.heads_of(op, "num_heads"), ops.heads_of(op, "kv_num_heads")
    q = ops.shape_of(e, op, 0, 3)
    packed = not op.input(1)
    width = ops.head_size(op, q[2], heads + 2 * groups if packed else heads)
    columns = (width * heads, width * groups, width * groups)
    names = list(op.inputs[:3])
    if packed:
        names = ops.pieces(build, op.inputs[0], 2, columns, op)
    elif not _alike(e, ops.shape_of(e, op, 1, 3)[1], q[1]):
        raise at(op, "has another number of new keys than of queries")
    whole, new, one = ops.axis(groups), ops.axis(q[1]), ops.axis(width)
    axes = Axes(
        ops.axis(q[0]), whole, (*whole, *ops.axis(heads // groups)), ops.axis(q[1]), new, one, one
    )
    return _Grouped(
        e,
        build,
        op,
        axes,
        Link(names[0], axes.flat(axes.heads, axes.queries, one)),
        Link(names[1], axes.flat(whole, new, one)),
        Link(names[2], axes.flat(whole, new, one)),
    )


def _alike(e: Elements, a: Dim, b: Dim) -> bool:
    return a == b or e.agree(a, b)


# ---------------------------------------------------------------- places


def _places(x: _Grouped) -> Places:
    """Where the new keys of each batch entry go."""
    e, build, op = x.e, x.build, x.op
    if not op.input(3):  # every entry begins at 0, whatever is padding behind it
        return Places(known=0)
    batch = lay.size(x.axes.batch)
    element = e.broadcast(op.inputs[5], (e.coordinates.variable("b", batch),))
    if isinstance(element, Number) and not e.coordinates.within([element.value]):
        known = element.value + 1 - x.rows
        if at_least(known, 0):
            return Places(known=known)
    counts = build.cast(build.reshape(op.inputs[5], (batch,)), DType.I64)
    one = build.constant(np.array(1), DType.I64, "one")
    before = build.binary("Sub", build.binary("Add", counts, one), _size(x, x.rows))
    zero = build.constant(np.array(0), DType.I64, "zero")
    low = build.binary("Less", before, zero, DType.BOOL)
    return Places(first=build.where(low, zero, before))


def _size(x: _Grouped, dim: Dim) -> str:
    return x.build.runtime_dim(dim, x.build.sources)


def _rotated(x: _Grouped, places: Places) -> _Grouped:
    """Q and K rotated by the angles of their places."""
    e, build, op, axes = x.e, x.build, x.op, x.axes
    if op.input(9):
        index, lead = op.inputs[9], (lay.size(axes.batch), x.rows)
        rotation = Rotation.of(e, build, op, index, lead)
    else:
        rotation = Rotation.of(e, build, op, *places.indices(build, lay.size(axes.batch), x.rows))
    q_layout = axes.four(axes.heads, axes.queries, axes.width)
    q = ops.brought(build, x.q.value, x.q.layout, q_layout)
    k = ops.brought(build, x.k.value, x.k.layout, _four(x))
    q, k = rotation.turned(build, q), rotation.turned(build, k)
    return replace(x, q=Link(q, q_layout), k=Link(k, _four(x)))


# ---------------------------------------------------------------- keys


_Keys = tuple[Axis, tuple[Link, ...], tuple[Link, ...], tuple[tuple[str, str], ...]]


def _keys(x: _Grouped, places: Places) -> _Keys:
    """The keys' axis, K and V in the cache, and what stands for the presents."""
    e, build, op, axes = x.e, x.build, x.op, x.axes
    presents = (*op.outputs[1:3], "", "")[:2]
    if not op.input(3):
        links = [tuple(chain(e, link.value, link.layout)) for link in (x.k, x.v)]
        also = [
            (name, ops.brought(build, link.value, link.layout, _four(x)))
            for name, link in zip(presents, (x.k, x.v), strict=True)
            if name
        ]
        return axes.new_keys, links[0], links[1], tuple(also)
    total, bias = _total(x), op.input(10)
    found: list[Link] = []
    pairs: list[tuple[str, str]] = []
    keys: Axis = ()
    for n, link in enumerate((x.k, x.v)):
        new = ops.brought(build, link.value, link.layout, _four(x))
        held = grown(build, op.inputs[3 + n], new, places, total, op)
        length = build.shape(held.value)[2]
        if presents[n]:
            pairs.append((presents[n], held.present(build, op, e.shape(presents[n]))))
        value = held.value
        if bias and total is not None and length != total:
            length = total  # no later key counts
            value = build.cut(value, 2, build.runtime_dim(length, (bias,)), length)
        keys = keys or ops.axis(length)
        found.append(Link(value, axes.four(axes.groups, keys, axes.width)))
    return keys, (found[0],), (found[1],), tuple(pairs)


def _total(x: _Grouped) -> Dim | None:
    """The most keys of a batch entry, where it is known; a bias has a column for each."""
    if x.op.input(10):
        return ops.shape_of(x.e, x.op, 10, 4)[3]
    found = x.e.dims(x.op.inputs[6]) if x.op.input(6) else None
    return found[0] if found else None


def _four(x: _Grouped) -> Layout:
    return x.axes.four(x.axes.groups, x.axes.new_keys, x.axes.width)


# ---------------------------------------------------------------- masks


def _window(op: Op) -> int:
    """How many keys before its own a query sees; -1: all."""
    size = int(op.attr("local_window_size", -1))
    return size - 1 if size > 0 else -1


def _band(op: Op, first: Dim | None) -> Callable[[Elements, Frame], Predicate] | None:
    """Causality, where the place of the first query is a matter of shapes."""
    if first is None or not op.attr("causal", 1):
        return None
    left = _window(op)

    def allowed(e: Elements, frame: Frame) -> Predicate:
        distance = frame.j - frame.i - first
        before = at_most(e, -distance - left) if left >= 0 else True
        return conjunction(at_most(e, distance), before)

    return allowed


def _allowed(x: _Grouped, places: Places, keys: Axis, standard: Layout) -> tuple[Term, ...]:
    """Which keys count, where that depends on the lengths given at run time."""
    build, op = x.build, x.op
    causal = bool(op.attr("causal", 1))
    batch, rows, length = lay.size(x.axes.batch), x.rows, lay.size(keys)
    if places.known is not None and causal:
        return ()
    columns = build.reshape(build.arange(length, (x.k.value,)), (1, 1, 1, length))
    if not causal:
        counts = build.cast(op.inputs[5], DType.I64)
        last = build.reshape(counts, (batch, 1, 1, 1))
    else:
        index, _ = places.indices(build, batch, rows)
        last = build.reshape(index, (batch, 1, rows, 1))
    masks = [build.unary("Not", build.binary("Greater", columns, last, DType.BOOL))]
    if causal and _window(op) >= 0:
        reach = build.constant(np.array(_window(op)), DType.I64, "reach")
        first = build.binary("Sub", last, reach)
        masks.append(build.unary("Not", build.binary("Less", columns, first, DType.BOOL)))
    return tuple(Overwrite(op, mask, standard, True, -np.inf, (DType.F32,), None) for mask in masks)


def _sinks(x: _Grouped, dtype: DType) -> tuple[str, Layout, float] | None:
    """A logit per head beside the keys': given, or 0 for a smooth softmax."""
    layout: Layout = (x.axes.heads,)
    if x.op.input(11):
        return x.op.inputs[11], layout, 1.0
    if not x.op.attr("smooth_softmax", 0):
        return None
    heads = int(str(lay.size(x.axes.heads)))
    return x.build.constant(np.zeros(heads), dtype, "sinks"), layout, 1.0
