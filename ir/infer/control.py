"""Types through ops with bodies: If here, the others in modules of their own."""

from __future__ import annotations

from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer.bodies import Control, Inferred, Walk, body_of, infer_body, outcome_of
from gecompiler.ir.infer.loop import infer_loop, infer_scan
from gecompiler.ir.infer.node import Node, PartialShape
from gecompiler.ir.infer.onnx import Outcome
from gecompiler.ir.infer.sequence import infer_sequence_map
from gecompiler.ir.types import OpaqueType, Shape, TensorType, ValueType


def infer_control(node: Node, walk: Walk) -> Control | None:
    """The outputs of an If, Loop, Scan or SequenceMap; None for other ops with bodies."""
    if node.op.is_("If"):
        return _if(node, walk)
    if node.op.is_("Loop"):
        return infer_loop(node, walk)
    if node.op.is_("Scan"):
        return infer_scan(node, walk)
    return infer_sequence_map(node, walk) if node.op.is_("SequenceMap") else None


def infer_bodies(node: Node, walk: Walk) -> dict[str, Graph]:
    """The bodies of an op that says nothing of what enters them, with what can be told."""
    return {
        name: infer_body(node, walk, body, [None] * len(body.inputs)).body
        for name, body in node.op.attrs.items()
        if isinstance(body, Graph)
    }


def _if(node: Node, walk: Walk) -> Control:
    """Both branches joined; the one taken alone where the condition is known."""
    names = ("then_branch", "else_branch")
    condition = node.scalar(0)
    taken = None if condition is None else names[0] if condition else names[1]
    found: dict[str, Inferred] = {}
    for name in names:
        body = body_of(node, name, len(node.op.outputs))
        try:
            found[name] = infer_body(node, walk, body, [])
        except ModelError:
            if taken in (None, name):
                raise
    bodies = {name: result.body for name, result in found.items()}
    if taken is not None:
        result = found[taken]
        return Control([outcome_of(t) for t in result.types], bodies, result.values)
    left, right = (found[name].types for name in names)
    return Control([_joined(node, a, b) for a, b in zip(left, right, strict=True)], bodies)


def _joined(node: Node, a: ValueType, b: ValueType) -> Outcome:
    """What holds of a value that has either type."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        if a.dtype is not b.dtype:
            node.fail(f"the branches give {a} and {b} for one output")
        return a.dtype, _common(a.shape, b.shape)
    if isinstance(a, OpaqueType) and isinstance(b, OpaqueType) and a.proto == b.proto:
        return a
    known = a if isinstance(a, TensorType) else b
    return (known.dtype, None) if isinstance(known, TensorType) else (None, None)


def _common(a: Shape | None, b: Shape | None) -> PartialShape | None:
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else None for x, y in zip(a, b, strict=True))
