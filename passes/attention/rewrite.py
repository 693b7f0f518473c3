"""Puts one FlashAttention in the place of a matched attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


from gecompiler.ir.dims import Dim
from gecompiler.ir.flash_attention import FLASH_ATTENTION, FlashAttention
from gecompiler.ir.op import GE_DOMAIN, Op, OpInfo
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention import relayout
from gecompiler.passes.attention.anchors import users
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.escapes import rescue_shapes
from gecompiler.passes.attention.frame import Frame
from gecompiler.passes.attention.layout import Axis, Layout
from gecompiler.passes.attention.mask_emission import emit_mask, in_frame
from gecompiler.passes.attention.mask_terms import parts
from gecompiler.passes.attention.masks import MaskPlan, plan_masks
from gecompiler.passes.attention.match import Match
from gecompiler.passes.attention.operands import Link, choose, factors, repeats, widens
from gecompiler.passes.attention.refusal import Refusal, at
from gecompiler.passes.attention.scores import Multiplier
from gecompiler.passes.attention.sinks import emit_sinks


@dataclass(frozen=True, slots=True)
class Fused:
    """What was fused: for the report."""

    attrs: FlashAttention
    width: Dim
    value_width: Dim
    plan: MaskPlan
    keys: Link
    values: Link


@dataclass
class Plan:
    """Everything decided about one attention before the graph is touched."""

    match: Match
    frame: Frame
    masks: MaskPlan
    kv_heads: Axis
    dtype: DType
    q: Link
    k: Link
    v: Link
    q_target: Layout
    k_target: Layout
    v_target: Layout
    heads: int
    groups: int
    multipliers: list[Multiplier] = field(default_factory=list)


def decide(e: Elements, match: Match) -> Plan:
    """Chooses what Q, K, V and the mask are read from; Refusal when something cannot be had."""
    frame = Frame.of(e, match.batch, match.heads, match.queries, match.keys)
    masks = plan_masks(
        e,
        frame,
        parts(e, frame, match.terms, match.softcap),
        causal=True if match.causal is None else match.causal(e, frame),
        guarded=match.guarded,
        sinks=match.sinks is not None,
    )
    count = min(repeats(match.k, match.heads), repeats(match.v, match.heads))
    heads = lay.flat(match.heads)
    kv_heads = heads[: len(heads) - count]
    for dtype in dict.fromkeys(_types(e, match)):
        found = _operands(e, match, kv_heads, dtype)
        if found is not None:
            break
    else:
        raise at(match.op, "has Q, K or V of a layout that cannot be brought to (B, heads, S, D)")
    sizes = [lay.size(match.heads), lay.size(kv_heads)]
    numbers = [n for n in sizes if isinstance(n, int)]
    if len(numbers) < 2:
        raise at(match.op, f"has a number of heads that is not known: {sizes[0]}")
    return Plan(
        match,
        frame,
        masks,
        kv_heads,
        dtype,
        *(link for link, _ in found),
        *(target for _, target in found),
        heads=numbers[0],
        groups=numbers[1],
    )


def _types(e: Elements, match: Match) -> Sequence[DType]:
    """The types to compute in, best first: the result's, else the product's operands'."""
    tried = [match.out_dtype, e.dtype(match.q[0].value), e.dtype(match.v[0].value)]
    return [t for t in tried if t is not None and t.is_float]


def _operands(
    e: Elements, match: Match, kv_heads: Axis, dtype: DType
) -> tuple[tuple[Link, Layout], ...] | None:
    """The link and the layout wanted, of each of Q, K and V."""
    wanted = (
        (match.q, match.heads, match.queries, match.width),
        (match.k, kv_heads, match.keys, match.width),
        (match.v, kv_heads, match.keys, match.value_width),
    )
    found: list[tuple[Link, Layout]] = []
    for links, heads, rows, width in wanted:
        own = links is match.q
        for batch in (match.batch,) if own else (match.batch, ()):
            target = (batch, heads, rows, width)
            link = choose(e, links, target, dtype)
            if link is not None:
                found.append((link, target))
                break
        else:
            grown = _expanded(e, links, (match.batch, heads, rows, width), dtype)
            if grown is None:
                return None
            found.append(grown)
    return tuple(found)


def _expanded(
    e: Elements, links: Sequence[Link], target: Layout, dtype: DType
) -> tuple[Link, Layout] | None:
    """The operand as the product has it, to be broadcast along the factors it lacks."""
    link, kind = links[0], e.dtype(links[0].value)
    wanted = {f for axis in target for f in lay.flat(axis)}
    if kind is None or not widens(kind, dtype) or not set(factors(link.layout)) < wanted:
        return None
    return link, target


# ---------------------------------------------------------------- emission


def rewrite(e: Elements, build: Builder, plan: Plan, asking: Sequence[Op]) -> Fused:
    """Emits the fused op and makes everything use it; ``asking`` are ops that ask for shapes."""
    match, graph = plan.match, build.graph
    build.sources = (plan.q.value, plan.k.value, plan.v.value)
    q = _emit_operand(build, plan.q, plan.q_target, plan.dtype)
    k = _emit_operand(build, plan.k, plan.k_target, plan.dtype)
    v = _emit_operand(build, plan.v, plan.v_target, plan.dtype)
    if plan.v.factor != 1:
        v = build.scale(v, plan.v.factor)
    for multiplier in reversed(match.multipliers):
        q = _multiplied(e, build, plan, q, multiplier)
    mask = emit_mask(e, build, plan.frame, plan.masks)
    sinks = "" if match.sinks is None else emit_sinks(e, build, plan.frame, match.sinks)
    attrs = FlashAttention(
        scale=match.alpha * plan.q.factor * plan.k.factor,
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
    layout = (match.batch, match.heads, match.queries, match.value_width)
    kind = TensorType(plan.dtype, lay.shape_of(layout))
    stem = f"{build.scope}{FLASH_ATTENTION}"
    out = graph.emit(
        FLASH_ATTENTION, inputs, kind, attrs=attrs.attrs(), domain=GE_DOMAIN, info=build.info, stem=stem
    )
    rescue_shapes(build, asking)
    _replace(build, match, out, layout)
    for old, new in match.also:
        graph.replace_uses(old, new)
    width, value_width = lay.size(match.width), lay.size(match.value_width)
    return Fused(attrs, width, value_width, plan.masks, plan.k, plan.v)


def _emit_operand(build: Builder, link: Link, target: Layout, dtype: DType) -> str:
    missing = [f for f in factors(target) if f not in factors(link.layout)]
    value = build.cast(link.value, dtype)
    if not missing:
        return relayout.relayout(build, value, link.layout, target)
    have = tuple(tuple(f for f in lay.flat(axis) if f not in missing) for axis in target)
    value = relayout.relayout(build, value, link.layout, have)
    if any(have[n] and not lay.same_axis(have[n], target[n]) for n in range(len(target))):
        raise Refusal(f"{link.value!r} repeats within an axis")
    return build.expand(value, lay.shape_of(target))


def _multiplied(e: Elements, build: Builder, plan: Plan, q: str, multiplier: Multiplier) -> str:
    """Q times a factor per head, query or batch entry: what multiplies scores multiplies Q."""
    shape = e.shape(multiplier.value)
    if shape is None or len(shape) > len(multiplier.layout):
        raise Refusal(f"the factor {multiplier.value!r} is of unknown shape")
    axes = multiplier.layout[len(multiplier.layout) - len(shape) :]
    layout = tuple(() if d == 1 else a for d, a in zip(shape, axes, strict=True))
    if set(factors(layout)) & set(lay.flat(plan.frame.keys)):
        raise Refusal(f"the factor {multiplier.value!r} differs from key to key")
    value = in_frame(build, multiplier.value, layout, plan.frame)
    return build.binary("Div" if multiplier.inverse else "Mul", q, build.cast(value, plan.dtype))


def _replace(build: Builder, match: Match, out: str, layout: Layout) -> None:
    """Makes the users of the result read the fused op's, skipping views that undo each other."""
    graph = build.graph
    value, wanted = _furthest(build, match, layout)
    new = relayout.relayout(build, build.cast(out, match.out_dtype), layout, wanted)
    graph.replace_uses(value, new)


def _furthest(build: Builder, match: Match, layout: Layout) -> tuple[str, Layout]:
    """The value after the result, along views, that is nearest to the fused op's layout."""
    graph = build.graph
    value, current = match.out, match.out_layout
    best = (_cost(layout, current), value, current)
    while not graph.is_output(value):
        found = users(graph, value)
        if len(found) != 1 or len(graph.users(value)) != 1 or found[0].domain:
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
    """The info of the fused op: the softmax's, standing for all ops it replaces."""
    info = op.info
    sources = dict.fromkeys(s for o in replaced for s in (o.info.sources or (o.name,)))
    label = next((o.info.label for o in replaced if o.info.label is not None), None)
    return OpInfo(
        scope=info.scope,
        group=info.group,
        label=label,
        priority=max(o.info.priority for o in replaced),
        cube_cores=info.cube_cores,
        vector_cores=info.vector_cores,
        sources=tuple(sources),
    )


