"""If, Loop and Scan, whose bodies read values around them; local functions; layers."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import TensorProto as T
from onnx import helper

from random_graphs.arrays import FLOATS
from random_graphs.builder import Scope, Value
from random_graphs.moves import unsqueezed

Grow = Callable[[Scope, int], None]
MAX_DEPTH = 2


def _inner(s: Scope) -> Scope:
    return Scope(s.rng, s.opset, s.names, s)


def _result(s: Scope, dtype: int, shape: tuple[int, ...]) -> Value:
    """A value of that type made in this scope; an output must not be an outer value itself."""
    found = [v for v in s.values if v.dtype == dtype and v.shape == shape]
    made = {name for node in s.nodes for name in node.output}
    found = [v for v in found if v.name in made]
    if found:
        return s.rng.choice(found)
    outer = s.pick(lambda v: v.dtype == dtype and v.shape == shape)
    source = outer or s.random_constant(dtype, shape, odd=False)
    made_here = s.add("Identity", source)
    assert made_here is not None
    return made_here


def branch(s: Scope, grow: Grow) -> None:
    """If; its condition may be a constant, or computed from a shape."""
    if s.depth >= MAX_DEPTH:
        return
    like = s.pick(lambda v: v.dtype != T.STRING and v.dtype in (*FLOATS[:2], T.INT64, T.BOOL))
    test = s.pick(lambda v: v.dtype == T.BOOL and v.shape in ((), (1,)) and s.is_steady(v))
    if like is None:
        return
    if test is None or s.rng.random() < 0.4:
        test = s.number(T.BOOL, s.rng.random() < 0.5)
    attrs = {}
    for key in ("then_branch", "else_branch"):
        inner = _inner(s)
        grow(inner, s.rng.randint(0, 4))
        attrs[key] = inner.body([], [_result(inner, like.dtype, like.shape)])
    out = Value(s.names.new("v"), like.dtype, like.shape)
    node = helper.make_node("If", [test.name], [out.name], name=s.names.new("n"), **attrs)
    s.append(node, [out])


def loop(s: Scope, grow: Grow) -> None:
    """A Loop of few rounds with one carried value and one scanned output."""
    if s.depth >= MAX_DEPTH or s.opset < 11:
        return
    start = s.pick(lambda v: v.dtype in (T.FLOAT, T.INT64) and 0 not in v.shape)
    if start is None:
        return
    inner = _inner(s)
    turn = Value(s.names.new("i"), T.INT64, ())
    go_on = Value(s.names.new("b"), T.BOOL, ())
    carried = Value(s.names.new("x"), start.dtype, start.shape)
    inner.values += [turn, go_on, carried]
    inner.unsteady.add(carried.name)
    grow(inner, s.rng.randint(1, 4))
    again = inner.add("Identity", go_on)
    kept = _result(inner, carried.dtype, carried.shape)
    shown = _result(inner, carried.dtype, carried.shape)
    assert again is not None
    # How large the rows of no rounds are ONNX leaves open: then only the carried value is given.
    rounds = s.rng.choice([0, 1, 2, 3])
    results = [again, kept, shown] if rounds else [again, kept]
    body = inner.body([turn, go_on, carried], results)
    outs = [Value(s.names.new("v"), start.dtype, start.shape)]
    if rounds:
        outs.append(Value(s.names.new("v"), start.dtype, (rounds, *start.shape)))
    condition = s.number(T.BOOL, True)
    given = [s.ints([rounds], ()).name, condition.name if s.rng.random() < 0.6 else "", start.name]
    names = [v.name for v in outs]
    s.append(helper.make_node("Loop", given, names, name=s.names.new("n"), body=body), outs)


def scan(s: Scope, grow: Grow) -> None:
    """A Scan over the first axis, with a running state."""
    if s.depth >= MAX_DEPTH or s.opset < 11:
        return
    x = s.pick(lambda v: v.dtype in (T.FLOAT, T.INT64) and v.rank >= 1 and 0 not in v.shape)
    if x is None:
        return
    state = s.random_constant(x.dtype, x.shape[1:], odd=False)
    inner = _inner(s)
    before = Value(s.names.new("x"), x.dtype, x.shape[1:])
    row = Value(s.names.new("x"), x.dtype, x.shape[1:])
    inner.values += [before, row]
    inner.unsteady.update((before.name, row.name))
    after = inner.add("Add", before, row)
    grow(inner, s.rng.randint(0, 3))
    if after is None:
        return
    shown = _result(inner, x.dtype, x.shape[1:])
    twin = inner.add("Identity", shown) if shown.name == after.name else shown
    assert twin is not None
    body = inner.body([before, row], [after, twin])
    outs = [
        Value(s.names.new("v"), x.dtype, x.shape[1:]),
        Value(s.names.new("v"), x.dtype, x.shape),
    ]
    attrs = {"num_scan_inputs": 1}
    if s.rng.random() < 0.3:
        attrs["scan_input_directions"] = [1]
    names = [v.name for v in outs]
    node = helper.make_node(
        "Scan", [state.name, x.name], names, name=s.names.new("n"), body=body, **attrs
    )
    s.append(node, outs)


def call(s: Scope, functions: list[onnx.FunctionProto]) -> None:
    """A local function of two inputs, made on first use; an input may be left out."""
    x = s.pick(lambda v: v.dtype in FLOATS[:2])
    if x is None or s.opset < 15:
        return
    name = f"Own{len(functions) + 1}"
    if functions and s.rng.random() < 0.5:
        name = functions[0].name
    else:
        op = s.rng.choice(["Mul", "Sub", "Max"])
        nodes = [
            helper.make_node("Neg", ["a"], ["t"]),
            helper.make_node(op, ["t", "a"], ["u"]),
            helper.make_node("Add", ["u", "a"], ["y"]),
        ]
        opsets = [helper.make_opsetid("", s.opset)]
        functions.append(helper.make_function("own", name, ["a"], ["y"], nodes, opsets))
    out = Value(s.names.new("v"), x.dtype, x.shape)
    node = helper.make_node(name, [x.name], [out.name], name=s.names.new("n"), domain="own")
    s.append(node, [out])
    s.unsteady.add(out.name)


def layers(s: Scope) -> None:
    """Convolution and pooling over [batch, channels, rows, columns]."""
    x = s.pick(lambda v: v.dtype == T.FLOAT and v.rank == 4 and 0 not in v.shape)
    if x is None:
        small = s.pick(lambda v: v.dtype == T.FLOAT and v.rank == 3 and 0 not in v.shape)
        x = unsqueezed(s, small, [1], keep=True) if small else None
    if x is None:
        return
    choice = s.rng.random()
    if choice < 0.5:
        w = s.random_constant(T.FLOAT, (2, x.shape[1], 1, 1), odd=False)
        y = s.add("Conv", x, w, kernel_shape=[1, 1])
        if y is not None and s.rng.random() < 0.5:
            parts = [s.random_constant(T.FLOAT, (2,), odd=False) for _ in range(3)]
            s.add("BatchNormalization", y, *parts, s.random_positive(T.FLOAT, (2,)))
    elif choice < 0.7 and x.shape[-1] >= 2:
        kind = s.rng.choice(["MaxPool", "AveragePool"])
        s.add(kind, x, kernel_shape=[1, 2], strides=[1, s.rng.choice([1, 2])])
    else:
        s.add(s.rng.choice(["GlobalAveragePool", "GlobalMaxPool"]), x)
