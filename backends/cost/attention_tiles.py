"""Fused attention on tiles: SRAM a block size needs, blocks it skips, and traffic it makes.

Pure functions of sizes, for the cost model and for kernels that count what they move. The loop
order is FlashAttention-2's (Dao 2023, algorithm 1): blocks of queries outside, blocks of keys
inside, an online softmax between the two products. Query i sees keys j with
``-left <= j - (i + offset) <= right``, -1 meaning no bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple


class Blocks(NamedTuple):
    """Queries and keys (with their values) taken at a time."""

    queries: int
    keys: int


class SramNeed(NamedTuple):
    """Bytes that one step needs of each on-chip buffer of a core."""

    l1: float
    l0c: float
    ub: float

    @property
    def total(self) -> float:
        """Of all three together, for a device that has one kind of SRAM."""
        return self.l1 + self.l0c + self.ub


class Problem(NamedTuple):
    """The sizes of one attention and which keys a query sees."""

    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    v_dim: int
    left: int = -1
    right: int = -1
    offset: int = 0
    k_batch: int = 0
    """Batch of K, where it is not ``batch`` (0); it is 1 when one K serves the whole batch."""
    v_batch: int = 0
    """The same of V."""


class RowBlock(NamedTuple):
    """Queries first..last-1 and the keys begin..end-1 that they see, in whole key blocks."""

    first: int
    last: int
    begin: int
    end: int
    steps: int
    """Key blocks that are computed; the others are skipped."""


class Traffic(NamedTuple):
    """Bytes between memory and SRAM by operand, and the steps taken and skipped."""

    q: float
    k: float
    v: float
    out: float
    steps: int
    skipped: int

    @property
    def load(self) -> float:
        """Bytes read."""
        return self.q + self.k + self.v

    @property
    def total(self) -> float:
        """Bytes read and written."""
        return self.load + self.out


def sram_bytes(
    block_q: int,
    block_k: int,
    head_dim: int,
    v_head_dim: int,
    element_bytes: float = 2.0,
    *,
    vectors_per_core: int = 1,
) -> SramNeed:
    """What one step needs, with two buffers (double buffering) for all that streams.

    L1 holds the block of Q, and K, V and the probabilities twice. L0C holds one block of scores
    or of output in f32, in whole fractals of 16 by 16. The unified buffer of each of
    ``vectors_per_core`` vector cores holds its share of the rows: scores (f32) and
    probabilities, both twice, and the running output (f32).
    """
    q, k = block_q, block_k
    rows = math.ceil(q / max(1, vectors_per_core))
    fractal_rows, fractal_columns = -(-q // 16) * 16, -(-max(k, v_head_dim) // 16) * 16
    return SramNeed(
        l1=element_bytes * (q * head_dim + 2 * k * (head_dim + v_head_dim) + 2 * q * k),
        l0c=4.0 * fractal_rows * fractal_columns,
        ub=rows * (2 * k * (4 + element_bytes) + 4.0 * v_head_dim),
    )


def row_block(p: Problem, first: int, last: int, block_k: int) -> RowBlock:
    """What queries first..last-1 see between them: the key blocks that their window touches."""
    low = 0 if p.left < 0 else min(p.kv_len, max(0, first + p.offset - p.left))
    high = p.kv_len if p.right < 0 else max(0, min(p.kv_len, last + p.offset + p.right))
    if high <= low:
        return RowBlock(first, last, 0, 0, 0)
    begin, end = low // block_k, -(-high // block_k)
    return RowBlock(first, last, begin * block_k, min(p.kv_len, end * block_k), end - begin)


def row_blocks(p: Problem, blocks: Blocks) -> Iterator[RowBlock]:
    """The row blocks of one head, in order. O(q_len / block)."""
    for first in range(0, p.q_len, blocks.queries):
        yield row_block(p, first, min(p.q_len, first + blocks.queries), blocks.keys)


def hbm_traffic(
    p: Problem, blocks: Blocks, element_bytes: float = 2.0, *, shared: bool = True
) -> Traffic:
    """What FlashAttention-2's loops move between memory and SRAM, with no cache in between.

    Q is read and O written once. Every row block reads the K and V that its window lets through,
    in whole key blocks: without a window ``ceil(S / block_q) * T`` keys per head, so that
    doubling ``block_q`` halves it and ``block_k`` hardly counts. ``shared``: the query heads of
    one KV head (GQA) take each K and V block together, so that it is read once for all of them;
    otherwise once per query head. A K or V with batch 1 is read anew for every sequence. A
    cache that holds the K and V at work lets them cross the memory bus once: `least_traffic`.
    """
    heads = p.batch * (p.kv_heads if shared else p.q_heads)
    rows = list(row_blocks(p, blocks))
    keys = sum(r.end - r.begin for r in rows)
    steps = sum(r.steps for r in rows)
    everything = len(rows) * -(-p.kv_len // blocks.keys)
    queries = p.batch * p.q_heads * p.q_len
    return Traffic(
        q=element_bytes * queries * p.head_dim,
        k=element_bytes * heads * keys * p.head_dim,
        v=element_bytes * heads * keys * p.v_dim,
        out=element_bytes * queries * p.v_dim,
        steps=heads * steps,
        skipped=heads * (everything - steps),
    )


def least_traffic(p: Problem, element_bytes: float = 2.0) -> Traffic:
    """The same with a cache large enough: each operand once, and only keys that a query sees."""
    whole = row_block(p, 0, p.q_len, 16) if p.q_len else RowBlock(0, 0, 0, 0, 0)
    keys = p.kv_heads * (whole.end - whole.begin)
    queries = p.batch * p.q_heads * p.q_len
    return Traffic(
        q=element_bytes * queries * p.head_dim,
        k=element_bytes * (p.k_batch or p.batch) * keys * p.head_dim,
        v=element_bytes * (p.v_batch or p.batch) * keys * p.v_dim,
        out=element_bytes * queries * p.v_dim,
        steps=0,
        skipped=0,
    )
