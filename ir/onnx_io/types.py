"""ONNX types to the IR's and back."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from onnx import TensorShapeProto, TypeProto, ValueInfoProto

from gecompiler.ir.dim_parse import parse_dim
from gecompiler.ir.dims import Dim, symbol
from gecompiler.ir.errors import ModelError, shown_name
from gecompiler.ir.types import MAX_RANK, DType, OpaqueType, Shape, TensorType, ValueType

MAX_DIM_TEXT = 160
"""Longer dim texts become plain symbols: expanding what a file spells must stay cheap."""

ANONYMOUS = frozenset(("", "?", "*", "-1", "None", "unk", "unknown"))
"""Spellings of "any size" that exporters use for dims that need not be equal."""


def element_type(code: int, where: str) -> DType:
    """The element type with that code; ModelError when there is none."""
    try:
        return DType.from_code(code)
    except ValueError:
        raise ModelError(
            f"element type {code} is not known",
            where=where,
            hint="the file is damaged, or made for a newer onnx than the one installed",
        ) from None


def check_rank(rank: int, where: str) -> None:
    """ModelError when a tensor has more axes than any runtime takes."""
    if rank > MAX_RANK:
        raise ModelError(
            f"a tensor of {rank} axes; at most {MAX_RANK} are supported",
            where=where,
            hint="the file is damaged, or the exporter wrote a shape's sizes as axes",
        )


def value_type(proto: TypeProto, name: str, where: str, around: str = "") -> ValueType:
    """The type that the file states for the value ``name``; None when it states none.

    A size without a number or name becomes the symbol ``<around><name>_dim<axis>``; ``around``
    tells the values of one subgraph from those of another.
    """
    kind = proto.WhichOneof("value")
    if kind is None:
        return None
    if kind != "tensor_type":
        return OpaqueType(type_text(proto), proto.SerializeToString(deterministic=True))
    tensor = proto.tensor_type
    if not tensor.elem_type:
        return None
    dtype = element_type(tensor.elem_type, f"{where}, value {name!r}")
    if not tensor.HasField("shape"):
        return TensorType(dtype, None)
    place = f"{where}, value {name!r}"
    return TensorType(dtype, _shape(tensor.shape, around + name, place))


def _shape(proto: TensorShapeProto, name: str, where: str) -> Shape:
    check_rank(len(proto.dim), where)
    return tuple(_dim(d, name, axis, where) for axis, d in enumerate(proto.dim))


def _dim(proto: TensorShapeProto.Dimension, name: str, axis: int, where: str) -> Dim:
    found: Dim
    if proto.HasField("dim_value"):
        found = proto.dim_value
    elif proto.dim_param.strip() in ANONYMOUS:
        return symbol(f"{name}_dim{axis}")
    elif len(proto.dim_param) > MAX_DIM_TEXT:
        return symbol(proto.dim_param)
    else:
        found = _named_dim(proto.dim_param)
    if isinstance(found, int) and found < 0:
        raise ModelError(
            f"size {found} of axis {axis} is negative",
            where=where,
            hint="a size that is not known is left out, or given a name (dim_param)",
        )
    return found


_named_dim = lru_cache(maxsize=4096)(parse_dim)


def type_text(proto: TypeProto) -> str:
    """A type in a few words: ``f32[2, n]``, ``sequence(i64[*])``, ``optional(f32)``."""
    kind = proto.WhichOneof("value")
    match kind:
        case "tensor_type" | "sparse_tensor_type":
            inner = getattr(proto, kind)
            text = _short(inner.elem_type)
            if inner.HasField("shape"):
                sizes = (
                    str(d.dim_value) if d.HasField("dim_value") else shown_name(d.dim_param) or "?"
                    for d in inner.shape.dim
                )
                text += f"[{', '.join(sizes)}]"
            else:
                text += "[*]"
            return f"sparse({text})" if kind == "sparse_tensor_type" else text
        case "sequence_type":
            return f"sequence({type_text(proto.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({type_text(proto.optional_type.elem_type)})"
        case "map_type":
            key = _short(proto.map_type.key_type)
            return f"map({key}, {type_text(proto.map_type.value_type)})"
        case None:
            return "?"
    return str(kind).removesuffix("_type")


def _short(code: int) -> str:
    try:
        return DType.from_code(code).short
    except ValueError:
        return f"type{code}"


def type_proto(type_: ValueType, spell: Callable[[Dim], str] = str) -> TypeProto:
    """The ONNX type; an empty one where nothing is known. ``spell`` writes unknown sizes."""
    proto = TypeProto()
    if isinstance(type_, OpaqueType):
        proto.ParseFromString(type_.proto)
    elif type_ is not None:
        proto.tensor_type.elem_type = type_.dtype.code
        if type_.shape is not None:
            shape = proto.tensor_type.shape
            shape.SetInParent()
            for dim in type_.shape:
                if isinstance(dim, int):
                    shape.dim.add().dim_value = dim
                else:
                    shape.dim.add().dim_param = spell(dim)
    return proto


def value_info(name: str, type_: ValueType) -> ValueInfoProto:
    """A value's declaration."""
    proto = ValueInfoProto(name=name)
    proto.type.CopyFrom(type_proto(type_))
    return proto
