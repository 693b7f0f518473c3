"""Batch, heads, lengths and dimensions of a fused attention, from the shapes of its operands.

The files do not say the layout (BSH, SBH, BNSD, BSND) nor the number of heads. Both follow
from the statistics of the softmax, (B, N, S, 8), where the kernel returns them; without, a
four-dimensional operand is read by which axis Q and K differ in, and a three-dimensional one
gives no heads.
"""

from __future__ import annotations

import math
from typing import NamedTuple

Shape = tuple[int, ...]
_STATISTICS = 8
"""Columns of the softmax's statistics."""


class Heads(NamedTuple):
    """The sizes of one attention."""

    batch: int
    q_heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    v_dim: int


def heads(q: Shape, k: Shape, v: Shape, outputs: tuple[Shape, ...]) -> Heads | None:
    """The sizes, None where the shapes do not give them away."""
    if {len(q), len(k), len(v)} == {4} and q[0] == k[0]:
        return _four(q, k, v, outputs)
    if {len(q), len(k), len(v)} == {3}:
        return _three(q, k, v, outputs)
    return None


def _four(q: Shape, k: Shape, v: Shape, outputs: tuple[Shape, ...]) -> Heads | None:
    """BNSD or BSND."""
    batch, first, second, dim = q
    found = next((o for o in outputs if len(o) == 4 and o[3] == _STATISTICS), None)
    if found is not None and first != second:
        heads_first = found[1] == first
    elif first == k[1] and second != k[2]:
        heads_first = True
    elif second == k[2] and first != k[1]:
        # Equal on the second axis: the same heads, or the same length with shared keys.
        heads_first = k[1] < first and first % max(1, k[1]) == 0 and second > first
    else:
        heads_first = second >= first
    if not heads_first:
        q, k, v = (_swapped(s) for s in (q, k, v))
    if not k[1] or q[1] % k[1]:
        return None
    return Heads(batch, q[1], k[1], q[2], k[2], dim, v[3])


def _swapped(shape: Shape) -> Shape:
    return (shape[0], shape[2], shape[1], shape[3])


def _three(q: Shape, k: Shape, v: Shape, outputs: tuple[Shape, ...]) -> Heads | None:
    """BSH or SBH; the heads from the statistics."""
    statistics = [o for o in outputs if o and o[-1] == _STATISTICS or len(o) == 1]
    whole = math.prod(statistics[0]) if statistics else 0
    rows = q[0] * q[1]
    if not rows or not whole or whole % (_STATISTICS * rows):
        return None
    count = whole // (_STATISTICS * rows)
    if not count or q[2] % count:
        return None
    dim = q[2] // count
    if len(statistics[0]) == 4:
        sequence_first = statistics[0][0] == q[1] and statistics[0][2] == q[0]
    else:
        sequence_first = q[0] > q[1]
    (length, batch), kv_len = (q[:2], k[0]) if sequence_first else ((q[1], q[0]), k[1])
    groups = k[2] // dim if dim else 0
    if not groups or count % groups:
        return None
    return Heads(batch, count, groups, length, kv_len, dim, v[2] // groups)
