"""The dims of layers: norms, rotary embedding, activations, attention, convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gecompiler.ir.block_ops import ACTIVATIONS, NORMS, Activation, NormInputs, Rotary
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.op import GE_DOMAIN
from gecompiler.passes.parallel.dim_site import DimSite
from gecompiler.passes.parallel.signature import Operand, Runs, Signature, Spec


def _norm(site: DimSite) -> Signature:
    """Over the axes from ``axis`` to the last, which must be whole."""
    op, shape = site.op, site.shape(0)
    axis = site.axis(-1, len(shape))
    data = site.labels("d", shape)
    ours = op.domain == GE_DOMAIN
    full = {0, 1} if ours and NormInputs.of(op).residual else {0}
    inputs = tuple(
        (data if i in full else site.aligned(site.shape(i), data, shape)) if name else None
        for i, name in enumerate(op.inputs)
    )
    whole = frozenset(label for spec in data[axis:] for label in spec)
    outputs = []
    for n, name in enumerate(op.outputs):
        fits = bool(name) and len(site.made(n)) == len(shape)
        spec = (
            tuple(s if size > 1 else () for s, size in zip(data, site.made(n), strict=True))
            if fits
            else None
        )
        outputs.append(spec)
    return Signature(inputs, tuple(outputs), site.sizes, whole=whole)


def _rotary(site: DimSite) -> Signature:
    """Lanes stay together; the tables broadcast to (..., dim) or (..., dim/2)."""
    shape = site.shape(0)
    data = site.labels("d", shape)
    lanes = Rotary.of(site.op).dim
    inputs: list[Operand] = [data]
    for i in (1, 2):
        table = site.shape(i)
        lead = site.aligned(table[:-1], data[:-1], shape[:-1])
        size = table[-1]
        site.require(size in (1, lanes, lanes // 2), "its tables have other lanes")
        inputs.append((*lead, site.label("lanes", size)))
    whole = frozenset((*data[-1], "lanes"))
    return Signature(tuple(inputs), (data,), site.sizes, whole=whole)


def _activation(site: DimSite) -> Signature:
    op, shape = site.op, site.shape(0)
    made = site.made()
    out = site.labels("d", made)
    wide: Spec = out[-1]
    activation = Activation.of(op)
    if activation.gated and not op.input(1):
        if activation.gate in ("first", "last"):
            wide = Runs((out[-1], out[-1]))
        else:
            wide = (*out[-1], *site.label("pair", 2))
    inputs: list[Operand | None] = [(*out[:-1], wide)]
    site.require(shape[:-1] == made[:-1], "it broadcasts")
    for i, name in enumerate(op.inputs[1:], start=1):
        bias = i == (2 if activation.gated else 1)
        if not name:
            inputs.append(None)
        elif bias:
            inputs.append((wide,))
        else:
            inputs.append(site.aligned(site.shape(i), out, made))
    whole = frozenset({"pair"} if "pair" in site.sizes else ())
    return Signature(tuple(inputs), (out,), site.sizes, whole=whole)


def _attention(site: DimSite) -> Signature:
    """Heads ``h`` of queries, ``g`` of keys and values; queries ``s``; keys ``t`` stay whole."""
    op = site.op
    attention = FlashAttention.of(op)
    b, h, s, d = attention.operand(site.shape(0))
    kb, g, t, _ = attention.operand(site.shape(1))
    v = attention.operand(site.shape(2))[3]
    batch, heads, rows = site.label("b", b), site.label("h", h), site.label("s", s)
    own = site.label("b", kb) if kb == b else ()
    group = site.label("g", g)
    keys, lanes, values = site.label("t", t), site.label("d", d), site.label("e", v)
    inputs: list[Operand | None] = [
        attention.operand((batch, heads, rows, lanes)),
        attention.operand((own, group, keys, lanes)),
        attention.operand((own, group, keys, values)),
    ]
    if len(op.inputs) > 3:
        full, shape = (batch, heads, rows, keys), (b, h, s, t)
        inputs.append(site.aligned(site.shape(3), full, shape) if op.input(3) else None)
    if len(op.inputs) > 4:
        inputs.append((heads,) if op.input(4) else None)
    out = attention.result((batch, heads, rows, values))
    outputs = (out, (batch, heads, rows))[: len(op.outputs)]
    whole = frozenset({"t", "d", "e"}) & frozenset(site.sizes)
    return Signature(tuple(inputs), outputs, site.sizes, whole=whole, adapt="heads")


def _conv(site: DimSite) -> Signature:
    """Samples, and the channels that are made; what is summed and slid over stays whole."""
    op, shape, weight = site.op, site.shape(0), site.shape(1)
    made = site.made()
    samples, channels = site.label("n", shape[0]), site.label("o", made[1])
    data = (samples, *site.labels("x", shape[1:]))
    kernel = (channels, *site.labels("w", weight[1:]))
    out = (samples, channels, *site.labels("y", made[2:]))
    inputs: list[Operand | None] = [data, kernel]
    if len(op.inputs) > 2:
        inputs.append((channels,) if op.input(2) else None)
    grouped = int(op.attr("group", 1)) > 1
    whole = {label for label in site.sizes if label[0] in "xwy" or (grouped and label == "o")}
    return Signature(tuple(inputs), (out,), site.sizes, whole=frozenset(whole))


def _pool(site: DimSite) -> Signature:
    shape, made = site.shape(0), site.made()
    lead = site.labels("n", shape[:2])
    data = (*lead, *site.labels("x", shape[2:]))
    out = (*lead, *site.labels("y", made[2:]))
    whole = frozenset(label for label in site.sizes if label[0] in "xy")
    return Signature((data,), (out,) * len(site.op.outputs), site.sizes, whole=whole)


def _ours(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{GE_DOMAIN}.{name}" for name in names)


LAYER_RULES: Mapping[str, Callable[[DimSite], Signature]] = {
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", *_ours(NORMS)), _norm),
    f"{GE_DOMAIN}.RotaryEmbedding": _rotary,
    **dict.fromkeys(_ours(ACTIVATIONS), _activation),
    f"{GE_DOMAIN}.FlashAttention": _attention,
    "Conv": _conv,
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "MaxPool", "AveragePool"), _pool),
}
"""What layers do with dims."""
