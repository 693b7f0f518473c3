"""Broadcasts that exporters rely on and the operators do not promise are spelled out.

``RotaryEmbedding`` (opset 23) wants cos and sin of shape (batch, sequence, head_size / 2) when
it gets no position ids. Exporters hand it a batch of 1; torch broadcasts, runtimes refuse.
"""

from __future__ import annotations

from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.canonical.shape_recipes import sizes_vector
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable
from gecompiler.passes.rule_pass import RulePass

_CACHES = (1, 2)


def expand_rotary_caches(r: Rewriter, op: Op) -> Result | None:
    """Expands cos and sin of batch 1 to the batch of the tensor that is rotated."""
    shape = r.facts.shape(op.inputs[0])
    if op.input(3) or not shape or shape[0] == 1:
        return None
    inputs = list(op.inputs)
    for index in _CACHES:
        cache = r.facts.shape(op.inputs[index])
        if cache is not None and len(cache) == 3 and cache[0] == 1:
            inputs[index] = _expanded(r, op, op.inputs[index], shape[0])
    new = tuple(inputs)
    return None if new == op.inputs else op.with_(inputs=new)


def _expanded(r: Rewriter, op: Op, value: str, batch: Dim) -> str:
    known = r.graph.tensor(value)
    assert known is not None
    assert known.shape is not None
    target = sizes_vector(r, op, [batch, 1, 1]) or _from_input(r, op)
    type_ = TensorType(known.dtype, (batch, *known.shape[1:]))
    return r.emit("Expand", (value, target), type_, info=op.info, stem=f"{value}_batch")


def _from_input(r: Rewriter, op: Op) -> str:
    """(batch, 1, 1) where the batch can only be read off the rotated tensor itself."""
    attrs = {"start": 0, "end": 1}
    size = r.emit("Shape", (op.inputs[0],), TensorType(DType.I64, (1,)), attrs=attrs)
    ones = r.ints((1, 1), "ones")
    type_ = TensorType(DType.I64, (3,))
    return r.emit("Concat", (size, ones), type_, attrs={"axis": 0}, info=op.info)


RULES: RuleTable = {"RotaryEmbedding": (expand_rotary_caches,)}


class ExplicitBroadcast(RulePass):
    """Expands operands that an operator does not promise to broadcast."""

    name = "explicit-broadcast"
    rules = RULES
