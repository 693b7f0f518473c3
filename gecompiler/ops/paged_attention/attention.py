"""`flash_attention_with_paged_kv`: attention whose keys and values lie in a cache."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gecompiler.backends.counters import listeners
from gecompiler.backends.device import Device
from gecompiler.backends.kernels.attention import attend
from gecompiler.backends.kernels.attention_counters import Part, count
from gecompiler.backends.kernels.recording import record
from gecompiler.backends.kernels.tile_plan import SKIPPED, TilePlan
from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError
from gecompiler.ops.devices import device_named
from gecompiler.ops.layouts import heads_first, layout_named, shape_of, sizes
from gecompiler.ops.masks import kept
from gecompiler.ops.paged_attention.cache import PagedKVCache
from gecompiler.ops.paged_attention.tokens import ends_of, named
from gecompiler.ops.paged_attention.usage import KVCache, SequenceId, unknown
from gecompiler.ops.request import Options, Request, Window, read_request
from gecompiler.ops.sequences import four, mask_places

_WHERE = "flash_attention_with_paged_kv"

ENTRY_BYTES = 4
"""Of a page number: int32."""


def flash_attention_with_paged_kv(  # noqa: PLR0917  (as flash_attention)
    query: Array,
    kv_cache: KVCache,
    head_num: int,
    sequences: SequenceId | Sequence[SequenceId] | None = None,
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
    causal_align: str = "bottom_right",
    actual_seq_qlen: Sequence[int] | None = None,
    return_lse: bool = False,
    return_counters: bool = False,
    device: str | Device | None = None,
) -> Any:
    """`flash_attention` of queries over the keys and values that a cache holds.

    The same kernel reads each tile of keys through the page table, so that the result is that
    over contiguous keys whatever the page size, to the bit where numpy's matrix products do not
    depend on what is computed beside them. A `ContiguousKVCache` is read in
    place.

    ``query``: in ``input_layout``, S queries of each of B ``sequences`` (default 0, 1, ...), or
    those of all sequences one after the other, with cumulative lengths ``actual_seq_qlen`` (TND;
    without them one sequence). They stand for the last tokens of their sequence: ``is_causal``
    and ``window`` count from there (``causal_align="bottom_right"``). A mask broadcasts to
    (B, N, longest S, longest T). The other arguments and what is returned are
    `flash_attention`'s; among the counters' reads is the page table, 4 bytes a page.
    UsageError says what does not fit.
    """
    started_ns = time.perf_counter_ns()
    model = None if device is None else device_named(device)
    call = _read_call(np.asanyarray(query), kv_cache, head_num, sequences, input_layout,
                      actual_seq_qlen)  # fmt: skip
    options = Options(
        head_num,
        kv_cache.config.kv_head_num,
        "BNSD",
        scale,
        None,
        is_causal,
        window,
        softcap,
        sinks,
        block_size_q,
        block_size_k,
        block_size_v,
        causal_align=causal_align,
    )
    requests = call.requests(options, kept(attn_mask, atten_mask, _WHERE))
    out, lse = call.run(requests, return_lse)
    parts = [part for request in requests for part in request.parts(lse=return_lse)]
    table = {"page table": _table_bytes(kv_cache, parts)}
    if listeners():
        arrays = (
            call.query,
            *kv_cache.operands(call.names),
            requests[0].sinks if requests else None,
        )
        record(_WHERE, parts, arrays, (out, lse), started_ns, more_reads=table)
    results: list[Any] = [out]
    if lse is not None:
        results.append(lse[0] if call.layout == "TND" else lse)
    if return_counters:
        results.append(count(device_named(model), parts, op=_WHERE, more_reads=table))
    return out if len(results) == 1 else tuple(results)


@dataclass(frozen=True, slots=True)
class _Call:
    """The queries of each sequence, and the cache they look into."""

    query: Array
    cache: KVCache
    layout: str
    heads: int
    names: tuple[SequenceId, ...]
    rows: tuple[tuple[slice, slice], ...]
    """The batch and the tokens of each sequence's queries."""

    def requests(self, options: Options, mask: Array | None) -> list[Request]:
        """One attention a sequence."""
        views = heads_first(self.query, self.layout, self.heads)
        masks = self._masks(mask)
        found = []
        for name, (batch, rows), part in zip(self.names, self.rows, masks, strict=True):
            key, value = self.cache.tensors(name)
            request = read_request(views[batch, :, rows], key, value, options, _WHERE)
            piece = replace(request.pieces[0], mask=part)
            found.append(replace(request, mask=part, pieces=(piece,)))
        return found

    def run(self, requests: list[Request], with_lse: bool) -> tuple[Array, Array | None]:
        """The output in the layout of the query, and the log-sum-exp (B, N, S)."""
        width = self.cache.config.value_dim
        found = sizes("query", self.query.shape, self.layout, self.heads, _WHERE)
        out: Array = np.empty(shape_of(self.layout, found._replace(width=width)), self.query.dtype)
        view = heads_first(out, self.layout, self.heads)
        sums = np.float64 if out.dtype == np.float64 else np.float32
        lse: Array | None = np.empty(view.shape[:3], sums) if with_lse else None
        for request, (batch, rows) in zip(requests, self.rows, strict=True):
            p = request.pieces[0]
            done = attend(p.q, p.k, p.v, p.mask, request.sinks, attrs=request.attrs,
                          blocks=request.blocks, with_lse=with_lse,
                          out=view[batch, :, rows])  # fmt: skip
            if lse is not None and done.lse is not None:
                lse[batch, :, rows] = done.lse
        return out, lse

    def _masks(self, mask: Array | None) -> list[Array | None]:
        """Each sequence's part of the mask."""
        queries = [rows.stop - rows.start for _, rows in self.rows]
        keys = [self.cache.length(name) for name in self.names]
        places = mask_places(mask, self.heads, queries, keys, _WHERE)
        return [None if mask is None else four(mask)[place] for place in places]


def _read_call(
    query: Array,
    cache: KVCache,
    head_num: int,
    sequences: SequenceId | Sequence[SequenceId] | None,
    input_layout: str,
    lengths: Sequence[int] | None,
) -> _Call:
    layout = layout_named(input_layout, _WHERE)
    if not hasattr(cache, "tensors") or not hasattr(cache, "config"):
        raise UsageError(
            f"kv_cache must be a PagedKVCache or ContiguousKVCache, found {type(cache).__name__}",
            where=_WHERE,
        )
    if isinstance(head_num, bool) or head_num != cache.config.num_heads:
        raise UsageError(
            f"head_num is {head_num!r}, the cache is for {cache.config.num_heads} query heads",
            where=_WHERE,
            hint="num_heads of PagedAttentionConfig",
        )
    found = sizes("query", query.shape, layout, head_num, _WHERE)
    if layout == "TND":
        given = [found.length] if lengths is None else lengths
        ends = ends_of(given, found.length, "actual_seq_qlen", sequences, _WHERE)
        spans = [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]
        rows = [(slice(0, 1), span) for span in spans]
    elif lengths is not None:
        raise UsageError("actual_seq_qlen belongs to layout TND", where=_WHERE)
    else:
        rows = [(slice(b, b + 1), slice(0, found.length)) for b in range(found.batch)]
    names = named(sequences, len(rows), _WHERE)
    for name in names:
        if name not in cache.sequences:
            unknown(name, cache.sequences)
    return _Call(query, cache, layout, head_num, names, tuple(rows))


def _table_bytes(cache: KVCache, parts: Sequence[Part]) -> int:
    """Page numbers read: those of its keys by every tile, as it comes along."""
    if not isinstance(cache, PagedKVCache):
        return 0
    size = cache.config.page_size
    return ENTRY_BYTES * sum(_entries(part.plan, size) for part in parts)


def _entries(plan: TilePlan, page_size: int) -> int:
    starts = np.arange(plan.k_blocks) * plan.blocks.keys
    ends = np.minimum(starts + plan.blocks.keys, plan.problem.kv_len)
    pages = -(-ends // page_size) - starts // page_size
    total, problem = 0, plan.problem
    for first, last in plan.panels(256):
        states = plan.states(first, last)
        units = problem.batch // states.shape[0] * (problem.kv_heads // states.shape[1])
        total += units * int(((states != SKIPPED) @ pages).sum())
    return total
