"""Helpers of the tests of attention fusion: spell attention, fuse it, compare the numbers."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from gecompiler.ir import Graph, parse
from gecompiler.ir.dims import substitute
from gecompiler.ir.onnx_io.exporter import to_onnx
from gecompiler.passes.attention.expand import ExpandFused
from gecompiler.passes.attention.fuse import FuseAttention
from gecompiler.passes.attention.site import AttentionSite
from gecompiler.passes.fingerprint import fingerprint
from gecompiler.passes.pass_base import PassContext

ort.set_default_logger_severity(4)

CORPUS = next(
    (
        path
        for path in (
            Path(os.environ.get("GECOMPILER_CORPUS", "")),
            Path(__file__).resolve().parents[4] / "shared",
        )
        if (path / "models" / "manifest.yaml").is_file()
    ),
    None,
)
"""Where the real models are, for lists of tests made before any fixture; None: nowhere."""

Arrays = dict[str, Any]


def fuse(graph: Graph) -> list[AttentionSite]:
    """Fuses in place and returns the sites; checks that the pass's claims hold."""
    context, before = PassContext(), fingerprint(graph)
    changes = FuseAttention().run(graph, context)
    assert changes == sum(s.fused for s in context.sites)
    assert (fingerprint(graph) == before) == (changes == 0)
    graph.verify()
    flash = [op for op in graph.ops if op.op_type == "FlashAttention"]
    assert len(flash) == changes
    assert FuseAttention().run(graph, PassContext()) == 0
    return context.sites


def run(graph: Graph, feeds: Arrays) -> Arrays:
    """The outputs by onnxruntime, its own optimisations off; fused ops are expanded on a copy."""
    plain = graph.copy()
    ExpandFused().run(plain, PassContext())
    plain.verify()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(to_onnx(plain).SerializeToString(), options)
    wanted = {i.name for i in session.get_inputs()}
    outputs = session.run(None, {k: v for k, v in feeds.items() if k in wanted})
    return dict(zip((o.name for o in session.get_outputs()), outputs, strict=True))


def random_feeds(graph: Graph, sizes: dict[str, int], seed: int = 0) -> Arrays:
    """Random inputs; booleans and 0/1 masks have rows without any True.

    A float that is called marks is such a mask: of other numbers a mask makes infinities, and
    NaN where these meet, also under keys that attention does not look at.
    """
    draw = np.random.default_rng(seed)
    found: Arrays = {}
    for name in graph.inputs:
        known = graph.tensor(name)
        assert known is not None
        assert known.shape is not None
        shape = [substitute(d, sizes) for d in known.shape]
        if known.dtype.is_float and not name.startswith("marks"):
            found[name] = draw.standard_normal(shape).astype(known.dtype.numpy)
        else:
            marks = draw.random(shape) < 0.6
            if shape:
                marks[draw.random(shape[:-1]) < 0.2] = False
            found[name] = np.asarray(marks).astype(known.dtype.numpy)
    return found


def assert_close(left: Arrays, right: Arrays, tolerance: float = 2e-5) -> None:
    assert list(left) == list(right)
    for name, a in left.items():
        b = right[name]
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        np.testing.assert_allclose(
            a, b, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=name
        )


def check(
    text: str,
    sizes: dict[str, int] | None = None,
    feeds: Arrays | None = None,
    tolerance: float = 2e-5,
) -> list[AttentionSite]:
    """Fuses the graph, checks that it computes what it did, and returns the sites."""
    source, graph = parse(text), parse(text)
    sites = fuse(graph)
    for seed in range(2):
        given = feeds or random_feeds(source, sizes or {}, seed)
        assert_close(run(source, given), run(graph, given), tolerance)
    return sites


def flash(graph: Graph) -> Any:
    """The only FlashAttention op of a graph."""
    (op,) = [op for op in graph.ops if op.op_type == "FlashAttention"]
    return op


class AttentionMaker:
    """One attention in a random spelling, as text, with what the report must say of it."""

    def __init__(self, seed: int, *, static: bool | None = None, masks: int | None = None) -> None:
        self.draw = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.static = self.draw.random() < 0.4 if static is None else static
        self.sizes = {"b": self.draw.choice([1, 2, 3]), "s": self.draw.choice([1, 5, 6])}
        self.sizes["t"] = self.draw.choice([self.sizes["s"], 4, 7])
        same = self.draw.random() < 0.6
        self.keys_are_queries = same
        if same:
            self.sizes["t"] = self.sizes["s"]
        self.heads = self.draw.choice([1, 2, 4, 6])
        self.groups = self.draw.choice([g for g in (1, 2, 3, self.heads) if self.heads % g == 0])
        self.width, self.value_width = self.draw.choice([(8, 8), (4, 6), (5, 3)])
        self.scale = 1.0
        self.softcap: float | None = None
        self.opset = self.draw.choice([11, 12, 13, 14, 17, 18, 20, 22, 23, 24])
        self.inputs: list[str] = []
        self.text = self._spell(self.draw.choice([0, 1, 2]) if masks is None else masks)

    # ---------------------------------------------------------------- sizes and lines

    def dim(self, name: str) -> str:
        if name == "t" and self.keys_are_queries:
            name = "s"
        return str(self.sizes[name]) if self.static else name

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def put(self, line: str) -> str:
        name = self.fresh()
        self.lines.append(f"  %{name} = {line}")
        return name

    def ints(self, *values: int) -> str:
        name = self.fresh()
        self.lines.append(f"  const %{name}: i64[{len(values)}] = {list(values)}")
        return name

    def unsqueezed(self, value: str, *axes: int) -> str:
        """A value with axes of size 1 put in, as the opset spells it."""
        if self.opset < 13:
            return self.put(f"Unsqueeze(%{value}) {{axes = {list(axes)}}}")
        return self.put(f"Unsqueeze(%{value}, %{self.ints(*axes)})")

    def root_of_width(self, value: str) -> str:
        """The root of a head's size, asked for at run time as torch's exporter does."""
        shape = self.put(f"Shape(%{value})")
        size = self.put(f"Gather(%{shape}, %{self.scalar(3, 'i64')}) {{axis = 0}}")
        return self.put(f"Sqrt(%{self.put(f'Cast(%{size}) {{to = 1}}')})")

    def scalar(self, value: float, kind: str = "f32") -> str:
        name = self.fresh()
        shape = self.draw.choice(["", "1", "1, 1, 1, 1"]) if kind == "f32" else ""
        data: Any = value
        for _ in [d for d in shape.split(",") if d]:
            data = [data]
        self.lines.append(f"  const %{name}: {kind}[{shape}] = {data}")
        return name

    def input(self, name: str, kind: str, *shape: str) -> str:
        self.inputs.append(f"  input %{name}: {kind}[{', '.join(shape)}]")
        return name

    def noise(self, value: str) -> str:
        """Sometimes an op that does nothing."""
        pick = self.draw.random()
        if pick < 0.1:
            return self.put(f"Identity(%{value})")
        if pick < 0.2:
            return self.put(f"Cast(%{value}) {{to = 1}}")
        return self.put(f"Dropout(%{value})") if pick < 0.25 else value

    def both(self, op: str, a: str, b: str) -> str:
        """A commutative op with its operands in any order."""
        a, b = (a, b) if self.draw.random() < 0.5 else (b, a)
        return self.put(f"{op}(%{a}, %{b})")

    def scaled(self, value: str, factor: float) -> str:
        """The value times a factor, in some spelling."""
        if self.draw.random() < 0.5:
            return self.both("Mul", value, self.scalar(factor))
        return self.put(f"Div(%{value}, %{self.scalar(1 / factor)})")

    # ---------------------------------------------------------------- operands

    def heads_first(self, name: str, rows: str, heads: int, width: int) -> str:
        """An operand as (B, heads, rows, width), from an input in some layout."""
        b, n = self.dim("b"), self.dim(rows)
        kind = self.draw.randrange(3)
        if kind == 0:
            return self.noise(self.input(name, "f32", b, str(heads), n, str(width)))
        if kind == 1:
            value = self.input(name, "f32", b, n, str(heads), str(width))
        else:
            flat = self.input(name, "f32", b, n, str(heads * width))
            value = self.put(f"Reshape(%{self.noise(flat)}, %{self.ints(0, 0, heads, width)})")
        value = self.noise(value)
        return self.noise(self.put(f"Transpose(%{value}) {{perm = [0, 2, 1, 3]}}"))

    def repeated(self, value: str, width: int) -> str:
        """KV heads repeated for the query heads, or left to broadcast."""
        copies = self.heads // self.groups
        if copies == 1 or (self.groups == 1 and self.draw.random() < 0.5):
            return value
        five = self.unsqueezed(value, 2)
        kind = self.draw.randrange(3)
        if kind == 0:
            five = self.put(f"Expand(%{five}, %{self.ints(1, 1, copies, 1, 1)})")
        elif kind == 1:
            five = self.put(f"Tile(%{five}, %{self.ints(1, 1, copies, 1, 1)})")
        else:
            names = ", ".join([f"%{five}"] * copies)
            five = self.put(f"Concat({names}) {{axis = 2}}")
        return self.put(f"Reshape(%{self.noise(five)}, %{self.ints(0, self.heads, -1, width)})")

    # ---------------------------------------------------------------- masks

    def positions(self, rows: str) -> str:
        """0, 1, ... up to a size, computed or stored."""
        if self.static:
            count = self.sizes["s" if rows == "t" and self.keys_are_queries else rows]
            return self.ints(*range(count))
        axis = {"s": "q_rows", "t": "k_rows"}[rows]
        zero, one = self.scalar(0, "i64"), self.scalar(1, "i64")
        return self.put(f"Range(%{zero}, %{axis}, %{one})")

    def causal(self) -> str:
        """A boolean (S, T): key not after query."""
        i = self.unsqueezed(self.positions("s"), 1)
        j = self.unsqueezed(self.positions("t"), 0)
        if self.draw.random() < 0.5 and self.opset >= 12:
            return self.put(f"GreaterOrEqual(%{i}, %{j})")
        return self.put(f"Not(%{self.put(f'Greater(%{j}, %{i})')})")

    def padding(self) -> str:
        """A boolean (B, 1, 1, T) from a (B, T) input of 0 and 1."""
        name = self.input(f"pad{self.count}", "i64", self.dim("b"), self.dim("t"))
        if self.draw.random() < 0.5:
            truth = self.put(f"Cast(%{name}) {{to = 9}}")
        else:
            equal = self.put(f"Equal(%{name}, %{self.scalar(0, 'i64')})")
            truth = self.put(f"Not(%{equal})")
        return self.unsqueezed(truth, 1, 2)

    def window(self) -> str:
        """A boolean (S, T): key not after query, and not more than two before it."""
        i = self.unsqueezed(self.positions("s"), 1)
        j = self.unsqueezed(self.positions("t"), 0)
        first = self.put(f"Sub(%{i}, %{self.scalar(3, 'i64')})")
        return self.both("And", self.put(f"Greater(%{j}, %{first})"), self.causal())

    def condition(self) -> str:
        kind = self.draw.randrange(5)
        if kind == 4:
            return self.window()
        if kind == 0:
            return self.causal()
        if kind == 1:
            return self.padding()
        if kind == 2:
            return self.both("And", self.causal(), self.padding())
        lead = self.draw.choice([["1"], [self.dim("b"), "1"], [self.dim("b"), str(self.heads)]])
        shape = [*lead, self.dim("s"), self.dim("t")]
        return self.input(f"mask{self.count}", "bool", *shape)

    def arithmetic(self) -> str:
        """A mask of some type, 1 where a key counts, as ``(1 - mask) * low``."""
        kind = self.draw.choice(["i64", "i32", "u8", "f32", "bool"])
        given = self.input(f"marks{self.count}", kind, self.dim("b"), self.dim("t"))
        if kind != "f32":
            given = self.put(f"Cast(%{given}) {{to = 1}}")
        opposite = self.put(f"Sub(%{self.scalar(1.0)}, %{self.unsqueezed(given, 1, 2)})")
        return self.both(
            "Mul", opposite, self.scalar(self.draw.choice([-3.4028234663852886e38, -1e4]))
        )

    def masked(self, scores: str) -> str:
        """Scores with a mask or a bias on them."""
        kind = self.draw.randrange(5)
        if kind == 4:
            return self.both("Add", scores, self.noise(self.arithmetic()))
        if kind == 0:
            lead = self.draw.choice([[], [self.dim("b"), "1"], ["1", str(self.heads)]])
            shape = [*lead, self.dim("s"), self.dim("t")]
            return self.both("Add", scores, self.input(f"bias{self.count}", "f32", *shape))
        low = self.scalar(self.draw.choice([float("-inf"), -3.4028234663852886e38, -1e4]))
        if kind == 1:
            return self.put(f"Where(%{self.condition()}, %{scores}, %{low})")
        if kind == 2:
            opposite = self.put(f"Not(%{self.condition()})")
            return self.put(f"Where(%{opposite}, %{low}, %{scores})")
        term = self.put(f"Where(%{self.condition()}, %{self.scalar(0.0)}, %{low})")
        return self.both("Add", scores, self.noise(term))

    # ---------------------------------------------------------------- the whole

    def _spell(self, masks: int) -> str:
        q = self.heads_first("q", "s", self.heads, self.width)
        k = self.heads_first("k", "t", self.groups, self.width)
        v = self.heads_first("v", "t", self.groups, self.value_width)
        if not self.static:
            for name, value, axis in (("q_rows", q, 2), ("k_rows", k, 2), ("batch", q, 0)):
                shape = self.put(f"Shape(%{value})")
                at = self.scalar(axis, "i64")
                self.lines.append(f"  %{name} = Gather(%{shape}, %{at}) {{axis = 0}}")
        factor = self.draw.choice([1.0, 0.5, 0.3, -0.7])
        places = self.draw.sample(["q", "k", "scores"], self.draw.randrange(3))
        self.scale = factor ** len(places)
        if "q" in places:
            q = self.noise(self.scaled(q, factor))
        k, v = self.repeated(k, self.width), self.repeated(v, self.value_width)
        if "k" in places:
            k = self.scaled(k, factor)
        scores = self._product(q, k)
        if "scores" in places:
            scores = self.noise(self.scaled(scores, factor))
        if self.draw.random() < 0.2:
            self.scale *= self.width**-0.5
            scores = self.put(f"Div(%{scores}, %{self.root_of_width(q)})")
        if self.draw.random() < 0.25:
            self.softcap = 5.0
            scores = self.scaled(scores, 1 / 5.0)
            scores = self.scaled(self.put(f"Tanh(%{scores})"), 5.0)
        for _ in range(masks):
            scores = self.noise(self.masked(scores))
        weights = self._softmax(scores)
        out = self._weighted(weights, v)
        if self.draw.random() < 0.7:
            out = self.put(f"Transpose(%{out}) {{perm = [0, 2, 1, 3]}}")
            shape = self.ints(0, 0, self.heads * self.value_width)
            out = self.put(f"Reshape(%{out}, %{shape})")
        body = "\n".join([*self.inputs, *self.lines])
        return f"graph @attention (opset {self.opset}) {{\n{body}\n  return %{out}\n}}"

    def _product(self, q: str, k: str) -> str:
        kind = self.draw.randrange(5)
        if kind == 0 and self.groups == self.heads and self.opset >= 12:
            return self.put(f'Einsum(%{q}, %{k}) {{equation = "bhid,bhjd->bhij"}}')
        if kind == 1:  # the product of K and Q, turned round
            turned = self.put(f"Transpose(%{q}) {{perm = [0, 1, 3, 2]}}")
            product = self.put(f"MatMul(%{k}, %{turned})")
            return self.put(f"Transpose(%{product}) {{perm = [0, 1, 3, 2]}}")
        if kind == 2 and self.groups == self.heads:
            return self._folded(q, k)
        if kind == 3:
            return self.noise(self.put(f"MatMul(%{q}, %{self._turned_in_3d(k)})"))
        turned = self.noise(self.put(f"Transpose(%{k}) {{perm = [0, 1, 3, 2]}}"))
        return self.noise(self.put(f"MatMul(%{q}, %{turned})"))

    def _folded(self, q: str, k: str) -> str:
        """A batched product over B*H."""
        q = self.put(f"Reshape(%{q}, %{self._folded_shape('s', self.width)})")
        k = self.put(f"Reshape(%{k}, %{self._folded_shape('t', self.width)})")
        k = self.put(f"Transpose(%{k}) {{perm = [0, 2, 1]}}")
        product = self.put(f"MatMul(%{q}, %{k})")
        return self.put(f"Reshape(%{product}, %{self._shape('b', self.heads, 's', 't')})")

    def _turned_in_3d(self, k: str) -> str:
        """K transposed on a 3D view, as torch's exporter does for attention ops."""
        heads = self.heads if self.heads == self.groups else None
        if heads is None:
            return self.put(f"Transpose(%{k}) {{perm = [0, 1, 3, 2]}}")
        flat = self.put(f"Reshape(%{k}, %{self._folded_shape('t', self.width)})")
        flat = self.put(f"Transpose(%{flat}) {{perm = [0, 2, 1]}}")
        return self.put(f"Reshape(%{flat}, %{self._shape('b', heads, self.width, 't')})")

    def _folded_shape(self, rows: str, width: int) -> str:
        return (
            self.ints(-1, self._size(rows), width) if self.static else self._shape(-1, rows, width)
        )

    def _size(self, name: str) -> int:
        return self.sizes["s" if name == "t" and self.keys_are_queries else name]

    def _shape(self, *dims: str | int) -> str:
        """A shape operand: stored where all sizes are numbers, else put together."""
        if self.static:
            return self.ints(*(self._size(d) if isinstance(d, str) else d for d in dims))
        names = {"b": "batch", "s": "q_rows", "t": "k_rows"}
        parts: list[str] = []
        for d in dims:
            if isinstance(d, str):
                parts.append(self.unsqueezed(names[d], 0))
            else:
                parts.append(self.ints(d))
        return self.put(f"Concat({', '.join('%' + p for p in parts)}) {{axis = 0}}")

    def _softmax(self, scores: str) -> str:
        if self.draw.random() < 0.7:
            axis = self.draw.choice([-1, 3])
            weights = self.put(f"Softmax(%{scores}) {{axis = {axis}}}")
            if self.draw.random() < 0.4:
                nan, zero = self.put(f"IsNaN(%{weights})"), self.scalar(0.0)
                weights = self.put(f"Where(%{nan}, %{zero}, %{weights})")
            return self.noise(weights)
        axes = "{axes = [3], keepdims = 1}"
        top = (
            self.put(f"ReduceMax(%{scores}, %{self.ints(-1)})")
            if self.opset >= 18
            else self.put(f"ReduceMax(%{scores}) {axes}")
        )
        powers = self.put(f"Exp(%{self.put(f'Sub(%{scores}, %{top})')})")
        total = (
            self.put(f"ReduceSum(%{powers}, %{self.ints(-1)})")
            if self.opset >= 13
            else self.put(f"ReduceSum(%{powers}) {axes}")
        )
        if self.draw.random() < 0.5:
            return self.put(f"Div(%{powers}, %{total})")
        return self.both("Mul", powers, self.put(f"Reciprocal(%{total})"))

    def _weighted(self, weights: str, v: str) -> str:
        if self.draw.random() < 0.2 and self.groups == self.heads:
            weights = self.put(f"Reshape(%{weights}, %{self._folded_scores()})")
            v = self.put(f"Reshape(%{v}, %{self._folded_shape('t', self.value_width)})")
            out = self.put(f"MatMul(%{weights}, %{v})")
            shape = self._shape("b", self.heads, "s", self.value_width)
            return self.put(f"Reshape(%{out}, %{shape})")
        return self.put(f"MatMul(%{weights}, %{v})")

    def _folded_scores(self) -> str:
        return self._shape(-1, "s", "t")
