"""FlashAttention as the ops it is made of, for every opset from 9 on (7 without masks)."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.types import DType, Shape
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.expansion import Expansion

_LOWEST = {
    DType.F32: float(np.finfo(np.float32).min),
    DType.F64: float(np.finfo(np.float64).min),
}


def as_primitives(x: Expansion) -> str:
    """Emits the ops and returns the result, of Q's element type.

    The arithmetic is in float32 (float64 for float64), as the op's definition has it.
    """
    build, out_type = x.build, x.build.dtype(x.q)
    work = DType.F64 if out_type is DType.F64 else DType.F32
    q = build.scale(build.cast(x.q, work), x.attrs.scale)
    k, v = (_repeated(x, build.cast(value, work)) for value in (x.k, x.v))
    scores = _matmul(build, q, build.transpose(k, (0, 1, 3, 2)))
    if x.attrs.softcap > 0:
        scores = build.scale(scores, 1 / x.attrs.softcap)
        scores = build.scale(build.unary("Tanh", scores), x.attrs.softcap)
    if x.bias:
        scores = build.binary("Add", scores, build.cast(x.bias, work))
    allowed = x.allowed()
    if allowed:
        lowest = _LOWEST[work] if x.attrs.masked_row == "mean" else -np.inf
        scores = build.where(allowed, scores, build.constant(np.array(lowest), work, "masked"))
    weights = _with_sinks(x, scores, work) if x.sinks else _softmax(build, scores)
    if x.attrs.masked_row == "zero" and x.may_be_empty() and not x.sinks:
        nan = build.emit("IsNaN", (weights,), DType.BOOL, build.shape(weights))
        weights = build.where(nan, build.constant(np.array(0.0), work, "zero"), weights)
    return build.cast(_matmul(build, weights, v), out_type)


def _repeated(x: Expansion, value: str) -> str:
    """K or V with each of its heads repeated for the query heads that share it."""
    build, count = x.build, x.attrs.q_heads // x.attrs.kv_heads
    if count == 1 or x.attrs.kv_heads == 1:  # one head broadcasts by itself
        return value
    batch, groups, rows, width = build.shape(value)
    five = build.unsqueeze(value, (2,))
    ones: Shape = (batch, groups, count, rows, width)
    five = build.emit("Expand", (five, build.ints([1, 1, count, 1, 1])), build.dtype(value), ones)
    return build.reshape(five, (batch, groups * count, rows, width))


def _matmul(build: Builder, a: str, b: str) -> str:
    left, right = build.shape(a), build.shape(b)
    batch = left[0] if left[0] != 1 else right[0]
    heads = left[1] if left[1] != 1 else right[1]
    return build.emit("MatMul", (a, b), build.dtype(a), (batch, heads, left[2], right[3]))


def _softmax(build: Builder, scores: str) -> str:
    # The last axis by number: before opset 13 it means "from here on", which is the same.
    return build.emit("Softmax", (scores,), build.dtype(scores), build.shape(scores), axis=3)


def _with_sinks(x: Expansion, scores: str, work: DType) -> str:
    """A softmax over the keys and one more, whose logit is the head's sink and weight unused."""
    build, shape = x.build, x.build.shape(scores)
    sinks = build.reshape(build.cast(x.sinks, work), (1, x.attrs.q_heads, 1, 1))
    column = build.expand(sinks, (*shape[:3], 1))
    wide = (*shape[:3], shape[3] + 1)
    joined = build.emit("Concat", (scores, column), work, wide, axis=3)
    weights = _softmax(build, joined)
    if build.opset < 10:
        attrs = {"axes": (3,), "starts": (0,), "ends": (-1,)}
        return build.emit("Slice", (weights,), work, shape, **attrs)
    limits = [build.ints([n]) for n in (0, -1, 3)]
    return build.emit("Slice", (weights, *limits), work, shape)
