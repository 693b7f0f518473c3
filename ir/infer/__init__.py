"""Symbolic inference of types and shapes, with the contents of small tensors.

Sizes stay expressions over the inputs' symbols; two are equal only when proven. Shapes that
are computed at run time (Shape, Gather, Concat, Reshape and so on) are followed through the
contents of the small tensors that hold them. Ops without a rule here are left to onnx; a size
that nothing determines becomes a fresh symbol ``<value>_dim<axis>``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.dims import Dim, DimError, substitute
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer.arrays import SymbolicArray, carries_values
from gecompiler.ir.infer.bodies import Control
from gecompiler.ir.infer.control import infer_bodies, infer_control
from gecompiler.ir.infer.dtype import FIRST_OUTPUT, OTHER_OUTPUTS, OWN_OUTPUT
from gecompiler.ir.infer.facts import Assumption, FreshSymbol, TypeFacts
from gecompiler.ir.infer.forced import forced_sizes
from gecompiler.ir.infer.kept import keep_facts, kept_facts
from gecompiler.ir.infer.node import Node
from gecompiler.ir.infer.onnx import Outcome, infer_with_onnx
from gecompiler.ir.infer.rules import SHAPE_RULES, VALUE_RULES
from gecompiler.ir.infer.scope import Scope, Shared
from gecompiler.ir.infer.settle import settle
from gecompiler.ir.infer.signature import output_dtypes, signature
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, OpaqueType, TensorType

__all__ = ["Assumption", "FreshSymbol", "SymbolicArray", "TypeFacts", "infer_types"]


_MOST_ROUNDS = 4
"""How often sizes that a program forces are put in; each round needs those before it."""


def infer_types(
    graph: Graph, *, diagnostics: Diagnostics | None = None, strict: bool = False
) -> TypeFacts:
    """Sets the type of every value, bodies included, and returns what was learnt besides.

    Types of inputs, outer values and constants are taken as they are. What the graph declares
    of other values is refined: expressions give way to what is inferred, numbers stand in for
    what stays unknown. Types that contradict each other, and inputs that an op does not take,
    are a ModelError naming the node; so is, with ``strict``, a value of unknown rank.
    Near-linear in the number of ops; what is inferred is kept until the graph changes.
    """
    plain = diagnostics is None and not strict
    kept = kept_facts(graph) if plain else None
    if kept is not None:
        return kept
    scope, used = _infer_with_forced(graph)
    shared = scope.shared
    unknown = tuple(v for v in graph.values if _rank_unknown(graph, v))
    if strict and unknown:
        _refuse_unknown(graph, unknown[0])
    if diagnostics is not None:
        _report(diagnostics, shared.stale, unknown)
    assumptions = (*used, *shared.assumptions.values())
    facts = TypeFacts(scope.values, shared.fresh, assumptions, unknown)
    keep_facts(graph, facts)
    return facts


def _infer_with_forced(graph: Graph) -> tuple[Scope, list[Assumption]]:
    """Infers, and again with the sizes that equalities force, until they force no more."""
    scope = _infer(graph)
    forced: dict[str, Dim] = {}
    used: list[Assumption] = []
    for _ in range(_MOST_ROUNDS):
        more, why = forced_sizes(scope.shared.assumptions.values(), scope.shared.input_symbols)
        if not more:
            break
        forced = {name: substitute(size, more) for name, size in forced.items()} | more
        used += why
        scope = _infer_under(graph, forced)
    return scope, used


def _infer(graph: Graph) -> Scope:
    scope = Scope(graph, Shared(graph))
    _walk(scope)
    return scope


def _infer_under(graph: Graph, forced: Mapping[str, Dim]) -> Scope:
    """Infers again with the forced sizes put in; the inputs keep the types they have."""
    entries = {value: graph.type(value) for value in (*graph.inputs, *graph.outer)}
    try:
        for value, type_ in entries.items():
            graph.set_type(value, None if type_ is None else type_.bind(forced))
        return _infer(graph)
    finally:
        for value, type_ in entries.items():
            graph.set_type(value, type_)


def _rank_unknown(graph: Graph, value: str) -> bool:
    found = graph.type(value)
    return found is None or (isinstance(found, TensorType) and found.shape is None)


def _refuse_unknown(graph: Graph, value: str) -> None:
    maker = graph.producer(value)
    where = f"input {value!r}" if maker is None else f"node {maker.name!r} ({maker.kind})"
    raise ModelError(
        f"not even the rank of {value!r} can be told",
        where=where,
        hint="declare the shape of that value in the model (value_info)",
    )


def _report(diagnostics: Diagnostics, stale: Sequence[str], unknown: Sequence[str]) -> None:
    if stale:
        diagnostics.warn(
            "stale-shape",
            f"{len(set(stale))} values declare a fixed size where the inputs' symbols imply an "
            f"expression, first {stale[0]!r}; the expression is used",
            "if the model is meant for these sizes alone, fix them with --input-shape",
        )
    if unknown:
        diagnostics.warn(
            "unknown-rank",
            f"the rank of {len(unknown)} values is unknown, first {unknown[0]!r}",
            "declare their shapes in the model (value_info)",
        )


def _walk(scope: Scope) -> None:
    for op in scope.graph.topological():
        _infer_op(scope, op)


def _infer_op(scope: Scope, op: Op) -> None:
    node = Node(scope, op)
    bounded = bool(scope.bounded) and not scope.bounded.isdisjoint(op.inputs)
    if bounded:
        scope.bounded.update(op.outputs)
    try:
        _apply_rules(scope, op, node)
    except ModelError as error:
        if bounded:
            # Upper bounds of sizes need not go together as the sizes themselves will.
            _settle_all(scope, op, [(None, None)] * len(op.outputs))
        elif isinstance(error, DimError):
            node.fail(error.message, error.hint)
        else:
            raise


def _apply_rules(scope: Scope, op: Op, node: Node) -> None:
    found = signature(op.op_type, op.domain, node.version)
    dtypes: list[DType | None] = (
        [None] * len(op.outputs) if found is None else output_dtypes(node, found)
    )
    if op.attrs and op.bodies:
        control = infer_control(node, _walk)
        if control is not None:
            _settle_control(scope, op, control)
            return
        _replace_bodies(scope, op, infer_bodies(node, _walk))
    rule = SHAPE_RULES.get(op.domain, {}).get(op.op_type)
    shapes = None
    if rule is not None and not _takes_opaque(scope, op):
        shapes = rule(node)
    if shapes is None:
        _settle_all(scope, op, _completed(infer_with_onnx(node), dtypes))
        return
    _override(node, dtypes)
    for index, value in enumerate(op.outputs):
        if value:
            shape = shapes[index] if index < len(shapes) else None
            _set(scope, value, settle(scope, op, index, dtypes[index], shape))
    _infer_values(scope, node)


def _takes_opaque(scope: Scope, op: Op) -> bool:
    return any(v and isinstance(scope.graph.type(v), OpaqueType) for v in op.inputs)


def _override(node: Node, dtypes: list[DType | None]) -> None:
    """Puts in the element types that attributes decide."""
    if node.op.domain:
        first = node.dtype(0)
        dtypes[:] = [first if d is None else d for d in dtypes]
    rule = (OWN_OUTPUT if node.op.domain else FIRST_OUTPUT).get(node.op.kind)
    if rule is not None and dtypes:
        dtypes[0] = rule(node) or dtypes[0]
    rule = OTHER_OUTPUTS.get(node.op.kind)
    if rule is not None:
        for index in range(1, len(dtypes)):
            dtypes[index] = rule(node) or dtypes[index]


def _completed(outcomes: list[Outcome], dtypes: Sequence[DType | None]) -> list[Outcome]:
    """Outcomes with the schema's element types where onnx told none."""
    return [
        o if isinstance(o, OpaqueType) or o[0] is not None else (d, o[1])
        for o, d in zip(outcomes, dtypes, strict=True)
    ]


def _settle_all(scope: Scope, op: Op, outcomes: Sequence[Outcome]) -> None:
    for index, (value, outcome) in enumerate(zip(op.outputs, outcomes, strict=False)):
        if not value:
            continue
        if isinstance(outcome, OpaqueType):
            if scope.graph.type(value) is None:
                scope.graph.set_type(value, outcome)
        elif not isinstance(scope.graph.type(value), OpaqueType):
            _set(scope, value, settle(scope, op, index, *outcome))


def _settle_control(scope: Scope, op: Op, found: Control) -> None:
    _settle_all(scope, op, found.outcomes)
    _replace_bodies(scope, op, found.bodies)
    for value, known in zip(op.outputs, found.values, strict=False):
        if value and known is not None:
            scope.values[value] = known


def _replace_bodies(scope: Scope, op: Op, bodies: Mapping[str, Graph]) -> None:
    scope.graph.replace_op(op.name, op.with_(attrs={**op.attrs, **bodies}))


def _set(scope: Scope, value: str, type_: TensorType | None) -> None:
    if type_ is not None and scope.graph.tensor(value) is not type_:
        scope.graph.set_type(value, type_)


def _infer_values(scope: Scope, node: Node) -> None:
    rule = VALUE_RULES.get(node.op.op_type)
    if rule is None or node.op.domain:
        return
    for index, value in enumerate(node.op.outputs):
        type_ = scope.graph.tensor(value)
        if type_ is None or not carries_values(type_):
            continue
        try:
            known = rule(node, index, type_)
        except DimError:
            continue  # an expression beyond any use as a size
        if known is not None and any(item is not None for item in known.items):
            scope.values[value] = known
