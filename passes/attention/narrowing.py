"""Attention computed in a wide type between narrow operands and a narrow result.

That is what the fused op does by itself: it takes halves, computes in float32 and rounds once.
"""

from __future__ import annotations

from dataclasses import replace

from gecompiler.ir.types import DType
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.match import Match
from gecompiler.passes.attention.operands import widens


def narrowed(e: Elements, match: Match) -> Match:
    """The match with the cast of its result taken in, where that makes it narrow all through."""
    users = e.graph.users(match.out)
    if len(users) != 1 or not users[0].is_("Cast") or e.graph.is_output(match.out):
        return match
    cast = users[0]
    dtype = e.dtype(cast.outputs[0])
    if dtype is None or dtype is match.out_dtype or not widens(dtype, match.out_dtype):
        return match
    if match.out_dtype is not DType.F32 or match.multipliers or match.also or match.siblings:
        return match
    if any(
        all(e.dtype(link.value) is not dtype for link in x) for x in (match.q, match.k, match.v)
    ):
        return match
    return replace(match, out=cast.outputs[0], out_dtype=dtype, ops=(*match.ops, cast))
