"""What the arguments of attention must look like, and the sizes read off them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecompiler.backends.cost.attention_tiles import Blocks, Problem
from gecompiler.backends.kernels.tile_plan import TilePlan
from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.types import DType

WHERE = "FlashAttention"


class Place(NamedTuple):
    """Which part of a longer attention some queries and keys are."""

    offset: int
    """The first query's position among the keys, which causality and windows count from."""
    queries: int
    """Queries of the longer attention."""


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """B, G (KV heads), R (query heads a KV head), S, T, and the type sums are made in."""

    batch: int
    groups: int
    repeats: int
    queries: int
    keys: int
    head_dim: int
    v_dim: int
    dtype: np.dtype[np.generic]
    kv_batch: tuple[int, int]
    """Batches of K and of V."""
    mask: Array | None
    """The mask with all four dims."""
    block_mask: NDArray[np.bool_] | None
    """The mask of blocks with all four dims."""
    place: Place | None = None

    @property
    def queries_in_all(self) -> int:
        """Queries of the longer attention that these are part of."""
        return self.queries if self.place is None else self.place.queries

    def plan(self, attrs: FlashAttention, blocks: Blocks) -> TilePlan:
        """Which tiles are computed."""
        offset = attrs.offset(self.queries, self.keys)
        problem = Problem(
            self.batch,
            self.groups * self.repeats,
            self.groups,
            self.queries,
            self.keys,
            self.head_dim,
            self.v_dim,
            left=attrs.window_left,
            right=attrs.window_right,
            offset=offset if self.place is None else self.place.offset,
            k_batch=self.kv_batch[0],
            v_batch=self.kv_batch[1],
        )
        # A row that only has keys of score -inf is NaN, or not masked: only zeroes may be skipped.
        drops = attrs.masked_row == "zero"
        return TilePlan(problem, blocks, self.mask, drops, self.block_mask)


def check_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    sinks: Array | None,
    attrs: FlashAttention,
    blocks: Blocks,
    block_mask: NDArray[np.bool_] | None = None,
    place: Place | None = None,
) -> AttentionSizes:
    """The sizes of the problem; UsageError names the argument that does not fit."""
    if blocks.queries < 1 or blocks.keys < 1:
        _refuse(f"block sizes must be at least 1, found {blocks.queries} and {blocks.keys}")
    for name, array in (("query", q), ("key", k), ("value", v)):
        if array.ndim != 4:
            _refuse(f"{name} must be 4D (batch, heads, length, width), found {array.shape}")
        if not is_float(array):
            _refuse(f"{name} must be of a float type, found {array.dtype}")
    batch, heads, queries, width = q.shape
    groups, keys = k.shape[1], k.shape[2]
    if heads < 1 or groups < 1 or heads % groups:
        _refuse(f"{heads} query heads are no positive multiple of {groups} KV heads")
    if (heads, groups) != (attrs.q_heads, attrs.kv_heads):
        _refuse(
            f"expected {attrs.q_heads} query and {attrs.kv_heads} KV heads, "
            f"found {heads} and {groups}"
        )
    batches = k.shape[0] in (1, batch) and v.shape[0] in (1, batch)
    if k.shape[3] != width or k.shape[1:3] != v.shape[1:3] or not batches:
        _refuse(f"query {q.shape}, key {k.shape} and value {v.shape} do not fit together")
    _check_mask(mask, (batch, heads, queries, keys))
    if sinks is not None and sinks.shape != (heads,):
        _refuse(f"sinks must be one per query head, ({heads},), found {sinks.shape}")
    tiles = (batch, heads, -(-queries // blocks.queries), -(-keys // blocks.keys))
    if block_mask is not None:
        _check_block_mask(block_mask, tiles)
    wide = any(a is not None and a.dtype == np.float64 for a in (q, k, v))
    return AttentionSizes(
        batch=batch,
        groups=groups,
        repeats=heads // groups,
        queries=queries,
        keys=keys,
        head_dim=width,
        v_dim=v.shape[3],
        dtype=np.dtype(np.float64 if wide else np.float32),
        kv_batch=(k.shape[0], v.shape[0]),
        mask=None if mask is None else _four(mask),
        block_mask=None if block_mask is None else _four(block_mask),
        place=place,
    )


def is_float(array: Array) -> bool:
    """Whether the array's elements are of a float type that ONNX knows."""
    try:
        return DType.from_numpy(array.dtype).is_float
    except ValueError:
        return False


def _check_mask(mask: Array | None, full: tuple[int, int, int, int]) -> None:
    if mask is None:
        return
    if mask.dtype != np.bool_ and not is_float(mask):
        _refuse(
            f"mask must be boolean (True: may attend) or float (added), found {mask.dtype}",
            hint="cast an integer mask of 0 and 1 to bool",
        )
    if not _broadcasts(mask, full):
        _refuse(
            f"mask {mask.shape} does not broadcast to (batch, heads, S, T) = {full}",
            _reshaped(mask.shape, full),
        )


def _reshaped(shape: tuple[int, ...], full: tuple[int, int, int, int]) -> str:
    """How a mask without heads, or of keys alone, is given one axis for each dim."""
    batch, _, queries, keys = full
    if shape == (batch, queries, keys):
        return "a mask for each sequence of the batch is mask[:, None]"
    if shape == (batch, keys):
        return "a mask of each sequence's keys is mask[:, None, None, :]"
    return ""


def _check_block_mask(mask: NDArray[np.bool_], tiles: tuple[int, int, int, int]) -> None:
    if mask.dtype != np.bool_:
        _refuse(f"the mask of blocks must be boolean (True: computed), found {mask.dtype}")
    if not _broadcasts(mask, tiles):
        _refuse(
            f"the mask of blocks {mask.shape} does not broadcast to "
            f"(batch, heads, blocks of queries, blocks of keys) = {tiles}"
        )


def _broadcasts(array: Array, full: tuple[int, int, int, int]) -> bool:
    if array.ndim > 4:
        return False
    return all(n in (1, f) for n, f in zip(array.shape, full[4 - array.ndim :], strict=True))


def _four(array: Array) -> Array:
    found: Array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    return found


def _refuse(message: str, hint: str = "") -> None:
    raise UsageError(message, where=WHERE, hint=hint)
