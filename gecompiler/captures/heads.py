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
    """BNSD or BSND: whichever shares its keys evenly; of two, the one with more keys to see."""
    statistics = next((o for o in outputs if len(o) == 4 and o[3] == _STATISTICS), None)
    found = [_heads_first(q, k, v), _heads_first(*(_swapped(s) for s in (q, k, v)))]
    if statistics is not None:
        found = [h for h in found if h is not None and statistics[1:3] == (h.q_heads, h.q_len)]
    known = [h for h in found if h is not None]
    return max(known, key=lambda h: (h.kv_len >= h.q_len, h.kv_len), default=None)


def _heads_first(q: Shape, k: Shape, v: Shape) -> Heads | None:
    if not k[1] or q[1] % k[1]:
        return None
    return Heads(q[0], q[1], k[1], q[2], k[2], q[3], v[3])


def _swapped(shape: Shape) -> Shape:
    return (shape[0], shape[2], shape[1], shape[3])


def _three(q: Shape, k: Shape, v: Shape, outputs: tuple[Shape, ...]) -> Heads | None:
    """BSH or SBH; the heads from the statistics."""
    statistics = [o for o in outputs if (o and o[-1] == _STATISTICS) or len(o) == 1]
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
