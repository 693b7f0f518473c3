"""Values held between two numbers: Clip in each opset, Min and Max with numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gecompiler.ir.op import Op
from gecompiler.passes.block.patterns import keeps_shape, maker, number
from gecompiler.passes.rewriting import Rewriter

_MAX_STEPS = 4


@dataclass(frozen=True, slots=True)
class Clamp:
    """``min(max(value, low), high)``, computed by ``ops``; ``low`` is below ``high``."""

    value: str
    low: float
    high: float
    ops: tuple[Op, ...]


def clamped(r: Rewriter, value: str) -> Clamp | None:
    """The clamp that makes a value, in one op or several; None when none does."""
    low, high = -math.inf, math.inf
    ops: list[Op] = []
    while len(ops) < _MAX_STEPS:
        step = _step(r, value)
        if step is None:
            break
        # What is clamped again lies within the bounds of both where they overlap.
        low, high = max(low, step.low), min(high, step.high)
        if not low < high:
            return None
        ops.append(step.ops[0])
        value = step.value
    return Clamp(value, low, high, tuple(ops)) if ops else None


def _step(r: Rewriter, value: str) -> Clamp | None:
    op = maker(r, value, "Clip", "Min", "Max")
    if op is None:
        return None
    if op.op_type == "Clip":
        low = _bound(r, op, 1, "min", -math.inf)
        high = _bound(r, op, 2, "max", math.inf)
        return None if low is None or high is None else Clamp(op.inputs[0], low, high, (op,))
    if len(op.inputs) != 2:
        return None
    for x, other in (op.inputs, op.inputs[::-1]):
        bound = number(r, other)
        if bound is not None and keeps_shape(r, op, x):
            lowest = op.op_type == "Max"
            limits = (bound, math.inf) if lowest else (-math.inf, bound)
            return Clamp(x, *limits, (op,))
    return None


def _bound(r: Rewriter, op: Op, index: int, name: str, default: float) -> float | None:
    """A bound of Clip: an input, or an attribute before opset 11."""
    if op.input(index):
        return number(r, op.input(index))
    return float(op.attr(name, default))
