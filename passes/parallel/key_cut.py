"""Keys and values that a cache holds, cut over the ranks: context parallel for decoding.

A decode step has few queries and many keys, most of them from a cache. Each rank then holds its
part of the cache; all queries meet it there, and what they find is put together (`key_parts`).

Who holds what: the cached keys are cut, a run for each rank. The new ones, which every rank
makes, lie behind the run of every rank; the first rank of the group counts them. So ``present``
is (past / ranks + new) keys long on each rank, and the ranks' shapes are equal.

Tokens that are many are cut themselves: each rank then has rows enough to keep its matrix unit
busy, and shares of all layers, not of attention alone.

Source: context parallelism of decoding in vLLM and Helix (Bhatia et al. 2025); Flash-Decoding
(Dao et al. 2023) splits keys in the same way between the cores of a card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gecompiler.ir.flash_attention import FLASH_ATTENTION, FlashAttention
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.passes.parallel.components import Component, Place, Walker
from gecompiler.passes.parallel.signature import Region, Spec, spec_labels

FEW = 16
"""Rows of a matrix unit's block (cube): fewer a rank take as long as these."""


@dataclass
class CachedKeys:
    """Attentions whose keys may be cut, and those whose may not, with the reason.

    ``few`` are those of the first whose queries are several: they stay whole.
    """

    cut: dict[str, list[Component]] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)
    few: list[str] = field(default_factory=list)


def cached_keys(graph: Graph, walker: Walker, order: Sequence[Op], ranks: int) -> CachedKeys:
    """Which attentions of few queries read a cache, over so many ranks."""
    found = CachedKeys()
    for op in order:
        if not op.is_(FLASH_ATTENTION, domain=GE_DOMAIN):
            continue
        made = walker.signature(op)
        if made is None or "t" not in made.sizes or _queries(walker, op) >= FEW * ranks:
            continue
        caches = _caches(graph, walker, op)
        if not caches:
            continue
        why = _refusal(graph, op, made.sizes, min(p.region.size for p in caches), ranks)
        if why:
            found.whole[op.name] = why
            continue
        found.cut[op.name] = [walker.walk([place]) for place in caches]
    _refuse(graph, found)
    found.few = [name for name in found.cut if _queries(walker, graph.op(name)) > 1]
    return found


def _refusal(graph: Graph, op: Op, sizes: Mapping[str, int], cached: int, ranks: int) -> str:
    if len(op.outputs) > 1:
        return "its log-sum-exp is read"
    if cached < ranks:
        return f"{cached} cached keys for {ranks} ranks"
    attention = FlashAttention.of(op)
    mask = graph.tensor(op.input(3)) if op.input(3) else None
    biased = mask is not None and mask.dtype.is_float and attention.masked_row == "mean"
    if biased and hides_keys(attention, sizes.get("s", 1), sizes["t"]):
        return "rows that see none are the mean of all, and mask and window hide in two ways"
    return ""


def hides_keys(attention: FlashAttention, queries: int, keys: int) -> bool:
    """Whether the window hides some key from some query."""
    first = attention.offset(queries, keys)
    left, right = attention.window_left, attention.window_right
    ahead = right != -1 and keys - 1 > first + right
    return ahead or (left != -1 and first + queries - 1 - left > 0)


def _queries(walker: Walker, op: Op) -> int:
    found = walker.signature(op)
    return found.sizes.get("s", 1) if found is not None else 1


def _caches(graph: Graph, walker: Walker, op: Op) -> list[Place]:
    """The inputs of the graph that keys and values of an attention come from."""
    dim = 1 if FlashAttention.of(op).reads_rows_first else 2
    return [p for value in op.inputs[1:3] for p in _inputs_behind(graph, walker, value, dim)]


def _inputs_behind(graph: Graph, walker: Walker, value: str, dim: int) -> list[Place]:
    """The dims of inputs of several dims that a dim of a value is made of, wholly or in a run."""
    found: dict[Place, None] = {}
    todo, seen = [(value, dim)], set()
    while todo:
        value, dim = todo.pop()
        if (value, dim) in seen:
            continue
        seen.add((value, dim))
        if value in graph.inputs:
            type_ = graph.tensor(value)
            if type_ is not None and type_.dtype.is_float and len(type_.sizes) > 2:
                found[Place(value, dim, Region.all_of(type_.sizes[dim]))] = None
            continue
        maker = graph.producer(value)
        made = walker.signature(maker) if maker is not None else None
        if maker is None or made is None:
            continue
        operand = made.outputs[maker.outputs.index(value)]
        wanted = set(spec_labels(operand[dim])) if operand is not None else set()
        for read, reads in zip(maker.inputs, made.inputs, strict=True):
            todo += [(read, n) for n, spec in enumerate(reads or ()) if _is_one_of(spec, wanted)]
    return list(found)


def _is_one_of(spec: Spec, labels: set[str]) -> bool:
    own = tuple(spec_labels(spec))
    return len(own) == 1 and own[0] in labels


def _refuse(graph: Graph, found: CachedKeys) -> None:
    """Keys stay whole where anything but the attentions that are cut needs them so."""
    again = True
    while again:
        again = False
        for name, components in list(found.cut.items()):
            stops = (stop for component in components for stop in component.stops)
            other = next((s for s in stops if not _is_attended(graph, found, *s)), None)
            if other is not None:
                del found.cut[name]
                found.whole[name] = f"{other[0]!r} needs them whole"
                again = True


def _is_attended(graph: Graph, found: CachedKeys, op: str, value: str) -> bool:
    return op in found.cut and value in graph.op(op).inputs[1:4]
