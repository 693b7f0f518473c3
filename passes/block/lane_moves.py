"""Ops that move lanes: what they do to an array of the shape of a value's trailing axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Union

import numpy as np
from numpy.typing import NDArray

from gecompiler.ir.op import Op
from gecompiler.ir.types import Shape
from gecompiler.passes import op_params
from gecompiler.passes.rewriting import Rewriter

Ints = NDArray[np.int32]
MAX_MOVED = 1 << 16
"""Most numbers of one array that is moved: a model may say that a tensor is of any size."""

Apply = Callable[[Sequence[Ints], int], Union[Ints, None]]


@dataclass(frozen=True, slots=True)
class Move:
    """A move of ``inputs``: ``apply(arrays, tail)`` moves an array for each of them.

    Arrays may have axes before their ``tail`` trailing ones, which stay. None: the op moves
    more than the tail.
    """

    inputs: tuple[str, ...]
    apply: Apply


def move_of(
    r: Rewriter, op: Op, value: str, *, deep: bool = False, loose: bool = False
) -> Move | None:
    """The move that makes ``value``, None when the op is none of the last axes.

    ``deep``: a reshape that splits the last axis is one too where it makes no pairs. ``loose``:
    ones may come and go among the axes before the tail, as they do in what broadcasts.
    """
    rule = _MOVES.get(op.op_type) if not op.domain else None
    shape, source = r.facts.shape(value), r.facts.shape(op.inputs[0]) if op.inputs else None
    if rule is None or not shape or not source:
        return None
    if not deep and splits_an_axis(op, source, shape):
        return None
    if loose and rule in (_reshape, _transpose) and _keeps_order(r, op, source):
        return _loose_reshape(op, source, shape)
    return rule(r, op, value, source, shape)


def splits_an_axis(op: Op, source: Shape, shape: Shape) -> bool:
    """Whether a reshape splits axes other than into pairs: into heads, most likely."""
    return op.op_type == "Reshape" and len(shape) > len(source) and shape[-1] != 2


def _keeps_order(r: Rewriter, op: Op, source: Shape) -> bool:
    """Whether the elements stay in order: always, but for a transposition of more than ones."""
    if op.op_type != "Transpose":
        return True
    perm = op_params.perm(r, op)
    moved = [p for p in perm if source[p] != 1] if perm is not None else [1, 0]
    return moved == sorted(moved)


def _loose_reshape(op: Op, source: Shape, shape: Shape) -> Move:
    def apply(arrays: Sequence[Ints], tail: int) -> Ints | None:
        array, before = arrays[0], _without_ones(source[: len(source) - tail])
        count = prod(array.shape[array.ndim - tail :])
        for lead in range(len(shape) - 1, -1, -1):
            after = [d for d in shape[lead:] if isinstance(d, int)]
            whole = len(after) == len(shape) - lead and prod(after) == count
            if whole and _without_ones(shape[:lead]) == before:
                return array.reshape(*array.shape[: array.ndim - tail], *after)
        return None

    return Move(op.inputs[:1], apply)


def _without_ones(dims: Shape) -> Shape:
    return tuple(d for d in dims if d != 1)


def _split(r: Rewriter, op: Op, value: str, source: Shape, shape: Shape) -> Move | None:
    axis = op.attr("axis", 0) % len(source) - len(source)
    sizes = [(r.facts.shape(v) or (None,) * len(source))[axis] for v in op.outputs]
    known = [s for s in sizes if isinstance(s, int)]
    if len(known) != len(sizes):
        return None
    at = op.outputs.index(value)
    return _cut(op, axis, slice(sum(known[:at]), sum(known[: at + 1])))


def _cut(op: Op, axis: int, part: slice) -> Move:
    def apply(arrays: Sequence[Ints], tail: int) -> Ints | None:
        if -axis > tail:
            return None
        return _along(arrays[0], axis, part)

    return Move(op.inputs[:1], apply)


def _along(array: Ints, axis: int, part: slice) -> Ints:
    """A part of one axis, which is counted from the end."""
    index: tuple[slice, ...] = (slice(None),) * array.ndim
    return array[(*index[:axis], part, *index[array.ndim + axis + 1 :])]


def _slice(r: Rewriter, op: Op, value: str, source: Shape, shape: Shape) -> Move | None:
    parts = op_params.slice_axes(r, op)
    if parts is None:
        return None
    cuts: list[tuple[int, slice]] = []
    for part in parts:
        if not isinstance(part.start, int) or not isinstance(part.stop, int):
            return None
        cuts.append((part.axis - len(source), _python_slice(part.start, part.stop, part.step)))

    def apply(arrays: Sequence[Ints], tail: int) -> Ints | None:
        array = arrays[0]
        for axis, cut in cuts:
            if -axis > tail:
                return None
            array = _along(array, axis, cut)
        return array

    return Move(op.inputs[:1], apply)


def _python_slice(start: int, stop: int, step: int) -> slice:
    """ONNX's slice as Python's: a stop far below 0 means that a backward slice has no end."""
    return slice(start, None if step < 0 and stop < -(1 << 30) else stop, step)


def _gather(r: Rewriter, op: Op, value: str, source: Shape, shape: Shape) -> Move | None:
    indices = r.facts.array(op.inputs[1])
    if indices is None or indices.ndim > 1:
        return None
    axis = op.attr("axis", 0) % len(source) - len(source)
    size = source[axis]
    if not isinstance(size, int):
        return None
    places = np.where(indices < 0, indices + size, indices)

    def apply(arrays: Sequence[Ints], tail: int) -> Ints | None:
        # An axis that vanishes must leave one: the lanes are those of the last axis.
        if -axis > tail or (places.ndim == 0 and tail < 2):
            return None
        if arrays[0].size // max(1, size) * places.size > MAX_MOVED:
            return None
        return np.take(arrays[0], places, axis=axis)

    return Move(op.inputs[:1], apply)


def _concat(r: Rewriter, op: Op, value: str, source: Shape, shape: Shape) -> Move | None:
    axis = op.attr("axis", 0) % len(shape) - len(shape)

    def apply(arrays: Sequence[Ints], tail: int) -> Ints | None:
        if -axis > tail or sum(a.size for a in arrays) > MAX_MOVED:
            return None
        rest = {a.shape[:axis] + a.shape[a.ndim + axis + 1 :] for a in arrays}
        return np.concatenate(arrays, axis=axis) if len(rest) == 1 else None

    return Move(op.inputs, apply)


def _reshape(r: Rewriter, op: Op, value: str, source: Shape, shape: Shape) -> Move | None:
    def apply(arrays: Sequence[Ints], tail: int) -> Ints | None:
        lead = len(source) - tail
        after = [d for d in shape[lead:] if isinstance(d, int)]
        whole = len(after) == len(shape) - lead > 0
        array = arrays[0]
        front = array.shape[: array.ndim - tail]
        if shape[:lead] != source[:lead] or not whole or prod(after) != prod(array.shape[-tail:]):
            return None
        return array.reshape(*front, *after)

    return Move(op.inputs[:1], apply)


def _transpose(r: Rewriter, op: Op, value: str, source: Shape, shape: Shape) -> Move | None:
    perm = op_params.perm(r, op)
    if perm is None:
        return None

    def apply(arrays: Sequence[Ints], tail: int) -> Ints | None:
        lead = len(source) - tail
        if perm[:lead] != tuple(range(lead)):
            return None
        array = arrays[0]
        front = array.ndim - tail
        return array.transpose(*range(front), *(p - lead + front for p in perm[lead:]))

    return Move(op.inputs[:1], apply)


def _expand(r: Rewriter, op: Op, value: str, source: Shape, shape: Shape) -> Move | None:
    """Expand and Tile: copies of the last axes beside one another."""
    repeats = r.facts.ints(op.inputs[1]) if op.op_type == "Tile" else None
    if len(shape) != len(source) or (op.op_type == "Tile" and repeats is None):
        return None

    def apply(arrays: Sequence[Ints], tail: int) -> Ints | None:
        lead, array = len(source) - tail, arrays[0]
        after = [d for d in shape[lead:] if isinstance(d, int)]
        copies = array.size // max(1, prod(array.shape[array.ndim - tail :])) * prod(after)
        if shape[:lead] != source[:lead] or len(after) != tail or copies > MAX_MOVED:
            return None
        if repeats is not None:
            return np.tile(array, (*(1,) * (array.ndim - tail), *repeats[lead:]))
        return np.broadcast_to(array, (*array.shape[: array.ndim - tail], *after))

    return Move(op.inputs[:1], apply)


def _identity(r: Rewriter, op: Op, value: str, source: Shape, shape: Shape) -> Move | None:
    return Move(op.inputs[:1], lambda arrays, tail: arrays[0])


_MOVES: Mapping[str, Callable[[Rewriter, Op, str, Shape, Shape], Move | None]] = {
    "Concat": _concat,
    "Expand": _expand,
    "Flatten": _reshape,
    "Gather": _gather,
    "Identity": _identity,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _reshape,
    "Tile": _expand,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}
"""Ops that may move lanes."""
