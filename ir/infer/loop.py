"""Types through Loop and Scan.

A carried value keeps the sizes that no iteration changes; one that may change becomes a symbol
of the body's own, which means nothing outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gecompiler.ir.dims import Dim, Expr, symbol, symbols
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer.bodies import Control, Inferred, Walk, body_of, infer_body, outcome_of
from gecompiler.ir.infer.facts import FreshSymbol
from gecompiler.ir.infer.node import Node
from gecompiler.ir.infer.onnx import Outcome
from gecompiler.ir.types import DType, OpaqueType, Shape, TensorType, ValueType

_SHALLOW = 2
"""Rounds in which sizes become general one by one, all at once then; and how deep loops may be
nested for that: of what deeper ones carry only the element type is known."""


def infer_loop(node: Node, walk: Walk) -> Control:
    """Carried values keep the sizes that no iteration changes; scanned ones gain a leading dim."""
    carried = len(node.op.inputs) - 2
    body = body_of(node, "body")
    if carried < 0 or len(body.inputs) != carried + 2 or len(body.outputs) < carried + 1:
        node.fail("the Loop body does not fit the number of carried values")
    plain = (TensorType(DType.I64, ()), TensorType(DType.BOOL, ()))
    heads = [body.tensor(v) or t for v, t in zip(body.inputs, plain, strict=False)]
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
    unknown = found is None or (isinstance(found, TensorType) and found.shape is None)
    declared = body.type(body.inputs[place])
    return found if declared is None or not unknown else declared


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
    own = [_own_sizes(node, source, name) for name in names]
    if node.scope.depth >= _SHALLOW:
        state = [TensorType(t.dtype, None) if isinstance(t, TensorType) else t for t in state]
    for rounds in range(1000):
        shared.fresh = dict(before)
        result = infer_body(node, walk, source, [*heads, *state, *tails])
        after = result.types[offset : offset + len(state)]
        rough = rounds >= _SHALLOW
        widened = [
            _widened(node, s, t, o, rough) for s, t, o in zip(state, after, own, strict=True)
        ]
        if widened == state:
            break
        state = widened
    for sizes, type_ in zip(own, state, strict=True):
        sizes.note(node, type_)
    return state, result


@dataclass(frozen=True)
class _OwnSizes:
    """The names of a carried value's sizes within the body, for those that change."""

    value: str
    declared: Shape
    taken: frozenset[str]

    def size(self, axis: int) -> Dim:
        """A declared number, else the body's own symbol."""
        if axis < len(self.declared) and isinstance(self.declared[axis], int):
            return self.declared[axis]
        return symbol(self.name(axis))

    def name(self, axis: int) -> str:
        """A name that no symbol outside has."""
        name = f"{self.value}_dim{axis}"
        while name in self.taken:
            name += "_"
        return name

    def note(self, node: Node, type_: ValueType) -> None:
        """Puts those on record that came to be used in the value's type."""
        if isinstance(type_, TensorType):
            for axis, size in enumerate(type_.shape or ()):
                name = self.name(axis)
                if size == symbol(name):
                    found = FreshSymbol(name, self.value, axis, node.op.name)
                    node.scope.shared.fresh.setdefault(name, found)


def _own_sizes(node: Node, body: Graph, value: str) -> _OwnSizes:
    shared = node.scope.shared
    return _OwnSizes(value, body.shape(value) or (), shared.known | frozenset(shared.fresh))


def _widened(node: Node, now: ValueType, then: ValueType, own: _OwnSizes, rough: bool) -> ValueType:
    """A carried value's type made general enough for the next iteration too."""
    if not isinstance(now, TensorType) or now.shape is None:
        return now
    if not isinstance(then, TensorType):
        return TensorType(now.dtype, None)
    if now.dtype is not then.dtype:
        node.fail(f"the carried value {own.value!r} changes from {now} to {then}")
    if then.shape is None or len(then.shape) != len(now.shape):
        return TensorType(now.dtype, None)
    return now if then.shape == now.shape else _general(now, own, None if rough else then.shape)


def _general(now: ValueType, own: _OwnSizes, then: Shape | None) -> ValueType:
    """The type with the body's own size wherever it differs from ``then`` (or everywhere)."""
    if not isinstance(now, TensorType) or now.shape is None:
        return now
    sizes = [
        d if then is not None and d == then[i] else own.size(i) for i, d in enumerate(now.shape)
    ]
    return TensorType(now.dtype, tuple(sizes))


def _leaving(node: Node, type_: ValueType, outside: set[str], start: ValueType) -> Outcome:
    """A type as seen outside the loop, where the body's own symbols mean nothing."""
    if not isinstance(type_, TensorType):
        return outcome_of(type_)
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


def infer_scan(node: Node, walk: Walk) -> Control:
    """State as in a Loop; each scanned input gives a slice to every iteration.

    In opset 8 a tensor of lengths comes first, and all others have a batch dim before the rest.
    """
    old = node.version < 9
    first, lead = (1, 1) if old else (0, 0)
    scanned = int(node.op.attr("num_scan_inputs", 0))
    states = len(node.op.inputs) - scanned - first
    body = body_of(node, "body", len(node.op.outputs))
    if scanned < 1 or states < 0 or len(body.inputs) != states + scanned:
        node.fail("the Scan body does not fit the number of inputs")
    axes = _axes(node, "scan_input_axes", scanned, old)
    batch: Dim | None = None
    count: Dim | None = None
    entering: list[ValueType] = []
    for place in range(states + scanned):
        whole = node.type(place + first)
        if whole is None or whole.shape is None or len(whole.shape) < lead:
            entering.append(body.type(body.inputs[place]))
            continue
        sizes = whole.shape[lead:]
        batch = node.same(batch, whole.shape[0], "batch sizes") if old else None
        if place >= states:
            axis = node.front(axes[place - states], len(sizes))
            count = node.same(count, sizes[axis], "lengths of scanned inputs")
            sizes = sizes[:axis] + sizes[axis + 1 :]
        entering.append(TensorType(whole.dtype, sizes))
    outside = set(node.scope.shared.fresh)
    start, slices = entering[:states], entering[states:]
    state, result = _fixpoint(node, walk, body, [], start, slices, offset=0)
    outcomes = [_leaving(node, t, outside, s) for t, s in zip(state, start, strict=True)]
    places = _axes(node, "scan_output_axes", len(result.types) - states, old)
    for axis, type_ in zip(places, result.types[states:], strict=True):
        outcomes.append(_stacked(node, type_, outside, axis, count))
    if old:
        outcomes = [_batched(o, batch) for o in outcomes]
    return Control(outcomes, {"body": result.body})


def _axes(node: Node, name: str, count: int, old: bool) -> tuple[int, ...]:
    given = None if old else node.ints(name, len(node.op.inputs))
    if given and len(given) != count:
        node.fail(f"{name} needs {count} numbers")
    return given or (0,) * count


def _batched(outcome: Outcome, batch: Dim | None) -> Outcome:
    if isinstance(outcome, OpaqueType) or outcome[1] is None:
        return outcome
    return outcome[0], (batch, *outcome[1])
