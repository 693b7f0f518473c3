"""Ops that we compute ourselves.

Our own; those that only look at a shape or rename it; Fourier transforms, which onnxruntime
computes with errors a hundred times those of single precision; and Dropout, which changes
nothing in inference. A training mode that is constant is taken to be one that the exporter left
set; one that comes with the run is meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gecompiler.backends.execution.node_model import Call
from gecompiler.backends.execution.run_inputs import Value
from gecompiler.backends.execution.training_ops import BLOCKS, TRAINING_OPS
from gecompiler.backends.kernels.activations import activation
from gecompiler.backends.kernels.attention import attend, flash_attention
from gecompiler.backends.kernels.fourier import dft, stft
from gecompiler.backends.kernels.norms import norm
from gecompiler.backends.kernels.rotary import rotary_embedding
from gecompiler.ir.block_ops import (
    ACTIVATIONS,
    NORMS,
    ROTARY_EMBEDDING,
    Activation,
    Norm,
    Rotary,
)
from gecompiler.ir.constants import Array
from gecompiler.ir.flash_attention import FLASH_ATTENTION, FlashAttention
from gecompiler.ir.op import GE_DOMAIN

VIEW_OPS = frozenset(("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"))
"""Ops of ai.onnx whose output holds the bytes of their first input."""


def own_op(call: Call) -> Callable[[Call], list[Value]] | None:
    """The function that computes the op, None for ops that are not ours."""
    op = call.op
    if op.domain == GE_DOMAIN:
        return _FUSED_OPS.get(op.op_type)
    if op.is_("Dropout") and call.trains:
        return None
    if not op.domain and op.op_type in _PLAIN_OPS and isinstance(call.values[0], np.ndarray):
        return _PLAIN_OPS[op.op_type]
    return None


def _flash_attention(call: Call) -> list[Value]:
    """The kernel has heads first; tensors of another layout go by it as views."""
    attrs = FlashAttention.of(call.op)
    operands, rest = call.values[:3], call.values[3:]
    if attrs.reads_rows_first:
        operands = tuple(np.swapaxes(x, 1, 2) for x in operands)
    heads_first = replace(attrs, layout="BNSD")
    if len(call.op.outputs) > 1:
        out, lse = attend(*operands, *rest, attrs=heads_first, blocks=BLOCKS, with_lse=True)
        return [np.swapaxes(out, 1, 2) if attrs.writes_rows_first else out, lse]
    block_q, block_k = BLOCKS
    out = flash_attention(*operands, *rest, attrs=heads_first, block_q=block_q, block_k=block_k)
    return [np.swapaxes(out, 1, 2) if attrs.writes_rows_first else out]


def _value(call: Call, index: int) -> Value:
    """That input, None where it is left out."""
    return call.values[index] if index < len(call.values) else None


def _norm(call: Call) -> list[Value]:
    spec = Norm.of(call.op)
    first = 1 + spec.adds
    residual = call.values[1] if spec.adds else None
    scale, shift, bias = (_value(call, first + n) for n in range(3))
    return list(norm(call.values[0], residual, scale, shift, bias, spec)[: len(call.op.outputs)])


def _rotary(call: Call) -> list[Value]:
    x, cos, sin = call.values
    return [rotary_embedding(x, cos, sin, Rotary.of(call.op))]


def _activation(call: Call) -> list[Value]:
    spec = Activation.of(call.op)
    up = _value(call, 1) if spec.gated else None
    bias = _value(call, 2 if spec.gated else 1)
    return [activation(call.values[0], up, bias, spec)]


def _numbers(call: Call, index: int, attribute: str) -> tuple[int, ...] | None:
    """Axes or sizes, which are an input in newer opsets and an attribute in older ones."""
    if len(call.values) > index and call.values[index] is not None:
        return tuple(int(n) for n in np.asarray(call.values[index]).reshape(-1))
    found: tuple[int, ...] | None = call.op.attr(attribute)
    return found


def _reshape(call: Call) -> list[Value]:
    x, target = call.values[0], _numbers(call, 1, "shape") or ()
    if not call.op.attr("allowzero", 0):
        target = tuple(x.shape[i] if n == 0 else n for i, n in enumerate(target))
    if -1 in target:
        known = math.prod(n for n in target if n != -1)
        rest = x.size // known if known else 0
        target = tuple(rest if n == -1 else n for n in target)
    return [x.reshape(target)]


def _squeeze(call: Call) -> list[Value]:
    x, axes = call.values[0], _numbers(call, 1, "axes")
    return [np.squeeze(x, axis=axes)]


def _unsqueeze(call: Call) -> list[Value]:
    x, axes = call.values[0], _numbers(call, 1, "axes") or ()
    return [np.expand_dims(x, axes)]


def _flatten(call: Call) -> list[Value]:
    x: Array = call.values[0]
    axis = call.op.attr("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return [x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))]


def _identity(call: Call) -> list[Value]:
    return [call.values[0]]


def _shape(call: Call) -> list[Value]:
    sizes = call.values[0].shape[call.op.attr("start", 0) : call.op.attr("end")]
    return [np.array(sizes, np.int64)]


def _size(call: Call) -> list[Value]:
    return [np.array(call.values[0].size, np.int64)]


def _dft(call: Call) -> list[Value]:
    op, length, axis = call.op, _value(call, 1), _value(call, 2)
    if call.version < 20:
        axis = op.attr("axis", 1)
    found = dft(
        call.values[0],
        None if length is None else int(np.asarray(length).item()),
        -2 if axis is None else int(np.asarray(axis).item()),
        inverse=bool(op.attr("inverse", 0)),
        onesided=bool(op.attr("onesided", 0)),
    )
    return [found]


def _stft(call: Call) -> list[Value]:
    signal, step, window, length = (_value(call, k) for k in range(4))
    if length is None:
        length = signal.shape[1] if window is None else window.shape[0]
    onesided = bool(call.op.attr("onesided", 1))
    step, length = (int(np.asarray(n).item()) for n in (step, length))
    return [stft(signal, step, window, length, onesided=onesided)]


def _dropout(call: Call) -> list[Value]:
    x = call.values[0]
    return [x, *(np.ones(x.shape, np.bool_) if name else None for name in call.op.outputs[1:])]


_FUSED_OPS: dict[str, Callable[[Call], list[Value]]] = {
    FLASH_ATTENTION: _flash_attention,
    **dict.fromkeys(NORMS, _norm),
    ROTARY_EMBEDDING: _rotary,
    **dict.fromkeys(ACTIVATIONS, _activation),
    **TRAINING_OPS,
}
"""Ops of our own domain."""

_PLAIN_OPS: dict[str, Callable[[Call], list[Value]]] = {
    "DFT": _dft,
    "Dropout": _dropout,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Flatten": _flatten,
    "Identity": _identity,
    "Shape": _shape,
    "STFT": _stft,
    "Size": _size,
}
