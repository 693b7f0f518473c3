"""From what a user hands in to a ModelProto: files that are no ONNX model are told apart here."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Union

import onnx
from onnx import ModelProto

from gecompiler.ir.errors import ModelError

Source = Union[str, "os.PathLike[str]", bytes, ModelProto]

MAX_BYTES = 2**31 - 1
"""What protobuf can hold in one message."""


class RawModel(NamedTuple):
    """A parsed model, the folder of its file (None in memory), and how messages name it."""

    proto: ModelProto
    folder: Path | None
    where: str


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
        return RawModel(_parse(memoryview(source), "model"), None, "model")
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"a path, bytes or ModelProto is expected, not {type(source).__name__}")
    path = Path(source)
    where = str(path)
    try:
        proto = _parse_file(path, where)
        return RawModel(proto, path.resolve().parent, where)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelError(f"cannot be read: {reason}", where=where, hint="check the path") from error


def _parse_file(path: Path, where: str) -> ModelProto:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size > MAX_BYTES:
            raise ModelError(
                f"the file has {status.st_size} bytes; an ONNX file has at most 2 GiB",
                where=where,
                hint="save the model with its weights as external data",
            )
        if not stat.S_ISREG(status.st_mode):
            return _parse_pipe(file.read, status.st_mode, where)
        if not status.st_size:
            raise ModelError("the file is empty", where=where, hint=_HINT)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            view = memoryview(mapped)
            try:
                return _parse(view, where)
            finally:
                view.release()


def _parse_pipe(read: Callable[[int], bytes], mode: int, where: str) -> ModelProto:
    if not stat.S_ISFIFO(mode):
        raise ModelError("this is no file", where=where, hint=_HINT)
    data = read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ModelError("more than 2 GiB came through the pipe", where=where)
    return _parse(memoryview(data), where)


def _parse(data: memoryview, where: str) -> ModelProto:
    if not data:
        raise ModelError("the file is empty", where=where, hint=_HINT)
    proto = ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError, which no stub declares
        raise _refusal(bytes(data[:64]), str(error), where) from error
    if not proto.HasField("graph"):
        raise _refusal(bytes(data[:64]), "", where)
    _check_model(proto, where)
    return proto


def _refusal(head: bytes, reason: str, where: str) -> ModelError:
    if "MaxDepth" in reason:
        return ModelError(
            "the model nests deeper than protobuf reads (about 30 subgraphs in each other)",
            where=where,
            hint="export it with fewer nested If, Loop and Scan ops",
        )
    for offset, mark, what, hint in _OTHER_KINDS:
        if head[offset:].startswith(mark):
            return ModelError(f"this is {what}, not an ONNX model", where=where, hint=hint)
    if head[:1] == b"\x08" and reason:  # the tag of ir_version, which exporters write first
        return ModelError(
            "the ONNX model is truncated or damaged",
            where=where,
            hint="copy or download the file again, and compare its size",
        )
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
            hint="the file is truncated, or older than opset 7",
        )
