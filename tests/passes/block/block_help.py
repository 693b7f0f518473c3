"""Helpers of the tests of block fusion: nets in a few words, fused, expanded, compared."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from rewriting_help import apply, run

from gecompiler.backends.execution.run_op import run_op
from gecompiler.ir import Graph, parse
from gecompiler.ir.dims import substitute
from gecompiler.ir.infer import infer_types
from gecompiler.passes.attention.expand import ExpandFused
from gecompiler.passes.block.fuse import FuseBlock
from gecompiler.passes.pass_base import Pass, PassContext

TOLERANCE = {"float32": 2e-6, "float64": 1e-12, "float16": 4e-3}
FUSE = FuseBlock()


class Net:
    """Writes a graph in the text form: ``net("Mul", a, b)`` adds an op and names its output."""

    def __init__(self, opset: int = 17) -> None:
        self.opset = opset
        self.lines: list[str] = []
        self.count = 0
        self.outputs: list[str] = []
        self.swap = False
        """Whether operands of commutative ops come the other way round."""
        self.identities = False
        """Whether every op's result goes through an Identity."""
        self.domains = ""
        """What stands behind the opset: ``, com.microsoft 1``."""
        self.note = ""
        """What stands behind each op: ``label "a"``."""

    def _name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def input(self, name: str, kind: str) -> str:
        self.lines.append(f"input %{name}: {kind}")
        return name

    def const(self, data: object, dtype: str = "f32") -> str:
        array = np.asarray(data)
        name = self._name()
        shape = ", ".join(map(str, array.shape))
        self.lines.append(f"const %{name}: {dtype}[{shape}] = {array.tolist()}")
        return name

    def weight(self, *shape: int, dtype: str = "f32", seed: int = 1) -> str:
        draw = np.random.default_rng(seed + sum(shape))
        return self.const(np.round(draw.uniform(0.5, 1.5, shape), 3), dtype)

    def ints(self, *values: int) -> str:
        return self.const(np.array(values, np.int64), "i64")

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attrs: object) -> Any:
        if self.swap and op in ("Add", "Mul"):
            inputs = inputs[::-1]
        names = [self._name() for _ in range(outputs)]
        out = ", ".join(f"%{n}" for n in names)
        arguments = ", ".join(f"%{i}" if i else "_" for i in inputs)
        shown = ", ".join(f"{k} = {v!r}".replace("'", '"') for k, v in attrs.items())
        note = f" {self.note}" if self.note else ""
        self.lines.append(f"{out} = {op}({arguments}) {{{shown}}}{note}")
        if self.identities:
            names = [self._identity(n) for n in names]
        return names[0] if outputs == 1 else names

    def _identity(self, value: str) -> str:
        name = self._name()
        self.lines.append(f"%{name} = Identity(%{value})")
        return name

    def out(self, *values: str) -> None:
        """Makes values outputs, under names of their own."""
        for value in values:
            name = f"out{len(self.outputs)}"
            self.lines.append(f"%{name} = Identity(%{value})")
            self.outputs.append(name)

    # ------------------------------------------------------------ spellings

    def cast(self, value: str, code: int) -> str:
        return str(self("Cast", value, to=code))

    def mean(self, value: str, axes: tuple[int, ...] = (-1,), op: str = "ReduceMean") -> str:
        if self.opset < (13 if op == "ReduceSum" else 18):
            return str(self(op, value, axes=list(axes), keepdims=1))
        return str(self(op, value, self.ints(*axes), keepdims=1))

    def cut(self, value: str, start: int, stop: int, step: int = 1) -> str:
        limits = [self.ints(n) for n in (start, stop, -1, step)]
        return str(self("Slice", value, *limits))

    @property
    def text(self) -> str:
        results = ", ".join(f"%{v}" for v in self.outputs)
        body = "\n  ".join(self.lines)
        return f"graph @net (opset {self.opset}{self.domains}) {{\n  {body}\n  return {results}\n}}"


def fused(text: str, instance: Pass = FUSE) -> Graph:
    """The graph after fusion, whose claims and soundness are checked."""
    graph = parse(text)
    apply(graph, instance)
    graph.verify()
    return graph


def kinds(graph: Graph) -> dict[str, int]:
    """How many ops of each kind there are, but for Identity."""
    return dict(
        Counter(op.kind.removeprefix("gecompiler.") for op in graph.ops if op.op_type != "Identity")
    )


def evaluate(graph: Graph, feeds: dict[str, Any]) -> dict[str, Any]:
    """The outputs, op by op as the simulated device computes them."""
    values: dict[str, Any] = dict(feeds)
    for name, constant in graph.constants.items():
        values[name] = constant.array()
    for op in graph.topological():
        given = [values[v] if v else None for v in op.inputs]
        values.update(zip(op.outputs, run_op(graph, op, given, {}), strict=True))
    return {name: values[name] for name in graph.outputs}


def expanded(graph: Graph, *, primitives: bool = False) -> Graph:
    """The graph as plain ONNX."""
    plain = graph.copy()
    ExpandFused(primitives).run(plain, PassContext())
    infer_types(plain)
    plain.verify()
    assert all(not op.domain for op in plain.ops)
    return plain


def feeds_of(graph: Graph, sizes: dict[str, int], seed: int = 0) -> dict[str, Any]:
    """Random inputs of standard deviation 1.5, not centred."""
    draw = np.random.default_rng(seed)
    found = {}
    for name in graph.inputs:
        kind = graph.tensor(name)
        assert kind is not None
        assert kind.shape is not None
        shape = [substitute(d, sizes) for d in kind.shape]
        found[name] = (0.3 + 1.5 * draw.standard_normal(shape)).astype(kind.dtype.numpy)
    return found


def check(
    net: Net,
    wanted: dict[str, int],
    sizes: dict[str, int] | None = None,
    instance: Pass = FUSE,
    tolerance: float | None = None,
) -> Graph:
    """Fuses the net to the kinds wanted, and compares numbers with the net run as it was.

    Both the fused ops and what they are expanded to are run, in either way.
    """
    source, graph = parse(net.text), fused(net.text, instance)
    assert kinds(graph) == wanted
    infer_types(source)
    feeds = feeds_of(source, sizes or {"b": 2, "s": 3})
    before = run(source, feeds)
    for after in (
        evaluate(graph, feeds),
        run(expanded(graph), feeds),
        run(expanded(graph, primitives=True), feeds),
    ):
        assert list(after) == list(before)
        for name, value in before.items():
            found = after[name]
            assert (found.dtype, found.shape) == (value.dtype, value.shape)
            bound = tolerance or TOLERANCE[value.dtype.name]
            np.testing.assert_allclose(found, value, rtol=bound, atol=bound, err_msg=name)
    return graph
