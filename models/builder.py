"""A Graph under construction: scopes for names and groups, and typed ops.

Every method adds ops under the current scope and returns the name of a value, whose type it
has set. Types are worked out here because a builder knows them; nothing is inferred after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.dims import Dim, broadcast
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import NO_ATTRS, Attr, Op, OpInfo
from gecompiler.ir.scope import group_of
from gecompiler.ir.types import DType, Shape, TensorType, tensor
from gecompiler.models.weights import Weights


class Builder:
    """Builds one graph. ``dtype`` is that of weights and activations."""

    def __init__(self, name: str, dtype: DType, weights: Weights) -> None:
        self.graph = Graph(name, {"": 20})
        self.dtype = dtype
        self.weights = weights
        self._scopes: list[str] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    # ---------------------------------------------------------------- names

    @contextmanager
    def scope(self, *names: str) -> Iterator[None]:
        """Adds module names to the path for the ops within."""
        self._scopes += names
        yield
        del self._scopes[len(self._scopes) - len(names) :]

    @property
    def path(self) -> str:
        """The scope as exporters write it: ``/model/layers.0/mlp``."""
        return "".join(f"/{name}" for name in self._scopes)

    def _info(self, op_type: str) -> OpInfo:
        return OpInfo(scope=self.path, group=group_of(self.path, op_type))

    def shape(self, value: str) -> Shape:
        """The value's shape."""
        return self.type(value).shape or ()

    def type(self, value: str) -> TensorType:
        """The value's type."""
        found = self.graph.tensor(value)
        assert found is not None, f"{value!r} has no tensor type"
        return found

    # ---------------------------------------------------------------- leaves

    def input(self, name: str, dtype: DType, shape: Sequence[Dim]) -> str:
        """A graph input."""
        return self.graph.add_input(name, tensor(dtype, shape))

    def weight(self, name: str, shape: tuple[int, ...], kind: str = "matrix") -> str:
        """The weight ``name`` of the current module, made once."""
        full = ".".join([*self._scopes, name])
        if not self.graph.has_value(full):
            constant = self.weights.make(full, shape, self.dtype, kind)
            self.graph.add_constant(full, constant)
        return full

    def constant(self, array: object, dtype: DType | None = None) -> str:
        """A constant with data; equal ones are shared."""
        made = Constant.of(array, dtype)
        data: Array = made.array()
        key = (made.type.dtype.short, data.shape, data.tobytes())
        if key not in self._constants:
            name = self.graph.fresh("const")
            self._constants[key] = self.graph.add_constant(name, made)
        return self._constants[key]

    def ints(self, *numbers: int) -> str:
        """A constant int64 vector."""
        return self.constant(np.array(numbers, np.int64))

    def scalar(self, number: float, like: str) -> str:
        """A constant scalar of the element type of ``like``."""
        return self.constant(number, self.type(like).dtype)

    # ---------------------------------------------------------------- ops

    def op(
        self,
        op_type: str,
        inputs: Sequence[str],
        dtype: DType,
        shape: Sequence[Dim],
        attrs: Mapping[str, Attr] = NO_ATTRS,
        output: str = "",
    ) -> str:
        """Any op with one output of that type, which is called ``output`` if that is given."""
        type_ = tensor(dtype, shape)
        if not output:
            return self._emit(op_type, inputs, [type_], attrs)
        name = self.graph.fresh(f"{self.path}/{op_type}")
        op = Op(name, op_type, tuple(inputs), (output,), attrs, info=self._info(op_type))
        self.graph.add_op(op, [type_])
        return output

    def _emit(
        self,
        op_type: str,
        inputs: Sequence[str],
        types: Sequence[TensorType],
        attrs: Mapping[str, Attr] = NO_ATTRS,
    ) -> str:
        return self.graph.emit(
            op_type,
            inputs,
            attrs=attrs,
            info=self._info(op_type),
            stem=f"{self.path}/{op_type}",
            outputs=len(types),
            types=types,
        )

    def unary(self, op_type: str, x: str, attrs: Mapping[str, Attr] = NO_ATTRS) -> str:
        """An elementwise op of one input."""
        return self.op(op_type, [x], self.type(x).dtype, self.shape(x), attrs)

    def binary(self, op_type: str, a: str, b: str, dtype: DType | None = None) -> str:
        """An elementwise op of two inputs that broadcast; ``dtype`` of the result if not theirs."""
        return self.op(
            op_type, [a, b], dtype or self.type(a).dtype, _broadcast(self.shape(a), self.shape(b))
        )

    def where(self, condition: str, a: str, b: str) -> str:
        """Elementwise choice."""
        shape = _broadcast(_broadcast(self.shape(condition), self.shape(a)), self.shape(b))
        return self.op("Where", [condition, a, b], self.type(a).dtype, shape)

    def cast(self, x: str, dtype: DType) -> str:
        """A change of element type; nothing where it is that already."""
        if self.type(x).dtype is dtype:
            return x
        return self.op("Cast", [x], dtype, self.shape(x), {"to": dtype.code})

    def matmul(self, a: str, b: str, output: str = "") -> str:
        """A matrix product with broadcast batch dims."""
        left, right = self.shape(a), self.shape(b)
        shape = (*_broadcast(left[:-2], right[:-2]), left[-2], right[-1])
        return self.op("MatMul", [a, b], self.type(a).dtype, shape, output=output)

    def transpose(self, x: str, *perm: int) -> str:
        """A permutation of dims."""
        shape = [self.shape(x)[p] for p in perm]
        return self.op("Transpose", [x], self.type(x).dtype, shape, {"perm": tuple(perm)})

    def reshape(self, x: str, target: str, shape: Sequence[Dim]) -> str:
        """A reshape to the sizes in the value ``target``, which come out as ``shape``."""
        return self.op("Reshape", [x, target], self.type(x).dtype, shape)

    def unsqueeze(self, x: str, *axes: int) -> str:
        """Inserts dims of size 1 at those axes of the result."""
        rest, rank = iter(self.shape(x)), len(self.shape(x)) + len(axes)
        places = {axis % rank for axis in axes}
        shape = [1 if i in places else next(rest) for i in range(rank)]
        return self.op("Unsqueeze", [x, self.ints(*axes)], self.type(x).dtype, shape)

    def concat(self, parts: Sequence[str], axis: int, output: str = "") -> str:
        """Parts joined along an axis."""
        shape = list(self.shape(parts[0]))
        for part in parts[1:]:
            shape[axis] = shape[axis] + self.shape(part)[axis]
        dtype = self.type(parts[0]).dtype
        return self.op("Concat", parts, dtype, shape, {"axis": axis}, output)

    def slice_last(self, x: str, start: int, end: int) -> str:
        """Columns [start, end) of the last dim."""
        shape = (*self.shape(x)[:-1], end - start)
        axis = len(shape) - 1
        inputs = [x, self.ints(start), self.ints(end), self.ints(axis), self.ints(1)]
        return self.op("Slice", inputs, self.type(x).dtype, shape)

    def gather(self, table: str, indices: str) -> str:
        """Rows of a table by number."""
        shape = (*self.shape(indices), *self.shape(table)[1:])
        return self.op("Gather", [table, indices], self.type(table).dtype, shape, {"axis": 0})

    def softmax(self, x: str) -> str:
        """Softmax over the last dim."""
        return self.unary("Softmax", x, {"axis": -1})

    def split(self, x: str, count: int) -> tuple[str, ...]:
        """Equal parts of the last dim."""
        axis = len(self.shape(x)) - 1
        width = self.shape(x)[axis] // count
        part = tensor(self.type(x).dtype, (*self.shape(x)[:axis], width))
        first = self._emit("Split", [x], [part] * count, {"axis": axis, "num_outputs": count})
        maker = self.graph.producer(first)
        assert maker is not None
        return maker.outputs

    def size(self, x: str, axis: int) -> str:
        """The size of a dim as an int64 scalar."""
        found = self.op("Shape", [x], DType.I64, (1,), {"start": axis, "end": axis + 1})
        return self.op("Squeeze", [found], DType.I64, ())

    def range(self, size: str, count: Dim) -> str:
        """0, 1, ... below the scalar ``size``, which is ``count``."""
        inputs = [self.constant(0, DType.I64), size, self.constant(1, DType.I64)]
        return self.op("Range", inputs, DType.I64, (count,))


def _broadcast(a: Shape, b: Shape) -> Shape:
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(broadcast(x, y) for x, y in zip(left, right, strict=True))
