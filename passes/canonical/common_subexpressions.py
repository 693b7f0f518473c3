"""Equal ops on equal inputs are one op; equal constants are one constant.

Constants are equal by content, or by where their data lies. Left alone: ops that draw random
numbers, that have side effects or bodies, that the user placed on different streams, and ops
that an order of control holds in place.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.data import ExternalData
from gecompiler.ir.op import Op
from gecompiler.passes.bodies import rewrite_all
from gecompiler.passes.canonical.value_facts import ValueFacts
from gecompiler.passes.effects import is_pure
from gecompiler.passes.pass_base import Pass, PassContext
from gecompiler.passes.rewriting import Rewriter

_COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr"})
_SAMPLES = 64


def merge_common(r: Rewriter) -> int:
    """Merges equal constants, then equal ops, producers first; returns how many went."""
    return _merge_constants(r.graph) + _merge_ops(r)


def _merge_constants(graph: Graph) -> int:
    alike: dict[Hashable, list[str]] = {}
    for name, constant in graph.constants.items():
        alike.setdefault(_likeness(constant), []).append(name)
    outputs, count = set(graph.outputs), 0
    for names in alike.values():
        first: dict[Hashable, str] = {}
        for name in names if len(names) > 1 else ():
            constant = graph.constants[name]
            kept = first.setdefault(constant.digest or _place(constant), name)
            if kept != name and name not in outputs:
                graph.replace_uses(name, kept)
                if not constant.computed:  # of a weight and what equals it the weight stays
                    graph.set_constant(kept, constant)
                graph.remove_constant(name)
                count += 1
    return count


def _likeness(constant: Constant) -> Hashable:
    """Equal for equal constants, and cheap: a few elements stand for the data of a large one."""
    if constant.data is None:
        return (str(constant.type), _place(constant))
    if constant.data.dtype.kind == "O":
        return (str(constant.type), constant.digest)
    if constant.data.size <= _SAMPLES:
        sample = constant.data
    else:
        picks = np.linspace(0, constant.data.size - 1, _SAMPLES, dtype=np.int64)
        sample = constant.data[np.unravel_index(picks, constant.data.shape)]
    return (str(constant.type), np.ascontiguousarray(sample).tobytes())


def _place(constant: Constant) -> Hashable:
    """Where the data of a constant lies that is not in memory."""
    source = constant.source
    if isinstance(source, ExternalData):
        return (source.folder, source.location, source.offset)
    return source if isinstance(source, Hashable) and source is not None else id(constant)


def _merge_ops(r: Rewriter) -> int:
    first: dict[Hashable, Op] = {}
    count = 0
    for name in [op.name for op in r.graph.topological()]:
        op = r.graph.op(name)
        key = _key(op)
        if key is None:
            continue
        kept = r.graph.op(first[key].name) if key in first else None
        if kept is None:
            first[key] = op
        elif r.forward(op, tuple(v or None for v in kept.outputs)):
            count += 1
    return count


def _key(op: Op) -> Hashable | None:
    """Equal for ops that compute the same, None for one that must stay as it is."""
    if op.is_("Identity") or not is_pure(op) or op.bodies:
        return None
    inputs = tuple(sorted(op.inputs)) if op.is_(*_COMMUTATIVE) else op.inputs
    attrs = tuple((key, *_content(op.attrs[key])) for key in sorted(op.attrs))
    info = op.info
    user = (info.label, info.priority, info.cube_cores, info.vector_cores)
    return (op.domain, op.op_type, inputs, tuple(map(bool, op.outputs)), attrs, user)


def _content(value: object) -> Iterator[Hashable]:
    """An attribute as something that compares by content (``1`` and ``1.0`` differ)."""
    if isinstance(value, Constant):
        yield str(value.type)
        yield value.digest or id(value)
    elif isinstance(value, tuple):
        yield "("
        for item in value:
            yield from _content(item)
        yield ")"
    else:
        yield type(value).__name__
        yield repr(value) if isinstance(value, float) else value


class CommonSubexpressions(Pass):
    """Merges ops and constants that are the same, in bodies of ops among each other."""

    name = "common-subexpressions"

    def run(self, graph: Graph, context: PassContext) -> int:
        """Rewrites ``graph`` in place and returns how many ops and constants were merged."""
        return rewrite_all(graph, lambda part: merge_common(Rewriter(part, ValueFacts(part))))
