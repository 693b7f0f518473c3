"""A condition on queries and keys that no tensor of the graph says, computed from their places."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.dims import Dim
from gecompiler.ir.types import DType
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.frame import Frame
from gecompiler.passes.attention.predicates import All, AtMost, Predicate, Some
from gecompiler.passes.attention.refusal import Refusal


def emit_predicate(e: Elements, build: Builder, frame: Frame, condition: Predicate) -> str:
    """A boolean tensor that broadcasts to (B, H, S, T); Refusal where it cannot be computed."""
    if isinstance(condition, (All, Some)):
        op_type = "And" if isinstance(condition, All) else "Or"
        first, *rest = (emit_predicate(e, build, frame, part) for part in condition.parts)
        for part in rest:
            first = build.binary(op_type, first, part)
        return first
    split = e.coordinates.split(condition.value) if isinstance(condition, AtMost) else None
    if split is None:
        raise Refusal(f"the condition {condition} on keys cannot be computed")
    coefficients, total = split
    value = _number(build, total)
    for name, factor in coefficients.items():
        steps = _places(build, frame, name)
        if factor != 1:
            steps = build.binary("Mul", steps, _number(build, factor))
        value = build.binary("Add", value, steps)
    zero = build.constant(np.array(0), DType.I64, "zero")
    return build.unary("Not", build.binary("Greater", value, zero, DType.BOOL))


def _places(build: Builder, frame: Frame, name: str) -> str:
    """0, 1, ... along the axis that a coordinate runs along."""
    for axis, own in enumerate((frame.b, frame.h, frame.i, frame.j)):
        if str(own) == name:
            size = frame.sizes[axis]
            shape: list[Dim] = [1] * 4
            shape[axis] = size
            return build.reshape(build.arange(size, build.sources), tuple(shape))
    raise Refusal(f"{name} is no place of a query or key")


def _number(build: Builder, dim: Dim) -> str:
    """A size, or a sum of products of sizes, as a tensor (1, 1, 1, 1)."""
    return build.reshape(build.runtime_dim(dim, build.sources), (1, 1, 1, 1))
