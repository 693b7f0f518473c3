"""Layouts of attention's arrays, named as Ascend names them.

B batch, S sequence, N heads, D width of a head, H = N * D, T all tokens of sequences of various
lengths, one after the other.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError, nearest

LAYOUTS = ("BSND", "BNSD", "BSH", "SBH", "TND")


class Sizes(NamedTuple):
    """Of one array, whatever its layout; of TND the batch is 1 and the length that of all."""

    batch: int
    heads: int
    length: int
    width: int


def layout_named(name: str, where: str) -> str:
    """The layout of that name; UsageError with the nearest for an unknown one."""
    found = str(name).upper()
    if found not in LAYOUTS:
        raise UsageError(
            f"input_layout {name!r} is not known",
            where=where,
            hint=f"{nearest(found, LAYOUTS)} (of {', '.join(LAYOUTS)})",
        )
    return found


def sizes(name: str, shape: tuple[int, ...], layout: str, heads: int, where: str) -> Sizes:
    """The sizes of the array called ``name``, which is to have that many heads."""
    if len(shape) != len(layout):
        _refuse(
            f"{name} must be {len(layout)}D for layout {layout}, found {shape}",
            where,
            f"dims of {layout} are {', '.join(_DIMS[letter] for letter in layout)}",
        )
    dims = dict(zip(layout, shape, strict=True))
    if "N" in dims:
        if dims["N"] != heads:
            _refuse(
                f"{name} has {dims['N']} heads in layout {layout} (shape {shape}), "
                f"expected {heads}",
                where,
                "head_num counts query heads and kv_head_num those of key and value; "
                "or the layout is another one",
            )
        return Sizes(dims.get("B", 1), heads, dims.get("S", dims.get("T", 0)), dims["D"])
    if dims["H"] % heads:
        _refuse(f"{name}'s last dim, {dims['H']}, is no multiple of {heads} heads", where)
    return Sizes(dims["B"], heads, dims["S"], dims["H"] // heads)


def shape_of(layout: str, found: Sizes) -> tuple[int, ...]:
    """The shape of an array of those sizes: the inverse of `sizes`."""
    batch, heads, length, width = found
    dims = {"B": batch, "S": length, "T": length, "N": heads, "D": width, "H": heads * width}
    return tuple(dims[letter] for letter in layout)


def heads_first(array: Array, layout: str, heads: int) -> Array:
    """The array as a view (B, N, S, D)."""
    if layout == "BNSD":
        return array
    if layout == "TND":
        array = array[None]
    if layout in ("BSH", "SBH"):
        array = array.reshape(*array.shape[:2], heads, array.shape[2] // heads)
    if layout == "SBH":
        array = array.swapaxes(0, 1)
    found: Array = array.swapaxes(1, 2)
    return found


_DIMS = {
    "B": "batch",
    "S": "sequence",
    "N": "heads",
    "D": "width of a head",
    "H": "heads times width",
    "T": "tokens of all sequences",
}


def _refuse(message: str, where: str, hint: str = "") -> NoReturn:
    raise UsageError(message, where=where, hint=hint)
