"""The attention that one rank computes: some heads, some queries, some keys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gecompiler.backends.cost.attention_tiles import row_block
from gecompiler.backends.kernels.attention import attend
from gecompiler.backends.kernels.attention_check import Place, check_attention
from gecompiler.backends.kernels.attention_counters import Part
from gecompiler.ir.constants import Array
from gecompiler.ir.types import DType
from gecompiler.ops.parallel.heads import groups_of, runs
from gecompiler.ops.parallel.ranks import Rank
from gecompiler.ops.request import Request
from gecompiler.ops.shapes import shaped


class Local:
    """Attentions of parts of one request, counted for the rank that does them."""

    def __init__(self, request: Request, *, dry: bool) -> None:
        (self.piece,) = request.pieces
        self.request, self.attrs, self.dry = request, request.attrs, dry
        self.queries, self.keys = self.piece.q.shape[2], self.piece.k.shape[2]
        self.offset = self.attrs.offset(self.queries, self.keys)
        mask = self.piece.mask
        self.mask = None if mask is None else mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        self.repeats = self.attrs.q_heads // self.attrs.kv_heads

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The type of the output."""
        return self.piece.q.dtype

    @property
    def sums(self) -> np.dtype[np.generic]:
        """The type that partial results are added in."""
        return np.dtype(np.float64 if self.dtype == np.float64 else np.float32)

    def whole(
        self, rank: Rank, qkv: tuple[Array, Array, Array], heads: slice, rows: slice
    ) -> Array:
        """Queries ``rows`` of ``heads`` over all keys of their KV heads."""
        return self._heads(rank, qkv, heads, rows, slice(0, self.keys), partial=False)[0]

    def partial(
        self, rank: Rank, qkv: tuple[Array, Array, Array], rows: slice, keys: slice
    ) -> tuple[Array, Array]:
        """Queries ``rows`` over ``keys``, all heads: output and log-sum-exp, without sinks."""
        heads = slice(0, self.attrs.q_heads)
        return self._heads(rank, qkv, heads, rows, keys, partial=True)

    def _heads(
        self,
        rank: Rank,
        qkv: tuple[Array, Array, Array],
        heads: slice,
        rows: slice,
        keys: slice,
        *,
        partial: bool,
    ) -> tuple[Array, Array]:
        q, k, v = qkv
        shape = (*q.shape[:3], v.shape[3])
        kind = self.sums if partial else self.dtype
        if self.dry:
            out, lse = shaped(shape, kind), shaped(shape[:3], np.dtype(np.float64))
        else:
            out, lse = np.zeros(shape, kind), np.full(shape[:3], -np.inf, np.float64)
        base = groups_of(heads, self.repeats).start
        for run in runs(heads, self.repeats):
            mine = slice(run.heads.start - heads.start, run.heads.stop - heads.start)
            group = slice(run.groups.start - base, run.groups.stop - base)
            views = q[:, mine], k[:, group], v[:, group]
            results = out[:, mine], lse[:, mine]
            self._attend(rank, views, run.heads, rows, keys, results, partial)
        return out, lse

    def _attend(
        self,
        rank: Rank,
        qkv: tuple[Array, Array, Array],
        heads: slice,
        rows: slice,
        keys: slice,
        results: tuple[Array, Array],
        partial: bool,
    ) -> None:
        """One run of heads."""
        q, k, v = qkv
        if not q.shape[2] or not k.shape[2]:
            return
        attrs = replace(self.attrs, q_heads=q.shape[1], kv_heads=k.shape[1])
        place = Place(rows.start + self.offset - keys.start, self.queries)
        mask = self._mask(heads, rows, keys)
        sinks = None
        if self.request.sinks is not None and not partial:
            sinks = self.request.sinks[heads]
        blocks = self.request.blocks
        plan = check_attention(q, k, v, mask, sinks, attrs, blocks, place=place).plan(attrs, blocks)
        if not row_block(plan.problem, 0, plan.problem.q_len, 1).steps:
            return  # no query sees any of these keys: nothing is launched
        softcap = attrs.softcap > 0
        kind = DType.from_numpy(self.dtype)
        part = Part(plan, kind, softcap=softcap, sinks=sinks is not None, lse=partial)
        rank.parts.append(part)
        if self.dry:
            return
        found = attend(q, k, v, mask, sinks, attrs=attrs, blocks=blocks, with_lse=partial,
                       out=results[0], place=place)  # fmt: skip
        if found.lse is not None:
            results[1][...] = found.lse

    def _mask(self, heads: slice, rows: slice, keys: slice) -> Array | None:
        if self.mask is None:
            return None
        spans = (slice(None), heads, rows, keys)
        shape = self.mask.shape
        found: Array = self.mask[
            tuple(s if n > 1 else slice(None) for s, n in zip(spans, shape, strict=True))
        ]
        return found


class Running:
    """Attention put together from that over some keys at a time, by log-sum-exp.

    As flash decoding joins its splits: out = sum exp(lse_i - lse) out_i.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.generic], sinks: Array | None):
        self.out: Array = np.zeros(shape, dtype)
        self.lse: Array = np.full(shape[:3], -np.inf, np.float64)
        if sinks is not None:
            self.lse[...] = sinks[:, None]

    def add(self, rows: slice, out: Array, lse: Array) -> None:
        """Takes in what queries ``rows`` see among further keys."""
        before = self.lse[:, :, rows]
        top = np.maximum(before, lse)
        top = np.where(top == -np.inf, 0, top)
        old, new = np.exp(before - top), np.exp(lse - top)
        total = old + new
        some = np.where(total == 0, 1, total)
        shares = [(part / some).astype(out.dtype)[..., None] for part in (old, new)]
        self.out[:, :, rows] = self.out[:, :, rows] * shares[0] + out * shares[1]
        with np.errstate(divide="ignore"):
            self.lse[:, :, rows] = top + np.log(total)
