"""What stands around an activation and becomes part of it: a bias, what it gates, casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from gecompiler.ir.block_ops import ROTARY_EMBEDDING, Activation, Gate
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.passes.block.activation_op import (
    KINDS,
    ActivationInputs,
    activation_in_place,
    read_activation,
)
from gecompiler.passes.block.clamps import clamped
from gecompiler.passes.block.lane_reader import LaneReader
from gecompiler.passes.block.lanes import Ints
from gecompiler.passes.block.patterns import (
    is_row,
    keeps_shape,
    maker,
    same_type,
    widened_from,
    with_number,
)
from gecompiler.passes.block.region import fused
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable


def take_bias(r: Rewriter, op: Op) -> Result | None:
    """``act(x + bias)``, the bias one row."""
    found = read_activation(op)
    add = None if found is None else maker(r, found[1].x, "Add")
    shape = None if add is None else r.facts.shape(add.outputs[0])
    if found is None or add is None or found[1].bias or not shape:
        return None
    spec, inputs = found
    for x, bias in (add.inputs, add.inputs[::-1]):
        if keeps_shape(r, add, x) and is_row(r, bias, shape[-1]):
            made = _remade(r, op, (add,), spec, replace(inputs, x=x, bias=bias), op)
            if made is not None:
                return made
    return None


def gate(r: Rewriter, op: Op) -> Result | None:
    """``act(x) * up`` of two tensors of one shape."""
    for value, up in (op.inputs, op.inputs[::-1]):
        inner = r.graph.producer(value)
        found = read_activation(inner)
        if inner is None or found is None or found[0].gated or value == up:
            continue
        if not keeps_shape(r, op, value) or not keeps_shape(r, op, up):
            continue
        spec, inputs = found
        spec, inputs = replace(spec, gated=True), replace(inputs, up=up)
        made = _remade(r, op, (inner,), spec, inputs, inner)
        if made is not None:
            return made
    return None


def take_halves(r: Rewriter, op: Op) -> Result | None:
    """``act(x) * up`` where both are halves of one tensor."""
    found = read_activation(op)
    if found is None or not found[0].gated or not found[1].up or found[1].bias:
        return None
    spec, inputs = found
    reader = LaneReader(r)
    x, up = reader.moves(inputs.x), reader.moves(inputs.up)
    if x is None or up is None or x.root != up.root or x.tail != up.tail or len(x.tail) != 1:
        return None
    half, shape = x.tail[0], r.facts.shape(x.root)
    wanted = r.facts.shape(inputs.x)
    if not shape or not wanted or shape != (*wanted[:-1], 2 * half):
        return None
    if (x.sign != 1).any() or (up.sign != 1).any():
        return None
    lanes = np.concatenate([x.lane[0], up.lane[0]])
    for side, places in _SIDES.items():
        if (lanes == places(half)).all():
            return _remade(r, op, (), replace(spec, gate=side), ActivationInputs(x.root), op)
    return None


def _interleaved(half: int) -> Ints:
    return np.arange(2 * half, dtype=np.int32).reshape(half, 2).T.ravel()


_SIDES: Mapping[Gate, Callable[[int], Ints]] = {
    "first": lambda half: np.arange(2 * half, dtype=np.int32),
    "last": lambda half: np.roll(np.arange(2 * half, dtype=np.int32), half),
    "even": _interleaved,
    "odd": lambda half: np.roll(_interleaved(half), half),
}
"""The lanes of the gate, then those of what it gates."""


def take_shift(r: Rewriter, op: Op) -> Result | None:
    """``act(x) * (up + number)``."""
    found = read_activation(op)
    add = None if found is None else maker(r, found[1].up, "Add")
    if found is None or add is None or found[0].shift or found[0].limit or found[1].bias:
        return None
    spec, inputs = found
    for up, shift in with_number(r, add):
        if shift and math.isfinite(shift):
            return _remade(r, op, (add,), replace(spec, shift=shift), replace(inputs, up=up), op)
    return None


def take_limit(r: Rewriter, op: Op) -> Result | None:
    """``act(min(x, limit)) * clip(up, -limit, limit)``."""
    found = read_activation(op)
    if found is None or not found[1].up or found[0].limit or found[1].bias:
        return None
    spec, inputs = found
    x, up = clamped(r, inputs.x), clamped(r, inputs.up)
    if x is None or up is None or x.low != -math.inf or not 0 < x.high < math.inf:
        return None
    if (up.low, up.high) != (-x.high, x.high):
        return None
    inputs = replace(inputs, x=x.value, up=up.value)
    return _remade(r, op, (*x.ops, *up.ops), replace(spec, limit=x.high), inputs, op)


def narrow_activation(r: Rewriter, op: Op) -> Result | None:
    """An activation of tensors that were widened before, cast back to their type."""
    inner = r.graph.producer(op.inputs[0])
    found = read_activation(inner)
    if inner is None or found is None:
        return None
    spec, inputs = found
    names = ("x", "up", "bias")
    wide = {n: getattr(inputs, n) for n in names if getattr(inputs, n)}
    narrow = {n: widened_from(r, v) for n, v in wide.items()}
    known = {n: v for n, v in narrow.items() if v is not None}
    if len(known) < len(wide) or same_type(r, op.outputs[0], *known.values()) is None:
        return None
    return _remade(r, op, (inner,), spec, replace(inputs, **known), inner)


def narrow_rotary(r: Rewriter, op: Op) -> Result | None:
    """A rotary embedding of a tensor that was widened before, cast back to its type."""
    inner = r.graph.producer(op.inputs[0])
    if inner is None or not inner.is_(ROTARY_EMBEDDING, domain=GE_DOMAIN):
        return None
    x = widened_from(r, inner.inputs[0])
    if x is None or same_type(r, x, op.outputs[0]) is None:
        return None
    inputs = (x, *inner.inputs[1:])
    return fused(r, op, (inner,), ROTARY_EMBEDDING, inputs, inner.attrs, named_after=inner)


def _remade(
    r: Rewriter,
    last: Op,
    members: tuple[Op, ...],
    spec: Activation,
    inputs: ActivationInputs,
    named_after: Op,
) -> Op | None:
    return activation_in_place(
        r,
        last,
        members,
        spec,
        inputs.x,
        up=inputs.up,
        bias=inputs.bias,
        named_after=named_after,
    )


RULES: RuleTable = {
    "Mul": (gate,),
    "Cast": (narrow_activation, narrow_rotary),
    **dict.fromkeys(KINDS, (take_shift, take_limit, take_bias, take_halves)),
}
