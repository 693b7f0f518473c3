"""Writing backward ops: their shapes worked out here, their forms those of the graph's opset."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, NO_ATTRS, NO_INFO, Attr, Op, OpInfo
from gecompiler.ir.types import DType, TensorType

Sizes = tuple[int, ...]


@dataclass
class Tape:
    """A graph that backward ops are written into.

    ``saved`` gives the name under which backward ops find what the forward pass made; it may
    compute it once more. ``info`` and ``stem`` are for the ops that are written next.
    """

    graph: Graph
    saved: Callable[[str], str] = lambda value: value
    info: OpInfo = NO_INFO
    stem: str = "grad"
    _constants: dict[tuple[str, Sizes, bytes], str] = field(default_factory=dict)

    # ------------------------------------------------------------ what is known

    def type(self, value: str) -> TensorType:
        """The type of a value; ModelError where a size is no number."""
        found = self.graph.tensor(value)
        if found is None or not found.is_static:
            raise ModelError(
                f"the size of {value!r} is not known: {found or 'no type'}",
                where=self.graph.name,
                hint="bind the sizes first (--batch, --seq, --input-shape): gradients need them",
            )
        return found

    def shape(self, value: str) -> Sizes:
        """The sizes of a value."""
        return self.type(value).sizes

    def dtype(self, value: str) -> DType:
        """The element type of a value."""
        return self.type(value).dtype

    @property
    def opset(self) -> int:
        """The version of ai.onnx."""
        return self.graph.opsets.get("", 1)

    def ints(self, value: str) -> tuple[int, ...] | None:
        """The contents of an integer constant, None where they are not known."""
        constant = self.graph.constant(value)
        if constant is None or constant.data is None or not constant.type.dtype.is_integer:
            return None
        return tuple(int(n) for n in constant.data.reshape(-1))

    # ------------------------------------------------------------ writing

    def emit(
        self,
        op_type: str,
        inputs: Sequence[str],
        *types: TensorType | None,
        attrs: Mapping[str, Attr] = NO_ATTRS,
        domain: str = "",
    ) -> tuple[str, ...]:
        """Adds an op with an output for each of ``types`` (None: left out); their names."""
        stem = f"{self.stem}/{op_type}"
        name = self.graph.fresh(stem)
        outputs: list[str] = []
        for index, type_ in enumerate(types):
            made = "" if type_ is None else self.graph.fresh(f"{stem}:{index}")
            while made and made in outputs:  # pragma: no cover - names of one op differ by index
                made = self.graph.fresh(f"{made}_")
            outputs.append(made)
        while outputs and not outputs[-1]:
            outputs.pop()
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        op = Op(name, op_type, tuple(given), tuple(outputs), attrs, domain, self.info)
        self.graph.add_op(op, types)
        return (*outputs, *([""] * (len(types) - len(outputs))))

    def own(
        self,
        op_type: str,
        inputs: Sequence[str],
        *types: TensorType | None,
        attrs: Mapping[str, Attr] = NO_ATTRS,
    ) -> tuple[str, ...]:
        """`emit` of an op of the product's own domain."""
        return self.emit(op_type, inputs, *types, attrs=attrs, domain=GE_DOMAIN)

    def constant(self, array: object) -> str:
        """The name of a small constant; equal ones are shared."""
        made = Constant.of(array)
        data = made.array()
        key = (made.type.dtype.short, made.type.sizes, data.tobytes())
        if key not in self._constants:
            self._constants[key] = self.graph.constant_of("grad/const", data)
        return self._constants[key]

    def number(self, value: float, dtype: DType) -> str:
        """A scalar of that element type."""
        return self.constant(np.array(value, np.float64).astype(dtype.numpy))

    # ------------------------------------------------------------ arithmetic

    def unary(self, op_type: str, x: str, attrs: Mapping[str, Attr] = NO_ATTRS) -> str:
        """An op that keeps type and shape."""
        return self.emit(op_type, [x], self.type(x), attrs=attrs)[0]

    def binary(self, op_type: str, a: str, b: str) -> str:
        """Add, Sub, Mul, Div or Pow of two broadcast together."""
        shape = np.broadcast_shapes(self.shape(a), self.shape(b))
        return self.emit(op_type, [a, b], TensorType(self.dtype(a), shape))[0]

    def compare(self, op_type: str, a: str, b: str) -> str:
        """Less, Greater or Equal: booleans."""
        shape = np.broadcast_shapes(self.shape(a), self.shape(b))
        return self.emit(op_type, [a, b], TensorType(DType.BOOL, shape))[0]

    def mul(self, a: str, b: str) -> str:
        """The product."""
        return self.binary("Mul", a, b)

    def scaled(self, x: str, factor: float) -> str:
        """The value times a number."""
        return x if factor == 1 else self.mul(x, self.number(factor, self.dtype(x)))

    def shifted(self, x: str, term: float) -> str:
        """The value plus a number."""
        return self.binary("Add", x, self.number(term, self.dtype(x)))

    def add(self, a: str, b: str) -> str:
        """The sum of two of the same shape."""
        return self.binary("Add", a, b)

    def negated(self, x: str) -> str:
        """Minus the value."""
        return self.unary("Neg", x)

    def where(self, condition: str, x: str, other: str = "") -> str:
        """``x`` where the condition holds, else ``other`` or 0."""
        other = other or self.number(0, self.dtype(x))
        if self.opset < 9:  # which have no Where
            kept = self.cast(condition, self.dtype(x))
            left = self.shifted(self.negated(kept), 1)
            return self.add(self.mul(kept, x), self.mul(left, other))
        shape = np.broadcast_shapes(self.shape(condition), self.shape(x), self.shape(other))
        kind = TensorType(self.dtype(x), shape)
        return self.emit("Where", [condition, x, other], kind)[0]

    def cast(self, x: str, dtype: DType) -> str:
        """The value in another element type."""
        kind = self.type(x)
        if kind.dtype is dtype:
            return x
        made = TensorType(dtype, kind.shape)
        return self.emit("Cast", [x], made, attrs={"to": dtype.code})[0]

    # ------------------------------------------------------------ shapes

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """The value in another shape."""
        sizes = tuple(shape)
        if self.shape(x) == sizes:
            return x
        kind = TensorType(self.dtype(x), sizes)
        attrs: dict[str, Attr] = {"allowzero": 1} if 0 in sizes and self.opset >= 14 else {}
        return self.emit("Reshape", [x, self._ints(sizes)], kind, attrs=attrs)[0]

    def _ints(self, numbers: Sequence[int]) -> str:
        return self.constant(np.array(numbers, np.int64))

    def transpose(self, x: str, perm: Sequence[int]) -> str:
        """The value with its axes in another order."""
        order = tuple(perm)
        if order == tuple(range(len(order))):
            return x
        shape = self.shape(x)
        kind = TensorType(self.dtype(x), tuple(shape[a] for a in order))
        return self.emit("Transpose", [x], kind, attrs={"perm": order})[0]

    def swapped(self, x: str) -> str:
        """The value with its last two axes exchanged."""
        rank = len(self.shape(x))
        return self.transpose(x, (*range(rank - 2), rank - 1, rank - 2))

    def expand(self, x: str, shape: Sequence[int]) -> str:
        """The value broadcast to a shape."""
        sizes = tuple(shape)
        if self.shape(x) == sizes:
            return x
        kind = TensorType(self.dtype(x), sizes)
        return self.emit("Expand", [x, self._ints(sizes)], kind)[0]

    def reduce(self, op_type: str, x: str, axes: Sequence[int], *, keep: bool = False) -> str:
        """ReduceSum or ReduceMax over axes; the value itself where there are none."""
        if not axes:
            return x
        over = set(axes)
        sizes = [1 if i in over else d for i, d in enumerate(self.shape(x))]
        if not keep:
            sizes = [d for i, d in enumerate(sizes) if i not in over]
        kind = TensorType(self.dtype(x), tuple(sizes))
        attrs: dict[str, Attr] = {"keepdims": int(keep)}
        if self.opset >= (13 if op_type == "ReduceSum" else 18):
            return self.emit(op_type, [x, self._ints(sorted(over))], kind, attrs=attrs)[0]
        attrs["axes"] = tuple(sorted(over))
        return self.emit(op_type, [x], kind, attrs=attrs)[0]

    def sum_to(self, x: str, shape: Sequence[int]) -> str:
        """The value summed over what its shape was broadcast to from ``shape``."""
        sizes, wanted = self.shape(x), tuple(shape)
        lead = len(sizes) - len(wanted)
        axes = [i for i in range(len(sizes)) if i < lead or wanted[i - lead] != sizes[i]]
        return self.reshape(self.reduce("ReduceSum", x, axes), wanted)

    def split(self, x: str, axis: int, parts: Sequence[int]) -> tuple[str, ...]:
        """The value cut into parts along an axis."""
        if len(parts) == 1:
            return (x,)
        shape, dtype = self.shape(x), self.dtype(x)
        kinds = [TensorType(dtype, (*shape[:axis], n, *shape[axis + 1 :])) for n in parts]
        attrs: dict[str, Attr] = {"axis": axis}
        if self.opset >= 13:
            return self.emit("Split", [x, self._ints(parts)], *kinds, attrs=attrs)
        return self.emit("Split", [x], *kinds, attrs={**attrs, "split": tuple(parts)})

    def concat(self, parts: Sequence[str], axis: int) -> str:
        """The parts joined along an axis."""
        if len(parts) == 1:
            return parts[0]
        first = self.shape(parts[0])
        length = sum(self.shape(p)[axis] for p in parts)
        kind = TensorType(self.dtype(parts[0]), (*first[:axis], length, *first[axis + 1 :]))
        return self.emit("Concat", parts, kind, attrs={"axis": axis})[0]

    def zeros(self, kind: TensorType) -> str:
        """Zeros of a type, written out."""
        return self.expand(self.number(0, kind.dtype), kind.sizes)

    # ------------------------------------------------------------ products

    def matmul(self, a: str, b: str) -> str:
        """The product of matrices, batches broadcast."""
        left, right = self.shape(a), self.shape(b)
        batch = np.broadcast_shapes(left[:-2], right[:-2])
        kind = TensorType(self.dtype(a), (*batch, left[-2], right[-1]))
        return self.emit("MatMul", [a, b], kind)[0]

    def gemm(self, a: str, b: str, *, ta: bool = False, tb: bool = False) -> str:
        """The product of two matrices, each turned where asked: no transpose is written out."""
        left, right = self.shape(a), self.shape(b)
        shape = (left[1] if ta else left[0], right[0] if tb else right[1])
        attrs: dict[str, Attr] = {"transA": int(ta), "transB": int(tb)}
        inputs = [a, b]
        if self.opset < 11:
            inputs.append(self.constant(np.zeros(1, self.dtype(a).numpy)))
        return self.emit("Gemm", inputs, TensorType(self.dtype(a), shape), attrs=attrs)[0]

    def flat(self, x: str) -> str:
        """The value as a matrix with its last axis as columns."""
        shape = self.shape(x)
        return self.reshape(x, (math.prod(shape[:-1]), shape[-1]))
