"""Helpers of the tests of rewriting passes: run, compare, count."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import onnxruntime as ort

from gecompiler.ir import Graph, parse
from gecompiler.ir.dims import substitute
from gecompiler.ir.onnx_io.exporter import to_onnx
from gecompiler.passes.canonical.canonicalize import Canonicalize
from gecompiler.passes.fingerprint import fingerprint
from gecompiler.passes.pass_base import Pass, PassContext

ort.set_default_logger_severity(4)


def rewritten(text: str, instance: Pass | None = None, context: PassContext | None = None) -> Graph:
    """The graph that the pass makes of the text; checks the pass's claim and that it rests."""
    graph = parse(text)
    apply(graph, instance, context)
    return graph


def apply(graph: Graph, instance: Pass | None = None, context: PassContext | None = None) -> int:
    """Runs the pass: its count is honest, the graph stays sound, and a second run does nothing."""
    instance = instance or Canonicalize()
    context = context or PassContext()
    before = fingerprint(graph)
    changes = instance.run(graph, context)
    assert (fingerprint(graph) == before) == (changes == 0)
    graph.verify()
    after = fingerprint(graph)
    assert instance.run(graph, context) == 0, "the pass does not come to rest"
    assert fingerprint(graph) == after
    return changes


def kinds(graph: Graph) -> dict[str, int]:
    """How many ops of each kind there are."""
    return dict(Counter(op.kind for op in graph.ops))


def run(graph: Graph, feeds: dict[str, Any]) -> dict[str, Any]:
    """The outputs by onnxruntime, its own optimisations off."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(to_onnx(graph).SerializeToString(), options)
    wanted = {i.name for i in session.get_inputs()}
    outputs = session.run(None, {k: v for k, v in feeds.items() if k in wanted})
    return dict(zip((o.name for o in session.get_outputs()), outputs, strict=True))


def feeds(graph: Graph, sizes: dict[str, int], seed: int = 0) -> dict[str, Any]:
    """Random inputs, with negative zeros, infinities and NaN among the floats."""
    draw = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for name in graph.inputs:
        known = graph.tensor(name)
        assert known is not None
        assert known.shape is not None
        shape = [substitute(d, sizes) for d in known.shape]
        if known.dtype.is_float:
            array = draw.standard_normal(shape)
            special = draw.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0], shape)
            mixed = np.where(draw.random(shape) < 0.2, special, array)
            found[name] = np.asarray(mixed).astype(known.dtype.numpy)
        elif known.dtype.short == "bool":
            found[name] = np.asarray(draw.random(shape) < 0.5)
        else:
            found[name] = np.asarray(draw.integers(-3, 4, shape)).astype(known.dtype.numpy)
    return found


def assert_same_bits(left: dict[str, Any], right: dict[str, Any], rtol: float = 0.0) -> None:
    """Equal outputs: shapes, types, NaN, infinities and the signs of zeros."""
    assert list(left) == list(right)
    for name, a in left.items():
        b = right[name]
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol, equal_nan=True, err_msg=name)
            zero = (a == 0) & (b == 0)
            np.testing.assert_array_equal(np.signbit(a)[zero], np.signbit(b)[zero], err_msg=name)
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)


def check(text: str, sizes: dict[str, int] | None = None, instance: Pass | None = None) -> Graph:
    """Rewrites the graph and checks that it computes the same bits as before."""
    source, graph = parse(text), rewritten(text, instance)
    given = feeds(source, sizes or {})
    assert_same_bits(run(source, given), run(graph, given))
    return graph


class GraphMaker:
    """Random valid graphs of the ops that rewriting is about, on symbols ``b`` and ``s``."""

    def __init__(self, seed: int, ops: int) -> None:
        self.draw = random.Random(seed)
        self.lines = [
            "graph @random (opset 18) {",
            "input %x: f32[b, s, 4]",
            "input %y: f32[b, s, 4]",
        ]
        self.lines += ["input %m: bool[b, s]", "input %i: i64[b, s]"]
        self.shapes: dict[str, tuple[str, tuple[Any, ...]]] = {
            "x": ("f32", ("b", "s", 4)),
            "y": ("f32", ("b", "s", 4)),
            "m": ("bool", ("b", "s")),
            "i": ("i64", ("b", "s")),
        }
        self.count = 0
        for _ in range(ops):
            self.draw.choice(self.MOVES)(self)
        names = [n for n in self.shapes if n not in "xymi"] or ["x"]
        outputs = self.draw.sample(names, min(len(names), 3))
        self.lines += [f"return {', '.join('%' + n for n in outputs)}", "}"]
        self.text = "\n".join(self.lines)

    def pick(self, dtype: str | None = None, rank: int = 0) -> str | None:
        found = [
            n
            for n, (t, shape) in self.shapes.items()
            if (dtype is None or t == dtype) and len(shape) >= rank
        ]
        return self.draw.choice(found) if found else None

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def add(self, line: str, dtype: str, shape: tuple[Any, ...]) -> None:
        name = self.name()
        self.lines.append(f"%{name} = {line}")
        self.shapes[name] = (dtype, shape)

    def const(self, dtype: str, shape: list[int], data: object) -> str:
        name = self.name()
        self.lines.append(f"const %{name}: {dtype}{shape} = {data}")
        return name

    def ints(self, values: list[int]) -> str:
        return self.const("i64", [len(values)], values)

    def unary(self) -> None:
        a = self.pick("f32")
        if a:
            op = self.draw.choice(["Neg", "Abs", "Cos", "Sigmoid", "Identity", "Relu", "Floor"])
            self.add(f"{op}(%{a})", "f32", self.shapes[a][1])

    def neutral(self) -> None:
        a = self.pick("f32")
        if a:
            op, value = self.draw.choice(
                [
                    ("Mul", 1.0),
                    ("Div", 1.0),
                    ("Add", 0.0),
                    ("Add", -0.0),
                    ("Sub", 0.0),
                    ("Pow", 1.0),
                ]
            )
            shape = self.draw.choice([[], [1], [1, 1]])
            data: object = value
            for _ in shape:
                data = [data]
            c = self.const("f32", shape, data)
            if len(shape) <= len(self.shapes[a][1]):
                self.add(f"{op}(%{a}, %{c})", "f32", self.shapes[a][1])

    def binary(self) -> None:
        a = self.pick("f32")
        same = [n for n, t in self.shapes.items() if a and t == self.shapes[a]]
        if a and same:
            op = self.draw.choice(["Add", "Sub", "Mul", "Max"])
            self.add(f"{op}(%{a}, %{self.draw.choice(same)})", "f32", self.shapes[a][1])

    def cast(self) -> None:
        a = self.pick()
        if a is None:
            return
        dtype, shape = self.shapes[a]
        codes = {"f32": [(1, "f32"), (11, "f64")], "f64": [(1, "f32"), (11, "f64")]}
        codes |= {"bool": [(9, "bool"), (7, "i64"), (6, "i32")], "i64": [(7, "i64"), (9, "bool")]}
        codes |= {"i32": [(7, "i64"), (6, "i32"), (9, "bool")]}
        code, to = self.draw.choice(codes[dtype])
        self.add(f"Cast(%{a}) {{to = {code}}}", to, shape)

    def transpose(self) -> None:
        a = self.pick(rank=2)
        if a:
            dtype, shape = self.shapes[a]
            perm = list(range(len(shape)))
            self.draw.shuffle(perm)
            self.add(f"Transpose(%{a}) {{perm = {perm}}}", dtype, tuple(shape[p] for p in perm))

    def unsqueeze(self) -> None:
        a = self.pick()
        if a and len(self.shapes[a][1]) < 6:
            dtype, shape = self.shapes[a]
            axis = self.draw.randrange(len(shape) + 1)
            c = self.ints([axis])
            self.add(f"Unsqueeze(%{a}, %{c})", dtype, (*shape[:axis], 1, *shape[axis:]))

    def squeeze(self) -> None:
        found = [n for n, (_, s) in self.shapes.items() if 1 in s]
        if found:
            a = self.draw.choice(found)
            dtype, shape = self.shapes[a]
            axis = self.draw.choice([i for i, d in enumerate(shape) if d == 1])
            self.add(
                f"Squeeze(%{a}, %{self.ints([axis])})", dtype, shape[:axis] + shape[axis + 1 :]
            )

    def reshape(self) -> None:
        """Splits the 4, or joins it again, by a computed target."""
        a = self.pick()
        if a is None or not self.shapes[a][1]:
            return
        dtype, shape = self.shapes[a]
        if shape[-1] == 4:
            tail, new = [2, 2], (*shape[:-1], 2, 2)
        elif shape[-2:] == (2, 2):
            tail, new = [4], (*shape[:-2], 4)
        else:
            return
        keep = len(new) - len(tail)
        if self.draw.random() < 0.5 or keep == 0:
            c = self.ints([0] * keep + tail)
        else:
            dims, cut, c = self.name(), self.name(), self.name()
            zero, end, rest = self.ints([0]), self.ints([keep]), self.ints(tail)
            self.lines.append(f"%{dims} = Shape(%{a})")
            self.lines.append(f"%{cut} = Slice(%{dims}, %{zero}, %{end})")
            self.lines.append(f"%{c} = Concat(%{cut}, %{rest}) {{axis = 0}}")
        self.add(f"Reshape(%{a}, %{c})", dtype, new)

    def expand(self) -> None:
        found = [n for n, (_, s) in self.shapes.items() if 1 in s]
        if found:
            a = self.draw.choice(found)
            dtype, shape = self.shapes[a]
            axis = self.draw.choice([i for i, d in enumerate(shape) if d == 1])
            target = [1] * len(shape)
            target[axis] = self.draw.choice([1, 3])
            new = tuple(target[i] if i == axis else d for i, d in enumerate(shape))
            self.add(f"Expand(%{a}, %{self.ints(target)})", dtype, new)

    def cut(self) -> None:
        a = self.pick(rank=1)
        if a is None:
            return
        dtype, shape = self.shapes[a]
        axis = self.draw.randrange(len(shape))
        if shape[axis] == 4 and self.draw.random() < 0.7:
            at = self.draw.randrange(1, 4)
            for start, end in [(0, at), (at, 2**63 - 1)]:
                args = ", ".join("%" + self.ints([v]) for v in (start, end, axis))
                size = at if start == 0 else 4 - at
                new = (*shape[:axis], size, *shape[axis + 1 :])
                self.add(f"Slice(%{a}, {args})", dtype, new)
        else:
            args = ", ".join("%" + self.ints([v]) for v in (0, 2**31 - 1, axis))
            self.add(f"Slice(%{a}, {args})", dtype, shape)

    def logic(self) -> None:
        a = self.pick("bool")
        if a:
            dtype, shape = self.shapes[a]
            choice = self.draw.randrange(4)
            if choice == 0:
                self.add(f"Not(%{a})", dtype, shape)
            elif choice == 1:
                self.add(f"And(%{a}, %{self.const('bool', [], 'true')})", dtype, shape)
            elif choice == 2:
                self.add(f"Or(%{a}, %{self.const('bool', [1], '[false]')})", dtype, shape)
            else:
                zero, low = self.const("f32", [], 0.0), self.const("f32", [], "-inf")
                self.add(f"Where(%{a}, %{zero}, %{low})", "f32", shape)

    def positions(self) -> None:
        """A mask of positions computed from a shape, as exporters do."""
        a = self.pick("f32", rank=2)
        if a is None:
            return
        shape = self.shapes[a][1]
        axis = self.draw.randrange(len(shape))
        dims, size, line = self.name(), self.name(), self.name()
        zero, one = self.const("i64", [], 0), self.const("i64", [], 1)
        at = self.const("i64", [], axis)
        self.lines.append(f"%{dims} = Shape(%{a})")
        self.lines.append(f"%{size} = Gather(%{dims}, %{at})")
        self.lines.append(f"%{line} = Range(%{zero}, %{size}, %{one})")
        bound = self.draw.choice([zero, one])
        op = self.draw.choice(["GreaterOrEqual", "Less"])
        self.add(f"{op}(%{line}, %{bound})", "bool", (shape[axis],))
        self.shapes[line] = ("i64", (shape[axis],))

    MOVES = (
        unary, neutral, binary, cast, transpose, unsqueeze, squeeze, reshape, expand, cut, logic,
        positions,
    )  # fmt: skip
