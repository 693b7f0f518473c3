"""Shapes of ops that make tensors from sizes or from nothing."""

from __future__ import annotations

import math

from gecompiler.ir.constants import Constant
from gecompiler.ir.dim_bounds import largest
from gecompiler.ir.dims import ceildiv
from gecompiler.ir.infer.node import Node, Rule, Shapes


def constant(node: Node) -> Shapes | None:
    """The shape of the value that one of the attributes gives."""
    for name, value in node.op.attrs.items():
        if isinstance(value, Constant) and name == "value":
            return (value.type.shape,)
        if name in ("value_ints", "value_floats", "value_strings") and isinstance(value, tuple):
            return ((len(value),),)
        if name in ("value_int", "value_float", "value_string"):
            return ((),)
    return None


def constant_of_shape(node: Node) -> Shapes:
    """The shape that the input holds."""
    target = node.items(0)
    if target is not None and any(isinstance(d, int) and d < 0 for d in target):
        node.fail("the shape has a negative size")
    return (target,)


def shape_of(node: Node) -> Shapes:
    """As many elements as there are dims between ``start`` and ``end``."""
    rank = node.rank(0)
    return ((None if rank is None else len(range(rank)[shape_range(node)]),),)


def shape_range(node: Node) -> slice:
    """Which dims a Shape op takes (all before opset 15)."""
    end = node.op.attrs.get("end")
    return slice(int(node.op.attr("start", 0)), int(end) if isinstance(end, int) else None)


def scalar(node: Node) -> Shapes:
    """Rank 0."""
    return ((),) * len(node.op.outputs)


def range_(node: Node) -> Shapes:
    """max(0, ceil((limit - start) / delta)) elements."""
    items = [node.scalar(i) for i in range(3)]
    start, limit, delta = items
    if start is not None and limit is not None and isinstance(delta, int) and delta:
        span = limit - start if delta > 0 else start - limit
        return ((largest(0, ceildiv(span, abs(delta)), least=node.least(start, limit)),),)
    numbers = [node.scope.constant(v) for v in node.op.inputs]
    known = [None if n is None else n.scalar() for n in numbers]
    if len(known) == 3 and None not in known and known[2]:
        first, last, step = (float(n or 0) for n in known)
        return ((max(0, math.ceil((last - first) / step)),),)
    return ((None,),)


def shape_attribute(node: Node) -> Shapes:
    """The shape that the attribute ``shape`` gives."""
    return (node.ints("shape", len(node.op.inputs)),)


def multinomial(node: Node) -> Shapes:
    """(batch, sample_size)."""
    shape = node.shape(0)
    return ((None if shape is None else shape[0], int(node.op.attr("sample_size", 1))),)


RULES: dict[str, Rule] = {
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "Shape": shape_of,
    "Size": scalar,
    "Range": range_,
    "RandomNormal": shape_attribute,
    "RandomUniform": shape_attribute,
    "Multinomial": multinomial,
}
