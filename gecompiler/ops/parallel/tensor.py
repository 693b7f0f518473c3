"""Attention with the heads dealt to ranks."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from gecompiler.backends.device import Device
from gecompiler.ir.constants import Array
from gecompiler.ops.parallel.heads import groups_of, heads_of
from gecompiler.ops.parallel.local import Local
from gecompiler.ops.parallel.ranks import Ranks
from gecompiler.ops.parallel.result import (
    ParallelAttention,
    check_choice,
    check_ranks,
    finish,
    read_parallel,
    refuse,
)
from gecompiler.ops.request import Request

KV_SOURCES = ("replicated", "sent")
COMBINES = ("all_reduce", "all_gather", "none")

_WHERE = "tensor_parallel"


def tensor_parallel(
    query: Array,
    key: Array,
    value: Array,
    head_num: int,
    ranks: int,
    *,
    kv: str = "replicated",
    combine: str = "all_reduce",
    device: str | Device | None = None,
    **options: Any,
) -> ParallelAttention:
    """`flash_attention` with the heads dealt to ``ranks``, and every byte moved counted.

    Each rank has all tokens of its query heads (Shoeybi et al. 2019) and of the KV heads that
    they read; with fewer KV heads than ranks, several ranks read one. ``kv``: ``"replicated"``:
    each of them makes it itself, from weights that it holds; ``"sent"``: the first of them does
    and sends it to the others.

    ``combine``: ``"all_reduce"``, as after an output projection cut along its rows: every rank
    adds what its heads contribute to a result of the output's size (here the projection is the
    identity, so that the sum is the output itself); ``"all_gather"`` of the heads; ``"none"``:
    each rank keeps its heads, and ``out`` is put together for the caller alone.

    The output is `flash_attention`'s: a head's sums are the same on any rank. ``options`` are
    those of `flash_attention` but ``block_mask`` and layout TND. UsageError says what does not
    fit.
    """
    started_ns = time.perf_counter_ns()
    arrays = np.asanyarray(query), np.asanyarray(key), np.asanyarray(value)
    request = read_parallel(arrays, head_num, options, _WHERE)
    group = Ranks(check_ranks(ranks, _WHERE), dry=False)
    out = run_tensor(request, group, kv, combine)
    return finish(_WHERE, request, group, out, started_ns, device)


def run_tensor(request: Request, ranks: Ranks, kv: str, combine: str) -> Array:
    """The output (B, N, S, Dv), as rank 0 has it or put together."""
    check_choice(kv, KV_SOURCES, "kv", _WHERE)
    check_choice(combine, COMBINES, "combine", _WHERE)
    local = Local(request, dry=ranks.dry)
    heads = local.attrs.q_heads
    if heads < ranks.count:
        refuse(f"{heads} query heads cannot be dealt to {ranks.count} ranks", _WHERE)
    own = [heads_of(r, ranks.count, heads) for r in range(ranks.count)]
    groups = [groups_of(h, local.repeats) for h in own]
    outs = []
    for r, rank in enumerate(ranks.all):
        k, v = local.piece.k[:, groups[r]], local.piece.v[:, groups[r]]
        if kv == "sent":
            k = _received(ranks, local.piece.k, groups, r, "key: to its readers")
            v = _received(ranks, local.piece.v, groups, r, "value: to its readers")
        rank.kv_bytes = k.nbytes + v.nbytes
        qkv = local.piece.q[:, own[r]], k, v
        outs.append(local.whole(rank, qkv, own[r], slice(0, local.queries)))
    if combine == "all_reduce":
        return ranks.all_reduce(_widened(ranks, outs, own, heads), "output")[0]
    if combine == "all_gather":
        outs = ranks.all_gather(outs, "output: all-gather")[0]
    return ranks.join(outs, axis=1)


def _received(ranks: Ranks, array: Array, groups: list[slice], r: int, what: str) -> Array:
    """The KV heads that rank ``r`` reads, from the first rank that reads each."""
    parts = []
    for g in range(groups[r].start, groups[r].stop):
        owner = next(s for s, own in enumerate(groups) if own.start <= g < own.stop)
        parts.append(ranks.send(owner, r, array[:, g : g + 1], what))
    return ranks.join(parts, axis=1)


def _widened(ranks: Ranks, outs: list[Array], own: list[slice], heads: int) -> list[Array]:
    """Each rank's heads among zeroes for the others'."""
    found = []
    for out, part in zip(outs, own, strict=True):
        shape = (out.shape[0], heads, *out.shape[2:])
        whole = ranks.zeros(shape, out.dtype)
        if not ranks.dry:
            whole[:, part] = out
        found.append(whole)
    return found
