"""A call of attention, read from its arguments: layouts undone, options checked, masks turned.

Nothing here looks at elements of query, key and value, so that a call can be asked about with
shapes alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, NoReturn

import numpy as np

from gecompiler.backends.cost.attention_tiles import Blocks
from gecompiler.backends.kernels.attention_check import check_attention, is_float
from gecompiler.backends.kernels.attention_counters import Part
from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError, nearest
from gecompiler.ir.flash_attention import FlashAttention
from gecompiler.ir.types import DType
from gecompiler.ops.layouts import Sizes, heads_first, layout_named, shape_of, sizes
from gecompiler.ops.masks import kept
from gecompiler.ops.sequences import Piece, sequences

ALIGNMENTS = ("top_left", "bottom_right")

_LARGEST = 1 << 48
"""No block and no window needs to be larger; products with lengths stay within 64 bits."""

Window = int | tuple[int | None, int | None] | None


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `flash_attention`, as the caller gave them; see there."""

    head_num: int
    kv_head_num: int | None = None
    input_layout: str = "BSND"
    scale: float | None = None
    attn_mask: Any = None
    is_causal: Any = False
    window: Window = None
    softcap: float | None = None
    sinks: Any = None
    block_size_q: int = 64
    block_size_k: int = 64
    block_size_v: int | None = None
    atten_mask: Any = None
    causal_align: str = "top_left"
    block_mask: Any = None
    actual_seq_qlen: Sequence[int] | None = None
    actual_seq_kvlen: Sequence[int] | None = None


def options_of(head_num: int, given: Mapping[str, Any], where: str) -> Options:
    """The options given by name; UsageError with the nearest for an unknown one."""
    known = [field.name for field in fields(Options)]
    for name in given:
        if name not in known:
            _refuse(f"there is no option {name!r}", where, nearest(name, known))
    return Options(head_num, **given)


@dataclass(frozen=True, slots=True)
class Request:
    """A call that makes sense."""

    layout: str
    out: Sizes
    """Of the output."""
    kv_heads: int
    attrs: FlashAttention
    blocks: Blocks
    sinks: Array | None
    mask: Array | None
    pieces: tuple[Piece, ...]

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The output's shape in the caller's layout."""
        return shape_of(self.layout, self.out)

    def parts(self, *, lse: bool) -> list[Part]:
        """What is counted."""
        found = []
        for p in self.pieces:
            checked = check_attention(
                p.q, p.k, p.v, p.mask, self.sinks, self.attrs, self.blocks, p.block_mask
            )
            found.append(
                Part(
                    checked.plan(self.attrs, self.blocks),
                    DType.from_numpy(p.q.dtype),
                    softcap=self.attrs.softcap > 0,
                    sinks=self.sinks is not None,
                    lse=lse,
                )
            )
        return found


def read_request(query: Array, key: Array, value: Array, o: Options, where: str) -> Request:
    """The call that the arguments describe; UsageError says what does not fit."""
    for name, array in (("query", query), ("key", key), ("value", value)):
        if not is_float(array):
            _refuse(f"{name} must be of a float type, found {array.dtype}", where)
    if not query.dtype == key.dtype == value.dtype:
        types = f"query {query.dtype}, key {key.dtype}, value {value.dtype}"
        _refuse(f"element types differ: {types}", where, "cast them to one type")
    layout = layout_named(o.input_layout, where)
    heads = _positive(o.head_num, "head_num", where)
    q = sizes("query", query.shape, layout, heads, where)
    groups = _kv_heads(key.shape, layout, heads, q.width, o.kv_head_num, where)
    k = sizes("key", key.shape, layout, groups, where)
    v = sizes("value", value.shape, layout, groups, where)
    _check_fit(q, k, v, (query.shape, key.shape, value.shape), where)
    blocks = _blocks(o, where)
    attrs = _attributes(o, heads, groups, q.width, where)
    sinks = None if o.sinks is None else np.asanyarray(o.sinks)
    if sinks is not None and (sinks.shape != (heads,) or not is_float(sinks)):
        _refuse(f"sinks must be ({heads},) floats, found {sinks.shape} of {sinks.dtype}", where)
    mask = kept(o.attn_mask, o.atten_mask, where)
    block_mask = None if o.block_mask is None else np.asanyarray(o.block_mask)
    views = (
        heads_first(query, layout, heads),
        heads_first(key, layout, groups),
        heads_first(value, layout, groups),
    )
    if layout == "TND":
        if block_mask is not None:
            _refuse("block_mask is not defined for layout TND", where, "give a mask of elements")
        pieces = sequences(views, mask, o.actual_seq_qlen, o.actual_seq_kvlen, where)
    else:
        if o.actual_seq_qlen is not None or o.actual_seq_kvlen is not None:
            _refuse("actual_seq_qlen and actual_seq_kvlen belong to layout TND", where)
        place = (slice(None),) * 4
        pieces = (Piece(*views, mask, block_mask, slice(0, q.length), slice(0, k.length), place),)
    out = Sizes(q.batch, heads, q.length, v.width)
    return Request(layout, out, groups, attrs, blocks, sinks, mask, pieces)


def _kv_heads(
    shape: tuple[int, ...], layout: str, heads: int, width: int, given: int | None, where: str
) -> int:
    """As given, else as the key's shape says."""
    if given is None:
        given = heads
        if len(shape) == len(layout) and "N" in layout:
            given = shape[layout.index("N")]
        elif len(shape) == len(layout) and width and shape[2] % width == 0:
            given = shape[2] // width
        if given < 1:
            _refuse(f"key {shape} has no heads", where)
    groups = _positive(given, "kv_head_num", where)
    if heads % groups:
        _refuse(
            f"{heads} query heads are no multiple of {groups} key and value heads",
            where,
            "each key and value head serves head_num / kv_head_num query heads",
        )
    return groups


def _check_fit(
    q: Sizes, k: Sizes, v: Sizes, shapes: tuple[tuple[int, ...], ...], where: str
) -> None:
    told = f"query {shapes[0]}, key {shapes[1]}, value {shapes[2]}"
    if not q.width:
        _refuse(f"heads have width 0: {told}", where)
    if k.width != q.width:
        _refuse(f"key's heads are {k.width} wide, query's {q.width}: {told}", where)
    if k.length != v.length:
        _refuse(f"{k.length} keys but {v.length} values: {told}", where)
    if k.batch not in (1, q.batch) or v.batch not in (1, q.batch):
        _refuse(f"batches {q.batch}, {k.batch} and {v.batch} do not fit together: {told}", where)


def _blocks(o: Options, where: str) -> Blocks:
    queries = _positive(o.block_size_q, "block_size_q", where)
    keys = _positive(o.block_size_k, "block_size_k", where)
    values = keys if o.block_size_v is None else _positive(o.block_size_v, "block_size_v", where)
    if values != keys:
        _refuse(
            f"block_size_v is {values} and block_size_k {keys}",
            where,
            "a block of values goes with its block of keys: give both the same size, or leave "
            "block_size_v out",
        )
    return Blocks(queries, keys)


def _attributes(o: Options, heads: int, groups: int, width: int, where: str) -> FlashAttention:
    if o.causal_align not in ALIGNMENTS:
        hint = nearest(str(o.causal_align), ALIGNMENTS)
        _refuse(f"causal_align {o.causal_align!r} is not known", where, hint)
    if not isinstance(o.is_causal, bool | np.bool_):
        hint = "causal_align says whether the first or the last query and key are aligned"
        _refuse(f"is_causal must be True or False, found {o.is_causal!r}", where, hint)
    left, right = _window(o.window, where)
    if o.is_causal:
        right = 0 if right < 0 else min(right, 0)
    scale = 1 / math.sqrt(width) if o.scale is None else _finite(o.scale, "scale", where)
    softcap = 0.0 if o.softcap is None else _finite(o.softcap, "softcap", where)
    if softcap < 0:
        _refuse(f"softcap must be positive, or 0 for none; found {softcap}", where)
    align: Any = o.causal_align
    return FlashAttention(scale, heads, groups, softcap, left, right, align, masked_row="zero")


def _window(window: Window, where: str) -> tuple[int, int]:
    """Keys to the left and right, -1 for no bound."""
    if window is None:
        return -1, -1
    sides = (window, window) if isinstance(window, int | np.integer) else window
    hint = "an integer for both sides, or (left, right) with None or -1 for no bound"
    if not isinstance(sides, Sequence) or isinstance(sides, str) or len(sides) != 2:
        _refuse(f"window must be an integer or a pair, found {window!r}", where, hint)
    found = []
    for side in sides:
        if side is not None and (not _whole(side) or side < -1):
            _refuse(f"window {window!r} is none", where, hint)
        found.append(-1 if side is None else min(int(side), _LARGEST))
    return found[0], found[1]


def _positive(value: Any, name: str, where: str) -> int:
    if not _whole(value) or not 1 <= value <= _LARGEST:
        _refuse(f"{name} must be a positive integer, found {value!r}", where)
    return int(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _finite(value: Any, name: str, where: str) -> float:
    found = math.nan
    if _whole(value) or isinstance(value, float | np.floating):
        with suppress(OverflowError):
            found = float(value)
    if not math.isfinite(found):
        _refuse(f"{name} must be a finite number, found {value!r}", where)
    return found


def _refuse(message: str, where: str, hint: str = "") -> NoReturn:
    raise UsageError(message, where=where, hint=hint)
