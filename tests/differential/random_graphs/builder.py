"""A scope that nodes are added to, with the type of every value; invalid nodes are refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, defs, helper, numpy_helper, shape_inference

from random_graphs.arrays import FLOATS, make
from random_graphs.steadiness import TAME, mark

MAX_ELEMENTS = 4096


@dataclass(frozen=True)
class Value:
    """A value of the graph being made: name, element type, sizes."""

    name: str
    dtype: int
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


class Names:
    """New names for one model."""

    def __init__(self) -> None:
        self._count = 0

    def new(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"


class Scope:
    """One graph in the making: the main graph, or a body that sees the scope around it."""

    def __init__(
        self, rng: random.Random, opset: int, names: Names, outer: Scope | None = None
    ) -> None:
        self.rng = rng
        self.opset = opset
        self.names = names
        self.outer = outer
        self.symbols: bool = outer is not None and outer.symbols
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.values: list[Value] = []
        self.data: dict[str, TensorProto] = {}
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.unsteady: set[str] = set(outer.unsteady) if outer else set()
        self.products: set[str] = set(outer.products) if outer else set()
        self.tame: set[str] = set(outer.tame) if outer else set()

    # ------------------------------------------------------------- choosing

    def visible(self) -> list[Value]:
        """What a node here may read; of the scope around, a body captures it."""
        return self.values + (self.outer.visible() if self.outer else [])

    def pick(self, fits: Callable[[Value], bool] = lambda _: True) -> Value | None:
        """A value that fits, the newest ones more often."""
        pool = [v for v in self.visible() if fits(v)]
        if not pool:
            return None
        if self.rng.random() < 0.5:
            return pool[-1 - self.rng.randrange(min(4, len(pool)))]
        return self.rng.choice(pool)

    def pick_float(self, least_rank: int = 0) -> Value | None:
        return self.pick(lambda v: v.dtype in FLOATS and v.rank >= least_rank)

    def is_steady(self, value: Value) -> bool:
        """Whether the value is fixed bit for bit, so that a comparison of it is, too."""
        return value.name not in self.unsteady

    def is_tame(self, value: Value) -> bool:
        """Whether its numbers are small, and fixed bit for bit."""
        return value.name in self.tame and self.is_steady(value)

    def pick_steady(self, dtypes: Sequence[int]) -> Value | None:
        return self.pick(lambda v: v.dtype in dtypes and self.is_steady(v))

    # ------------------------------------------------------------- adding

    def declare(self, name: str, dtype: int, shape: Sequence[int]) -> Value:
        """A value that is there without a node: an input."""
        value = Value(name, dtype, tuple(shape))
        self.values.append(value)
        return value

    def constant(self, array: np.ndarray, dtype: int | None = None) -> Value:
        """An initializer, or sometimes a Constant node."""
        name = self.names.new("c")
        tensor = _tensor(array, name, dtype)
        self.data[name] = tensor
        if self.rng.random() < 0.2 and self.opset >= 9:  # below it holds floats only
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers.append(tensor)
        return Value(name, tensor.data_type, tuple(array.shape))

    def random_constant(self, dtype: int, shape: Sequence[int], *, odd: bool) -> Value:
        made = self.constant(make(self.rng, dtype, tuple(shape), odd=odd), dtype)
        if not odd:
            self.tame.add(made.name)
        return made

    def random_positive(self, dtype: int, shape: Sequence[int]) -> Value:
        count = int(np.prod(tuple(shape), dtype=np.int64))
        numbers = np.array([self.rng.randint(1, 5) for _ in range(count)])
        array = numbers.reshape(tuple(shape)).astype(helper.tensor_dtype_to_np_dtype(dtype))
        return self.constant(array, dtype)

    def ints(self, numbers: Sequence[int], shape: Sequence[int] | None = None) -> Value:
        array = np.array(numbers, dtype=np.int64)
        return self.constant(array.reshape(shape) if shape is not None else array)

    def number(self, dtype: int, number: float, shape: Sequence[int] = ()) -> Value:
        wide = np.full(tuple(shape), number)
        with np.errstate(all="ignore"):
            return self.constant(wide.astype(helper.tensor_dtype_to_np_dtype(dtype)), dtype)

    def add(
        self,
        op_type: str,
        *inputs: Value | None,
        keep: bool = True,
        shape: Sequence[int] | None = None,
        **attrs: Any,
    ) -> Value | None:
        """Adds a node and returns its output; None when ONNX does not allow it.

        ``shape`` is that of the output, where it depends on numbers that are computed.
        """
        found = self.add_many(op_type, *inputs, keep=keep, shape=shape, **attrs)
        return found[0] if found else None

    def add_many(
        self,
        op_type: str,
        *inputs: Value | None,
        outputs: int = 1,
        keep: bool = True,
        shape: Sequence[int] | None = None,
        **attrs: Any,
    ) -> list[Value]:
        """Adds a node and returns its outputs; none when ONNX does not allow it."""
        schema = _schema(op_type, self.opset)
        if schema is None or not _types_fit(schema, inputs):
            return []
        names = [self.names.new("v") for _ in range(outputs)]
        given = [v.name if v else "" for v in inputs]
        node = helper.make_node(op_type, given, names, name=self.names.new("n"), **attrs)
        found = self._inferred(schema, node, inputs, shape)
        if found is None or any(v.size > MAX_ELEMENTS for v in found):
            return []
        self.append(node, found if keep else ())
        return found

    def append(self, node: onnx.NodeProto, values: Sequence[Value]) -> None:
        """Adds a node that is known to be right; ``values`` are those others may read."""
        self.nodes.append(node)
        mark(node, self.unsteady, self.products)
        if node.op_type in TAME and self.tame.issuperset(node.input[:1]):
            self.tame.update(node.output)
        self.values.extend(values)

    def _inferred(
        self,
        schema: Any,
        node: onnx.NodeProto,
        inputs: Sequence[Value | None],
        shape: Sequence[int] | None,
    ) -> list[Value] | None:
        types = {v.name: type_of(v) for v in inputs if v}
        try:
            found = shape_inference.infer_node_outputs(
                schema,
                node,
                types,
                {v.name: self._data(v) for v in inputs if v and self._data(v)},
                opset_imports=[helper.make_opsetid("", self.opset)],
            )
        except Exception:  # the inference error of onnx is no public class
            return None
        values = [_value(name, found.get(name), shape) for name in node.output]
        return [v for v in values if v] if all(values) else None

    def _data(self, value: Value) -> TensorProto | None:
        scope: Scope | None = self
        while scope is not None:
            if value.name in scope.data:
                return scope.data[value.name]
            scope = scope.outer
        return None

    def body(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> onnx.GraphProto:
        """This scope as the body of a node."""
        return helper.make_graph(
            self.nodes,
            self.names.new("body"),
            [self._declared(v) for v in inputs],
            [self._declared(v) for v in outputs],
            self.initializers,
        )

    def _declared(self, value: Value) -> onnx.ValueInfoProto:
        """Its type; without sizes where the graph has symbols, of which it may depend."""
        if not self.symbols:
            return helper.make_value_info(value.name, type_of(value))
        sizes = [None] * value.rank
        return helper.make_tensor_value_info(value.name, value.dtype, sizes)


def type_of(value: Value) -> TypeProto:
    return helper.make_tensor_type_proto(value.dtype, value.shape)


def _tensor(array: np.ndarray, name: str, dtype: int | None) -> TensorProto:
    tensor = numpy_helper.from_array(array, name)
    assert dtype is None or tensor.data_type == dtype
    return tensor


def _value(name: str, type_: TypeProto | None, shape: Sequence[int] | None = None) -> Value | None:
    if type_ is None or not type_.HasField("tensor_type"):
        return None
    tensor = type_.tensor_type
    if tensor.elem_type and shape is not None:
        return Value(name, tensor.elem_type, tuple(shape))
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    if not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return None
    return Value(name, tensor.elem_type, tuple(d.dim_value for d in tensor.shape.dim))


def _schema(op_type: str, opset: int) -> Any:
    try:
        found = defs.get_schema(op_type, opset, "")
    except defs.SchemaError:
        return None
    return None if found.deprecated else found


def _types_fit(schema: Any, inputs: Sequence[Value | None]) -> bool:
    """Whether every input's element type is allowed, and those of one type variable agree."""
    bound: dict[str, str] = {}
    for k, value in enumerate(inputs):
        if value is None:
            continue
        formal = schema.inputs[min(k, len(schema.inputs) - 1)]
        name = f"tensor({_NAMES[value.dtype]})"
        if name not in formal.types:
            return False
        heterogeneous = k >= len(schema.inputs) - 1 and not formal.is_homogeneous
        if not heterogeneous and bound.setdefault(formal.type_str, name) != name:
            return False
    return len(inputs) >= schema.min_input and len(inputs) <= schema.max_input


_NAMES = {code: name.lower() for name, code in TensorProto.DataType.items()}
