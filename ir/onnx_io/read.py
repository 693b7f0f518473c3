"""From what a user hands in to a ModelProto: files that are no ONNX model are told apart here."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Union

import onnx
from onnx import ModelProto

from gecompiler.ir.errors import ModelError
from gecompiler.ir.onnx_io.counts import check_counts
from gecompiler.ir.onnx_io.order import MAX_NESTING
from gecompiler.ir.onnx_io.wire import LARGE_BYTES, nesting, take_apart

Source = Union[str, "os.PathLike[str]", bytes, ModelProto]

MAX_BYTES = 2**31 - 1
"""What protobuf can hold in one message."""


MAPPED_FROM_BYTES = 2**26
"""Smaller files are read, larger ones mapped."""


class RawModel(NamedTuple):
    """A parsed model, the folder of its file (None in memory), and how messages name it.

    ``large`` has the raw data of initializers, by index, that ``proto`` is without.
    """

    proto: ModelProto
    folder: Path | None
    where: str
    large: Mapping[int, memoryview] = MappingProxyType({})


_OTHER_KINDS: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"version https://git-lfs", "a Git LFS pointer", "fetch the file itself: git lfs pull"),
    (0, b"PK\x03\x04", "a zip archive (a PyTorch checkpoint?)", "export it: torch.onnx.export"),
    (0, b"\x80", "a pickle (a PyTorch checkpoint?)", "export it: torch.onnx.export"),
    (0, b"\x89HDF", "an HDF5 file (a Keras model?)", "convert it with tf2onnx"),
    (4, b"TFL3", "a TFLite model", "convert it with tf2onnx"),
    (4, b"ORTM", "a model in onnxruntime's own format", "use the .onnx file it was made from"),
    (8, b'{"', "a safetensors file", "export the model: torch.onnx.export"),
    (0, b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (0, b"ir_version:", "an ONNX model as text", "convert it: onnx.load(p, format='textproto')"),
    (0, b"<", "an XML or HTML file", "download the file again, or export to ONNX"),
    (0, b"{", "a JSON file", "give the .onnx file"),
)
_HINT = "give a file written by an ONNX exporter"


def read_model(source: Source) -> RawModel:
    """The model that ``source`` holds; ModelError when it holds none. Data files stay unread."""
    if isinstance(source, ModelProto):
        _check_model(source, "model")
        return RawModel(source, None, "model")
    if isinstance(source, (bytes, bytearray, memoryview)):
        proto, large = _parse(memoryview(bytes(source)), "model")
        return RawModel(proto, None, "model", large)
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"a path, bytes or ModelProto is expected, not {type(source).__name__}")
    path = Path(source)
    where = str(path)
    try:
        proto, large = _parse(_content(path, where), where)
        return RawModel(proto, path.resolve().parent, where, large)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelError(f"cannot be read: {reason}", where=where, hint="check the path") from error


def _content(path: Path, where: str) -> memoryview:
    """What the file holds; a large one is mapped, so that its pages need no memory of ours."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISFIFO(status.st_mode):
            raise ModelError("this is no file", where=where, hint=_HINT)
        if status.st_size >= MAPPED_FROM_BYTES:
            _check_size(status.st_size, where)
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        data = file.read(MAX_BYTES + 1)  # a pipe has no size beforehand
        _check_size(len(data), where)
        return memoryview(data)


def _check_size(size: int, where: str) -> None:
    if size > MAX_BYTES:
        raise ModelError(
            "the file is larger than 2 GiB, which no ONNX file can be",
            where=where,
            hint="save the model with its weights as external data",
        )


def _parse(data: memoryview, where: str) -> tuple[ModelProto, Mapping[int, memoryview]]:
    if not data:
        raise ModelError("the file is empty", where=where, hint=_HINT)
    parts = take_apart(data) if len(data) >= LARGE_BYTES else None
    proto = ModelProto()
    try:
        proto.ParseFromString(data if parts is None else parts.model)
    except Exception as error:  # protobuf's DecodeError, which no stub declares
        raise _parse_error(data, where) from error
    if not proto.HasField("graph"):
        raise _wrong_kind(bytes(data[:64]), where)
    _check_model(proto, where)
    return proto, {} if parts is None else parts.large


def _parse_error(data: memoryview, where: str) -> ModelError:
    """Why protobuf could not read the bytes, which its own message does not tell."""
    if nesting(data, MAX_NESTING + 1) > MAX_NESTING:
        return ModelError(
            f"subgraphs nest more than {MAX_NESTING} deep, beyond what protobuf reads",
            where=where,
            hint="export the model with fewer nested If, Loop and Scan ops",
        )
    if bytes(data[:1]) == b"\x08":  # the tag of ir_version, which exporters write first
        return ModelError(
            "the ONNX model is truncated or damaged",
            where=where,
            hint="copy or download the file again, and compare its size",
        )
    return _wrong_kind(bytes(data[:64]), where)


def _wrong_kind(head: bytes, where: str) -> ModelError:
    """What a file that starts like this is, if not an ONNX model."""
    for offset, mark, what, hint in _OTHER_KINDS:
        if head[offset:].startswith(mark):
            return ModelError(f"this is {what}, not an ONNX model", where=where, hint=hint)
    return ModelError("this is not an ONNX model", where=where, hint=_HINT)


def _check_model(proto: ModelProto, where: str) -> None:
    if not proto.HasField("graph"):
        raise ModelError("the model has no graph", where=where, hint=_HINT)
    if proto.ir_version < 1:
        raise ModelError("the model states no ir_version", where=where, hint=_HINT)
    if proto.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"IR version {proto.ir_version} is too new, onnx {onnx.__version__} knows up to "
            f"{onnx.IR_VERSION}",
            where=where,
            hint="install a newer onnx",
        )
    if not proto.opset_import:
        raise ModelError(
            "the model imports no opset",
            where=where,
            hint="the file is truncated, or older than ONNX 1.0",
        )
    check_counts(proto, where)
