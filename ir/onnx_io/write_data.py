"""Constants as tensors of an ONNX file."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, SparseTensorProto, TensorProto, numpy_helper

from gecompiler.ir.constants import Array, Constant
from gecompiler.ir.errors import MissingDataError
from gecompiler.ir.onnx_io.data import ExternalData, SparseData
from gecompiler.ir.types import DType, TensorType


def raw_bytes(array: Array, dtype: DType) -> bytes | memoryview:
    """The array as ONNX packs it: little-endian, several small elements to a byte."""
    if dtype.bits % 8 or not np.little_endian:
        return numpy_helper.from_array(array).raw_data
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def write_tensor(proto: TensorProto, name: str, constant: Constant) -> None:
    """Fills the tensor: with data that is in memory, with the place of data that is in a file.

    Data from any other source is loaded. A constant whose data is absent or missing leaves with
    shape and type only.
    """
    write_header(proto, name, constant.type)
    if constant.data is None and isinstance(constant.source, ExternalData):
        refer(proto, constant.source)
        return
    array = available_array(constant)
    if array is not None:
        _write_array(proto, array, constant.type.dtype)


def available_array(constant: Constant) -> Array | None:
    """The constant's data, None where it is absent or missing."""
    try:
        return constant.array()
    except MissingDataError:
        return None


def write_constant(proto: GraphProto, name: str, constant: Constant) -> str:
    """Adds the constant to a graph, sparse if it is sparse; returns its name there."""
    if isinstance(constant.source, SparseData):
        write_sparse(proto.sparse_initializer.add(), name, constant.type, constant.source)
    else:
        write_tensor(proto.initializer.add(), name, constant)
    return name


def write_header(proto: TensorProto, name: str, type_: TensorType) -> None:
    """Gives the tensor its name and type, without data."""
    proto.name = name
    proto.data_type = type_.dtype.code
    proto.dims.extend(type_.sizes)


def _write_array(proto: TensorProto, array: Array, dtype: DType) -> None:
    if dtype is DType.STRING:
        proto.string_data.extend(_encoded(item) for item in array.reshape(-1))
    else:
        proto.raw_data = bytes(raw_bytes(array, dtype))


def refer(proto: TensorProto, source: ExternalData) -> None:
    """Makes the tensor's data lie where ``source`` says."""
    proto.data_location = TensorProto.EXTERNAL
    entries = {"location": source.location}
    if source.offset or source.length is not None:
        entries["offset"] = str(source.offset)
    if source.length is not None:
        entries["length"] = str(source.length)
    if source.checksum:
        entries["checksum"] = source.checksum
    for key, value in entries.items():
        proto.external_data.add(key=key, value=value)


def _encoded(item: object) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()


def write_sparse(
    proto: SparseTensorProto, name: str, type_: TensorType, source: SparseData
) -> None:
    """Fills the sparse tensor, with flattened indices."""
    proto.dims.extend(type_.sizes)
    write_header(proto.values, name, TensorType(type_.dtype, source.values.shape))
    _write_array(proto.values, source.values, type_.dtype)
    write_header(proto.indices, "", TensorType(DType.I64, source.indices.shape))
    _write_array(proto.indices, source.indices, DType.I64)


def data_bytes(constant: Constant) -> int:
    """How many bytes of data writing this constant into the model takes."""
    source = constant.source
    if isinstance(source, SparseData):
        return source.values.nbytes + source.indices.nbytes
    if constant.data is None and (source is None or isinstance(source, ExternalData)):
        return 0
    if constant.type.dtype is DType.STRING:
        return sum(len(_encoded(v)) + 8 for v in constant.array().reshape(-1))
    return constant.type.bytes
