"""Which tiles of an attention are computed, which need masking, and which are skipped.

A tile is a block of queries by a block of keys. Causality, windows, boolean masks and masks of
whole blocks decide before anything is read, so that a skipped tile's keys and values are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecompiler.backends.cost.attention_tiles import Blocks, Problem, row_blocks
from gecompiler.ir.constants import Array

SKIPPED, MASKED, WHOLE = 0, 1, 2
"""States of a tile."""

_PANEL_SCORES = 1 << 22
"""Most mask elements that are looked at together."""

States = NDArray[np.uint8]
Bools = NDArray[np.bool_]


class TileTotals(NamedTuple):
    """Sums over one attention; steps are tiles of one KV head of one sequence."""

    steps: int
    masked: int
    skipped: int
    keys: int
    """Keys read, over all steps (as many values)."""
    queries: int
    """Queries taking part, over all steps, for one query head of each KV head."""
    scores: int
    """Queries times keys, over all steps, for one query head of each KV head."""
    mask_elements: int
    """Elements of the mask that are read, for one query head of each KV head."""


@dataclass(frozen=True, slots=True)
class TilePlan:
    """The tiles of one `Problem`.

    ``keep`` broadcasts to (B, H, S, T): a boolean mask (True: may attend), or a float one that
    is added, of which -inf counts as not attended when ``drops`` is set. ``block_mask``
    broadcasts to (B, H, query blocks, key blocks): False skips the block.
    """

    problem: Problem
    blocks: Blocks
    keep: Array | None = None
    drops: bool = False
    block_mask: Bools | None = None

    @property
    def q_blocks(self) -> int:
        """Blocks of queries."""
        return -(-self.problem.q_len // self.blocks.queries)

    @property
    def k_blocks(self) -> int:
        """Blocks of keys."""
        return -(-self.problem.kv_len // self.blocks.keys)

    @property
    def bounded(self) -> bool:
        """Whether a window or causality bounds the keys of a query."""
        return self.problem.left >= 0 or self.problem.right >= 0

    @property
    def _looks(self) -> bool:
        """Whether the mask's elements decide about tiles."""
        return self.keep is not None and (self.keep.dtype == np.bool_ or self.drops)

    def rows(self, first: int, last: int) -> slice:
        """The queries of blocks first..last-1."""
        size = self.blocks.queries
        return slice(first * size, min(last * size, self.problem.q_len))

    def keys(self, block: int) -> slice:
        """The keys of a block."""
        size = self.blocks.keys
        return slice(block * size, min((block + 1) * size, self.problem.kv_len))

    def band_states(self, first: int, last: int) -> States:
        """(blocks, key blocks): what causality and the window make of the tiles."""
        p, (queries, keys) = self.problem, self.blocks
        q_low = np.arange(first, last)[:, None] * queries + p.offset
        q_high = np.minimum(q_low + queries, p.q_len + p.offset) - 1
        k_low = np.arange(self.k_blocks)[None, :] * keys
        k_high = np.minimum(k_low + keys, p.kv_len) - 1
        least, most = k_low - q_high, k_high - q_low
        touched = np.ones(least.shape, np.bool_)
        inside = touched.copy()
        if p.left >= 0:
            touched &= most >= -p.left
            inside &= least >= -p.left
        if p.right >= 0:
            touched &= least <= p.right
            inside &= most <= p.right
        return np.where(touched, np.where(inside, WHOLE, MASKED), SKIPPED).astype(np.uint8)

    def states(self, first: int, last: int) -> States:
        """(B or 1, G or 1, blocks, key blocks): the state of each tile of blocks first..last-1.

        A step is done when any query head of its KV head needs it.
        """
        found = self.band_states(first, last)[None, None]
        if self._looks:
            some, every = self._mask_states(first, last)
            found = _less(found, some, every)
        if self.block_mask is not None:
            tiles = self.block_mask
            tiles = self._grouped(tiles if tiles.shape[2] == 1 else tiles[:, :, first:last])
            found = _less(found, _any(tiles, 2), _all(tiles, 2))
        shape = (*found.shape[:2], last - first, self.k_blocks)
        return np.broadcast_to(found, shape).astype(np.uint8)

    def allowed(self, rows: slice, keys: slice) -> Bools | None:
        """(rows, keys): which keys causality and the window leave to each query; None: all."""
        p = self.problem
        low, high = rows.start + p.offset, rows.stop - 1 + p.offset
        cut_left = p.left >= 0 and keys.start - high < -p.left
        cut_right = p.right >= 0 and keys.stop - 1 - low > p.right
        if not cut_left and not cut_right:
            return None
        queries = np.arange(rows.start, rows.stop)[:, None] + p.offset
        distance = np.arange(keys.start, keys.stop)[None, :] - queries
        inside = np.ones(distance.shape, np.bool_)
        if p.left >= 0:
            inside &= distance >= -p.left
        if p.right >= 0:
            inside &= distance <= p.right
        return inside

    def panels(self, size: int) -> Iterator[tuple[int, int]]:
        """Ranges of ``size`` blocks of queries."""
        for first in range(0, self.q_blocks, size):
            yield first, min(first + size, self.q_blocks)

    def totals(self) -> TileTotals:
        """Sums over all tiles: O(query blocks) without a mask, else O(its size)."""
        p = self.problem
        units = p.batch * p.kv_heads
        everything = units * self.q_blocks * self.k_blocks
        if not self._looks and self.block_mask is None:
            steps, masked, keys, queries, scores, elements = (
                units * n for n in self._band_totals()
            )
        else:
            steps, masked, keys, queries, scores, elements = self._state_totals()
        return TileTotals(steps, masked, everything - steps, keys, queries, scores, elements)

    def _band_totals(self) -> tuple[int, int, int, int, int, int]:
        p, size = self.problem, self.blocks.keys
        steps = masked = keys = queries = scores = elements = 0
        for row in row_blocks(p, self.blocks):
            steps += row.steps
            keys += row.end - row.begin
            queries += (row.last - row.first) * row.steps
            scores += (row.last - row.first) * (row.end - row.begin)
            elements += self._mask_part(row.last - row.first, row.end - row.begin, row.steps)
            low = row.begin if p.left < 0 else max(row.begin, row.last - 1 + p.offset - p.left)
            high = row.end if p.right < 0 else min(row.end, row.first + p.offset + p.right + 1)
            end = self.k_blocks if high >= p.kv_len else high // size
            masked += row.steps - max(0, min(end, -(-row.end // size)) - -(-low // size))
        return steps, masked, keys, queries, scores, elements

    def _state_totals(self) -> tuple[int, int, int, int, int, int]:
        p = self.problem
        widths = np.full(self.k_blocks, self.blocks.keys, np.int64)
        if widths.size:
            widths[-1] = p.kv_len - (self.k_blocks - 1) * self.blocks.keys
        steps = masked = keys = queries = scores = elements = 0
        for first, last in self.panels(self._panel):
            states = self.states(first, last)
            times = p.batch // states.shape[0] * (p.kv_heads // states.shape[1])
            taken = states != SKIPPED
            heights = np.full(last - first, self.blocks.queries, np.int64)
            heights[-1] = min(last * self.blocks.queries, p.q_len) - self.rows(0, last - 1).stop
            per_row = taken @ widths
            steps += times * int(taken.sum())
            masked += times * int((states == MASKED).sum())
            keys += times * int(per_row.sum())
            queries += times * int((taken.sum(axis=-1) * heights).sum())
            scores += times * int((per_row * heights).sum())
            seen = self.band_states(first, last) != SKIPPED
            for row, height in zip(seen, heights, strict=True):
                part = self._mask_part(int(height), int(row @ widths), int(row.sum()))
                elements += p.batch * p.kv_heads * part
        return steps, masked, keys, queries, scores, elements

    def _mask_part(self, rows: int, keys: int, steps: int) -> int:
        """Elements of the mask that one block of queries reads on its way along the keys."""
        if self.keep is None:
            return 0
        tall, wide = self.keep.shape[2] > 1, self.keep.shape[3] > 1
        return (rows if tall else min(rows, 1)) * (keys if wide else steps)

    @property
    def _panel(self) -> int:
        """Blocks of queries whose mask is looked at together."""
        if self.keep is None:
            return max(1, _PANEL_SCORES // max(1, self.k_blocks))
        per_query: int = self.keep.shape[0] * self.keep.shape[1] * self.keep.shape[3]
        return max(1, _PANEL_SCORES // max(1, per_query * self.blocks.queries))

    def _mask_states(self, first: int, last: int) -> tuple[Bools, Bools]:
        """Whether a tile keeps some, and all, of its keys: (B or 1, G or 1, blocks, blocks)."""
        assert self.keep is not None
        mask, rows = self.keep, self.rows(first, last)
        part = mask if mask.shape[2] == 1 else mask[:, :, rows]
        if part.dtype != np.bool_:
            part = part != -np.inf
        starts = np.arange(0, part.shape[2], self.blocks.queries)
        some = np.logical_or.reduceat(part, starts, axis=2)
        every = np.logical_and.reduceat(part, starts, axis=2)
        starts = np.arange(0, part.shape[3], self.blocks.keys)
        some = np.logical_or.reduceat(some, starts, axis=3)
        every = np.logical_and.reduceat(every, starts, axis=3)
        return _any(self._grouped(some), 2), _all(self._grouped(every), 2)

    def _grouped(self, tiles: Bools) -> Bools:
        """(B or 1, G or 1, heads of a group or 1, blocks, blocks)."""
        batch, heads = tiles.shape[:2]
        groups = self.problem.kv_heads if heads > 1 else 1
        return tiles.reshape(batch, groups, heads // groups, *tiles.shape[2:])


def _any(tiles: Bools, axis: int) -> Bools:
    return np.asarray(tiles.any(axis=axis))


def _all(tiles: Bools, axis: int) -> Bools:
    return np.asarray(tiles.all(axis=axis))


def _less(states: States, some: Bools, every: Bools) -> States:
    """The states where a mask keeps some, and all, of a tile."""
    kept = np.where(every, WHOLE, np.where(some, MASKED, SKIPPED)).astype(np.uint8)
    return np.minimum(states, kept)
