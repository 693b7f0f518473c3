"""Random graphs of ops that have signatures, and of some that have none."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from gecompiler.ir import Graph
from gecompiler.ir.constants import Constant
from gecompiler.ir.infer import infer_types
from gecompiler.ir.op import Op
from gecompiler.ir.parallel import Layout, Mesh, Product, Segments, Split
from gecompiler.ir.types import tensor

SIZES = st.sampled_from((1, 2, 3, 4, 6))
MESHES = st.builds(
    Mesh.of,
    dp=st.integers(1, 3),
    sp=st.integers(1, 2),
    tp=st.integers(1, 4),
)


class GraphMaker:
    """Adds one random op after the other to a graph of float tensors."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.graph = Graph("random", {"": 20, "gecompiler": 1})
        self.random = np.random.default_rng(draw(st.integers(0, 1000)))
        self.arrays: dict[str, np.ndarray] = {}
        self.floats: list[str] = []

    def make(self, count: int) -> Graph:
        """A graph of that many ops, whose last values are its outputs."""
        for n in range(self.draw(st.integers(1, 2))):
            shape = tuple(self.draw(st.lists(SIZES, min_size=2, max_size=4)))
            name = self.graph.add_input(f"x{n}", tensor("f32", shape))
            self.arrays[name] = self.random.standard_normal(shape).astype(np.float32)
            self.floats.append(name)
        for _ in range(count):
            self._add()
        if not len(self.graph):
            self.add_unary(self.floats[0])
        ends = [v for v in self.floats if self.graph.producer(v) and not self.graph.uses(v)]
        self.graph.set_outputs(ends)
        self.graph.verify()
        return self.graph

    def _add(self) -> None:
        kinds = sorted(k for k in dir(self) if k.startswith("add_"))
        getattr(self, self.draw(st.sampled_from(kinds)))(self.draw(st.sampled_from(self.floats)))

    def _shape(self, value: str) -> tuple[int, ...]:
        found = self.graph.tensor(value)
        assert found is not None
        return found.sizes

    def _emit(self, op_type: str, inputs: list[str], outputs: int = 1, domain: str = "",
              **attrs: object) -> list[str]:  # fmt: skip
        name = self.graph.fresh(op_type)
        made = [self.graph.fresh(f"{name}_out{n}") for n in range(outputs)]
        self.graph.add_op(Op(name, op_type, tuple(inputs), tuple(made), dict(attrs), domain))
        infer_types(self.graph)
        self.floats += made
        return made

    def _constant(self, *shape: int) -> str:
        data = self.random.standard_normal(shape).astype(np.float32)
        return self.graph.add_constant(self.graph.fresh("w"), Constant.of(data))

    def _ints(self, *numbers: int) -> str:
        return self.graph.constant_of("n", np.asarray(numbers, np.int64))

    def _axis(self, value: str) -> int:
        return self.draw(st.integers(0, len(self._shape(value)) - 1))

    def add_matmul(self, x: str) -> None:
        columns = self.draw(SIZES)
        if len(self._shape(x)) >= 2:
            self._emit("MatMul", [x, self._constant(self._shape(x)[-1], columns)])

    def add_stacked(self, x: str) -> None:
        shape = self._shape(x)
        if len(shape) >= 3:
            self._emit("MatMul", [x, self._constant(shape[-3], shape[-1], self.draw(SIZES))])

    def add_gemm(self, x: str) -> None:
        shape = self._shape(x)
        if len(shape) == 2:
            columns, turned = self.draw(SIZES), self.draw(st.booleans())
            w = (columns, shape[1]) if turned else (shape[1], columns)
            inputs = [x, self._constant(*w)]
            if self.draw(st.booleans()):
                inputs.append(self._constant(columns))
            self._emit("Gemm", inputs, transB=int(turned))

    def add_unary(self, x: str) -> None:
        self._emit(self.draw(st.sampled_from(("Neg", "Tanh", "Identity", "Relu"))), [x])

    def add_sum(self, x: str) -> None:
        others = [v for v in self.floats if self._shape(v) == self._shape(x)]
        self._emit("Add", [x, self.draw(st.sampled_from(others))])

    def add_bias(self, x: str) -> None:
        op_type = self.draw(st.sampled_from(("Add", "Mul")))
        self._emit(op_type, [x, self._constant(self._shape(x)[-1])])

    def add_softmax(self, x: str) -> None:
        self._emit("Softmax", [x], axis=self._axis(x))

    def add_norm(self, x: str) -> None:
        attrs = {"axis": -1, "epsilon": 1e-5, "stash_type": 1, "scale_type": 1, "output_type": 1}
        scale = self._constant(self._shape(x)[-1])
        self._emit("RMSNorm", [x, scale], domain="gecompiler", **attrs, offset=0.0)

    def add_gated(self, x: str) -> None:
        if self._shape(x)[-1] % 2 == 0:
            gate = self.draw(st.sampled_from(("first", "last", "even", "odd")))
            self._emit("SiluMul", [x], domain="gecompiler", alpha=1.0, gate=gate)

    def add_reduce(self, x: str) -> None:
        if len(self._shape(x)) > 2:
            kind = self.draw(st.sampled_from(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")))
            keep = self.draw(st.integers(0, 1))
            self._emit(kind, [x, self._ints(self._axis(x))], keepdims=keep)

    def add_merge(self, x: str) -> None:
        shape, at = self._shape(x), self._axis(x)
        if at + 1 < len(shape) and len(shape) > 2:
            new = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
            self._emit("Reshape", [x, self._ints(*new)])

    def add_take_apart(self, x: str) -> None:
        shape, at = self._shape(x), self._axis(x)
        part = self.draw(st.sampled_from((2, 3)))
        if shape[at] % part == 0 and len(shape) < 5:
            inner = (part, shape[at] // part)
            new = (*shape[:at], *self.draw(st.permutations(inner)), *shape[at + 1 :])
            self._emit("Reshape", [x, self._ints(*new)])

    def add_tangle(self, x: str) -> None:
        shape = self._shape(x)
        self._emit("Reshape", [x, self._ints(*reversed(shape))])

    def add_transpose(self, x: str) -> None:
        perm = self.draw(st.permutations(range(len(self._shape(x)))))
        self._emit("Transpose", [x], perm=tuple(perm))

    def add_unsqueeze(self, x: str) -> None:
        if len(self._shape(x)) < 4:
            self._emit("Unsqueeze", [x, self._ints(self._axis(x))])

    def add_expand(self, x: str) -> None:
        shape = self._shape(x)
        if 1 in shape:
            size = self.draw(SIZES)
            self._emit("Expand", [x, self._ints(*(size if n == 1 else n for n in shape))])

    def add_concat(self, x: str) -> None:
        axis = self._axis(x)
        other = list(self._shape(x))
        other[axis] = self.draw(SIZES)
        second = self._constant(*other) if self.draw(st.booleans()) else x
        self._emit("Concat", [x, second], axis=axis)

    def add_split(self, x: str) -> None:
        axis = self._axis(x)
        size = self._shape(x)[axis]
        if size > 1:
            first = self.draw(st.integers(1, size - 1))
            self._emit("Split", [x, self._ints(first, size - first)], 2, axis=axis)

    def add_slice(self, x: str) -> None:
        axis = self._axis(x)
        size = self._shape(x)[axis]
        start = self.draw(st.integers(0, size - 1))
        stop = self.draw(st.integers(start + 1, size))
        step = self.draw(st.sampled_from((1, 1, 2)))
        self._emit("Slice", [x, *(self._ints(n) for n in (start, stop, axis, step))])

    def add_gather(self, x: str) -> None:
        axis = self._axis(x)
        count = self.draw(SIZES)
        picked = self.random.integers(0, self._shape(x)[axis], count)
        self._emit("Gather", [x, self._ints(*picked.tolist())], axis=axis)

    def add_unknown(self, x: str) -> None:
        """An op that no rule describes runs whole."""
        self._emit("Trilu", [x])

    def add_cumsum(self, x: str) -> None:
        axis = self.graph.constant_of("axis", np.asarray(self._axis(x), np.int64))
        self._emit("CumSum", [x, axis])


@st.composite
def graphs(draw: st.DrawFn, most: int = 8) -> tuple[Graph, dict[str, np.ndarray]]:
    """A random graph and its inputs."""
    maker = GraphMaker(draw)
    graph = maker.make(draw(st.integers(1, most)))
    return graph, maker.arrays


def layouts(size: int, axes: list[str]) -> st.SearchStrategy[Layout]:
    """Layouts of a dim over some of the axes, each used once."""
    if not axes:
        return st.none()
    axis = st.sampled_from(axes)
    simple: st.SearchStrategy[Layout] = st.builds(Split, axis)
    choices = [st.none(), simple]
    if size % 2 == 0 and size > 2:
        choices.append(st.builds(lambda s: Product(((2, None), (size // 2, s))), simple))
        choices.append(st.builds(lambda s: Product(((size // 2, s), (2, None))), simple))
        choices.append(st.builds(lambda s: Segments(((size // 2, s), (size // 2, None))), simple))
    return st.one_of(*choices)
