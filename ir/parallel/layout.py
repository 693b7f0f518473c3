"""How one dim of a tensor lies on the ranks of a mesh.

None is a dim that every rank holds whole; the others nest::

    Split("tp")                                    cut into one run for each rank
    Product(((4, Split("tp")), (8, None)))         heads of 8 lanes, cut by heads
    Segments(((32, Split("tp")), (16, None)))      two runs one after the other, each by itself

What does not divide is still cut: each rank holds the same number, and those past the end hold
copies of the last element. What is computed of a copy is a copy again, so that nothing but a
sum over the dim needs to know (GSPMD, Xu et al. 2021, section 4.1, pads with what must be
masked). ``Split.shared`` lets neighbours hold the same: KV heads that are fewer than the ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Union

import numpy as np

from gecompiler.ir.constants import Array
from gecompiler.ir.errors import UsageError
from gecompiler.ir.parallel.mesh import Mesh


@dataclass(frozen=True, slots=True)
class Split:
    """A dim cut over axes of the mesh (``tp``, ``dp+sp``).

    The rank at place p of its group holds ``held`` elements from ``p // shared * held`` on; 0
    stands for the dim's size divided by the ranks, rounded up.
    """

    axes: str
    held: int = 0
    shared: int = 1

    def count(self, size: int, mesh: Mesh) -> int:
        """How many elements a rank holds."""
        return self.held or -(-size // mesh.axis_size(self.axes))


@dataclass(frozen=True, slots=True)
class Product:
    """A dim that is several in row-major order, each with its size and its own layout."""

    factors: tuple[tuple[int, Layout], ...]


@dataclass(frozen=True, slots=True)
class Segments:
    """A dim that is several runs one after the other, each with its size and its own layout."""

    parts: tuple[tuple[int, Layout], ...]


Layout = Union[Split, Product, Segments, None]
Factors = tuple[tuple[int, Layout], ...]


def factors_of(layout: Layout, size: int) -> Factors:
    """The dim as factors: one, unless it is a `Product`."""
    return layout.factors if isinstance(layout, Product) else ((size, layout),)


def product_of(factors: Iterable[tuple[int, Layout]]) -> Layout:
    """The dim that consists of those factors, in its one normal form.

    Whole neighbours are one; factors of size 1 are nothing.
    """
    flat: list[tuple[int, Layout]] = []
    for size, layout in factors:
        for inner, sub in factors_of(layout, size):
            if inner == 1:
                continue
            if sub is None and flat and flat[-1][1] is None:
                flat[-1] = (flat[-1][0] * inner, None)
            else:
                flat.append((inner, sub))
    if not flat:
        return None
    return flat[0][1] if len(flat) == 1 else Product(tuple(flat))


def segments_of(parts: Iterable[tuple[int, Layout]]) -> Layout:
    """The dim that consists of those runs: whole when all are."""
    found = tuple((size, layout) for size, layout in parts if size)
    if all(layout is None for _, layout in found):
        return None
    return found[0][1] if len(found) == 1 else Segments(found)


def splits_in(layout: Layout) -> Iterator[Split]:
    """All cuts of a dim."""
    if isinstance(layout, Split):
        yield layout
    elif isinstance(layout, Product):
        for _, sub in layout.factors:
            yield from splits_in(sub)
    elif isinstance(layout, Segments):
        for _, sub in layout.parts:
            yield from splits_in(sub)


def axes_in(layout: Layout) -> tuple[str, ...]:
    """The mesh axes that a dim is cut over, each once."""
    return tuple(dict.fromkeys(a for split in splits_in(layout) for a in split.axes.split("+")))


@lru_cache(maxsize=65536)
def local_size(layout: Layout, size: int, mesh: Mesh) -> int:
    """How many elements of a dim of that size a rank holds; UsageError when sizes disagree."""
    if layout is None:
        return size
    if isinstance(layout, Split):
        return layout.count(size, mesh)
    if isinstance(layout, Product):
        _agree(math.prod(n for n, _ in layout.factors), size)
        return math.prod(local_size(sub, n, mesh) for n, sub in layout.factors)
    _agree(sum(n for n, _ in layout.parts), size)
    return sum(local_size(sub, n, mesh) for n, sub in layout.parts)


def without(layout: Layout, size: int, axes: str, mesh: Mesh) -> Layout:
    """The dim as the ranks of a group along those axes hold it together; all of it, if no such.

    What is cut over ``dp+ep`` they hold, along ``ep``, as it is cut over ``dp``.
    """
    gone = set(axes.split("+"))
    if not gone & set(axes_in(layout)):
        return layout
    if isinstance(layout, Split):
        names = layout.axes.split("+")
        kept = [name for name in names if name not in gone]
        if not kept or kept != names[: len(kept)] or not is_exact(layout, size, mesh):
            return None
        return Split("+".join(kept))
    parts = layout.factors if isinstance(layout, Product) else layout.parts if layout else ()
    inner = tuple((n, without(sub, n, axes, mesh)) for n, sub in parts)
    return product_of(inner) if isinstance(layout, Product) else segments_of(inner)


def held_indices(layout: Layout, size: int, mesh: Mesh, rank: int) -> Array:
    """Which elements the rank holds, in order (int64); those past the end as the last."""
    if layout is None:
        return np.arange(size)
    if isinstance(layout, Split):
        count = layout.count(size, mesh)
        first = mesh.place(layout.axes, rank) // layout.shared * count
        return np.minimum(np.arange(first, first + count), max(size - 1, 0))
    if isinstance(layout, Product):
        found = np.zeros(1, np.int64)
        for n, sub in layout.factors:
            inner = held_indices(sub, n, mesh, rank)
            found = (found[:, None] * n + inner[None, :]).reshape(-1)
        return found
    runs, start = [], 0
    for n, sub in layout.parts:
        runs.append(start + held_indices(sub, n, mesh, rank))
        start += n
    return np.concatenate(runs)


def held_first(layout: Layout, size: int, mesh: Mesh, rank: int) -> Array:
    """Of the elements the rank holds, which are no copy of another: bool, aligned with them.

    Over the ranks of the groups that the dim is cut over, each element is no copy just once.
    """
    if layout is None:
        return np.ones(size, bool)
    if isinstance(layout, Split):
        count = layout.count(size, mesh)
        turn, copy = divmod(mesh.place(layout.axes, rank), layout.shared)
        fresh: Array = np.arange(turn * count, (turn + 1) * count) < size
        return fresh & (copy == 0)
    if isinstance(layout, Product):
        found = np.ones(1, bool)
        for n, sub in layout.factors:
            inner = held_first(sub, n, mesh, rank)
            found = (found[:, None] & inner[None, :]).reshape(-1)
        return found
    every, runs = axes_in(layout), []
    for n, sub in layout.parts:  # a run that is not cut over an axis is a copy on its later ranks
        uncut = [axis for axis in every if axis not in axes_in(sub)]
        first = not any(mesh.place(axis, rank) for axis in uncut)
        runs.append(held_first(sub, n, mesh, rank) & first)
    return np.concatenate(runs)


@lru_cache(maxsize=65536)
def is_exact(layout: Layout, size: int, mesh: Mesh) -> bool:
    """Whether no element is held twice within the groups that the dim is cut over."""
    if layout is None:
        return True
    if isinstance(layout, Split):
        ranks = mesh.axis_size(layout.axes)
        return layout.shared == 1 and layout.count(size, mesh) * ranks == size
    if isinstance(layout, Product):
        return all(is_exact(sub, n, mesh) for n, sub in layout.factors)
    axes = set(axes_in(layout))
    return all(set(axes_in(s)) == axes and is_exact(s, n, mesh) for n, s in layout.parts)


def describe(layout: Layout) -> str:
    """A dim for people: ``tp``, ``4:tp * 8``, ``[32:tp | 16]``, ``tp/2`` where two share."""
    if layout is None:
        return "."
    if isinstance(layout, Split):
        return layout.axes + (f"/{layout.shared}" if layout.shared > 1 else "")
    if isinstance(layout, Product):
        return " * ".join(_described(n, sub) for n, sub in layout.factors)
    return "[" + " | ".join(_described(n, sub) for n, sub in layout.parts) + "]"


def _described(size: int, layout: Layout) -> str:
    return str(size) if layout is None else f"{size}:{describe(layout)}"


def _agree(found: int, size: int) -> None:
    if found != size:
        raise UsageError(f"a layout for {found} elements on a dim of {size}", where="sharding")
