"""The mask input of the fused op: the smallest tensor that says what attributes do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gecompiler.ir.dims import Dim
from gecompiler.ir.types import DType, Shape
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.frame import Frame
from gecompiler.passes.attention.layout import Layout
from gecompiler.passes.attention.limits import limits
from gecompiler.passes.attention.magnitudes import magnitude
from gecompiler.passes.attention.mask_terms import Part, kept_layout
from gecompiler.passes.attention.masks import MaskPlan
from gecompiler.passes.attention.predicate_emission import emit_predicate
from gecompiler.passes.attention.predicates import Lookup, Predicate
from gecompiler.passes.attention.refusal import Refusal
from gecompiler.passes.attention.relayout import relayout
from gecompiler.passes.attention.terms import Bias, Overwrite

SWALLOWING = -limits(DType.F32).swallowing
"""Stands for a number that replaces scores, in a float32 sum: any score added to it is lost."""


def emit_mask(e: Elements, build: Builder, frame: Frame, plan: MaskPlan) -> str:
    """The name of the mask, which broadcasts to (B, H, S, T); ``""`` for none."""
    if plan.doubled:
        return _doubled(e, build, frame, plan.terms)
    mask = _conjunction(e, build, frame, plan) if plan.conditions or not plan.terms else ""
    if not plan.terms:
        return mask
    total = _float_mask(e, build, frame, plan.terms)
    found = [mask] if mask else [emit_predicate(e, build, frame, c) for c in plan.beside]
    for value in found:
        total = build.where(value, total, _number(build, -math.inf, build.dtype(total)))
    return total


def _conjunction(e: Elements, build: Builder, frame: Frame, plan: MaskPlan) -> str:
    """All conditions as one boolean mask, ``""`` for none."""
    if not plan.conditions:
        return ""
    found = [_lookup(e, build, frame, c) for c in plan.conditions]
    if any(value is None for value in found):
        found = [_from_part(e, build, frame, p) for p in plan.parts]
        found += [emit_predicate(e, build, frame, c) for c in plan.beside]
    mask = ""
    for value in found:
        assert value is not None
        mask = build.binary("And", mask, value) if mask else value
    return mask


# ---------------------------------------------------------------- boolean


def _lookup(e: Elements, build: Builder, frame: Frame, condition: Predicate) -> str | None:
    """A tensor of the truth of one lookup, or None when no value of the right size holds it."""
    if not isinstance(condition, Lookup):
        return None
    value, coords, positive = condition.witness or (condition.value, condition.coords, True)
    shape = e.shape(value)
    if shape is None or len(shape) != len(coords):
        return None
    layout: list[lay.Axis] = []
    for dim, coord in zip(shape, coords, strict=True):
        axis = frame.axis_of(coord)
        if axis is None or (dim != lay.size(axis) and not e.agree(dim, lay.size(axis))):
            return None
        layout.append(axis)
    truth = value if e.dtype(value) is DType.BOOL else build.cast(value, DType.BOOL)
    mask = in_frame(build, truth, tuple(layout), frame)
    return mask if positive == condition.positive else build.unary("Not", mask)


def _from_part(e: Elements, build: Builder, frame: Frame, part: Part) -> str:
    """The truth of a whole mask, from the tensor the model has."""
    term = part.term
    value = _tensor(e, build, frame, part)
    if isinstance(term, Overwrite):
        return value if term.keep else build.unary("Not", value)
    low = part.sentinel / 2 if math.isfinite(part.sentinel) else -1.0
    threshold = (part.passing + low) / term.factor
    bound = build.constant(np.array(threshold), build.dtype(value), "threshold")
    return build.binary("Greater" if term.factor > 0 else "Less", value, bound, DType.BOOL)


# ---------------------------------------------------------------- float


def _doubled(e: Elements, build: Builder, frame: Frame, terms: Sequence[Part]) -> str:
    """(B, H, S, 2T): what is added to scores, then the numbers that stand in their place.

    Each key is -inf in one half or the other. Numbers are summed in the types the model has.
    """
    biases = [part for part in terms if isinstance(part.term, Bias)]
    number, gone = "", ""
    for part in terms:
        value, term = _tensor(e, build, frame, part), part.term
        dtype = term.dtypes[0]
        if isinstance(term, Overwrite):
            here = build.unary("Not", value) if term.keep else value
            new = _in_place(e, build, frame, part)
            number = build.where(here, new, build.cast(number, dtype)) if number else new
            gone = build.binary("Or", gone, here) if gone else here
        elif number:
            added = build.scale(build.cast(value, dtype), term.factor)
            number = build.binary("Add", build.cast(number, dtype), added)
    kept = _float_mask(e, build, frame, biases) if biases else _number(build, 0.0, DType.F32)
    kept, number = build.cast(kept, DType.F32), build.cast(number, DType.F32)
    outside = _number(build, -math.inf, DType.F32)
    halves = [build.where(gone, outside, kept), build.where(gone, number, outside)]
    shape = _common_shape(build, halves, frame)
    return build.concat([build.expand(half, shape) for half in halves], 3)


def _in_place(e: Elements, build: Builder, frame: Frame, part: Part) -> str:
    """What stands in place of the scores: a number, or a tensor."""
    term = part.term
    assert isinstance(term, Overwrite)
    dtype = term.dtypes[0]
    if not term.other:
        return _number(build, part.sentinel, dtype)
    value = _tensor(e, build, frame, replace(part, value=term.other))
    return build.scale(build.cast(value, dtype), term.sentinel)


def _common_shape(build: Builder, values: Sequence[str], frame: Frame) -> Shape:
    """The shape that the values broadcast to together, with all keys."""
    found: list[Dim] = [1, 1, 1, frame.sizes[3]]
    for value in values:
        shape = build.shape(value)
        shape = (1,) * (4 - len(shape)) + shape
        found = [b if a == 1 else a for a, b in zip(found, shape, strict=True)]
    return tuple(found)


def _float_mask(e: Elements, build: Builder, frame: Frame, terms: Sequence[Part]) -> str:
    """The sum of all terms as the model adds them, innermost first, masks overwriting."""
    total, dtype = "", _common_type(e, terms)
    for n, part in enumerate(terms):
        value, term = _tensor(e, build, frame, part), part.term
        if isinstance(term, Bias):
            value = build.scale(build.cast(value, dtype), term.factor)
            total = build.binary("Add", total, value) if total else value
        else:
            total = total or build.constant(np.array(0.0), dtype, "zero")
            lowest = _number(build, part.sentinel if part.absorbs else SWALLOWING, dtype)
            yes, no = (total, lowest) if term.keep else (lowest, total)
            total = build.where(value, yes, no)
        last = n + 1 == len(terms) or terms[n + 1].term.floor != term.floor
        if term.floor is not None and last:
            total = build.binary("Max", total, _number(build, term.floor, dtype))
    return _widened(build, total) if _may_swallow_half(e, terms) else total


def _number(build: Builder, number: float, dtype: DType) -> str:
    with np.errstate(over="ignore"):
        return build.constant(np.array(number), dtype, "sentinel")


def _common_type(e: Elements, terms: Sequence[Part]) -> DType:
    """The type sums are made in: float32 as soon as there are several of a narrower one.

    Sums of float16 that may overflow or swallow scores are made as the model makes them.
    """
    if _may_swallow_half(e, terms):
        return DType.F16
    types = [e.dtype(p.value) for p in terms if isinstance(p.term, Bias)]
    known = [t for t in types if t is not None]
    if len(terms) == 1 and known:
        return known[0]
    return DType.F64 if DType.F64 in known else DType.F32


def _may_swallow_half(e: Elements, terms: Sequence[Part]) -> bool:
    """Whether the model adds in float16 what may be so large there that scores are lost."""
    half = limits(DType.F16)
    if any(p.term.dtypes[0] is not DType.F16 for p in terms):
        return False
    total = 0.0
    for part in terms:
        if isinstance(part.term, Overwrite):
            return True
        total += magnitude(e, part.value) * abs(part.term.factor)
    return not total < half.swallowing


def _widened(build: Builder, value: str) -> str:
    """A float16 sum in float32, where attention adds it, with what swallows doing so there, too."""
    wide, half = build.cast(value, DType.F32), limits(DType.F16)
    bound = build.constant(np.array(half.swallowing), DType.F32, "swallowing")
    large = build.unary("Not", build.binary("Less", build.unary("Abs", wide), bound, DType.BOOL))
    return build.where(large, build.scale(wide, -SWALLOWING / half.swallowing), wide)


def _tensor(e: Elements, build: Builder, frame: Frame, part: Part) -> str:
    """A part's tensor with the axes of the frame, broadcast only where it has to be."""
    layout = kept_layout(e, part)
    if layout is None:
        raise Refusal(f"the mask {part.value!r} has a size that may broadcast")
    value = part.value
    if not all(frame.holds_whole(axis) for axis in layout):
        value = build.expand(value, lay.shape_of(part.layout))
        layout = part.layout
    if isinstance(part.term, Overwrite) and part.value == part.term.condition:
        value = build.cast(value, DType.BOOL)  # where a mask of ones and zeros multiplies
    return in_frame(build, value, layout, frame)


def in_frame(build: Builder, value: str, layout: Layout, frame: Frame) -> str:
    """The value with axes (B, H, S, T), those it does not have being 1; as it is if it fits."""
    have = {f for axis in layout for f in lay.flat(axis)}
    target = tuple(
        axis if lay.flat(axis) and set(lay.flat(axis)) <= have else () for axis in frame.axes
    )
    padded = ((),) * (4 - len(layout)) + layout
    if len(layout) <= 4 and lay.same(padded, target):
        return value
    return relayout(build, value, layout, target)
