"""The ops of training steps as the executor calls them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gecompiler.backends.cost.attention_tiles import Blocks
from gecompiler.backends.execution.node_model import Call
from gecompiler.backends.execution.run_inputs import Value
from gecompiler.backends.kernels import gradients as kernels
from gecompiler.backends.kernels import loss
from gecompiler.backends.kernels.activation_gradients import activation_grad
from gecompiler.backends.kernels.attention_backward import attend_backward
from gecompiler.backends.kernels.conv_gradients import conv_grad_input, conv_grad_weight
from gecompiler.backends.kernels.optimizer_steps import optimizer_step
from gecompiler.ir.block_ops import Activation, Rotary
from gecompiler.ir.constants import Array
from gecompiler.ir.flash_attention import FLASH_ATTENTION, FlashAttention
from gecompiler.ir.training_ops import (
    ACTIVATION_GRADS,
    CONV_GRADS,
    CROSS_ENTROPY,
    CROSS_ENTROPY_GRAD,
    CROSS_ENTROPY_PART,
    FLASH_ATTENTION_GRAD,
    LAYER_NORM_GRAD,
    NORM_GRADS,
    OPTIMIZERS,
    ROTARY_GRAD,
    SLICE_GRAD,
    SOFTMAX_GRADS,
)

BLOCKS = Blocks(128, 128)
"""Block of queries and of keys: on a CPU larger tiles cost fewer calls."""


def _value(call: Call, index: int) -> Value:
    return call.values[index] if index < len(call.values) else None


def _some(call: Call, found: tuple[Value, ...]) -> list[Value]:
    """As many as the op has outputs."""
    return list(found[: len(call.op.outputs)])


def _attention(call: Call) -> list[Value]:
    """The kernel has heads first; tensors of another layout go by it as views."""
    attrs = FlashAttention.of(call.op.with_(op_type=FLASH_ATTENTION))
    dout, q, k, v, out, lse = call.values[:6]
    if attrs.writes_rows_first:
        dout, out = np.swapaxes(dout, 1, 2), np.swapaxes(out, 1, 2)
    if attrs.reads_rows_first:
        q, k, v = (np.swapaxes(x, 1, 2) for x in (q, k, v))
    outputs = call.op.outputs
    found = attend_backward(
        dout, q, k, v, out, lse, _value(call, 6), _value(call, 7),
        attrs=replace(attrs, layout="BNSD"), blocks=BLOCKS,
        mask_gradient=len(outputs) > 4 and bool(outputs[4]),
    )  # fmt: skip
    three: list[Value] = list(found[:3])
    if attrs.masked_row == "mean":
        three[2] = three[2] + _rows_of_means(dout, lse, three[2])
    if attrs.reads_rows_first:
        three = [np.swapaxes(x, 1, 2) for x in three]
    return _some(call, (*three, found.sinks, found.mask))


def _rows_of_means(dout: Array, lse: Array, dv: Array) -> Array:
    """What rows without a key add to dV where they give the mean of V over all T keys."""
    batch, groups, keys, width = dv.shape
    rows = np.where(np.isneginf(lse)[..., None], dout, 0).astype(lse.dtype)
    total = rows.reshape(rows.shape[0], groups, -1, width).sum(axis=2, keepdims=True)
    if batch == 1:
        total = total.sum(axis=0, keepdims=True)
    return np.asarray((total / keys).astype(dv.dtype))


def _norm(call: Call) -> list[Value]:
    op = call.op
    found = kernels.norm_grad(
        call.values[0],
        call.values[1],
        _value(call, 2),
        centred=op.op_type == LAYER_NORM_GRAD,
        axis=op.attr("axis", -1),
        epsilon=op.attr("epsilon", 1e-5),
        offset=op.attr("offset", 0.0),
    )
    return _some(call, found)


def _activation(call: Call) -> list[Value]:
    spec = Activation.of(call.op.with_(op_type=call.op.op_type.removesuffix("Grad")))
    up = _value(call, 2) if spec.gated else None
    bias = _value(call, 3 if spec.gated else 2)
    return _some(call, activation_grad(call.values[0], call.values[1], up, bias, spec))


def _softmax(call: Call) -> list[Value]:
    dy, y = call.values
    log = call.op.op_type.startswith("Log")
    return [kernels.softmax_grad(dy, y, call.op.attr("axis", -1), log=log)]


def _rotary(call: Call) -> list[Value]:
    dy, cos, sin = call.values
    return [kernels.rotary_grad(dy, cos, sin, Rotary.of(call.op))]


def _gather(call: Call) -> list[Value]:
    axis, shape = call.op.attr("axis", 0), call.op.attr("shape")
    dy, indices = call.values
    return [kernels.gather_grad(dy, indices, axis, shape)]


def _gather_elements(call: Call) -> list[Value]:
    axis, shape = call.op.attr("axis", 0), call.op.attr("shape")
    dy, indices = call.values
    return [kernels.gather_elements_grad(dy, indices, axis, shape)]


def _gather_nd(call: Call) -> list[Value]:
    batch, shape = call.op.attr("batch_dims", 0), call.op.attr("shape")
    dy, indices = call.values
    return [kernels.gather_nd_grad(dy, indices, batch, shape)]


def _slice(call: Call) -> list[Value]:
    attrs = call.op.attrs
    return [kernels.slice_grad(call.values[0], attrs["shape"], attrs["starts"], attrs["steps"])]  # type: ignore[arg-type]


def _conv(call: Call) -> list[Value]:
    way = conv_grad_input if call.op.op_type == CONV_GRADS[0] else conv_grad_weight
    attrs: Any = {name: call.op.attrs[name] for name in ("strides", "dilations", "pads", "group")}
    dy, other = call.values
    return [way(dy, other, call.op.attr("shape"), **attrs)]


def _labels(call: Call, numbers: Array) -> loss.Labels:
    ignored, shift = call.op.attr("ignore_index", -100), bool(call.op.attr("shift", 0))
    return loss.Labels(numbers, ignored, shift)


def _cross_entropy(call: Call) -> list[Value]:
    logits, numbers = call.values[:2]
    labels = _labels(call, numbers)
    return _some(call, loss.cross_entropy(logits, labels, *(_value(call, i) for i in (3, 4, 5))))


def _cross_entropy_part(call: Call) -> list[Value]:
    logits, numbers, words = call.values
    return list(loss.cross_entropy_part(logits, _labels(call, numbers), words))


def _cross_entropy_grad(call: Call) -> list[Value]:
    dloss, logits, numbers, lse = call.values[:4]
    labels = _labels(call, numbers)
    return [loss.cross_entropy_grad(dloss, logits, labels, lse, _value(call, 4), _value(call, 5))]


def _step(call: Call) -> list[Value]:
    return list(optimizer_step(call.op.op_type, call.values, call.op.attrs))


TRAINING_OPS: dict[str, Callable[[Call], list[Value]]] = {
    FLASH_ATTENTION_GRAD: _attention,
    **dict.fromkeys(NORM_GRADS, _norm),
    **dict.fromkeys(ACTIVATION_GRADS, _activation),
    **dict.fromkeys(SOFTMAX_GRADS, _softmax),
    ROTARY_GRAD: _rotary,
    "GatherGrad": _gather,
    "GatherElementsGrad": _gather_elements,
    "GatherNDGrad": _gather_nd,
    SLICE_GRAD: _slice,
    **dict.fromkeys(CONV_GRADS, _conv),
    CROSS_ENTROPY: _cross_entropy,
    CROSS_ENTROPY_PART: _cross_entropy_part,
    CROSS_ENTROPY_GRAD: _cross_entropy_grad,
    **dict.fromkeys(OPTIMIZERS, _step),
}
