"""Attention on tiles with an online softmax: the one kernel behind every attention here.

The loop order is FlashAttention-2's (Dao 2023, algorithm 1): blocks of queries outside, blocks
of keys inside. The query heads that share a KV head take its K and V block together, which is
never expanded. Blocks of keys that the window, causality or a mask leaves empty are not read.

On the host several blocks of queries, and all heads whose tiles are alike, take each step
together (a panel), since a step of one tile costs more calls than arithmetic. Every row's sums
are those of its own tiles, in their order.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecompiler.backends.cost.attention_tiles import Blocks
from gecompiler.backends.counters import listeners
from gecompiler.backends.kernels.attention_check import AttentionSizes, Place, check_attention
from gecompiler.backends.kernels.online_softmax import OnlineSoftmax
from gecompiler.backends.kernels.tile_masks import TileMasks, alike, stretches
from gecompiler.backends.kernels.tile_plan import MASKED, States, TilePlan
from gecompiler.backends.kernels.tile_product import FEW_QUERIES, tile_product
from gecompiler.ir.constants import Array
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.types import DType

PANEL_ROWS = 4096
"""Query rows, over all heads, that take a step together: their state stays in a CPU's cache."""

EXACT_BELOW = 24.0
"""Bound on the scores from which they are made in float64.

A float32 score of 1e4 is off by 1e-3, and so is its weight. Scores that Cauchy and Schwarz keep
below this bound are off by about 1e-6, as the weights are anyway.
"""


class Attended(NamedTuple):
    """What attention gives."""

    out: Array
    """(B, H, S, Dv), of Q's type."""
    lse: Array | None
    """(B, H, S), of the type of the sums: the log-sum-exp of the scores, sinks included."""


def flash_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    sinks: Array | None = None,
    *,
    attrs: FlashAttention,
    block_q: int = 64,
    block_k: int = 64,
) -> Array:
    """The op that `gecompiler.ir.flash_attention` defines; returns (B, H, S, Dv) of Q's type.

    ``q`` (B, H, S, D), ``k`` (B or 1, G, T, D), ``v`` (B or 1, G, T, Dv), ``mask`` broadcastable
    to (B, H, S, T), ``sinks`` (H,). Sums are in float32, in float64 where an input is float64.
    With T = 0 the output is 0, as a product over no keys is. A row whose only key is its sink
    is 0 whatever ``masked_row`` says, since its softmax has a meaning. UsageError names the
    shape that does not fit.
    """
    started_ns = time.perf_counter_ns()
    blocks = Blocks(block_q, block_k)
    out = attend(q, k, v, mask, sinks, attrs=attrs, blocks=blocks).out
    if listeners():
        from gecompiler.backends.kernels.attention_counters import Part
        from gecompiler.backends.kernels.recording import record

        plan = check_attention(q, k, v, mask, sinks, attrs, blocks).plan(attrs, blocks)
        kind = DType.from_numpy(q.dtype)
        part = Part(plan, kind, softcap=attrs.softcap > 0, sinks=sinks is not None)
        record("FlashAttention", [part], (q, k, v, mask, sinks), (out,), started_ns)
    return out


def attend(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    sinks: Array | None = None,
    *,
    attrs: FlashAttention,
    blocks: Blocks,
    block_mask: NDArray[np.bool_] | None = None,
    with_lse: bool = False,
    out: Array | None = None,
    place: Place | None = None,
) -> Attended:
    """`flash_attention`, with the log-sum-exp on request.

    ``block_mask`` broadcasts to (B, H, blocks of queries, blocks of keys): False skips the tile.
    ``out`` is a (B, H, S, Dv) view to write into. ``place`` says which queries of a longer
    attention these are; over all keys of it they get the bits that they get there. Their
    log-sum-exp is float64, as parts with large scores are weighed by its differences.
    """
    sizes = check_attention(q, k, v, mask, sinks, attrs, blocks, block_mask, place)
    if out is None:
        out = np.empty((*q.shape[:3], v.shape[3]), q.dtype)
    sums = sizes.dtype if place is None else np.dtype(np.float64)
    lse = np.full(q.shape[:3], -np.inf, sums) if with_lse else None
    if not out.size or not sizes.keys:
        out[...] = 0
        if lse is not None and sinks is not None:
            lse[...] = sinks[:, None]
        return Attended(out, lse)
    run = _Run(q, k, v, sinks, attrs, sizes, out, lse, sizes.plan(attrs, blocks))
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        run.run()
    return Attended(out, lse)


class _Run:
    """One call: its arrays with the heads split into (G, R), and its plan."""

    def __init__(
        self,
        q: Array,
        k: Array,
        v: Array,
        sinks: Array | None,
        attrs: FlashAttention,
        sizes: AttentionSizes,
        out: Array,
        lse: Array | None,
        plan: TilePlan,
    ) -> None:
        split = (sizes.batch, sizes.groups, sizes.repeats, sizes.queries)
        self.q = q.reshape(*split, sizes.head_dim)
        self.out = out.reshape(*split, sizes.v_dim)
        self.lse = None if lse is None else lse.reshape(split)
        self.k, self.v, self.plan = k, v, plan
        self.sinks = None if sinks is None else sinks.reshape(sizes.groups, sizes.repeats)
        self.attrs, self.sizes = attrs, sizes
        self.norms: dict[tuple[int, int, int], Array] = {}

    def run(self) -> None:
        heads = self.sizes.batch * self.sizes.groups * self.sizes.repeats
        size = max(1, PANEL_ROWS // (heads * self.plan.blocks.queries))
        for first, last in self.plan.panels(size):
            states = self.plan.states(first, last)
            for batch, groups, same in alike(states, self.sizes):
                _Panel(self, batch, groups, first, last).run(same)


class _Panel:
    """Blocks of queries first..last-1 of some batches and groups; rows hold (query, R)."""

    def __init__(self, run: _Run, batch: slice, groups: slice, first: int, last: int) -> None:
        self.run_, self.batch, self.groups, self.first = run, batch, groups, first
        self.masks = TileMasks(run.plan, run.sizes, batch, groups)
        self.rows = run.plan.rows(first, last)
        part = run.q[batch, groups, :, self.rows].swapaxes(2, 3)
        self.shape = part.shape[:4]
        self.flat = (*self.shape[:2], self.shape[2] * self.shape[3])
        dtype = run.sizes.dtype
        self.queries: Array = np.array(part, dtype, order="C").reshape(*self.flat, part.shape[4])
        self.reach: Array = _norms(self.queries) * np.float32(abs(run.attrs.scale))
        self.wide: Array | None = None
        self.queries *= dtype.type(run.attrs.scale)
        sinks = None
        if run.sinks is not None:
            sinks = np.tile(run.sinks[groups], (1, self.shape[2]))
        self.single = run.sizes.queries_in_all <= FEW_QUERIES
        width = run.sizes.v_dim
        self.softmax = OnlineSoftmax(self.flat, width, dtype, sinks, single=self.single)
        self.seen = np.zeros(self.flat, np.bool_)

    def run(self, states: States) -> None:
        """Goes along the keys and writes the output."""
        for block in np.flatnonzero(states.any(axis=0)).tolist():
            for first, last, state in stretches(states[:, block], len(states)):
                self._step(block, self.first + first, self.first + last, state)
        self._write()

    def _step(self, block: int, first: int, last: int, state: int) -> None:
        """One block of keys for some blocks of queries of the panel."""
        run = self.run_
        keys, flat = run.plan.keys(block), self._flat(run.plan.rows(first, last))
        # Each block of queries asks for its keys as its core would; the host holds them once.
        for _ in range(first, last):
            k, v = self._shared(run.k, keys), self._shared(run.v, keys)
        scores = self._scores(block, first, last, _dense(k, run.sizes.dtype))
        allowed = self.masks.allowed(first, last, block) if state == MASKED else None
        self.seen[:, :, flat] |= True if allowed is None else allowed.any(axis=-1)
        self.softmax.add(flat, scores, allowed, _dense(v, run.sizes.dtype))

    def _shared(self, array: Array, keys: slice) -> Array:
        """The block of K or V; a batch of 1 serves all."""
        batch = self.batch if array.shape[0] > 1 else slice(None)
        found: Array = array[batch, self.groups, keys]
        return found

    def _flat(self, rows: slice) -> slice:
        start, repeats = self.rows.start, self.shape[3]
        return slice((rows.start - start) * repeats, (rows.stop - start) * repeats)

    def _scores(self, block: int, first: int, last: int, keys: Array) -> Array:
        """(B, G, rows, keys), in float64 where float32 would lose too much of some."""
        run, place = self.run_, (block, first, last)
        flat = self._flat(run.plan.rows(first, last))
        if run.sizes.dtype == np.float64:
            return self._products(self.queries[:, :, flat], keys, place)
        far = self._far(block, flat, keys)
        if not far.any():
            return self._products(self.queries[:, :, flat], keys, place)
        if self.wide is None:
            self.wide = self._wide_queries()
        scores = self._products(self.wide[:, :, flat], keys.astype(np.float64), place)
        if not far.all():  # a row's numbers are not to depend on its neighbours'
            plain = self._products(self.queries[:, :, flat], keys, place)
            np.copyto(scores, plain, where=~far[..., None])
        return scores

    def _products(self, queries: Array, keys: Array, place: tuple[int, int, int]) -> Array:
        scores = tile_product(queries, keys.swapaxes(-1, -2), single=self.single)
        softcap = self.run_.attrs.softcap
        if softcap > 0:
            scores /= softcap
            np.tanh(scores, out=scores)
            scores *= softcap
        block, first, last = place
        self.masks.add_bias(scores, first, last, block)
        return scores

    def _wide_queries(self) -> Array:
        part = self.run_.q[self.batch, self.groups, :, self.rows].swapaxes(2, 3)
        wide: Array = np.array(part, np.float64, order="C").reshape(self.queries.shape)
        wide *= self.run_.attrs.scale
        return wide

    def _far(self, block: int, flat: slice, keys: Array) -> NDArray[np.bool_]:
        """The rows whose scores may be so large that float32 loses too much of them."""
        place = (block, self.batch.start, self.groups.start)
        norms = self.run_.norms
        if place not in norms:
            norms[place] = _norms(keys).max(axis=-1)
        far: NDArray[np.bool_] = self.reach[:, :, flat] * norms[place][..., None] > EXACT_BELOW
        return far

    def _write(self) -> None:
        run, softmax = self.run_, self.softmax
        place = (self.batch, self.groups, slice(None), self.rows)
        if run.lse is not None:
            run.lse[place] = softmax.log_sum_exp().reshape(self.shape).swapaxes(2, 3)
        empty = softmax.empty
        out = softmax.finish()
        if empty.any():
            self._fill_masked(out, empty)
        run.out[place] = out.reshape(*self.shape, -1).swapaxes(2, 3).astype(run.out.dtype)

    def _fill_masked(self, out: Array, empty: NDArray[np.bool_]) -> None:
        """Puts what ``masked_row`` asks for into rows without a key; they hold NaN."""
        run = self.run_
        if run.attrs.masked_row == "zero":
            out[empty] = 0
        elif run.attrs.masked_row == "mean" and not self.seen.all():
            v = self._shared(run.v, slice(None))
            mean = np.mean(v, axis=2, dtype=out.dtype)[:, :, None]
            np.copyto(out, mean, where=(empty & ~self.seen)[..., None])


def _dense(tile: Array, dtype: np.dtype[np.generic]) -> Array:
    """A tile whose rows follow each other in memory, as a BLAS's order of sums depends on it."""
    found: Array = np.asarray(tile, dtype)
    rows = (found.shape[3] * found.itemsize, found.itemsize)
    return found if found.strides[2:] == rows else np.ascontiguousarray(found)


def _norms(rows: Array) -> Array:
    """The Euclidean norm of each row."""
    found: Array = np.sqrt(np.einsum("...d,...d->...", rows, rows))
    return found
