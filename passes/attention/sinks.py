"""Sink logits: from a column beside the scores to one number per head."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.frame import Frame
from gecompiler.passes.attention.layout import Layout
from gecompiler.passes.attention.operands import chain, factors
from gecompiler.passes.attention.refusal import Refusal
from gecompiler.passes.attention.relayout import cost, relayout


def emit_sinks(e: Elements, build: Builder, frame: Frame, column: tuple[str, Layout, float]) -> str:
    """The logits (H,) of a column (B, H, S, 1) that is the same for every batch entry and query."""
    value, layout, factor = column
    target: Layout = (frame.heads,)
    constant = e.graph.constant(value)
    if constant is not None:
        per_head = _stored(constant.array(), layout, frame)
        return build.scale(build.constant(per_head, constant.type.dtype, "sinks"), factor)
    for link in chain(e, value, layout):
        if not link.casts and cost(link.layout, target) is not None:
            return build.scale(
                relayout(build, link.value, link.layout, target), factor * link.factor
            )
        if not link.casts and not factors(link.layout):
            single = relayout(build, link.value, link.layout, ((),))
            return build.scale(build.expand(single, (lay.size(frame.heads),)), factor * link.factor)
    raise Refusal(f"the sink {value!r} is not one number per head")


def _stored(array: Array, layout: Layout, frame: Frame) -> Array:
    heads = lay.flat(frame.heads)
    whole = np.broadcast_to(array, tuple(int(str(d)) for d in lay.shape_of(layout)))
    for axis, own in enumerate(layout):
        if lay.flat(own) != heads:
            first = whole.take([0], axis=axis)
            if not np.array_equal(whole, np.broadcast_to(first, whole.shape)):
                raise Refusal("the sink differs between batch entries or queries")
            whole = first
    per_head = whole.reshape(-1)
    return np.broadcast_to(per_head, (int(str(lay.size(frame.heads))),)).copy()
