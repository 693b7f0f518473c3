"""If, Loop and Scan whose bodies hold ops of ours, which no other runtime knows.

The bodies are run op after op as a graph is (ONNX operators If, Loop, and Scan from opset 9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from gecompiler.backends.execution.loop_limit import Rounds
from gecompiler.backends.execution.node_model import Call
from gecompiler.backends.execution.run_inputs import Value
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import TensorType, ValueType

RunBody = Callable[[Graph, Mapping[str, Value]], list[Value]]
"""Computes a body's outputs from the values that it can see, its inputs among them."""


def holds_own_ops(op: Op) -> bool:
    """Whether a body of the op, at any depth, holds an op of the product's domain."""
    left = [*op.bodies]
    while left:
        for inner in left.pop().ops:
            if inner.domain == GE_DOMAIN:
                return True
            left += inner.bodies
    return False


def control_op(call: Call, run: RunBody) -> list[Value] | None:
    """The outputs of an If, Loop or Scan; None for any other op. ModelError for what is wrong."""
    if call.op.is_("If"):
        return _if(call, run)
    if call.op.is_("Loop"):
        return _loop(call, run)
    return _scan(call, run) if call.op.is_("Scan") else None


def _body(call: Call, name: str) -> Graph:
    body = call.op.attr(name)
    if not isinstance(body, Graph):
        raise ModelError(f"the body {name!r} is missing")
    return body


def _seen(call: Call, body: Graph, inputs: Sequence[Value]) -> dict[str, Value]:
    if len(body.inputs) != len(inputs):
        raise ModelError(f"its body takes {len(body.inputs)} values and is given {len(inputs)}")
    return {**call.captures, **dict(zip(body.inputs, inputs, strict=True))}


def _if(call: Call, run: RunBody) -> list[Value]:
    chosen = bool(np.asarray(call.values[0]).reshape(-1)[0])
    body = _body(call, "then_branch" if chosen else "else_branch")
    return run(body, _seen(call, body, ()))


def _loop(call: Call, run: RunBody) -> list[Value]:
    body = _body(call, "body")
    count, going, *state = call.values
    rounds = None if count is None else int(np.asarray(count).reshape(-1)[0])
    go_on = going is None or bool(np.asarray(going).reshape(-1)[0])
    rows: list[list[Value]] = []
    turn = 0
    rounds_done = Rounds()
    while go_on and (rounds is None or turn < rounds):
        given = [np.array(turn, np.int64), np.array(True), *state]
        again, *results = run(body, _seen(call, body, given))
        go_on = bool(np.asarray(again).reshape(-1)[0])
        state, shown = results[: len(state)], results[len(state) :]
        rows.append(shown)
        turn += 1
        rounds_done.count()
    kinds = call.output_types[len(state) :]
    return [*state, *(_stacked([r[k] for r in rows], kind) for k, kind in enumerate(kinds))]


def _scan(call: Call, run: RunBody) -> list[Value]:
    if call.version < 9:
        raise ModelError(f"Scan of opset {call.version} is not computed", hint="export it anew")
    body, count = _body(call, "body"), int(call.op.attr("num_scan_inputs", 0))
    split = len(call.values) - count
    state = list(call.values[:split])
    axes = _setting(call, "scan_input_axes", count)
    turned = _setting(call, "scan_input_directions", count)
    scanned = [
        _slices(np.asarray(x), axis, backwards=bool(back))
        for x, axis, back in zip(call.values[split:], axes, turned, strict=True)
    ]
    rows: list[list[Value]] = []
    for items in zip(*scanned, strict=True):
        results = run(body, _seen(call, body, [*state, *items]))
        state = results[:split]
        rows.append(results[split:])
    kinds = call.output_types[split:]
    axes = _setting(call, "scan_output_axes", len(kinds))
    turned = _setting(call, "scan_output_directions", len(kinds))
    shown = [
        _stacked([r[k] for r in rows][:: -1 if back else 1], kind, axis)
        for k, (kind, axis, back) in enumerate(zip(kinds, axes, turned, strict=True))
    ]
    return [*state, *shown]


def _setting(call: Call, name: str, count: int) -> tuple[int, ...]:
    found: tuple[int, ...] = call.op.attr(name) or (0,) * count
    return found


def _slices(x: np.ndarray, axis: int, *, backwards: bool) -> Iterator[np.ndarray]:
    moved = np.moveaxis(x, axis, 0)
    return iter(moved[::-1] if backwards else moved)


def _stacked(rows: Sequence[Value], kind: ValueType, axis: int = 0) -> Value:
    """The rows behind each other; with none of them the size that is known, else 0."""
    if rows:
        return np.stack([np.asarray(r) for r in rows], axis)
    if not isinstance(kind, TensorType):
        raise ModelError("it runs no round, and the type of what it would collect is not known")
    sizes = [d if isinstance(d, int) else 0 for d in kind.shape or (0,)]
    return np.zeros(sizes, kind.dtype.numpy)
