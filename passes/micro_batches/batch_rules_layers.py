"""Batch rules of whole layers: norms, attention, rotary embedding, convolution, recurrence."""

from __future__ import annotations

import math
from collections.abc import Callable

from gecompiler.ir.block_ops import ACTIVATIONS
from gecompiler.ir.op import GE_DOMAIN
from gecompiler.passes.micro_batches.batch_site import (
    Rule,
    Site,
    aligned,
    same_axis,
    with_samples_at,
)


def _last_axes(site: Site) -> Rule:
    """Normalisation over all dims from ``axis`` on."""
    axis = site.only(0)
    _require_before_norm(site, axis)
    return same_axis(site, axis)


def _add_norm(site: Site) -> Rule:
    """The same of a sum of two tensors of one shape."""
    site.whole(2, 3, 4)
    rule = aligned(site, (0, 1), site.made())
    _require_before_norm(site, rule.outputs[0])
    return rule


def _require_before_norm(site: Site, axis: int) -> None:
    start = site.op.attr("axis", -1) % len(site.shape(0))
    site.require(axis < start, "it normalises over the batch")


def _activation(site: Site) -> Rule:
    """Elementwise, but for the last axis, which may hold the gate beside what it gates."""
    return aligned(site, range(len(site.op.inputs)), site.made(), tail=1)


def _lanes(site: Site) -> Rule:
    """Rotary embedding: tables broadcast to all axes but the last."""
    return aligned(site, range(len(site.op.inputs)), site.made(), tail=1)


def _rotary(site: Site) -> Rule:
    """ONNX's: tables per sample, or positions per sample and tables for all."""
    positions = 1 if site.op.domain else 3
    places = {i: 0 for i in range(len(site.op.inputs)) if len(site.shape(i)) > 2}
    if len(site.shape(positions)) == 2:
        places[positions] = 0
    site.require(site.axis(0) == 0, "its samples do not come first")
    return with_samples_at(site, places, (0,))


def _flash_attention(site: Site) -> Rule:
    """Q, K, V and mask along the first axis; a mask of lower rank is for all samples."""
    site.require(site.axis(0) == 0, "its queries are not split by samples")
    places = {i: 0 for i in (0, 1, 2, 3) if len(site.shape(i)) == 4}
    return with_samples_at(site, places, (0,))


def _attention(site: Site) -> Rule:
    """ai.onnx Attention: all inputs have samples first, the mask where it has four dims."""
    site.require(site.axis(0) == 0, "its queries are not split by samples")
    places = dict.fromkeys((0, 1, 2, 4, 5, 6), 0)
    if len(site.shape(3)) == 4:
        places[3] = 0
    return with_samples_at(site, places, (0,) * len(site.op.outputs))


def _first_axis(site: Site) -> Rule:
    """Ops whose first input has the samples first, and whose other inputs are weights."""
    site.require(site.only(0) == 0, "its samples do not come first")
    return same_axis(site, 0)


def _max_pool(site: Site) -> Rule:
    site.require(len(site.op.outputs) == 1, "its indices count through the batch")
    return _first_axis(site)


def _both_first(site: Site) -> Rule:
    return with_samples_at(site, {0: 0, 1: 0}, (0,))


def _batch_norm(site: Site) -> Rule:
    """In inference: a scale and a shift for each entry of axis 1."""
    training = site.op.attr("training_mode", 0) or sum(map(bool, site.op.outputs)) > 1
    site.require(not training, "it takes its mean over the batch")
    site.require(site.only(0) != 1, "its scales are along the batch")
    return same_axis(site, site.only(0))


def _mean_variance(site: Site) -> Rule:
    axis, rank = site.only(0), len(site.shape(0))
    along = site.op.attr("axes") or (0, 2, 3)
    site.require(axis not in [a % rank for a in along], "it normalises over the batch")
    return same_axis(site, axis)


def _quantize(site: Site) -> Rule:
    """With one scale, or one for each entry of another axis."""
    axis, rank = site.only(0), len(site.shape(0))
    scale = site.shape(1)
    per_axis = len(scale) == 1 and scale[0] > 1
    along = site.op.attr("axis", 1) % max(rank, 1)
    site.require(math.prod(scale) == 1 or per_axis, "its scales differ within an axis")
    site.require(not per_axis or axis != along, "its scales are along the batch")
    return same_axis(site, axis)


def _recurrent(site: Site) -> Rule:
    """RNN, GRU, LSTM: samples are second, or first with ``layout`` 1."""
    first = site.op.attr("layout", 0)
    x, state = (0, 0) if first else (1, 1)
    whole = 0 if first else 2
    outputs = (whole, state, state)[: len(site.op.outputs)]
    return with_samples_at(site, {0: x, 4: 0, 5: state, 6: state}, outputs)


LAYER_RULES: tuple[tuple[Callable[[Site], Rule], tuple[str, ...]], ...] = (
    (
        _last_axes,
        (
            *("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"),
            *(f"{GE_DOMAIN}.RMSNorm", f"{GE_DOMAIN}.LayerNorm"),
        ),
    ),
    (_add_norm, (f"{GE_DOMAIN}.AddRMSNorm", f"{GE_DOMAIN}.AddLayerNorm")),
    (_activation, tuple(f"{GE_DOMAIN}.{name}" for name in ACTIVATIONS)),
    (_lanes, (f"{GE_DOMAIN}.RotaryEmbedding",)),
    (_rotary, ("RotaryEmbedding", "com.microsoft.RotaryEmbedding")),
    (_flash_attention, (f"{GE_DOMAIN}.FlashAttention",)),
    (_attention, ("Attention",)),
    (
        _first_axis,
        (
            *("Conv", "ConvTranspose", "ConvInteger", "DepthToSpace", "SpaceToDepth", "LRN"),
            *("AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"),
            *("InstanceNormalization", "GroupNormalization", "QLinearConv"),
        ),
    ),
    (_max_pool, ("MaxPool",)),
    (_both_first, ("GridSample",)),
    (_batch_norm, ("BatchNormalization",)),
    (_mean_variance, ("MeanVarianceNormalization",)),
    (_quantize, ("QuantizeLinear", "DequantizeLinear")),
    (_recurrent, ("RNN", "GRU", "LSTM")),
)
