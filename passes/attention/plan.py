"""What one matched attention is to become, decided before the graph is touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gecompiler.ir.types import DType
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.frame import Frame
from gecompiler.passes.attention.layout import Axis, Layout
from gecompiler.passes.attention.mask_terms import masking_factors, parts, zeroed
from gecompiler.passes.attention.masking import Masking
from gecompiler.passes.attention.masks import MaskPlan, plan_masks
from gecompiler.passes.attention.match import Match
from gecompiler.passes.attention.operands import Link, choose, factors, repeats, widens
from gecompiler.passes.attention.refusal import at
from gecompiler.passes.attention.terms import Multiplier


@dataclass(frozen=True, slots=True)
class Operand:
    """Q, K or V: the value it is read from, and the layout it must be brought to."""

    link: Link
    target: Layout


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything decided about one attention; ``heads`` share ``groups`` KV heads."""

    match: Match
    frame: Frame
    masks: MaskPlan
    dtype: DType
    q: Operand
    k: Operand
    v: Operand
    heads: int
    groups: int
    multipliers: tuple[Multiplier, ...] = ()
    more: tuple[Operand, ...] = ()
    """V of the match's siblings."""


def decide(e: Elements, match: Match) -> Plan:
    """Chooses what Q, K, V and the mask are read from; Refusal when something cannot be had."""
    frame = Frame.of(e, match.batch, match.heads, match.queries, match.keys)
    flags, multipliers = masking_factors(e, frame, match.multipliers)
    on_weights = [zeroed(e, frame, term) for term in match.zeroed]
    masks = plan_masks(
        Masking(
            e,
            frame,
            parts(e, frame, (*match.terms, *flags), match.softcap, e.dtype(match.q[0].value)),
            causal=True if match.causal is None else match.causal(e, frame),
            guarded=match.guarded,
            zeroed=[part for part in on_weights if part.allowed is not True],
            sinks=match.sinks is not None,
        )
    )
    shared = (match.k, match.v, *(s.v for s in match.siblings))
    count = min(repeats(links, match.heads) for links in shared)
    heads = lay.flat(match.heads)
    kv_heads = heads[: len(heads) - count]
    for dtype in dict.fromkeys(_types(e, match)):
        found = _operands(e, match, kv_heads, dtype)
        if found is not None:
            break
    else:
        raise at(match.op, "has Q, K or V of a layout that cannot be brought to (B, heads, S, D)")
    sizes = lay.size(match.heads), lay.size(kv_heads)
    count, groups = (n if isinstance(n, int) else 0 for n in sizes)
    if not count or not groups:
        raise at(match.op, f"has a number of heads that is not known: {sizes[0]}")
    q, k, v, *more = found
    return Plan(match, frame, masks, dtype, q, k, v, count, groups, multipliers, tuple(more))


def _types(e: Elements, match: Match) -> Sequence[DType]:
    """The types to compute in, best first: the result's, else the product's operands'."""
    tried = [match.out_dtype, e.dtype(match.q[0].value), e.dtype(match.v[0].value)]
    return [t for t in tried if t is not None and t.is_float]


def _operands(
    e: Elements, match: Match, kv_heads: Axis, dtype: DType
) -> tuple[Operand, ...] | None:
    """Q, K and V, those of siblings last; None when one cannot be had in this type."""
    batch, rows = match.batch, match.keys
    q = _operand(e, match.q, (batch, match.heads, match.queries, match.width), dtype)
    k = _operand(e, match.k, (batch, kv_heads, rows, match.width), dtype, shared=True)
    values = [(match.v, match.value_width), *((s.v, s.value_width) for s in match.siblings)]
    found = [q, k]
    for links, width in values:
        found.append(_operand(e, links, (batch, kv_heads, rows, width), dtype, shared=True))
    operands = tuple(x for x in found if x is not None)
    return operands if len(operands) == len(found) else None


def _operand(
    e: Elements, links: Sequence[Link], target: Layout, dtype: DType, *, shared: bool = False
) -> Operand | None:
    """The best way to ``target``; with ``shared`` it may lack the batch."""
    for wanted in (target, ((), *target[1:])) if shared else (target,):
        link = choose(e, links, wanted, dtype)
        if link is not None:
            return Operand(link, wanted)
    return _expanded(e, links, target, dtype)


def _expanded(e: Elements, links: Sequence[Link], target: Layout, dtype: DType) -> Operand | None:
    """The operand as the product has it, to be broadcast along the factors it lacks."""
    link, kind = links[0], e.dtype(links[0].value)
    wanted = {f for axis in target for f in lay.flat(axis)}
    if kind is None or not widens(kind, dtype) or not set(factors(link.layout)) < wanted:
        return None
    return Operand(link, target)
