"""`flash_attention`, its gradients, and its counters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from gecompiler.backends.counters import AttentionCounters, listeners
from gecompiler.backends.device import Device
from gecompiler.backends.kernels.attention import attend
from gecompiler.backends.kernels.attention_backward import attend_backward
from gecompiler.backends.kernels.attention_check import is_float
from gecompiler.backends.kernels.attention_counters import count
from gecompiler.backends.kernels.recording import record
from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError
from gecompiler.ops.devices import device_named
from gecompiler.ops.layouts import heads_first
from gecompiler.ops.request import Options, Request, Window, options_of, read_request
from gecompiler.ops.shapes import check_countable, shaped_arrays

_FORWARD, _BACKWARD = "flash_attention", "flash_attention_backward"


class AttentionGradients(NamedTuple):
    """Gradients, each in the layout, shape and type of what it belongs to."""

    query: Array
    key: Array
    value: Array
    sinks: Array | None
    """None without sinks."""
    attn_mask: Array | None
    """Of a float mask, where ``mask_gradient`` asks for it."""


def flash_attention(  # noqa: PLR0917  (as the frameworks' own)
    query: Array,
    key: Array,
    value: Array,
    head_num: int,
    kv_head_num: int | None = None,
    input_layout: str = "BSND",
    scale: float | None = None,
    attn_mask: Array | None = None,
    is_causal: bool = False,
    window: Window = None,
    softcap: float | None = None,
    sinks: Array | None = None,
    block_size_q: int = 64,
    block_size_k: int = 64,
    block_size_v: int | None = None,
    *,
    atten_mask: Array | None = None,
    causal_align: str = "top_left",
    block_mask: Array | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    return_lse: bool = False,
    return_counters: bool = False,
    device: str | Device | None = None,
) -> Any:
    """Softmax attention on tiles (Dao 2023, algorithm 1): ``softmax(scale Q K' + mask) V``.

    Sums are in float32 for float16, bfloat16 and float32 (and the scores in float64 where they
    may be large), in float64 for float64; the output is rounded once, to the inputs' type.

    ``query``, ``key``, ``value``: in ``input_layout`` BSND, BNSD, BSH, SBH or TND; of S tokens
    and N = ``head_num`` heads, T tokens and ``kv_head_num`` heads (default: as the key's shape
    says). Query head h reads KV head ``h // (head_num // kv_head_num)``, never expanded. TND
    holds sequences of various lengths, which ``actual_seq_qlen`` and ``actual_seq_kvlen`` give
    cumulatively. ``scale``: default 1 / sqrt(D).

    ``attn_mask``: broadcast to (B, N, S, T); boolean, True where a key may be attended, or float
    and added. ``atten_mask``: the same in Ascend's polarity, True where a key is masked out.
    ``is_causal``: query i sees no key after i (``causal_align="top_left"``) or after
    i + T - S (``"bottom_right"``). ``window``: keys to the left and right of that position, an
    integer for both sides or a pair with None for no bound. ``block_mask``: boolean, broadcast
    to (B, N, blocks of queries, blocks of keys); False skips the block. Blocks that the window,
    causality or a boolean mask leaves empty are not read. A query without a key gives 0.

    ``softcap`` c: scores become c tanh(score / c). ``sinks`` (N,): the logit of an extra key per
    head whose value is 0. ``block_size_q``, ``block_size_k``: of a tile; ``block_size_v`` is
    ``block_size_k``.

    Returns the output in the layout of ``query``; after it the log-sum-exp (B, N, S), or (N, T)
    for TND, with ``return_lse``, and `AttentionCounters` for ``device`` (default: the one of
    `gecompiler.default_session`) with ``return_counters``. UsageError says what does not fit.
    """
    started_ns = time.perf_counter_ns()
    options = Options(
        head_num,
        kv_head_num,
        input_layout,
        scale,
        attn_mask,
        is_causal,
        window,
        softcap,
        sinks,
        block_size_q,
        block_size_k,
        block_size_v,
        atten_mask,
        causal_align,
        block_mask,
        actual_seq_qlen,
        actual_seq_kvlen,
    )
    model = None if device is None else device_named(device)
    q, k, v = (np.asanyarray(array) for array in (query, key, value))
    request = read_request(q, k, v, options, _FORWARD)
    out: Array = np.empty(request.out_shape, q.dtype)
    lse = _forward(request, heads_first(out, request.layout, head_num), return_lse)
    if listeners():
        arrays = (q, k, v, request.mask, request.sinks)
        record(_FORWARD, request.parts(lse=return_lse), arrays, (out, lse), started_ns)
    results: list[Any] = [out]
    if lse is not None:
        results.append(lse[0] if request.layout == "TND" else lse)
    if return_counters:
        results.append(count(device_named(model), request.parts(lse=return_lse), op=_FORWARD))
    return out if len(results) == 1 else tuple(results)


def flash_attention_backward(
    dout: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    lse: Array,
    head_num: int,
    *,
    mask_gradient: bool = False,
    return_counters: bool = False,
    device: str | Device | None = None,
    **options: Any,
) -> Any:
    """The gradients of `flash_attention` (Dao 2023, algorithm 2), by ``dout`` of its output.

    ``out`` and ``lse`` are what it returned with ``return_lse``; the probabilities are made anew
    from the log-sum-exp. ``options`` are the ones it was called with. Returns
    `AttentionGradients`, and with ``return_counters`` a pair of it and `AttentionCounters`.
    """
    started_ns = time.perf_counter_ns()
    asked = options_of(head_num, options, _BACKWARD)
    model = None if device is None else device_named(device)
    q, k, v = (np.asanyarray(array) for array in (query, key, value))
    request = read_request(q, k, v, asked, _BACKWARD)
    given = {"dout": np.asanyarray(dout), "out": np.asanyarray(out), "lse": np.asanyarray(lse)}
    sums = request.out[:3] if request.layout != "TND" else request.out[1:3]
    for name, shape in (("dout", request.out_shape), ("out", request.out_shape), ("lse", sums)):
        if given[name].shape != tuple(shape):
            found = given[name].shape
            raise UsageError(f"{name} must be {tuple(shape)}, found {found}", where=_BACKWARD)
        if not is_float(given[name]):
            kind = given[name].dtype
            raise UsageError(f"{name} must be of a float type, found {kind}", where=_BACKWARD)
    gradients = _backward(request, (q, k, v), given, mask_gradient)
    if listeners():
        arrays = (given["dout"], q, k, v, given["out"], given["lse"], request.mask)
        parts = request.parts(lse=False)
        record(_BACKWARD, parts, arrays, tuple(gradients), started_ns, backward=True)
    if not return_counters:
        return gradients
    parts = request.parts(lse=False)
    return gradients, count(device_named(model), parts, op=_BACKWARD, backward=True)


def attention_counters(
    query_shape: Sequence[int],
    key_shape: Sequence[int],
    value_shape: Sequence[int] | None = None,
    *,
    head_num: int,
    dtype: DTypeLike = np.float16,
    backward: bool = False,
    return_lse: bool = False,
    device: str | Device | None = None,
    **options: Any,
) -> AttentionCounters:
    """The counters that a call with arrays of these shapes gives, without any arithmetic.

    ``value_shape`` is by default the key's; ``options`` are those of `flash_attention`, masks
    and sinks as arrays. Nothing of the size of query, key or value is allocated.
    """
    asked = options_of(head_num, options, "attention_counters")
    q, k, v = shaped_arrays(query_shape, key_shape, value_shape, dtype, "attention_counters")
    request = read_request(q, k, v, asked, "attention_counters")
    check_countable(request, "attention_counters")
    op = _BACKWARD if backward else _FORWARD
    return count(device_named(device), request.parts(lse=return_lse), op=op, backward=backward)


def _forward(request: Request, out: Array, with_lse: bool) -> Array | None:
    """Fills ``out`` (B, N, S, Dv); returns the log-sum-exp (B, N, S) where it is wanted."""
    sums = np.float64 if out.dtype == np.float64 else np.float32
    lse: Array | None = np.empty(out.shape[:3], sums) if with_lse else None
    for p in request.pieces:
        found = attend(
            p.q,
            p.k,
            p.v,
            p.mask,
            request.sinks,
            attrs=request.attrs,
            blocks=request.blocks,
            block_mask=p.block_mask,
            with_lse=with_lse,
            out=out[:, :, p.rows],
        )
        if lse is not None and found.lse is not None:
            lse[:, :, p.rows] = found.lse
    return lse


def _backward(
    request: Request, inputs: tuple[Array, Array, Array], given: dict[str, Array], masks: bool
) -> AttentionGradients:
    layout, groups, heads = request.layout, request.kv_heads, request.out.heads
    query, key, value = (np.zeros(array.shape, array.dtype) for array in inputs)
    dq = heads_first(query, layout, heads)
    dk, dv = heads_first(key, layout, groups), heads_first(value, layout, groups)
    dout, out = (heads_first(given[name], layout, heads) for name in ("dout", "out"))
    lse = given["lse"][None] if layout == "TND" else given["lse"]
    mask = request.mask if masks and request.mask is not None else None
    dmask: Array | None = None
    if mask is not None and mask.dtype != np.bool_:
        dmask = np.zeros((1,) * (4 - mask.ndim) + mask.shape, mask.dtype)
    dsinks: Array | None = None if request.sinks is None else np.zeros_like(request.sinks)
    for p in request.pieces:
        found = attend_backward(
            dout[:, :, p.rows],
            p.q,
            p.k,
            p.v,
            out[:, :, p.rows],
            lse[:, :, p.rows],
            p.mask,
            request.sinks,
            attrs=request.attrs,
            blocks=request.blocks,
            block_mask=p.block_mask,
            mask_gradient=dmask is not None,
        )
        dq[:, :, p.rows] = found.query
        dk[:, :, p.keys] = found.key
        dv[:, :, p.keys] = found.value
        if dmask is not None and found.mask is not None:
            dmask[p.mask_place] += _four(found.mask)
        if dsinks is not None:
            dsinks += found.sinks
    if dmask is not None and mask is not None:
        dmask = dmask.reshape(mask.shape)
    return AttentionGradients(query, key, value, dsinks, dmask)


def _four(array: Array) -> Array:
    found: Array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    return found
