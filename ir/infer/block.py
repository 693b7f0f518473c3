"""Shapes of the ops that block fusion makes; `block_ops` says what they mean."""

from __future__ import annotations

from gecompiler.ir.block_ops import ACTIVATIONS, NORMS, ROTARY_EMBEDDING, NormInputs
from gecompiler.ir.dims import floordiv
from gecompiler.ir.infer.node import Node, Rule, Shapes


def norm(node: Node) -> Shapes:
    """Output, and sum, of X's shape."""
    shape = node.shape(0)
    inputs = NormInputs.of(node.op)
    residual = node.scope.graph.shape(inputs.residual)
    if shape is not None and residual is not None:
        if len(shape) != len(residual):
            node.fail("the residual needs the shape of X")
        shape = tuple(
            node.same(a, b, "X and residual") or a for a, b in zip(shape, residual, strict=True)
        )
    return (shape,) * len(node.op.outputs)


def rotary_embedding(node: Node) -> Shapes:
    """Like X."""
    return (node.shape(0),)


def activation(node: Node) -> Shapes:
    """Like X; half of its last axis where X holds both the gate and what is gated."""
    shape = node.shape(0)
    if shape is None or not node.op.op_type.endswith("Mul"):
        return (shape,)
    up = node.shape(1)
    if not node.has(1):
        last = shape[-1] if shape else 1
        if isinstance(last, int) and last % 2:
            node.fail(f"{last} columns cannot be halved into gate and gated")
        return ((*shape[:-1], floordiv(last, 2)),)
    if up is None or len(up) != len(shape):
        return (shape,)
    return (tuple(node.same(a, b, "gate and gated") or a for a, b in zip(shape, up, strict=True)),)


RULES: dict[str, Rule] = {
    **dict.fromkeys(NORMS, norm),
    ROTARY_EMBEDDING: rotary_embedding,
    **dict.fromkeys(ACTIVATIONS, activation),
}
