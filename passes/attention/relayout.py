"""Brings a tensor from one layout into another with the fewest views."""

from __future__ import annotations

from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.layout import Axis, Factor, Layout
from gecompiler.passes.attention.refusal import Refusal


def plan(given: Layout, target: Layout) -> tuple[Layout, tuple[int, ...]] | None:
    """How to get there: reshape to the first result, then transpose by the second.

    A last reshape to the target's shape may remain. None when the factors differ.
    """
    given, target = lay.plain(given), lay.plain(target)
    source, wanted = lay.flatten(given), lay.flatten(target)
    if len(source) != len(wanted) or set(source) != set(wanted):
        return None
    if not source or source == wanted:
        return given, tuple(range(len(given)))
    direct = _axis_permutation(given, target)
    if direct is not None:
        return given, direct
    chunks = _chunks(source, wanted, given, target)
    order = sorted(range(len(chunks)), key=lambda n: source.index(chunks[n][0]))
    split = tuple(chunks[n] for n in order)
    return split, tuple(order.index(n) for n in range(len(chunks)))


def cost(given: Layout, target: Layout) -> int | None:
    """How many ops `relayout` emits; None when it cannot."""
    found = plan(given, target)
    if found is None:
        return None
    split, perm = found
    moved = tuple(split[p] for p in perm)
    steps = int(not lay.same(split, lay.plain(given))) + int(list(perm) != sorted(perm))
    return steps + int(not lay.same(moved, lay.plain(target)))


def relayout(build: Builder, value: str, given: Layout, target: Layout) -> str:
    """``value``, whose layout is ``given``, in the layout ``target``; Refusal when impossible."""
    found = plan(given, target)
    if found is None:
        raise Refusal(f"{value!r} does not hold the indices that are needed")
    split, perm = found
    if not lay.same(split, lay.plain(given)):
        value = build.reshape(value, lay.shape_of(split))
    value = build.transpose(value, perm)
    if not lay.same(tuple(split[p] for p in perm), lay.plain(target)):
        value = build.reshape(value, lay.shape_of(target))
    return value


def _axis_permutation(given: Layout, target: Layout) -> tuple[int, ...] | None:
    """The permutation of whole axes that does it, if one does."""
    if len(given) != len(target):
        return None
    left = list(range(len(given)))
    perm: list[int] = []
    for axis in target:
        match = next((n for n in left if lay.same_axis(given[n], axis)), None)
        if match is None:
            return None
        left.remove(match)
        perm.append(match)
    return tuple(perm)


def _chunks(source: Axis, wanted: Axis, given: Layout, target: Layout) -> list[Axis]:
    """The wanted order in the longest pieces that stay whole on the way."""
    position = {f: n for n, f in enumerate(source)}
    ends_target = _ends(target)
    chunks: list[list[Factor]] = []
    for n, factor in enumerate(wanted):
        follows = n > 0 and position[factor] == position[wanted[n - 1]] + 1
        if follows and n not in ends_target:
            chunks[-1].append(factor)
        else:
            chunks.append([factor])
    return [tuple(c) for c in chunks]


def _ends(layout: Layout) -> set[int]:
    """After how many factors each axis ends."""
    found: set[int] = set()
    count = 0
    for axis in layout:
        count += len(lay.flat(axis))
        found.add(count)
    return found
