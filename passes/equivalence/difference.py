"""What a pass changed: the values of a graph that are computed in another way after it.

A value that both graphs name is the same in both, if the pass is right. Where an op reads
another value than before, or is another op than before under the same name, there is
something to check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op

FUSED_KINDS = frozenset(("Gelu", "LayerNormalization", "RMSNormalization", "Swish"))
"""Ops of ai.onnx that fusion makes; those of our own domain all stand for several."""

NO_REPLACEMENTS: Mapping[str, str] = MappingProxyType({})

_MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Change:
    """``new`` of ``after`` must hold what ``old`` of ``before`` holds.

    ``op`` is the fused op of ``after`` that is to be blamed if it does not.
    """

    before: Graph
    after: Graph
    old: str
    new: str
    op: Op


def changes(
    before: Graph, after: Graph, replacements: Mapping[str, str] = NO_REPLACEMENTS, depth: int = 0
) -> Iterator[Change]:
    """Every change in which a new fused op has a part, bodies of ops included.

    ``replacements`` are values of ``after`` with those they stand for, as far as it is known.
    """
    pairs = dict.fromkeys(_moved_outputs(before, after))
    for new, old in replacements.items():
        if after.has_value(new) and before.has_value(old):
            pairs[old, new] = None
    for op in after.topological():
        earlier = before.op(op.name) if op.name in before else op
        if earlier is not op:
            pairs.update(dict.fromkeys(_pairs(earlier, op)))
            if depth < _MAX_DEPTH:
                yield from _changes_of_bodies(earlier, op, depth + 1)
    for old, new in pairs:
        made = _fused(before, after, old, new)
        if made is not None:
            yield Change(before, after, old, new, made)


def _changes_of_bodies(earlier: Op, op: Op, depth: int) -> Iterator[Change]:
    for one, other in zip(earlier.bodies, op.bodies, strict=False):
        if one is not other:
            yield from changes(one, other, depth=depth)


def _moved_outputs(before: Graph, after: Graph) -> Iterator[tuple[str, str]]:
    """Outputs that another op makes now."""
    for old, new in zip(before.outputs, after.outputs, strict=True):
        maker, other = before.producer(old), after.producer(new)
        if maker is not None and other is not None and maker.name != other.name:
            yield old, new


def _pairs(earlier: Op, op: Op) -> Iterator[tuple[str, str]]:
    """The values to compare for an op that is not what it was."""
    alike = earlier.kind == op.kind and len(earlier.inputs) == len(op.inputs)
    if alike and _same_attrs(earlier.attrs, op.attrs):
        for old, new in zip(earlier.inputs, op.inputs, strict=True):
            if old != new and old and new:
                yield old, new
        return
    for old, new in zip(earlier.outputs, op.outputs, strict=False):
        if old and new:
            yield old, new


def _same_attrs(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    return one.keys() == other.keys() and all(
        isinstance(value, Graph) or value is other[key] or value == other[key]
        for key, value in one.items()
    )


def _fused(before: Graph, after: Graph, old: str, new: str) -> Op | None:
    """The new fused op nearest to the value, looking back until both graphs agree."""
    queue, seen = [new], {new}
    for value in queue:
        op = after.producer(value)
        if op is None or (value != new and before.has_value(value)):
            continue
        if _is_fused(op) and _is_new(before, op):
            return op
        for read in after.reads(op):
            if read not in seen:
                seen.add(read)
                queue.append(read)
    return None


def _is_fused(op: Op) -> bool:
    return op.domain == GE_DOMAIN or (not op.domain and op.op_type in FUSED_KINDS)


def _is_new(before: Graph, op: Op) -> bool:
    return op.name not in before or before.op(op.name) is not op
