"""Emits ops with their types set, spelt as the graph's opset wants them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.dims import Dim, Expr, as_atom, broadcast
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import NO_INFO, Attr, OpInfo
from gecompiler.ir.types import DType, Shape, TensorType
from gecompiler.passes.attention.refusal import Refusal

MOST_WRITTEN_OUT = 1 << 20
"""Longer rows of numbers are made by an op and not kept as a constant."""


@dataclass
class Builder:
    """Adds ops to ``graph``; ``info`` is what they inherit, ``scope`` begins their names.

    ``sources`` are values of which the sizes may be read at run time, where an operand needs a
    size that is not a number.
    """

    graph: Graph
    info: OpInfo = NO_INFO
    scope: str = ""
    sources: tuple[str, ...] = ()
    _pool: dict[tuple[object, ...], str] = field(default_factory=dict)

    @property
    def opset(self) -> int:
        """The version of ai.onnx."""
        return self.graph.opsets.get("", 0)

    def emit(
        self, op_type: str, inputs: Iterable[str], dtype: DType, shape: Shape, **attrs: Attr
    ) -> str:
        """Adds an op of ai.onnx with one output of that type and returns its name."""
        stem = f"{self.scope}{op_type}"
        kind = TensorType(dtype, tuple(shape))
        return self.graph.emit(op_type, inputs, kind, attrs=attrs, info=self.info, stem=stem)

    # ---------------------------------------------------------------- what is known

    def shape(self, value: str) -> Shape:
        """The shape; Refusal when not even the rank is known."""
        found = self.graph.shape(value)
        if found is None:
            raise Refusal(f"the rank of {value!r} is not known")
        return found

    def dtype(self, value: str) -> DType:
        """The element type; Refusal when it is not known."""
        found = self.graph.tensor(value)
        if found is None:
            raise Refusal(f"the type of {value!r} is not known")
        return found.dtype

    # ---------------------------------------------------------------- constants

    def constant(self, array: object, dtype: DType, stem: str = "const") -> str:
        """A constant; equal ones are shared."""
        constant = Constant.of(array, dtype)
        key = (constant.digest,)
        if key not in self._pool or self._pool[key] not in self.graph.constants:
            self._pool[key] = self.graph.add_constant(
                self.graph.fresh(f"{self.scope}{stem}"), constant
            )
        return self._pool[key]

    def ints(self, values: Sequence[int]) -> str:
        """A 1-D int64 constant."""
        return self.constant(np.array(list(values), np.int64), DType.I64)

    # ---------------------------------------------------------------- elementwise

    def binary(self, op_type: str, a: str, b: str, dtype: DType | None = None) -> str:
        """``a op b`` with broadcasting; ``dtype`` is the result's where it differs from a's."""
        x, y = self.shape(a), self.shape(b)
        rank = max(len(x), len(y))
        x, y = (1,) * (rank - len(x)) + x, (1,) * (rank - len(y)) + y
        shape = tuple(broadcast(m, n) for m, n in zip(x, y, strict=True))
        return self.emit(op_type, (a, b), dtype or self.dtype(a), shape)

    def unary(self, op_type: str, a: str) -> str:
        """An elementwise function of one value that keeps the type."""
        return self.emit(op_type, (a,), self.dtype(a), self.shape(a))

    def where(self, condition: str, yes: str, no: str) -> str:
        """``Where`` with broadcasting."""
        shape: Shape = ()
        for value in (condition, yes, no):
            other = self.shape(value)
            rank = max(len(shape), len(other))
            pairs = zip(
                (1,) * (rank - len(shape)) + shape, (1,) * (rank - len(other)) + other, strict=True
            )
            shape = tuple(broadcast(m, n) for m, n in pairs)
        return self.emit("Where", (condition, yes, no), self.dtype(yes), shape)

    def cast(self, value: str, dtype: DType) -> str:
        """The value in that element type."""
        if self.dtype(value) is dtype:
            return value
        return self.emit("Cast", (value,), dtype, self.shape(value), to=dtype.code)

    def scale(self, value: str, factor: float) -> str:
        """The value times a number."""
        if factor == 1:
            return value
        dtype = self.dtype(value)
        return self.binary("Mul", value, self.constant(np.array(factor), dtype, "scale"))

    # ---------------------------------------------------------------- views

    def transpose(self, value: str, perm: Sequence[int]) -> str:
        """The value with its axes permuted."""
        if list(perm) == sorted(perm):
            return value
        shape = self.shape(value)
        out = tuple(shape[p] for p in perm)
        return self.emit("Transpose", (value,), self.dtype(value), out, perm=tuple(perm))

    def unsqueeze(self, value: str, axes: Sequence[int]) -> str:
        """The value with axes of size 1 put in at those positions of the result."""
        if not axes:
            return value
        rest = iter(self.shape(value))
        rank = len(self.shape(value)) + len(axes)
        out = tuple(1 if n in axes else next(rest) for n in range(rank))
        if self.opset < 13:
            return self.emit("Unsqueeze", (value,), self.dtype(value), out, axes=tuple(axes))
        return self.emit("Unsqueeze", (value, self.ints(axes)), self.dtype(value), out)

    def split(self, value: str, axis: int, sizes: Sequence[int]) -> tuple[str, ...]:
        """The value in pieces of those sizes along an axis."""
        shape, dtype = self.shape(value), self.dtype(value)
        types = [TensorType(dtype, (*shape[:axis], n, *shape[axis + 1 :])) for n in sizes]
        attrs: dict[str, Attr] = {"axis": axis}
        inputs: tuple[str, ...] = (value,)
        if self.opset < 13:
            attrs["split"] = tuple(sizes)
        else:
            inputs = (value, self.ints(sizes))
        first = self.graph.emit(
            "Split",
            inputs,
            attrs=attrs,
            info=self.info,
            stem=f"{self.scope}Split",
            outputs=len(sizes),
            types=types,
        )
        maker = self.graph.producer(first)
        assert maker is not None
        return maker.outputs

    def entry(self, value: str, axis: int, index: int) -> str:
        """The entry of an axis, which is there no more in the result."""
        shape = self.shape(value)
        at = self.constant(np.array(index), DType.I64, "entry")
        out = (*shape[:axis], *shape[axis + 1 :])
        return self.emit("Gather", (value, at), self.dtype(value), out, axis=axis)

    def cut(self, value: str, axis: int, end: str, length: Dim) -> str:
        """The first entries along an axis, up to ``end`` (1-D), which makes it that long."""
        shape = self.shape(value)
        out = (*shape[:axis], length, *shape[axis + 1 :])
        if self.opset < 10:
            raise Refusal(f"opset {self.opset} cannot cut {value!r} to a length known at run time")
        inputs = (value, self.ints([0]), end, self.ints([axis]))
        return self.emit("Slice", inputs, self.dtype(value), out)

    def concat(self, values: Sequence[str], axis: int) -> str:
        """The values behind each other along an axis."""
        shapes = [self.shape(v) for v in values]
        length: Dim = sum((s[axis] for s in shapes), 0)
        out = (*shapes[0][:axis], length, *shapes[0][axis + 1 :])
        return self.emit("Concat", values, self.dtype(values[0]), out, axis=axis)

    def reshape(self, value: str, shape: Shape) -> str:
        """The value in another shape; sizes that are not numbers are read at run time."""
        if self.shape(value) == tuple(shape):
            return value
        given = self._short_shape(self.shape(value), shape)
        operand = self.ints(given) if given is not None else self.runtime_shape(shape, (value,))
        return self.emit("Reshape", (value, operand), self.dtype(value), tuple(shape))

    def _short_shape(self, before: Shape, shape: Shape) -> list[int] | None:
        """The shape with 0 for "as before" and one -1, if that is enough to say it."""
        found: list[int] = []
        for position, dim in enumerate(shape):
            if isinstance(dim, int):
                found.append(dim)
            elif position < len(before) and before[position] == dim:
                found.append(0)
            elif -1 not in found:
                found.append(-1)
            else:
                return None
        return None if any(d == 0 for d in shape) else found

    def expand(self, value: str, shape: Shape) -> str:
        """The value broadcast to a shape."""
        if self.shape(value) == tuple(shape):
            return value
        operand = self.runtime_shape(shape, (value,))
        return self.emit("Expand", (value, operand), self.dtype(value), tuple(shape))

    def arange(self, count: Dim, sources: Sequence[str] = ()) -> str:
        """0, 1, ... below ``count``, as int64."""
        if isinstance(count, int) and count <= MOST_WRITTEN_OUT:
            return self.ints(range(count))
        length = self.runtime_dim(count, (*sources, *self.sources))
        if self.opset < 11:  # before Range: where are the ones in a row of ones?
            ones = self.emit(
                "ConstantOfShape", (length,), DType.I64, (count,), value=Constant.of(np.array([1]))
            )
            places = self.emit("NonZero", (ones,), DType.I64, (1, count))
            return self.emit("Reshape", (places, self.ints([-1])), DType.I64, (count,))
        scalar = self.emit("Reshape", (length, self.ints([])), DType.I64, ())
        zero, one = (self.constant(np.array(n), DType.I64) for n in (0, 1))
        return self.emit("Range", (zero, scalar, one), DType.I64, (count,))

    # ---------------------------------------------------------------- sizes at run time

    def runtime_shape(self, shape: Shape, sources: Sequence[str] = ()) -> str:
        """A 1-D int64 tensor holding the shape; Refusal when a size cannot be had."""
        if all(isinstance(d, int) for d in shape):
            return self.ints([d for d in shape if isinstance(d, int)])
        parts = [self.runtime_dim(d, (*sources, *self.sources)) for d in shape]
        return self.emit("Concat", parts, DType.I64, (len(parts),), axis=0)

    def runtime_dim(self, dim: Dim, sources: Sequence[str]) -> str:
        """A 1-D int64 tensor holding one size."""
        if isinstance(dim, int):
            return self.ints([dim])
        for source in sources:
            for axis, size in enumerate(self.graph.shape(source) or ()):
                if size == dim:
                    return self._dim_of(source, axis)
        return self._computed_dim(dim, sources)

    def _dim_of(self, source: str, axis: int) -> str:
        key = ("dim", source, axis)
        if key not in self._pool:
            rank = len(self.shape(source))
            whole = self.emit("Shape", (source,), DType.I64, (rank,))
            at = self.ints([axis])
            self._pool[key] = self.emit("Gather", (whole, at), DType.I64, (1,), axis=0)
        return self._pool[key]

    def _computed_dim(self, dim: Expr, sources: Sequence[str]) -> str:
        """A size as a sum of products of sizes that tensors have."""
        total = ""
        if as_atom(dim) is not None:
            raise Refusal(f"no tensor at hand has the size {dim}")
        for monomial, coefficient in dim.terms:
            part = self.ints([coefficient])
            for atom, power in monomial:
                factor = self.runtime_dim(Expr(((((atom, 1),), 1),)), sources)
                for _ in range(power):
                    part = self.binary("Mul", part, factor)
            total = self.binary("Add", total, part) if total else part
        return total
