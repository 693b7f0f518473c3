"""Tensors of ONNX files as constants, and constants as tensors.

Data in the file becomes a numpy view on the bytes protobuf holds, without a copy where the
layout allows. Data in another file stays there until someone asks for it.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import SparseTensorProto, TensorProto, numpy_helper

from gecompiler.ir.constants import Array, Constant, within
from gecompiler.ir.errors import MissingDataError, ModelError
from gecompiler.ir.onnx_io.types import check_rank, element_type
from gecompiler.ir.types import DType, TensorType

MAX_DENSE_BYTES = 2**30
"""A sparse tensor larger than this is not made dense."""

_FIELD = {
    **dict.fromkeys((DType.F32, DType.C64), "float_data"),
    **dict.fromkeys((DType.F64, DType.C128), "double_data"),
    **dict.fromkeys((DType.U32, DType.U64), "uint64_data"),
    DType.I64: "int64_data",
    DType.STRING: "string_data",
}  # all others: int32_data
_FIELDS = ("float_data", "int32_data", "int64_data", "string_data", "double_data", "uint64_data")
_PACKED_PER_ITEM = {DType.U4: 2, DType.I4: 2, DType.F4E2M1: 2, DType.U2: 4, DType.I2: 4}


@dataclass(frozen=True)
class ExternalData:
    """Data of a constant in a file beside the model. ``folder`` is None for a model in memory.

    ``length`` is None where the model does not state it; ``checksum`` is kept, not verified.
    """

    name: str
    folder: Path | None
    location: str
    offset: int = 0
    length: int | None = None
    checksum: str = ""

    def describe(self) -> str:
        """The place in words."""
        return f"{self.location} at byte {self.offset}"

    def file(self, type_: TensorType) -> Path:
        """The file, checked to lie within the folder and to hold the data of ``type_``."""
        what = f"the data of constant {self.name!r} ({type_}, {type_.bytes} bytes)"
        if self.folder is None:
            raise MissingDataError(
                f"{what} lies in {self.location!r}, and a model in memory has no folder",
                hint="load the model from its file, or with its data in it",
            )
        path = within(self.folder, self.location)
        try:
            status = path.stat()
        except (OSError, ValueError):
            raise MissingDataError(
                f"{what} is missing: there is no such file",
                where=str(path),
                hint="put the data file beside the model; compiling works without it",
            ) from None
        if not stat.S_ISREG(status.st_mode):
            raise MissingDataError(f"{what} is missing: this is no regular file", where=str(path))
        if self.length is not None and self.length != type_.bytes:
            raise MissingDataError(
                f"{what} is said to take {self.length} bytes",
                where=str(path),
                hint="the model and its data file do not belong together",
            )
        if self.offset + type_.bytes > status.st_size:
            raise MissingDataError(
                f"{what} would start at byte {self.offset} of a file of {status.st_size} bytes",
                where=str(path),
                hint="the data file is truncated, or is another model's",
            )
        return path

    def load(self, type_: TensorType) -> Array:
        """The array, mapped from the file; MissingDataError when it is not there."""
        path = self.file(type_)
        if not type_.bytes:
            return np.empty(type_.sizes, type_.dtype.numpy)
        try:
            raw = np.memmap(path, np.uint8, "r", self.offset, (type_.bytes,))
        except OSError as error:
            raise MissingDataError(
                f"the data of constant {self.name!r} cannot be read: {error.strerror}",
                where=str(path),
                hint="check the file's permissions",
            ) from error
        return _view(raw.view(np.ndarray), type_)


@dataclass(frozen=True, eq=False)
class SparseData:
    """A constant stored as its non-zero elements; ``indices`` count in the flattened tensor."""

    values: Array
    indices: Array

    def describe(self) -> str:
        """The number of elements stored."""
        return f"{self.values.size} elements, sparse"

    def load(self, type_: TensorType) -> Array:
        """The dense array; MissingDataError when it would be larger than 1 GiB."""
        if type_.bytes > MAX_DENSE_BYTES:
            raise MissingDataError(f"a sparse {type_} is too large to be made dense")
        dense = np.zeros(math.prod(type_.sizes), type_.dtype.numpy)
        if type_.dtype is DType.STRING:
            dense[:] = ""
        dense[self.indices] = self.values
        return _frozen(dense.reshape(type_.sizes))


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _view(raw: Array, type_: TensorType) -> Array:
    """Packed little-endian bytes as an array of that type: a view, unaligned where they are."""
    dtype = type_.dtype.numpy
    if type_.dtype.bits % 8 == 0 and np.little_endian:
        return _frozen(raw.view(dtype).reshape(type_.sizes))
    proto = TensorProto(data_type=type_.dtype.code, dims=type_.sizes, raw_data=raw.tobytes())
    return _frozen(numpy_helper.to_array(proto))


def tensor_type(proto: TensorProto, where: str) -> TensorType:
    """The type of a tensor; ModelError for an unknown element type or a negative size."""
    if proto.HasField("segment"):
        raise ModelError("a tensor in segments is not supported", where=where)
    dtype = element_type(proto.data_type, where)
    dims = tuple(proto.dims)
    check_rank(len(dims), where)
    if any(d < 0 for d in dims):
        raise ModelError(f"the tensor's shape {list(dims)} has a negative size", where=where)
    return TensorType(dtype, dims)


def read_tensor(
    proto: TensorProto,
    name: str,
    folder: Path | None,
    where: str,
    large: memoryview | None = None,
) -> Constant:
    """The constant in a TensorProto; ModelError when its data does not fit its type.

    A tensor that should have elements and holds no data at all is an absent constant. ``large``
    is its raw data where that was kept out of the proto.
    """
    where = f"{where}, constant {name!r}"
    type_ = tensor_type(proto, where)
    if proto.data_location == TensorProto.EXTERNAL:
        return Constant(type_, source=_external(proto, name, folder, where))
    raw = proto.raw_data if large is None else large
    if raw:
        if type_.dtype is DType.STRING:
            raise ModelError("a string tensor must not hold raw data", where=where)
        _check_length(len(raw), type_.bytes, "bytes", type_, where)
        return Constant(type_, _view(np.frombuffer(raw, np.uint8), type_))
    if not math.prod(type_.sizes):
        return Constant(type_, _empty(type_, where))
    field = _FIELD.get(type_.dtype, "int32_data")
    found = len(getattr(proto, field))
    if not found and not any(len(getattr(proto, f)) for f in _FIELDS):
        return Constant.absent(type_)
    _check_length(found, _items(type_), f"items in {field}", type_, where)
    if type_.dtype is DType.STRING:
        return Constant(type_, _strings(proto.string_data, type_))
    return Constant(type_, _frozen(numpy_helper.to_array(_without_raw(proto))))


def _without_raw(proto: TensorProto) -> TensorProto:
    """The tensor without the raw data, present and empty, that onnx would prefer."""
    if not proto.HasField("raw_data"):
        return proto
    found = TensorProto()
    found.CopyFrom(proto)
    found.ClearField("raw_data")
    return found


def _empty(type_: TensorType, where: str) -> Array:
    try:
        return _frozen(np.empty(type_.sizes, type_.dtype.numpy))
    except ValueError as error:
        raise ModelError(f"the shape of {type_} cannot be: {error}", where=where) from error


def _items(type_: TensorType) -> int:
    """How many entries the typed data field of a tensor must have."""
    count = math.prod(type_.sizes)
    if type_.dtype in (DType.C64, DType.C128):
        return 2 * count
    return -(-count // _PACKED_PER_ITEM.get(type_.dtype, 1))


def _check_length(found: int, wanted: int, unit: str, type_: TensorType, where: str) -> None:
    if found != wanted:
        raise ModelError(
            f"holds {found} {unit} where {type_} needs {wanted}",
            where=where,
            hint="the file is damaged or was written by a faulty exporter",
        )


def _strings(data: Iterable[bytes], type_: TensorType) -> Array:
    items = np.empty(math.prod(type_.sizes), object)
    for i, raw in enumerate(data):
        items[i] = decoded(raw)
    return _frozen(items.reshape(type_.sizes))


def decoded(raw: bytes) -> str | bytes:
    """The text that ``raw`` spells in UTF-8, else ``raw`` itself."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _external(proto: TensorProto, name: str, folder: Path | None, where: str) -> ExternalData:
    entries = {e.key: e.value for e in proto.external_data}
    if not entries.get("location"):
        raise ModelError("is said to lie in another file, which is not named", where=where)
    numbers: dict[str, int] = {}
    for key in ("offset", "length"):
        text = entries.get(key, "")
        if text and not (text.isascii() and text.isdigit() and len(text) < 20):
            raise ModelError(f"the {key} {text!r} of its data is no byte count", where=where)
        if text:
            numbers[key] = int(text)
    return ExternalData(
        name,
        folder,
        entries["location"],
        numbers.get("offset", 0),
        numbers.get("length"),
        entries.get("checksum", ""),
    )


def read_sparse(proto: SparseTensorProto, name: str, where: str) -> Constant:
    """The constant in a SparseTensorProto, kept sparse; ModelError when it is malformed."""
    values = read_tensor(proto.values, name, None, where)
    indices = read_tensor(proto.indices, f"{name} (indices)", None, where)
    where = f"{where}, sparse constant {name!r}"
    check_rank(len(proto.dims), where)
    type_ = TensorType(values.type.dtype, tuple(proto.dims))
    shape = type_.sizes
    if not values.has_data or not indices.has_data or indices.type.dtype is not DType.I64:
        raise ModelError("its values and int64 indices must lie in the model", where=where)
    flat, count = indices.array(), values.size
    if not shape or any(d < 0 for d in shape) or values.type.rank != 1:
        raise ModelError("its shape or that of its values is wrong", where=where)
    if flat.shape not in ((count,), (count, len(shape))):
        raise ModelError(f"{count} values have indices of shape {list(flat.shape)}", where=where)
    try:
        if flat.ndim == 2:
            flat = np.ravel_multi_index(tuple(flat.T), shape) if count else flat.reshape(-1)
    except ValueError as error:
        raise ModelError(f"an index lies outside {type_}", where=where) from error
    if count and (int(flat.min()) < 0 or int(flat.max()) >= math.prod(shape)):
        raise ModelError(f"an index lies outside {type_}", where=where)
    return Constant(type_, source=SparseData(values.array(), flat))
