"""Ops of the vector cores: elementwise functions, norms, softmax, reductions, scans, pooling.

`PASSES` counts, per element, instructions at full rate (one vector of operands a cycle). The
rates behind it are slopes of the graph engine's fusion performance table for the second
generation (hicann/ge, perf_param_v1: cycles per f32 element times 64 lanes), rounded: add and
multiply of two tensors 1.3, exp 2, square root 2, divide 3, sigmoid 8, tanh 10, gather within
the buffer 12, erf 39, power 40; reciprocals, square roots' reciprocals and casts 1.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from gecompiler.backends.cost.base import L2_SHARE, Sizes, vector_demand
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.schedule import Demand

if TYPE_CHECKING:
    from gecompiler.backends.device import Device

_BINARY, _UNARY, _SELECT, _EXP, _ROOT, _DIVIDE = 1.3, 1.0, 1.5, 2.0, 2.0, 3.0
_SIGMOID, _TANH, _GATHER, _ERF, _POWER = 8.0, 10.0, 12.0, 39.0, 40.0

PASSES = MappingProxyType(
    {
        **dict.fromkeys(("Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean", "PRelu"), _BINARY),
        **dict.fromkeys(("And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"), _BINARY),
        **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), _BINARY),
        **dict.fromkeys(("Abs", "Neg", "Relu", "Clip", "Not", "BitwiseNot"), _UNARY),
        **dict.fromkeys(("Cast", "CastLike", "Reciprocal", "Floor", "Ceil", "Round"), _UNARY),
        **dict.fromkeys(("LeakyRelu", "ThresholdedRelu", "Shrink", "IsNaN", "IsInf"), 2.0),
        **dict.fromkeys(("BitShift", "HardSigmoid"), 2.0),
        **dict.fromkeys(("Where", "Compress"), _SELECT),
        **dict.fromkeys(("Div", "HardSwish"), _DIVIDE),
        **dict.fromkeys(("Mod",), _DIVIDE + 3 * _UNARY),
        **dict.fromkeys(("Exp", "Log"), _EXP),
        "Sqrt": _ROOT,
        "Sign": 11.0,
        "Pow": _POWER,
        "Erf": _ERF,
        "Tanh": _TANH,
        **dict.fromkeys(("Sinh", "Cosh"), 2 * _EXP + 3.0),
        **dict.fromkeys(("Sin", "Cos", "Tan", "Asin", "Acos", "Atan"), 20.0),
        **dict.fromkeys(("Asinh", "Acosh", "Atanh"), _EXP + _ROOT + 4.0),
        "SquaredRelu": _UNARY + _BINARY,
        "Sigmoid": _SIGMOID,
        "Softplus": 2 * _EXP + 2.0,
        "Softsign": _DIVIDE + 2.0,
        **dict.fromkeys(("Elu", "Selu", "Celu"), _EXP + 4.0),
        **dict.fromkeys(("Swish", "Silu", "QuickGelu"), _SIGMOID + _BINARY),
        "Mish": 2 * _EXP + 2.0 + _TANH + _BINARY,
        **dict.fromkeys(("FastGelu", "BiasGelu"), _TANH + 6.0),
        "QuantizeLinear": 4.0,
        "DequantizeLinear": 3.0,
        "DynamicQuantizeLinear": 8.0,
        "Dropout": 4.0,
        "RotaryEmbedding": 6.0,
        **dict.fromkeys(("CumSum", "CumProd"), 3.0),
        **dict.fromkeys(("RandomNormal", "RandomNormalLike"), 40.0),
        **dict.fromkeys(("RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"), 20.0),
        "BatchNormalization": 2.6,
        "LRN": 12.0 + _POWER,
    }
)
"""Full-rate passes per element."""

NORM_PASSES = MappingProxyType(
    {
        **dict.fromkeys(
            ("LayerNormalization", "InstanceNormalization", "GroupNormalization"), 10.0
        ),
        **dict.fromkeys(("MeanVarianceNormalization", "EmbedLayerNormalization"), 9.0),
        **dict.fromkeys(("SkipLayerNormalization",), 12.0),
        **dict.fromkeys(("RMSNormalization", "SimplifiedLayerNormalization"), 6.5),
        **dict.fromkeys(("SkipSimplifiedLayerNormalization",), 8.5),
        "LayerNorm": 10.0,
        "AddLayerNorm": 12.0,
        "RMSNorm": 6.5,
        "AddRMSNorm": 8.5,
        **dict.fromkeys(("LpNormalization",), 6.0),
        **dict.fromkeys(("Softmax",), 8.0),
        **dict.fromkeys(("LogSoftmax", "Hardmax"), 8.0),
        "SoftmaxCrossEntropyLoss": 9.0,
    }
)
"""Per element, in f32: layer norm casts, sums, centres, squares and sums, scales, applies gamma
and beta, and casts back; RMS norm leaves out the mean; softmax as in cost_attention. A sum
before the norm is 1.3 and a little for its copy."""

REDUCTIONS = MappingProxyType(
    {
        **dict.fromkeys(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean"), _BINARY),
        **dict.fromkeys(("ReduceProd", "ReduceL1"), _BINARY + _UNARY),
        **dict.fromkeys(("ReduceL2", "ReduceSumSquare"), 2 * _BINARY),
        **dict.fromkeys(("ReduceLogSum",), _BINARY),
        "ReduceLogSumExp": 2 * _BINARY + _EXP + _UNARY,
        **dict.fromkeys(("ArgMax", "ArgMin"), 4.0),
        **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _BINARY),
    }
)
"""Per element that is reduced."""


def elementwise(device: Device, op: Op, s: Sizes) -> Demand:
    """Reads each input once, however it is broadcast; writes the output; `PASSES` per element.

    An operand that is spread over the others may keep a kernel from its usual pace
    (``broadcast_efficiency_fraction``); one of a single element does not.
    """
    main = s.main
    passes = PASSES[op.op_type] if op.op_type in PASSES else gelu_passes(op)
    extra = max(0, sum(1 for t in s.inputs if t is not None) - 2)
    if op.op_type in ("Sum", "Mean", "Max", "Min"):
        passes += extra * _BINARY
    count = main.elements if main else 0
    pace = _pace(device, op)
    if any(t is not None and t.elements not in (1, count) for t in s.inputs):
        pace = min(pace, device.broadcast_efficiency_fraction)
    return vector_demand(device, s.load, s.store, passes * count, s.bits, efficiency=pace)


def gelu_passes(op: Op) -> float:
    """Gelu by erf, or by tanh where the attribute says so; 4 for what is not known."""
    if op.op_type in ("Gelu", "GeluMul"):
        return (_TANH + 6.0) if op.attr("approximate") == "tanh" else _ERF + 3 * _BINARY
    return 4.0


def fused_activation(device: Device, op: Op, s: Sizes) -> Demand:
    """An activation with a bias before and a product after, in one pass over the data."""
    function = op.op_type.removesuffix("Mul")
    gated = function != op.op_type
    passes = PASSES[function] if function in PASSES else gelu_passes(op)
    passes += _BINARY * (gated + bool(op.input(2 if gated else 1)))
    main = s.main
    count = main.elements if main else 0
    pace = device.gated_efficiency_fraction if gated else _pace(device, op)
    whole = main is not None and gated and not device.gated_rows_cut
    rows = count // main.shape[-1] if main and whole and count else None
    return vector_demand(
        device, s.load, s.store, passes * count, s.bits, rows=rows, efficiency=pace
    )


def _pace(device: Device, op: Op) -> float:
    if op.op_type == "RotaryEmbedding":
        return device.rotary_efficiency_fraction
    return device.elementwise_efficiency_fraction


def normalisation(device: Device, op: Op, s: Sizes) -> Demand:
    """Norms and softmax along rows, in f32.

    A row that fits a quarter of the unified buffer (input, f32 copy, output, two buffers) is
    read once; a longer one is read once for its statistics and once more to be scaled, the
    second time from L2 where it holds the rows that all cores are at. Rows
    are not cut across cores unless they are that long; they come in waves of
    ``rows_in_flight`` for each core. RMS norm reduces each row once, the others twice, and no
    wave begins before the last one's reductions (``row_sync_us`` each) are through. How much
    of the memory bandwidth they keep in flight is a figure of each kind of kernel.
    """
    x = s.input(0)
    if x is None:
        return vector_demand(device, s.load, s.store, 0.0)
    row = _row_length(op, x.shape)
    count = x.elements
    short = row * 4 <= device.ub_kib * 1024 / 4
    again = 0.0 if short else x.bytes
    at_work = row * x.dtype.bits / 8 * device.vector_cores * device.rows_in_flight
    from_l2 = at_work <= L2_SHARE * device.l2_mib * 2**20
    rows = max(1, count // row) if short and row else None
    passes = NORM_PASSES[op.op_type] * count
    pace, reductions = _norm_pace(device, op.op_type)
    waves = math.ceil((rows or 1) / (device.vector_cores * device.rows_in_flight))
    demand = vector_demand(
        device,
        s.load + (0.0 if from_l2 else again),
        s.store,
        passes,
        32,
        rows=rows,
        latency_us=waves * reductions * device.row_sync_us,
        efficiency=pace,
    )
    return replace(demand, l2_bytes=s.load + again + s.store)


def _norm_pace(device: Device, op_type: str) -> tuple[float, int]:
    """Share of the memory bandwidth that the kernel keeps, and how often it reduces a row."""
    if "RMS" in op_type or "Simplified" in op_type:
        return device.rms_norm_efficiency_fraction, 1
    if "oft" in op_type or op_type == "Hardmax":
        return device.softmax_efficiency_fraction, 2
    return device.layer_norm_efficiency_fraction, 2


def _row_length(op: Op, shape: tuple[int, ...]) -> int:
    if not shape:
        return 1
    if op.op_type in ("InstanceNormalization", "MeanVarianceNormalization"):
        return math.prod(shape[2:])
    if op.op_type == "GroupNormalization":
        groups = op.attr("num_groups", 1)
        return math.prod(shape[1:]) // max(1, groups if isinstance(groups, int) else 1)
    axis = op.attr("axis", -1)
    axis = axis % len(shape) if isinstance(axis, int) else len(shape) - 1
    if op.op_type in ("LayerNormalization", "RMSNormalization") or op.domain == GE_DOMAIN:
        return math.prod(shape[axis:])
    return shape[axis]


ROW_ELEMENTS = 1024
"""Shorter rows share the lanes of a core, as many as make up this many elements."""


def reduction(device: Device, op: Op, s: Sizes) -> Demand:
    """Reads the input once and writes little; a full reduction meets in one core at the end.

    Rows that are reduced come in waves of ``rows_in_flight`` for each core as those of norms
    do, each with a reduction across lanes (``row_sync_us``) at its end.
    """
    x, out = s.input(0), s.output()
    count = x.elements if x else 0
    passes = REDUCTIONS[op.op_type] * count
    rows = None if out is None else max(out.elements, count // 4096)
    results = out.elements if out else 1
    together = max(1, ROW_ELEMENTS * results // max(1, count))
    at_once = device.vector_cores * device.rows_in_flight * together
    waves = max(1, math.ceil(results / at_once))
    return vector_demand(
        device, s.load, s.store, passes, s.bits, rows=rows, latency_us=waves * device.row_sync_us
    )


def sorting(device: Device, op: Op, s: Sizes) -> Demand:
    """TopK and sorts: blocks of 32 are sorted in one pass, then merged four ways at a time.

    Each merge moves all elements with their indexes through the buffer: 4 passes for each
    factor of 4 beyond 32.
    """
    x = s.input(0)
    count = x.elements if x else 0
    axis = op.attr("axis", -1)
    length = x.shape[axis % len(x.shape)] if x and x.shape and isinstance(axis, int) else count
    merges = max(0.0, math.log(max(1, length) / 32, 4)) if length > 32 else 0.0
    return vector_demand(device, s.load, s.store, count * (4.0 + 4.0 * math.ceil(merges)), s.bits)


def pooling(device: Device, op: Op, s: Sizes) -> Demand:
    """Each output element takes in its whole window: one pass per window element."""
    out = s.output()
    kernel = op.attr("kernel_shape", ())
    window = math.prod(kernel) if isinstance(kernel, tuple) and kernel else 1
    count = out.elements if out else 0
    return vector_demand(device, s.load, s.store, float(window * count), s.bits)
