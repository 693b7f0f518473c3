"""Ops of training steps: gradients as multiples of the kernels they belong to, losses, optimisers.

The backward pass of attention multiplies five times where the forward pass does twice (the
scores again, dP, dV, dQ and dK: Dao 2023, section 3.1), with the exponentials once more and the
products with them; reported kernels take 2.5 times as long. Gradients of norms and activations
read both dY and X and do about twice the arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from gecompiler.backends.cost import attention_ops, conv, vector
from gecompiler.backends.cost.attention import attention_demand
from gecompiler.backends.cost.base import Sizes, padded, vector_demand
from gecompiler.backends.cost.move import ISSUE_CYCLES
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.schedule import Demand
from gecompiler.ir.training_ops import (
    ACTIVATION_GRADS,
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

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

BACKWARD_PRODUCTS = 2.5
"""Matrix products of attention's backward pass for each of the forward pass."""

GRADIENT_PASSES = 2.0
"""Vector arithmetic of a gradient for that of what it belongs to."""

_STEP_PASSES = {"ApplySgd": 4.0, "ApplyMomentum": 7.0, "ApplyAdam": 18.0, "ApplyAdamW": 18.0}
"""Full-rate passes an element: five products and sums for each moment, a root, a division."""


def attention_grad(device: Device, op: Op, s: Sizes) -> Demand | None:
    """FlashAttentionGrad: dO, Q, K, V, O, lse, mask, sinks."""
    inner = (*s.inputs[1:4], *s.inputs[6:8])
    found = attention_ops.flash_problem(op, Sizes(inner, s.outputs[:1], 0.0, 0.0))
    if found is None:
        return None
    forward = attention_demand(device, found)
    return replace(
        forward,
        load_bytes=s.load,
        store_bytes=s.store,
        l2_bytes=forward.l2_bytes * BACKWARD_PRODUCTS,
        cube_us=forward.cube_us * BACKWARD_PRODUCTS,
        vector_us=forward.vector_us * BACKWARD_PRODUCTS,
        fixed_us=forward.fixed_us * BACKWARD_PRODUCTS,
    )


def _twice(demand: Demand) -> Demand:
    return replace(demand, vector_us=demand.vector_us * GRADIENT_PASSES)


def norm_grad(device: Device, op: Op, s: Sizes) -> Demand:
    """Row by row as the norm; the sums for scale and shift go along."""
    return _twice(vector.normalisation(device, _forward(op), s))


def softmax_grad(device: Device, op: Op, s: Sizes) -> Demand:
    """Row by row; a product and a sum take the place of the exponential."""
    return vector.normalisation(device, _forward(op), s)


def _forward(op: Op) -> Op:
    return op.with_(op_type=op.op_type.removesuffix("Grad"))


def activation_grad(device: Device, op: Op, s: Sizes) -> Demand:
    """An elementwise kernel over dY and X, and what is gated."""
    return _twice(vector.fused_activation(device, _forward(op), s))


def rotary_grad(device: Device, op: Op, s: Sizes) -> Demand:
    """As the rotation itself."""
    return vector.elementwise(device, _forward(op), s)


def picking_grad(device: Device, op: Op, s: Sizes) -> Demand:
    """Zeros are written, and rows of dY added to them, each by a transfer of its own."""
    dy, out = s.input(0), s.output()
    if dy is None or out is None:
        return vector_demand(device, s.load, s.store, 0.0)
    inner = op.op_type == "GatherGrad" and len(out.shape) > 1 and _axis(op) != len(out.shape) - 1
    row = out.shape[-1] if inner else 1
    if op.op_type == "GatherNDGrad" and (indices := s.input(1)) and indices.shape:
        row = math.prod(out.shape[int(op.attr("batch_dims", 0)) + indices.shape[-1] :])
    count = dy.elements // max(1, row)
    one = padded(max(1, math.ceil(row * dy.dtype.bits / 8)), device.hbm_access_bytes)
    issues = count * ISSUE_CYCLES * device.vector_bytes_per_cycle / 4
    passes = issues + 1.3 * dy.elements
    return vector_demand(device, s.load + count * one, s.store + count * one, passes, s.bits)


def _axis(op: Op) -> int:
    return int(op.attr("axis", 0))


def slicing_grad(device: Device, op: Op, s: Sizes) -> Demand:
    """A copy into zeros."""
    return vector_demand(device, s.load, s.store, 0.0)


def conv_grad(device: Device, op: Op, s: Sizes) -> Demand | None:
    """As many products as the convolution itself."""
    dy, other, made = s.input(0), s.input(1), s.output()
    if dy is None or other is None or made is None:
        return None
    x, w = (made, other) if op.op_type == CONV_GRADS[0] else (other, made)
    return conv.convolution(device, op, Sizes((x, w), (dy,), s.load, s.store))


def loss(device: Device, op: Op, s: Sizes) -> Demand:
    """Rows of logits, each read for its maximum and its sum, and again for the gradient."""
    if op.op_type == CROSS_ENTROPY and op.input(2):  # of what is known of each position
        lse = s.input(3)
        count = 0.0 if lse is None else float(lse.elements)
        return vector_demand(device, 16 * count, s.store, 4 * count)
    logits = s.input(1 if op.op_type == CROSS_ENTROPY_GRAD else 0)
    rows = op.with_(op_type="Softmax", domain="", attrs={"axis": -1})
    return vector.normalisation(device, rows, Sizes((logits,), s.outputs, s.load, s.store))


def step(device: Device, op: Op, s: Sizes) -> Demand:
    """Elementwise over parameter, gradient and moments, in float32."""
    count = s.inputs[0].elements if s.inputs and s.inputs[0] else 0
    return vector_demand(device, s.load, s.store, _STEP_PASSES[op.op_type] * count, 32)


FORMULAS = {
    f"{GE_DOMAIN}.{name}": formula
    for formula, names in (
        (attention_grad, (FLASH_ATTENTION_GRAD,)),
        (norm_grad, NORM_GRADS),
        (softmax_grad, SOFTMAX_GRADS),
        (activation_grad, ACTIVATION_GRADS),
        (rotary_grad, (ROTARY_GRAD,)),
        (picking_grad, GATHER_GRADS),
        (slicing_grad, (SLICE_GRAD,)),
        (conv_grad, CONV_GRADS),
        (loss, (CROSS_ENTROPY, CROSS_ENTROPY_PART, CROSS_ENTROPY_GRAD)),
        (step, OPTIMIZERS),
    )
    for name in names
}
"""By qualified type."""
