"""Attention ops of the several domains as the one `Attention` that is costed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gecompiler.backends.cost.attention import SOFTMAX_PASSES, Attention, attention_demand
from gecompiler.backends.cost.base import Sizes, Tensor, serial, vector_demand
from gecompiler.backends.cost.gemm import Gemm, gemm_demand
from gecompiler.backends.cost.vector import PASSES
from gecompiler.ir.flash_attention import exchanged
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Demand
from gecompiler.ir.types import DType

if TYPE_CHECKING:
    from gecompiler.backends.device import Device


def flash_attention(device: Device, op: Op, s: Sizes) -> Demand | None:
    """gecompiler.FlashAttention: Q (B, H, S, D), K (B, G, T, D), V (B, G, T, Dv), mask, sinks.

    The op's layout changes no cost. Rows of one head that lie apart (BSND) come by the same
    moves, with a stride: these reach the rate of one move of all their bytes (Ascend C guide on
    copying, "use srcStride, blockLen and blockCount"), and a row is whole 32-byte blocks where D
    is a multiple of 16. Not modelled: the guide sees up to 30% less of a core's copying rate on
    Atlas A2 where addresses are aligned to 32 and not to 512 bytes, and rows are to D elements.
    """
    found = flash_problem(op, s)
    return None if found is None else attention_demand(device, found)


def flash_problem(op: Op, s: Sizes) -> Attention | None:
    """The attention that a gecompiler.FlashAttention is; None where its sizes do not say."""
    q, k, v, mask = s.input(0), s.input(1), s.input(2), s.input(3)
    if q is None or k is None or v is None or {len(t.shape) for t in (q, k, v)} != {4}:
        return None
    rows_first = op.attr("layout", "BNSD") == "BSND"
    batch, q_heads, q_len, head_dim = exchanged(q.shape) if rows_first else q.shape
    _, kv_heads, kv_len, _ = exchanged(k.shape) if rows_first else k.shape
    sinks = s.input(4)
    return Attention(
        batch=batch,
        q_heads=q_heads,
        kv_heads=_divisor(q_heads, kv_heads),
        q_len=q_len,
        kv_len=kv_len,
        head_dim=head_dim,
        v_dim=v.shape[3],
        dtype=q.dtype,
        left=_integer(op, "window_left", -1),
        right=_integer(op, "window_right", -1),
        offset=_integer(op, "row_offset", 0)
        + (kv_len - q_len if op.attr("align") == "bottom_right" else 0),
        mask_bytes=mask.bytes if mask else 0.0,
        mask_element=_element(mask),
        score_passes=score_passes(mask and mask.dtype, softcap=bool(op.attr("softcap", 0.0))),
        extra_bytes=sinks.bytes if sinks else 0.0,
        k_batch=k.shape[0],
        v_batch=v.shape[0],
    )


def onnx_attention(device: Device, op: Op, s: Sizes) -> Demand | None:
    """ai.onnx Attention: 4D (B, H, S, D), or 3D (B, S, H * D) with the heads as attributes.

    Past keys and values are joined with the new ones; the present ones, where they are
    outputs, are written whole beside the attention's own traffic.
    """
    q, k, v, mask = s.input(0), s.input(1), s.input(2), s.input(3)
    if q is None or k is None or v is None:
        return None
    heads, groups = _integer(op, "q_num_heads", 0), _integer(op, "kv_num_heads", 0)
    q4, k4, v4 = _four(q, heads), _four(k, groups or heads), _four(v, groups or heads)
    if q4 is None or k4 is None or v4 is None:
        return None
    past = s.input(4)
    kv_len = k4[2] + (past.shape[2] if past is not None and len(past.shape) == 4 else 0)
    causal = bool(op.attr("is_causal", 0))
    main = Attention(
        batch=q4[0],
        q_heads=q4[1],
        kv_heads=_divisor(q4[1], k4[1]),
        q_len=q4[2],
        kv_len=kv_len,
        head_dim=q4[3],
        v_dim=v4[3],
        dtype=q.dtype,
        right=0 if causal else -1,
        offset=kv_len - k4[2],
        mask_bytes=mask.bytes if mask else 0.0,
        mask_element=_element(mask),
        score_passes=score_passes(mask and mask.dtype, softcap=bool(op.attr("softcap", 0.0))),
    )
    return _with_cache(device, attention_demand(device, main), s)


def grouped_query(device: Device, op: Op, s: Sizes) -> Demand | None:
    """com.microsoft GroupQueryAttention and MultiHeadAttention: 3D, heads as attributes."""
    q, k, v = s.input(0), s.input(1), s.input(2)
    heads = _integer(op, "num_heads", 0)
    groups = _integer(op, "kv_num_heads", heads)
    if q is None or len(q.shape) != 3 or heads < 1 or groups < 1:
        return None
    batch, q_len, width = q.shape
    if k is None:  # Q, K and V packed into one
        head_dim = width // (heads + 2 * groups)
        kv_len = q_len
    else:
        head_dim, kv_len = width // heads, k.shape[1] if len(k.shape) == 3 else k.shape[-2]
    present = s.output(1)
    if present is not None and len(present.shape) == 4:
        kv_len = max(kv_len, present.shape[2])
    v_dim = v.shape[2] // groups if v is not None and len(v.shape) == 3 else head_dim
    causal = op.op_type == "GroupQueryAttention" or bool(op.attr("unidirectional", 0))
    window = _integer(op, "local_window_size", -1)
    main = Attention(
        batch=batch,
        q_heads=heads,
        kv_heads=_divisor(heads, groups),
        q_len=q_len,
        kv_len=kv_len,
        head_dim=max(1, head_dim),
        v_dim=max(1, v_dim),
        dtype=q.dtype,
        left=window - 1 if window > 0 else -1,
        right=0 if causal else -1,
        offset=kv_len - q_len,
    )
    return _with_cache(device, attention_demand(device, main), s)


def packed_attention(device: Device, op: Op, s: Sizes) -> Demand | None:
    """com.microsoft Attention: the projections of X (B, S, E) by W (E, 3E'), then attention."""
    x, w = s.input(0), s.input(1)
    heads = _integer(op, "num_heads", 0)
    if x is None or w is None or len(x.shape) != 3 or len(w.shape) != 2 or heads < 1:
        return None
    batch, q_len, width = x.shape
    across = w.shape[1]
    packed = batch * q_len * across * x.dtype.bits / 8
    project = gemm_demand(
        device, Gemm(1, batch * q_len, across, width, x.dtype, x.bytes, w.bytes, 0.0, packed)
    )
    head_dim = max(1, across // 3 // heads)
    causal = bool(op.attr("unidirectional", 0))
    core = Attention(
        batch, heads, heads, q_len, q_len, head_dim, head_dim, x.dtype, right=0 if causal else -1
    )
    return serial(device, [project, attention_demand(device, core)])


def _with_cache(device: Device, attention: Demand, s: Sizes) -> Demand:
    """The attention, and the copying of the past into the present where it is handed out."""
    present = sum(t.bytes for t in s.outputs[1:] if t is not None)
    if not present:
        return attention
    return serial(device, [attention, vector_demand(device, present, present, 0.0)])


def score_passes(mask: DType | None, *, softcap: bool) -> float:
    """Per score: the softmax, a mask to add or select by, and the soft cap (scale, tanh, scale)."""
    passes = SOFTMAX_PASSES
    if mask is not None:
        passes += PASSES["Where"] if mask is DType.BOOL else PASSES["Add"]
    return passes + (PASSES["Tanh"] + 2.0 if softcap else 0.0)


def _element(mask: Tensor | None) -> float:
    return mask.dtype.bits / 8 if mask else 0.0


def _four(t: Tensor, heads: int) -> tuple[int, int, int, int] | None:
    if len(t.shape) == 4:
        return (t.shape[0], t.shape[1], t.shape[2], t.shape[3])
    if len(t.shape) != 3 or heads < 1:
        return None
    return (t.shape[0], heads, t.shape[1], max(1, t.shape[2] // heads))


def _divisor(q_heads: int, kv_heads: int) -> int:
    """The KV heads, or the nearest smaller number that divides the query heads."""
    return math.gcd(q_heads, kv_heads) or 1


def _integer(op: Op, name: str, default: int) -> int:
    value = op.attr(name, default)
    return value if isinstance(value, int) else default
