"""Types through If, Loop and Scan: bodies are inferred with the types around them.

Bodies are shared by copies of a graph, so each is copied before its types are set, and the op
gets the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gecompiler.ir.dims import Dim, Expr, symbol, symbols
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer_arrays import SymbolicArray
from gecompiler.ir.infer_node import Node, PartialShape
from gecompiler.ir.infer_onnx import Outcome
from gecompiler.ir.infer_scope import Scope
from gecompiler.ir.types import DType, OpaqueType, Shape, TensorType, ValueType

Walk = Callable[[Scope], None]
"""Infers all ops of a scope; given by the front, which these rules lie below."""

_SHALLOW = 2
"""Loops nested no deeper are inferred until their types settle; deeper ones once."""


@dataclass(frozen=True)
class Inferred:
    """A body with its types set, and what leaves it."""

    body: Graph
    types: tuple[ValueType, ...]
    values: tuple[SymbolicArray | None, ...]


@dataclass(frozen=True)
class Control:
    """What is found of an op with bodies: its outputs, and the bodies by attribute."""

    outcomes: list[Outcome]
    bodies: dict[str, Graph]
    values: tuple[SymbolicArray | None, ...] = ()


def infer_control(node: Node, walk: Walk) -> Control:
    """The outputs of an op with bodies; nothing is said of those of unknown ops."""
    if node.op.is_("If"):
        return _if(node, walk)
    if node.op.is_("Loop"):
        return _loop(node, walk)
    if node.op.is_("Scan") and node.version >= 9:
        return _scan(node, walk)
    bodies = {
        name: _infer(node, walk, body, [None] * len(body.inputs)).body
        for name, body in node.op.attrs.items()
        if isinstance(body, Graph)
    }
    return Control([(None, None)] * len(node.op.outputs), bodies)


def _infer(node: Node, walk: Walk, source: Graph, inputs: Sequence[ValueType]) -> Inferred:
    """Infers a copy of a body; what it assumes of sizes stays within it."""
    scope = node.scope
    body = source.copy()
    inner = Scope(body, scope.shared, scope)
    for name, type_ in zip(body.inputs, inputs, strict=False):
        if type_ is not None:
            body.set_type(name, type_)
    for name in body.outer:
        if scope.graph.has_value(name):
            body.set_type(name, scope.graph.type(name))
            found = scope.values.get(name)
            if found is not None:
                inner.values[name] = found
    before = dict(scope.shared.assumptions)
    try:
        walk(inner)
    finally:
        scope.shared.assumptions = before
    types = tuple(body.type(v) for v in body.outputs)
    return Inferred(body, types, tuple(inner.values.get(v) for v in body.outputs))


def _body(node: Node, name: str, outputs: int | None = None) -> Graph:
    body = node.op.attrs.get(name)
    if not isinstance(body, Graph):
        node.fail(f"attribute {name!r} must be a graph")
    if outputs is not None and len(body.outputs) != outputs:
        node.fail(f"{name} has {len(body.outputs)} outputs where {outputs} are needed")
    return body


# -------------------------------------------------------------------- If


def _if(node: Node, walk: Walk) -> Control:
    """Both branches joined; the one taken alone where the condition is known."""
    names = ("then_branch", "else_branch")
    condition = node.scalar(0)
    taken = None if condition is None else names[0] if condition else names[1]
    found: dict[str, Inferred] = {}
    for name in names:
        body = _body(node, name, len(node.op.outputs))
        try:
            found[name] = _infer(node, walk, body, [])
        except ModelError:
            if taken in (None, name):
                raise
    bodies = {name: result.body for name, result in found.items()}
    if taken is not None:
        result = found[taken]
        return Control([_outcome(t) for t in result.types], bodies, result.values)
    left, right = (found[name].types for name in names)
    return Control([_joined(node, a, b) for a, b in zip(left, right, strict=True)], bodies)


def _outcome(type_: ValueType) -> Outcome:
    if isinstance(type_, TensorType):
        return type_.dtype, type_.shape
    return (None, None) if type_ is None else type_


def _joined(node: Node, a: ValueType, b: ValueType) -> Outcome:
    """What holds of a value that has either type."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        if a.dtype is not b.dtype:
            node.fail(f"the branches give {a} and {b} for one output")
        return a.dtype, _common(a.shape, b.shape)
    if isinstance(a, OpaqueType) and isinstance(b, OpaqueType) and a.proto == b.proto:
        return a
    known = a if isinstance(a, TensorType) else b
    return (known.dtype, None) if isinstance(known, TensorType) else (None, None)


def _common(a: Shape | None, b: Shape | None) -> PartialShape | None:
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else None for x, y in zip(a, b, strict=True))


# -------------------------------------------------------------------- Loop


def _loop(node: Node, walk: Walk) -> Control:
    """Carried values keep the sizes that no iteration changes; scanned ones gain a leading dim."""
    carried = len(node.op.inputs) - 2
    body = _body(node, "body")
    if carried < 0 or len(body.inputs) != carried + 2 or len(body.outputs) < carried + 1:
        node.fail("the Loop body does not fit the number of carried values")
    heads: list[ValueType] = [TensorType(DType.I64, ()), TensorType(DType.BOOL, ())]
    start = [_entering(node, i + 2, body, i + 2) for i in range(carried)]
    outside = set(node.scope.shared.fresh)
    state, result = _fixpoint(node, walk, body, heads, start, [], offset=1)
    outcomes: list[Outcome] = [
        _leaving(node, t, outside, s) for t, s in zip(state, start, strict=True)
    ]
    trip = _trip_count(node, result.body)
    for index, type_ in enumerate(result.types[carried + 1 :], start=carried):
        count = node.fresh(index, 0, node.scalar(0)) if trip is None else trip
        outcomes.append(_stacked(node, type_, outside, 0, count))
    return Control(outcomes[: len(node.op.outputs)], {"body": result.body})


def _entering(node: Node, index: int, body: Graph, place: int) -> ValueType:
    """The type with which a value enters a body: what is known outside, else what it declares."""
    name = node.op.input(index)
    found = node.scope.graph.type(name) if name else None
    return body.type(body.inputs[place]) if found is None else found


def _fixpoint(
    node: Node,
    walk: Walk,
    source: Graph,
    heads: Sequence[ValueType],
    start: Sequence[ValueType],
    tails: Sequence[ValueType],
    *,
    offset: int,
) -> tuple[list[ValueType], Inferred]:
    """Types of the carried values that hold in every iteration, and the body with them.

    Every round makes at least one size general, and none goes back: it ends.
    """
    shared, place = node.scope.shared, len(heads)
    before = dict(shared.fresh)
    state = list(start)
    names = source.inputs[place : place + len(state)]
    if node.scope.depth >= _SHALLOW:
        state = [_general(node, t, n, None) for t, n in zip(state, names, strict=True)]
    for rounds in range(1000):
        shared.fresh = dict(before)
        result = _infer(node, walk, source, [*heads, *state, *tails])
        after = result.types[offset : offset + len(state)]
        rough = rounds >= _SHALLOW or node.scope.depth >= _SHALLOW
        widened = [
            _widened(node, s, t, n, rough) for s, t, n in zip(state, after, names, strict=True)
        ]
        if widened == state:
            break
        state = widened
    return state, result


def _widened(node: Node, now: ValueType, then: ValueType, name: str, rough: bool) -> ValueType:
    """A carried value's type made general enough for the next iteration too."""
    if not isinstance(now, TensorType) or now.shape is None:
        return now
    if not isinstance(then, TensorType):
        return now if then is None and rough else TensorType(now.dtype, None)
    if now.dtype is not then.dtype:
        node.fail(f"the carried value {name!r} changes from {now} to {then}")
    if then.shape is None or len(then.shape) != len(now.shape):
        return TensorType(now.dtype, None)
    if then.shape == now.shape:
        return now
    return _general(node, now, name, None if rough else then.shape)


def _general(node: Node, now: ValueType, name: str, then: Shape | None) -> ValueType:
    """The type with the body's own symbol for each size that differs from ``then`` (or for all)."""
    if not isinstance(now, TensorType) or now.shape is None:
        return now
    sizes: list[Dim] = []
    for axis, size in enumerate(now.shape):
        own = symbol(f"{name}_dim{axis}")
        sizes.append(size if then is not None and size == then[axis] else own)
    return TensorType(now.dtype, tuple(sizes))


def _leaving(node: Node, type_: ValueType, outside: set[str], start: ValueType) -> Outcome:
    """A type as seen outside the loop, where the body's own symbols mean nothing."""
    if not isinstance(type_, TensorType):
        return _outcome(type_)
    if type_.shape is None:
        return type_.dtype, None
    first = start.shape if isinstance(start, TensorType) else None
    keep = first if first is not None and len(first) == len(type_.shape) else type_.shape
    same = zip(type_.shape, keep, strict=True)
    return type_.dtype, tuple(_outer_size(node, d, outside) if d == k else None for d, k in same)


def _outer_size(node: Node, size: Dim, outside: set[str]) -> Dim | None:
    known = node.scope.shared.known | outside
    return size if not isinstance(size, Expr) or symbols(size) <= known else None


def _stacked(
    node: Node, type_: ValueType, outside: set[str], axis: int, count: Dim | None
) -> Outcome:
    if not isinstance(type_, TensorType):
        return (None, None)
    if type_.shape is None:
        return type_.dtype, None
    sizes = [_outer_size(node, d, outside) for d in type_.shape]
    place = axis + len(sizes) + 1 if axis < 0 else axis
    return type_.dtype, (*sizes[:place], count, *sizes[place:])


def _trip_count(node: Node, body: Graph) -> Dim | None:
    """The number of iterations, where nothing but the trip count can end the loop."""
    if node.has(1) and node.scalar(1) != 1:
        return None
    condition = body.outputs[0]
    maker = body.producer(condition)
    while maker is not None and maker.is_("Identity"):
        condition = maker.inputs[0]
        maker = body.producer(condition)
    constant = body.constant(condition)
    endless = condition == body.inputs[1] or (constant is not None and bool(constant.scalar()))
    return node.scalar(0) if endless else None


# -------------------------------------------------------------------- Scan


def _scan(node: Node, walk: Walk) -> Control:
    """State as in a Loop; each scanned input gives a slice to every iteration."""
    scanned = int(node.op.attr("num_scan_inputs", 0))
    states = len(node.op.inputs) - scanned
    body = _body(node, "body", len(node.op.outputs))
    if scanned < 1 or states < 0 or len(body.inputs) != len(node.op.inputs):
        node.fail("the Scan body does not fit the number of inputs")
    axes = node.ints("scan_input_axes", len(node.op.inputs)) or (0,) * scanned
    count: Dim | None = None
    slices: list[ValueType] = []
    for index, axis in enumerate(axes, start=states):
        whole = node.type(index)
        if whole is None or whole.shape is None:
            slices.append(body.type(body.inputs[index]))
            continue
        place = node.front(axis, len(whole.shape))
        count = node.same(count, whole.shape[place], "lengths of scanned inputs")
        slices.append(TensorType(whole.dtype, whole.shape[:place] + whole.shape[place + 1 :]))
    start = [_entering(node, i, body, i) for i in range(states)]
    outside = set(node.scope.shared.fresh)
    state, result = _fixpoint(node, walk, body, [], start, slices, offset=0)
    outcomes: list[Outcome] = [
        _leaving(node, t, outside, s) for t, s in zip(state, start, strict=True)
    ]
    places = node.ints("scan_output_axes", len(node.op.inputs)) or (0,) * len(result.types)
    for axis, type_ in zip(places, result.types[states:], strict=False):
        outcomes.append(_stacked(node, type_, outside, axis, count))
    return Control(outcomes, {"body": result.body})
