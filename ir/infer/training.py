"""Shapes of the ops that a training step adds; `training_ops` says what they mean."""

from __future__ import annotations

from gecompiler.ir.infer.node import Node, Rule, Shapes
from gecompiler.ir.op import GE_DOMAIN
from gecompiler.ir.training_ops import (
    ACTIVATION_GRADS,
    ARITY,
    CONV_GRADS,
    CROSS_ENTROPY,
    CROSS_ENTROPY_GRAD,
    CROSS_ENTROPY_PART,
    FLASH_ATTENTION_GRAD,
    GATHER_GRADS,
    NORM_GRADS,
    OPTIMIZERS,
    ROTARY_GRAD,
    SLICE_GRAD,
    SOFTMAX_GRADS,
)
from gecompiler.ir.types import DType


def _check(node: Node) -> None:
    (least, most), (fewest, top) = ARITY[node.op.op_type]
    inputs, outputs = len(node.op.inputs), len(node.op.outputs)
    if not least <= inputs <= most:
        node.fail(f"{node.op.op_type} takes {least} to {most} inputs, found {inputs}")
    if not fewest <= outputs <= top:
        node.fail(f"{node.op.op_type} has {fewest} to {top} outputs, found {outputs}")


def like(*inputs: int) -> Rule:
    """Each output is of the shape of that input."""

    def rule(node: Node) -> Shapes:
        _check(node)
        return tuple(node.shape(i) for i in inputs)[: len(node.op.outputs)]

    return rule


def norm_grad(node: Node) -> Shapes:
    """Like X; of scale and shift the normalised axes."""
    _check(node)
    shape = node.shape(1)
    if shape is None:
        return (None,) * len(node.op.outputs)
    rest = shape[node.axis(len(shape), -1) :]
    return (shape, rest, rest)[: len(node.op.outputs)]


def stated(node: Node) -> Shapes:
    """The shape that the attribute says."""
    _check(node)
    shape = node.op.attrs.get("shape")
    if not isinstance(shape, tuple) or not all(type(d) is int and d >= 0 for d in shape):
        node.fail(f"shape is {shape!r}, expected the sizes of the gradient")
    return (tuple(d for d in shape if isinstance(d, int)),)


def cross_entropy(node: Node) -> Shapes:
    """A scalar, and the log-sum-exp of each position."""
    _check(node)
    logits, labels = node.shape(0), node.shape(1)
    if logits is None:
        return ((), None)[: len(node.op.outputs)]
    if not logits:
        node.fail("the logits are a scalar")
    if labels is not None and len(labels) != len(logits) - 1:
        node.fail("the labels need the shape of the logits without the last axis")
    for a, b in zip(logits, labels or (), strict=False):
        node.same(a, b, "logits and labels")
    return ((), logits[:-1])[: len(node.op.outputs)]


def cross_entropy_part(node: Node) -> Shapes:
    """Two numbers for each position."""
    first = cross_entropy(node)[1]
    logits, words = node.shape(0), node.shape(2)
    if logits is not None and words is not None:
        if len(words) != 1:
            node.fail(f"the words have {len(words)} axes, expected one")
        node.same(logits[-1], words[0], "logits and words")
    return (first, first)


def apply(node: Node) -> Shapes:
    """Like the parameter, all of them."""
    _check(node)
    shape = node.shape(0)
    return (shape,) * len(node.op.outputs)


RULES: dict[str, Rule] = {
    FLASH_ATTENTION_GRAD: like(1, 2, 3, 7, 6),
    **dict.fromkeys(NORM_GRADS, norm_grad),
    ROTARY_GRAD: like(0),
    **dict.fromkeys(ACTIVATION_GRADS, like(1, 2)),
    **dict.fromkeys(SOFTMAX_GRADS, like(0)),
    **dict.fromkeys((*GATHER_GRADS, SLICE_GRAD, *CONV_GRADS), stated),
    CROSS_ENTROPY: cross_entropy,
    CROSS_ENTROPY_PART: cross_entropy_part,
    CROSS_ENTROPY_GRAD: like(1),
    **dict.fromkeys(OPTIMIZERS, apply),
}


def _moment(node: Node) -> DType | None:
    """Moments and master are of one type."""
    return node.dtype(len(node.op.inputs) - 1)


def _second_type(node: Node) -> DType | None:
    return node.dtype(1)


def _wide(node: Node) -> DType | None:
    first = node.dtype(0)
    return first if first is None or first is DType.F64 else DType.F32


OWN_OUTPUT = {
    **dict.fromkeys((f"{GE_DOMAIN}.{CROSS_ENTROPY}", f"{GE_DOMAIN}.{CROSS_ENTROPY_PART}"), _wide),
    f"{GE_DOMAIN}.{CROSS_ENTROPY_GRAD}": _second_type,
    **{f"{GE_DOMAIN}.{name}": _second_type for name in NORM_GRADS},
}
"""What decides the first output's element type."""

OTHER_OUTPUTS = {
    f"{GE_DOMAIN}.FlashAttention": _wide,
    **dict.fromkeys((f"{GE_DOMAIN}.{CROSS_ENTROPY}", f"{GE_DOMAIN}.{CROSS_ENTROPY_PART}"), _wide),
    **{f"{GE_DOMAIN}.{name}": _moment for name in OPTIMIZERS},
}
"""What decides the element type of the outputs after the first."""
