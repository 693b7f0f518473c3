"""Attention with the sequence dealt to ranks."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np

from gecompiler.backends.device import Device
from gecompiler.ir.constants import Array
from gecompiler.ops.parallel.heads import groups_of, heads_of
from gecompiler.ops.parallel.local import Local, Running
from gecompiler.ops.parallel.ranks import Ranks, placed
from gecompiler.ops.parallel.result import (
    ParallelAttention,
    check_choice,
    check_ranks,
    finish,
    read_parallel,
    refuse,
)
from gecompiler.ops.request import Request

SEQUENCE_ALGORITHMS = ("replicated_kv", "gather_kv", "ring", "ulysses")
PLACEMENTS = ("contiguous", "zigzag")

_WHERE = "sequence_parallel"

QKV = tuple[Array, Array, Array]
Spans = list[list[slice]]


def sequence_parallel(
    query: Array,
    key: Array,
    value: Array,
    head_num: int,
    ranks: int,
    algorithm: str = "replicated_kv",
    *,
    placement: str = "contiguous",
    gather_output: bool = True,
    device: str | Device | None = None,
    **options: Any,
) -> ParallelAttention:
    """`flash_attention` with the queries dealt to ``ranks``, and every byte moved counted.

    ``algorithm``: ``"replicated_kv"``: all keys and values are on every rank already.
    ``"gather_kv"``: they are dealt like the queries and gathered first. ``"ring"``: they are
    dealt and passed on from rank to rank, each adding what its queries see of them to a running
    result (Liu et al. 2023). ``"ulysses"``: dealt too; an all-to-all makes of some tokens of all
    heads all tokens of some heads, and another brings the output back (Jacobs et al. 2023); KV
    heads go to every rank whose query heads read them.

    ``placement``: of the tokens, ``"contiguous"``, or ``"zigzag"`` for causal attention, in
    which every rank has an early and a late part. ``gather_output``: whether the bytes of an
    all-gather of the output are moved; without it each rank keeps its tokens, and ``out`` is put
    together for the caller alone.

    The output is `flash_attention`'s, but for rounding: a ring adds in another order, numpy's
    tanh (``softcap``) depends on where an element lies, and on some processors matrix products
    depend on what is computed beside them. Else it is equal to the bit. ``options`` are those of
    `flash_attention` but ``block_mask`` and layout TND. UsageError says what does not fit.
    """
    started_ns = time.perf_counter_ns()
    arrays = np.asanyarray(query), np.asanyarray(key), np.asanyarray(value)
    request = read_parallel(arrays, head_num, options, _WHERE)
    group = Ranks(check_ranks(ranks, _WHERE), dry=False)
    out = run_sequence(request, group, algorithm, placement, gather_output)
    return finish(f"{_WHERE}.{algorithm}", request, group, out, started_ns, device)


def run_sequence(
    request: Request, ranks: Ranks, algorithm: str, placement: str, gather_output: bool
) -> Array:
    """The output (B, N, S, Dv), as rank 0 has it or put together."""
    check_choice(algorithm, SEQUENCE_ALGORITHMS, "algorithm", _WHERE)
    check_choice(placement, PLACEMENTS, "placement", _WHERE)
    local = Local(request, dry=ranks.dry)
    pieces = ranks.count * (2 if placement == "zigzag" else 1)
    if local.queries < pieces or local.keys < pieces:
        refuse(
            f"{local.queries} queries and {local.keys} keys cannot be dealt to {ranks.count} "
            f"ranks ({placement})",
            _WHERE,
            f"at least {pieces} of each",
        )
    rows = placed(local.queries, ranks.count, placement)
    keys = placed(local.keys, ranks.count, placement)
    if algorithm == "replicated_kv":
        full = local.piece.k, local.piece.v
        parts = _over_all(local, ranks, rows, [full] * ranks.count)
    elif algorithm == "gather_kv":
        parts = _over_all(local, ranks, rows, _gathered(local, ranks, keys))
    elif algorithm == "ring":
        parts = _ring(local, ranks, rows, keys)
    else:
        parts = _ulysses(local, ranks, rows, keys)
    if gather_output:
        parts = ranks.all_gather(parts, "output: all-gather")[0]
    return ranks.assemble(parts, rows)


def _over_all(
    local: Local, ranks: Ranks, rows: Spans, kv: list[tuple[Array, Array]]
) -> list[Array]:
    """Each rank's queries over all keys."""
    heads, found = slice(0, local.attrs.q_heads), []
    for rank, spans, (k, v) in zip(ranks.all, rows, kv, strict=True):
        rank.kv_bytes = k.nbytes + v.nbytes
        outs = [local.whole(rank, (local.piece.q[:, :, span], k, v), heads, span) for span in spans]
        found.append(ranks.join(outs, axis=2))
    return found


def _gathered(local: Local, ranks: Ranks, keys: Spans) -> list[tuple[Array, Array]]:
    found = []
    for array, what in ((local.piece.k, "key"), (local.piece.v, "value")):
        dealt = [ranks.take(array, spans) for spans in keys]
        everywhere = ranks.all_gather(dealt, f"{what}: all-gather")
        found.append([ranks.assemble(parts, keys) for parts in everywhere])
    return list(zip(*found, strict=True))


def _ring(local: Local, ranks: Ranks, rows: Spans, keys: Spans) -> list[Array]:
    """Keys and values go round; after n - 1 steps every rank has seen all of them."""
    n, sinks = ranks.count, local.request.sinks
    mine = [ranks.take(local.piece.q, spans) for spans in rows]
    k = [ranks.take(local.piece.k, spans) for spans in keys]
    v = [ranks.take(local.piece.v, spans) for spans in keys]
    width = v[0].shape[3]
    running = [
        Running((0 if ranks.dry else q.shape[0], *q.shape[1:3], width), local.sums, sinks)
        for q in mine
    ]
    for step in range(n):
        for r, rank in enumerate(ranks.all):
            held = k[r].nbytes + v[r].nbytes
            rank.kv_bytes = max(rank.kv_bytes, held * (1 if n == 1 else 2))  # and what comes in
            _visit(local, ranks, r, (mine[r], k[r], v[r]), rows[r], keys[(r - step) % n],
                   running[r])  # fmt: skip
        if step < n - 1:
            k = [ranks.send((r - 1) % n, r, k[(r - 1) % n], "key: ring") for r in range(n)]
            v = [ranks.send((r - 1) % n, r, v[(r - 1) % n], "value: ring") for r in range(n)]
    if ranks.dry:
        return [ranks.zeros((*q.shape[:3], width), local.dtype) for q in mine]
    return [state.out.astype(local.dtype) for state in running]


def _visit(
    local: Local,
    ranks: Ranks,
    r: int,
    qkv: QKV,
    rows: list[slice],
    keys: list[slice],
    running: Running,
) -> None:
    """A rank's queries meet the keys that are there at this step."""
    q, k, v = qkv
    for row, own in zip(rows, _within(rows), strict=True):
        for span, there in zip(keys, _within(keys), strict=True):
            parts = q[:, :, own], k[:, :, there], v[:, :, there]
            out, lse = local.partial(ranks.all[r], parts, row, span)
            if not ranks.dry:
                running.add(own, out, lse)


def _within(spans: list[slice]) -> list[slice]:
    """Where the spans of a rank lie in its own array."""
    found, done = [], 0
    for span in spans:
        found.append(slice(done, done + span.stop - span.start))
        done += span.stop - span.start
    return found


def _ulysses(local: Local, ranks: Ranks, rows: Spans, keys: Spans) -> list[Array]:
    """Tokens are exchanged for heads and, with the output, back."""
    heads = local.attrs.q_heads
    if heads < ranks.count:
        refuse(f"{heads} query heads cannot be dealt to {ranks.count} ranks", _WHERE, "ring")
    own = [heads_of(r, ranks.count, heads) for r in range(ranks.count)]
    groups = [groups_of(h, local.repeats) for h in own]
    arrays = []
    for array, what, spans, cut in (
        (local.piece.q, "query", rows, own),
        (local.piece.k, "key", keys, groups),
        (local.piece.v, "value", keys, groups),
    ):
        dealt = [ranks.take(array, held) for held in spans]
        came = ranks.exchange(partial(_heads_for, dealt, cut), f"{what}: all-to-all")
        arrays.append([ranks.assemble(parts, spans) for parts in came])
    outs = []
    for r, (rank, q, k, v) in enumerate(zip(ranks.all, *arrays, strict=True)):
        rank.kv_bytes = k.nbytes + v.nbytes
        outs.append(local.whole(rank, (q, k, v), own[r], slice(0, local.queries)))
    back = ranks.exchange(lambda s, t: ranks.take(outs[s], rows[t]), "output: all-to-all")
    return [ranks.join(parts, axis=1) for parts in back]


def _heads_for(dealt: list[Array], cut: list[slice], source: int, target: int) -> Array:
    """What ``target`` gets of the tokens that ``source`` has."""
    return dealt[source][:, cut[target]]
