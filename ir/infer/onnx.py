"""Ops without a rule of ours: onnx infers them, one node at a time."""

from __future__ import annotations

from typing import Any, Union

from gecompiler.ir.constants import Constant
from gecompiler.ir.dim_parse import parse_dim
from gecompiler.ir.dims import Dim
from gecompiler.ir.graph import Graph
from gecompiler.ir.infer.node import Node, PartialShape
from gecompiler.ir.infer.signature import find_schema
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, OpaqueType, TensorType

Outcome = Union[tuple["DType | None", "PartialShape | None"], OpaqueType]
"""What is found of one output: element type and shape, or an opaque type."""

_NOTHING: Outcome = (None, None)


class _Names:
    """Sizes as dim_params that onnx carries through unchanged, and back."""

    def __init__(self) -> None:
        self._dims: dict[str, Dim] = {}
        self._names: dict[Dim, str] = {}

    def of(self, dim: Dim) -> str:
        if dim not in self._names:
            self._names[dim] = f"__dim{len(self._names)}"
            self._dims[self._names[dim]] = dim
        return self._names[dim]

    def dim(self, name: str) -> Dim:
        return self._dims.get(name) or parse_dim(name)

    def restore(self, type_: Any) -> None:
        """Puts the sizes' own text for their placeholders, anywhere in a TypeProto."""
        for shape in _shapes(type_):
            for dim in shape.dim:
                if dim.dim_param in self._dims:
                    dim.dim_param = str(self._dims[dim.dim_param])


def _shapes(type_: Any) -> list[Any]:
    kind = type_.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        inner = getattr(type_, kind)
        return [inner.shape] if inner.HasField("shape") else []
    if kind in ("sequence_type", "optional_type"):
        return _shapes(getattr(type_, kind).elem_type)
    return _shapes(type_.map_type.value_type) if kind == "map_type" else []


def infer_with_onnx(node: Node) -> list[Outcome]:
    """What onnx infers of the outputs; nothing where it has no such op or its inputs are unknown.

    A contradiction that onnx finds is a ModelError naming the node.
    """
    op = node.op
    nothing = [_NOTHING] * len(op.outputs)
    schema = find_schema(op.op_type, op.domain, node.version)
    types = {v: node.scope.graph.type(v) for v in op.inputs if v}
    if schema is None or None in types.values():
        return nothing
    from onnx import checker, shape_inference

    from gecompiler.ir.onnx_io.types import type_proto

    names = _Names()
    try:
        found = shape_inference.infer_node_outputs(
            schema,
            _node_proto(op, node.version),
            {v: type_proto(t, names.of) for v, t in types.items()},
            input_data=_data(node),
            opset_imports=_opsets(node),
        )
    except checker.ValidationError as error:
        node.fail(str(error))
    except shape_inference.InferenceError as error:
        if all(isinstance(t, TensorType) and t.is_static for t in types.values()):
            node.fail(_reason(str(error)))
        # onnx refuses symbols where it needs numbers; once they are bound it is asked again.
        return nothing
    return [_outcome(found.get(v), names) if v else _NOTHING for v in op.outputs]


def _reason(text: str) -> str:
    """The message of onnx without the op's name, which ours says already."""
    return text.rpartition("] ")[2].strip() or text


def _opsets(node: Node) -> list[Any]:
    from onnx import helper

    return [helper.make_opsetid(d, v) for d, v in node.scope.shared.opsets.items()]


def _node_proto(op: Op, version: int) -> Any:
    from onnx import AttributeProto, helper

    from gecompiler.ir.onnx_io.attrs import write_attr
    from gecompiler.ir.onnx_io.schema import attribute_kinds

    proto = helper.make_node(op.op_type, op.inputs, op.outputs, name=op.name, domain=op.domain)
    kinds = attribute_kinds(op.op_type, op.domain, version)
    for name, value in op.attrs.items():
        attribute = proto.attribute.add()
        if isinstance(value, Constant):
            attribute.name, attribute.type = name, AttributeProto.TENSOR
            attribute.t.CopyFrom(_attribute_tensor(value))
        else:
            write_attr(attribute, name, value, kinds.get(name), _leave_out, op.name)
    return proto


def _leave_out(_body: Graph, _proto: Any) -> None:
    """Bodies are inferred by rules of ours; onnx gets an empty one."""


def _tensor_proto(constant: Constant) -> Any:
    from onnx import numpy_helper

    array = constant.small_array()
    return None if array is None else numpy_helper.from_array(array)


def _attribute_tensor(constant: Constant) -> Any:
    """Of a large or absent tensor the type alone, which is all that inference looks at."""
    from onnx import TensorProto

    small = _tensor_proto(constant)
    if small is not None:
        return small
    return TensorProto(data_type=constant.type.dtype.code, dims=constant.type.sizes)


def _data(node: Node) -> dict[str, Any]:
    """The contents of small inputs, as constants or worked out."""
    import numpy as np
    from onnx import numpy_helper

    found: dict[str, Any] = {}
    for index, name in enumerate(node.op.inputs):
        constant = node.scope.constant(name) if name else None
        if constant is not None:
            tensor = _tensor_proto(constant)
            if tensor is not None:
                found[name] = tensor
            continue
        value, type_ = node.value(index), node.type(index)
        if value is not None and value.numbers is not None and type_ is not None:
            array = np.array(value.numbers, type_.dtype.numpy).reshape(value.shape)
            found[name] = numpy_helper.from_array(array)
    return found


def opaque(proto: Any) -> OpaqueType:
    """The opaque type of a TypeProto."""
    from gecompiler.ir.onnx_io.types import type_text

    return OpaqueType(type_text(proto), proto.SerializeToString(deterministic=True))


def _outcome(proto: Any, names: _Names) -> Outcome:
    kind = None if proto is None else proto.WhichOneof("value")
    if kind is None:
        return _NOTHING
    if kind != "tensor_type":
        names.restore(proto)
        return opaque(proto)
    tensor = proto.tensor_type
    dtype = DType.from_code(tensor.elem_type) if tensor.elem_type else None
    if not tensor.HasField("shape"):
        return dtype, None
    sizes: list[Dim | None] = []
    for dim in tensor.shape.dim:
        which = dim.WhichOneof("value")
        if which == "dim_value":
            sizes.append(dim.dim_value)
        else:
            sizes.append(names.dim(dim.dim_param) if dim.dim_param else None)
    return dtype, tuple(sizes)
