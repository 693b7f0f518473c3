"""``com.microsoft`` MultiHeadAttention, DecoderMaskedMultiHeadAttention and Attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.passes.attention import contrib_operands as ops
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.contrib_operands import Axes
from gecompiler.passes.attention.element_logic import at_most
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.frame import Frame
from gecompiler.passes.attention.layout import Axis, Layout
from gecompiler.passes.attention.match import Match
from gecompiler.passes.attention.operands import Link, chain
from gecompiler.passes.attention.predicates import Predicate, disjunction
from gecompiler.passes.attention.refusal import at
from gecompiler.passes.attention.terms import Term


@dataclass(frozen=True, slots=True)
class _Slots:
    """Where the inputs of an op are that are not Q, K and V."""

    bias: int
    mask: int
    added: int
    past: int
    length: int
    beams: int


_MULTI_HEAD = _Slots(bias=3, mask=4, added=5, past=6, length=8, beams=9)
_DECODER = _Slots(bias=10, mask=3, added=4, past=5, length=7, beams=9)


@dataclass(frozen=True, slots=True)
class _Given:
    """Q, K and V with their layouts, biases added; K and V are the new keys only."""

    axes: Axes
    q: tuple[str, Layout]
    k: tuple[str, Layout]
    v: tuple[str, Layout]


def multi_head(e: Elements, build: Builder, op: Op) -> Match:
    """MultiHeadAttention; Refusal where FlashAttention cannot mean the same."""
    return _multi_head(e, build, op, _MULTI_HEAD)


def decoder_masked(e: Elements, build: Builder, op: Op) -> Match:
    """DecoderMaskedMultiHeadAttention: the same for one new query."""
    return _multi_head(e, build, op, _DECODER)


def _multi_head(e: Elements, build: Builder, op: Op, slots: _Slots) -> Match:
    ops.no_input(e, op, slots.beams, "reads its cache by the beams of")
    ops.no_input(e, op, slots.length, "shares the buffer of its cache, filled up to")
    if op.attr("past_present_share_buffer", 0):
        raise at(op, "shares the buffer of its cache")
    ops.no_output(e, op, 3, "hands out its scores as")
    given = _operands(e, build, op, slots)
    pasts = tuple(op.input(slots.past + n) for n in (0, 1))
    return _matched(e, build, op, given, slots, pasts, op.outputs[1:3])


def _operands(e: Elements, build: Builder, op: Op, slots: _Slots) -> _Given:
    heads, q = ops.heads_of(op, "num_heads"), ops.shape_of(e, op, 0, (3, 5))
    if len(q) == 5:
        return _packed_operands(e, build, op, slots.bias, heads)
    if not op.input(1):
        raise at(op, "has no keys")
    k = ops.shape_of(e, op, 1, (3, 4, 5))
    width = ops.head_size(op, q[2], heads)
    if len(k) == 5:
        raise at(op, f"packs K and V in {op.inputs[1]!r}")
    v = ops.shape_of(e, op, 2, len(k))
    whole = len(k) == 4
    value = v[3] if whole else ops.head_size(op, v[2], heads)
    shared = ops.axis(heads)
    axes = Axes(
        ops.axis(q[0]),
        shared,
        shared,
        ops.axis(q[1]),
        ops.axis(k[2] if whole else k[1]),
        ops.axis(width),
        ops.axis(value),
    )
    columns = (q[2], q[2], 0 if whole else v[2])
    biases = ops.pieces(build, op.input(slots.bias), 0, columns, op)
    names = [
        ops.with_bias(build, name, bias if not whole or n == 0 else "")
        for n, (name, bias) in enumerate(zip(op.inputs[:3], biases, strict=True))
    ]
    kv = axes.four if whole else axes.flat
    return _Given(
        axes,
        (names[0], axes.flat(shared, axes.queries, axes.width)),
        (names[1], kv(shared, axes.new_keys, axes.width)),
        (names[2], kv(shared, axes.new_keys, axes.value_width)),
    )


def _packed_operands(e: Elements, build: Builder, op: Op, bias: int, heads: int) -> _Given:
    """Q, K and V in one tensor (B, S, H, 3, D)."""
    batch, rows, _, _, width = ops.shape_of(e, op, 0, 5)
    shared, one = ops.axis(heads), ops.axis(width)
    axes = Axes(ops.axis(batch), shared, shared, ops.axis(rows), ops.axis(rows), one, one)
    columns = width * heads
    biases = ops.pieces(build, op.input(bias), 0, (columns,) * 3, op)
    found: list[tuple[str, Layout]] = []
    for n in range(3):
        value = build.entry(op.inputs[0], 3, n)
        if biases[n]:
            value = ops.with_bias(build, value, build.reshape(biases[n], (heads, width)))
        row = axes.queries if n == 0 else axes.new_keys
        found.append((value, (axes.batch, row, shared, one)))
    return _Given(axes, *found)


def attention(e: Elements, build: Builder, op: Op) -> Match:
    """Attention: the projections X (B, S, E) times W, plus a bias, then attention over heads."""
    if op.attr("do_rotary", 0):
        raise at(op, "rotates Q and K by angles of its own")
    if op.attr("past_present_share_buffer", 0) or op.input(6):
        raise at(op, "shares the buffer of its cache")
    given = _projected(e, build, op)
    past, parts = op.input(4), ("", "")
    if past:
        ops.shape_of(e, op, 4, 5)
        parts = (build.entry(past, 0, 0), build.entry(past, 0, 1))
    slots = _Slots(bias=2, mask=3, added=5, past=4, length=6, beams=7)
    present = op.outputs[1] if len(op.outputs) > 1 else ""
    return _matched(e, build, op, given, slots, parts, (present,))


def _projected(e: Elements, build: Builder, op: Op) -> _Given:
    heads, x = ops.heads_of(op, "num_heads"), ops.shape_of(e, op, 0, 3)
    w = ops.shape_of(e, op, 1, 2)
    sizes = op.attr("qkv_hidden_sizes", None)
    columns: list[Dim] = list(sizes) if sizes else [ops.head_size(op, w[1], 3)] * 3
    product = build.emit("MatMul", op.inputs[:2], build.dtype(op.inputs[0]), (*x[:2], w[1]))
    product = ops.with_bias(build, product, op.input(2))
    names = ops.pieces(build, product, 2, columns, op)
    shared = ops.axis(heads)
    width, value = (ops.axis(ops.head_size(op, columns[n], heads)) for n in (0, 2))
    axes = Axes(ops.axis(x[0]), shared, shared, ops.axis(x[1]), ops.axis(x[1]), width, value)
    return _Given(
        axes,
        (names[0], axes.flat(shared, axes.queries, width)),
        (names[1], axes.flat(shared, axes.new_keys, width)),
        (names[2], axes.flat(shared, axes.new_keys, value)),
    )


# ---------------------------------------------------------------- the whole


def _matched(
    e: Elements,
    build: Builder,
    op: Op,
    given: _Given,
    slots: _Slots,
    pasts: tuple[str, ...],
    presents: tuple[str, ...],
) -> Match:
    axes, dtype = given.axes, e.dtype(op.outputs[0])
    if dtype is None:
        raise at(op, "has an output of unknown type")
    build.sources = tuple(n for n in (given.q[0], given.k[0], *pasts) if n)
    keys, past = axes.new_keys, 0 if not pasts[0] else build.shape(pasts[0])[2]
    links = [tuple(chain(e, *given.k)), tuple(chain(e, *given.v))]
    if any(pasts):
        if not all(pasts):
            raise at(op, "has a past of keys or of values only")
        keys = ops.axis(past + lay.size(axes.new_keys))
    joined = [_joined(build, op, n, given, keys, pasts) for n in (0, 1)] if any(presents) else []
    if any(pasts):
        joined = joined or [_joined(build, op, n, given, keys, pasts) for n in (0, 1)]
        links = [(link,) for link in joined]
    standard: Layout = axes.four(axes.heads, axes.queries, keys)
    terms: tuple[Term, ...] = (
        *ops.added(e, op, slots.added, standard),
        *ops.padding(e, build, op, slots.mask, standard, past),
    )
    hidden = bool(op.input(slots.mask)) and ops.hides_later_keys(op)
    causal = bool(op.attr("unidirectional", 0)) and not hidden
    return Match(
        op=op,
        q=tuple(chain(e, *given.q)),
        k=links[0],
        v=links[1],
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
        terms=terms,
        causal=_causal(past) if causal else None,
        also=_presents(build, op, presents, joined),
    )


def _joined(
    build: Builder, op: Op, which: int, given: _Given, keys: Axis, pasts: tuple[str, ...]
) -> Link:
    """K or V as (B, H, T, D), behind its past."""
    axes = given.axes
    value, layout = (given.k, given.v)[which]
    width = (axes.width, axes.value_width)[which]
    new = ops.brought(build, value, layout, axes.four(axes.groups, axes.new_keys, width))
    if pasts[which]:
        new = build.concat((pasts[which], new), 2)
    return Link(new, axes.four(axes.groups, keys, width))


def _presents(
    build: Builder, op: Op, presents: tuple[str, ...], joined: list[Link]
) -> tuple[tuple[str, str], ...]:
    """What stands for the presents: one each for K and V, or both in one tensor (2, ...)."""
    if len(presents) != 1:
        return tuple((p, j.value) for p, j in zip(presents, joined, strict=False) if p)
    if not presents[0]:
        return ()
    if lay.size(joined[0].layout[3]) != lay.size(joined[1].layout[3]):
        raise at(op, f"hands out keys and values of different sizes as {presents[0]!r}")
    both = [build.unsqueeze(link.value, (0,)) for link in joined]
    return ((presents[0], build.concat(both, 0)),)


def _causal(past: Dim) -> Callable[[Elements, Frame], Predicate]:
    """No later keys; but onnxruntime hides none from the last query, however many there are."""

    def allowed(e: Elements, frame: Frame) -> Predicate:
        before = at_most(e, frame.j - frame.i - past)
        _, _, queries, keys = frame.sizes
        if keys == queries + past or e.agree(keys, queries + past):
            return before
        return disjunction(before, at_most(e, queries - 1 - frame.i))

    return allowed
