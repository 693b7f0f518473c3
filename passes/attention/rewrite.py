"""Puts one FlashAttention in the place of a matched attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gecompiler.ir.dims import Dim
from gecompiler.ir.errors import GraphError
from gecompiler.ir.flash_attention import FLASH_ATTENTION, FlashAttention
from gecompiler.ir.op import GE_DOMAIN, Op, OpInfo
from gecompiler.ir.types import DType, TensorType
from gecompiler.ir.verify.flash_attention import check_flash_attention
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention import relayout
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.escapes import answers
from gecompiler.passes.attention.layout import Axis, Layout
from gecompiler.passes.attention.mask_emission import emit_mask, in_frame
from gecompiler.passes.attention.masks import MaskPlan
from gecompiler.passes.attention.match import Match
from gecompiler.passes.attention.operands import factors
from gecompiler.passes.attention.plan import Operand, Plan
from gecompiler.passes.attention.refusal import Refusal, at
from gecompiler.passes.attention.sinks import emit_sinks
from gecompiler.passes.attention.terms import Multiplier
from gecompiler.passes.user_marks import difference, shared_marks


@dataclass(frozen=True, slots=True)
class Fused:
    """What was fused: for the report."""

    attrs: FlashAttention
    width: Dim
    value_width: Dim
    plan: MaskPlan
    replaced: tuple[str, ...]
    """The values that have lost all their uses."""


def rewrite(e: Elements, build: Builder, plan: Plan, asking: Sequence[Op]) -> Fused:
    """Emits the fused op and makes everything use it; ``asking`` are ops that ask for shapes."""
    match, graph = plan.match, build.graph
    given = match.op.inputs if match.ops == (match.op,) else ()
    build.sources = (plan.q.link.value, plan.k.link.value, plan.v.link.value, *filter(None, given))
    info = inherited(match.op, match.ops)
    build.info = replace(info, sources=())
    q, k, v = (_emit_operand(build, x, plan.dtype) for x in (plan.q, plan.k, plan.v))
    v = build.scale(v, plan.v.link.factor)
    if match.siblings:
        v = _side_by_side(build, plan, v)
    for multiplier in reversed(plan.multipliers):
        q, k = _multiplied(e, build, plan, (q, k), multiplier)
    mask = emit_mask(e, build, plan.frame, plan.masks)
    if plan.masks.doubled:
        zero = build.constant(np.zeros((1, 1, 1, 1)), plan.dtype, "zero")
        k, v = build.concat((k, build.expand(zero, build.shape(k))), 2), build.concat((v, v), 2)
    sinks = "" if match.sinks is None else emit_sinks(e, build, plan.frame, match.sinks)
    attrs = FlashAttention(
        scale=match.alpha * plan.q.link.factor * plan.k.link.factor,
        q_heads=plan.heads,
        kv_heads=plan.groups,
        softcap=match.softcap,
        window_left=plan.masks.window.left,
        window_right=plan.masks.window.right,
        align=plan.masks.window.align,
        masked_row=plan.masks.masked_row,
    )
    inputs = [q, k, v, mask, sinks]
    while not inputs[-1]:
        inputs.pop()
    widths = (match.value_width, *(s.value_width for s in match.siblings))
    layout = (match.batch, match.heads, match.queries, _joint(widths))
    kind = TensorType(plan.dtype, lay.shape_of(layout))
    stem = f"{build.scope}{FLASH_ATTENTION}"
    out = graph.emit(
        FLASH_ATTENTION, inputs, kind, attrs=attrs.attrs(), domain=GE_DOMAIN, info=info, stem=stem
    )
    _check(build, out, match)
    # Nothing is refused from here on: only now do uses change.
    pairs = [*answers(build, asking), *_results(build, match, out, layout, widths), *match.also]
    replaced = [_replaced(build, before, after) for before, after in pairs]
    value_width = lay.size(layout[3])
    return Fused(attrs, lay.size(match.width), value_width, plan.masks, tuple(replaced))


def _check(build: Builder, out: str, match: Match) -> None:
    """Refuses what is no valid fused op: a scale beyond all numbers, a mask that does not fit."""
    op = build.graph.producer(out)
    assert op is not None
    try:
        check_flash_attention(build.graph, op)
    except GraphError as error:
        raise at(match.op, f"would become an attention that cannot be: {error.message}") from None


def _side_by_side(build: Builder, plan: Plan, v: str) -> str:
    """V of all products with the same probabilities, joined along the width of a head."""
    values = [v]
    for more in plan.more:
        value = _emit_operand(build, more, plan.dtype)
        values.append(build.scale(value, more.link.factor))
    batch = max((build.shape(value)[0] for value in values), key=lambda dim: dim != 1)
    full = [build.expand(value, (batch, *build.shape(value)[1:])) for value in values]
    return build.concat(full, 3)


def _joint(widths: Sequence[Axis]) -> Axis:
    """The axis that has all these behind each other."""
    return widths[0] if len(widths) == 1 else (lay.Factor(sum(map(lay.size, widths), 0)),)


def _results(
    build: Builder, match: Match, out: str, layout: Layout, widths: Sequence[Axis]
) -> list[tuple[str, str]]:
    """Each result with the value that stands for it, from all that the fused op gives."""
    ends = [(match.out, match.out_layout), *((s.out, s.out_layout) for s in match.siblings)]
    parts: Sequence[str] = (out,)
    if len(ends) > 1:
        sizes = [lay.size(width) for width in widths]
        if not all(isinstance(size, int) for size in sizes):
            raise at(match.op, "has several V of a width that is not known")
        parts = build.split(out, 3, [int(str(size)) for size in sizes])
    pairs: list[tuple[str, str]] = []
    for (value, given), part, width in zip(ends, parts, widths, strict=True):
        own = (*layout[:3], width)
        old, wanted = _furthest(build, value, given, own)
        cast = build.cast(part, match.out_dtype)
        pairs.append((old, relayout.relayout(build, cast, own, wanted)))
    return pairs


def _emit_operand(build: Builder, operand: Operand, dtype: DType) -> str:
    link, target = operand.link, operand.target
    missing = [f for f in factors(target) if f not in factors(link.layout)]
    value = build.cast(link.value, dtype)
    if not missing:
        return relayout.relayout(build, value, link.layout, target)
    have = tuple(tuple(f for f in lay.flat(axis) if f not in missing) for axis in target)
    value = relayout.relayout(build, value, link.layout, have)
    if any(have[n] and not lay.same_axis(have[n], target[n]) for n in range(len(target))):
        raise Refusal(f"{link.value!r} repeats within an axis")
    return build.expand(value, lay.shape_of(target))


def _multiplied(
    e: Elements, build: Builder, plan: Plan, pair: tuple[str, str], multiplier: Multiplier
) -> tuple[str, str]:
    """Q and K with a factor per head, query or batch entry on Q, or per key on K."""
    (q, k), shape = pair, e.shape(multiplier.value)
    if shape is None or len(shape) > len(multiplier.layout):
        raise at(multiplier.op, f"has a factor {multiplier.value!r} of unknown shape")
    axes = multiplier.layout[len(multiplier.layout) - len(shape) :]
    layout = tuple(() if d == 1 else a for d, a in zip(shape, axes, strict=True))
    op_type, have = "Div" if multiplier.inverse else "Mul", set(factors(layout))
    if not have & set(lay.flat(plan.frame.keys)):
        value = in_frame(build, multiplier.value, layout, plan.frame)
        return build.binary(op_type, q, build.cast(value, plan.dtype)), k
    target = plan.k.target
    own = {f for axis in target[:3] for f in lay.flat(axis)}
    if not have <= own:
        raise at(
            multiplier.op,
            f"has a factor {multiplier.value!r} that differs from key to key, and among queries or "
            "heads that share keys",
        )
    wanted = tuple(a if set(lay.flat(a)) <= have else () for a in target[:3])
    value = relayout.relayout(build, multiplier.value, layout, (*wanted, ()))
    return q, build.binary(op_type, k, build.cast(value, plan.dtype))


def _replaced(build: Builder, old: str, new: str) -> str:
    """Makes every use of ``old`` read ``new``; returns the name that ``old`` has then."""
    maker = build.graph.producer(old)
    build.graph.replace_uses(old, new)
    # An output's name goes over to what stands for it.
    index = -1 if maker is None else maker.outputs.index(old)
    return old if maker is None else build.graph.op(maker.name).outputs[index]


def _furthest(build: Builder, value: str, current: Layout, layout: Layout) -> tuple[str, Layout]:
    """The value after the result, along views, that is nearest to the fused op's layout."""
    graph = build.graph
    best = (_cost(layout, current), value, current)
    while not graph.is_output(value):
        found = graph.users(value)
        if len(found) != 1 or found[0].domain:
            break
        after = lay.after(graph, found[0], current)
        if after is None:
            break
        value, current = found[0].outputs[0], after
        if _cost(layout, current) < best[0]:
            best = (_cost(layout, current), value, current)
    return best[1], best[2]


def _cost(given: Layout, target: Layout) -> int:
    found = relayout.cost(given, target)
    return 99 if found is None else found


def inherited(op: Op, replaced: Sequence[Op]) -> OpInfo:
    """The info of the fused op: the softmax's, standing for all ops it replaces.

    Refusal where the user marked these differently.
    """
    marks = shared_marks(replaced)
    if marks is None:
        raise Refusal(f"its ops have different marks of the user's: {difference(replaced)}")
    info = op.info
    sources = dict.fromkeys(s for o in replaced for s in (o.info.sources or (o.name,)))
    return OpInfo(info.scope, info.group, *marks, sources=tuple(sources))
