"""The masks of a tile, for the heads that take a step together."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gecompiler.backends.kernels.attention_check import AttentionSizes
from gecompiler.backends.kernels.tile_plan import SKIPPED, States, TilePlan
from gecompiler.ir.constants import Array


class TileMasks:
    """Masks for some batches and KV heads; rows hold (query, query head of the KV head)."""

    def __init__(self, plan: TilePlan, sizes: AttentionSizes, batch: slice, groups: slice) -> None:
        self.plan, self.sizes, self.batch, self.groups = plan, sizes, batch, groups
        self.boolean = sizes.mask is not None and sizes.mask.dtype == np.bool_

    def allowed(self, first: int, last: int, block: int) -> NDArray[np.bool_] | None:
        """The keys of a block that rows of query blocks first..last-1 may attend; None: all.

        (1 or B, 1 or G, rows, keys).
        """
        rows, keys = self.plan.rows(first, last), self.plan.keys(block)
        inside = self.plan.allowed(rows, keys)
        found = None if inside is None else inside[None, None, :, None]
        if self.boolean:
            tile = self._tile(rows, keys)
            found = tile if found is None else found & tile
        if self.plan.block_mask is not None:
            tile = self._block_tile(rows, block)
            found = tile if found is None else found & tile
        if found is None:
            return None
        count, repeats = rows.stop - rows.start, self.sizes.repeats
        full = (*found.shape[:2], count, repeats, found.shape[4])
        return np.broadcast_to(found, full).reshape(*full[:2], count * repeats, full[4])

    def add_bias(self, scores: Array, first: int, last: int, block: int) -> None:
        """Adds a float mask to the scores (B, G, rows, keys) of a tile."""
        if self.sizes.mask is None or self.boolean:
            return
        heads = scores.reshape(*scores.shape[:2], -1, self.sizes.repeats, scores.shape[3])
        heads += self._tile(self.plan.rows(first, last), self.plan.keys(block))

    def _tile(self, rows: slice, keys: slice) -> Array:
        """(1 or B, 1 or G, 1 or rows, 1 or R, 1 or keys)."""
        mask = self.sizes.mask
        assert mask is not None
        tile = mask if mask.shape[2] == 1 else mask[:, :, rows]
        return self.by_head(tile if mask.shape[3] == 1 else tile[..., keys])

    def _block_tile(self, rows: slice, block: int) -> Array:
        mask = self.plan.block_mask
        assert mask is not None
        if mask.shape[2] > 1:
            mask = mask[:, :, np.arange(rows.start, rows.stop) // self.plan.blocks.queries]
        return self.by_head(mask if mask.shape[3] == 1 else mask[..., block : block + 1])

    def by_head(self, tile: Array) -> Array:
        """A tile (B, H, rows, keys) as (B, G, rows, R, keys) of these batches and KV heads."""
        batch, heads = tile.shape[:2]
        groups = self.sizes.groups if heads > 1 else 1
        tile = tile.reshape(batch, groups, heads // groups, *tile.shape[2:]).swapaxes(2, 3)
        tile = tile if tile.shape[0] == 1 else tile[self.batch]
        return tile if groups == 1 else tile[:, self.groups]


def alike(states: States, sizes: AttentionSizes) -> list[tuple[slice, slice, States]]:
    """Batches and KV heads whose tiles are done or skipped alike, with the states of those."""
    taken = states != SKIPPED
    if (taken == taken[:1, :1]).all():
        return [(slice(0, sizes.batch), slice(0, sizes.groups), states.min(axis=(0, 1)))]
    found = []
    for b in range(states.shape[0]):
        for g in range(states.shape[1]):
            batch = slice(b, b + 1) if states.shape[0] > 1 else slice(0, sizes.batch)
            groups = slice(g, g + 1) if states.shape[1] > 1 else slice(0, sizes.groups)
            found.append((batch, groups, states[b, g]))
    return found


def stretches(column: States, most: int) -> list[tuple[int, int, int]]:
    """Stretches of equal states, at most so long, skipped ones left out: (first, end, state)."""
    edges = [0, *(np.flatnonzero(np.diff(column)) + 1).tolist(), len(column)]
    found = []
    for first, end in pairwise(edges):
        if column[first] != SKIPPED:
            state = int(column[first])
            found += [(at, min(at + most, end), state) for at in range(first, end, most)]
    return found
