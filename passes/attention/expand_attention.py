"""FlashAttention as ``ai.onnx.Attention``, where that op's text and its runtimes give the same.

What runtimes get wrong or refuse (measured on onnxruntime 1.32 and OpenVINO 2026.4) is avoided:
operands are 4D without head attributes, the scale is written out, a mask has the full (S, T),
``is_causal`` only stands without a mask and where S equals T, windows are masks.
"""

from __future__ import annotations

import numpy as np

from gecompiler.ir.types import DType
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.expansion import Expansion
from gecompiler.passes.attention.magnitudes import magnitude
from gecompiler.passes.attention.refusal import Refusal

LOWEST = -3.0e38
"""Swallows any score, but is not the very lowest float, which onnxruntime takes for -inf."""


def as_attention(x: Expansion) -> str | None:
    """Emits the op and returns its result; None where it would not mean the same."""
    build, a = x.build, x.attrs
    q, k, v = (build.shape(value) for value in (x.q, x.k, x.v))
    if build.opset < 23 or a.scale <= 0 or x.sinks or build.dtype(x.q) is not DType.F32:
        return None
    if a.masked_row == "nan" and x.may_be_empty():
        return None
    before = len(build.graph), len(build.graph.constants)
    try:
        causal = not x.mask and (a.window_left, a.window_right) == (-1, 0) and x.queries == x.keys
        mask = "" if causal else _mask(x)
        # Runtimes refuse K and V that lack the batch.
        keys = build.expand(x.k, (q[0], *k[1:]))
        values = build.expand(x.v, (q[0], *v[1:]))
    except Refusal:
        from gecompiler.passes.attention.remove import undo

        undo(build.graph, *before)
        return None
    inputs = (x.q, keys, values, mask) if mask else (x.q, keys, values)
    shape = (*q[:3], v[3])
    return build.emit(
        "Attention",
        inputs,
        build.dtype(x.q),
        shape,
        scale=a.scale,
        softcap=a.softcap,
        is_causal=int(causal),
    )


def _mask(x: Expansion) -> str:
    """One mask of full size for the window and the mask together; ``""`` where there is none."""
    build, dtype = x.build, x.build.dtype(x.q)
    allowed = x.allowed()
    bias = _bias(x)
    mask = allowed or bias
    if not mask:
        return ""
    if x.attrs.masked_row == "mean" and allowed and x.may_be_empty():
        zero, low = (build.constant(np.array(n), dtype, "masked") for n in (0.0, LOWEST))
        mask = build.where(allowed, bias or zero, low)
    elif bias and allowed:
        outside = build.constant(np.array(-np.inf), dtype, "masked")
        mask = build.where(allowed, bias, outside)
    lead = build.shape(mask)[:-2][-2:]
    return build.expand(mask, (*lead, x.queries, x.keys))


def _bias(x: Expansion) -> str:
    """The bias, with finite numbers that a runtime takes for -inf raised to one it does not.

    A row of them is the mean of V, one of -inf is 0.
    """
    build, dtype = x.build, x.build.dtype(x.q)
    if not x.bias:
        return ""
    value = build.cast(x.bias, dtype)
    if magnitude(Elements(build.graph), value) < -LOWEST:
        return value
    infinite = build.emit("IsInf", (value,), DType.BOOL, build.shape(value))
    raised = build.binary("Max", value, build.constant(np.array(LOWEST), dtype, "masked"))
    return build.where(infinite, value, raised)
