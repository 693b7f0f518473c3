"""Writing graphs as ONNX models that any runtime reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from onnx import GraphProto, ModelProto

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import MissingDataError, UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_data import ExternalData, SparseData
from gecompiler.ir.onnx_model import build_model, every_graph
from gecompiler.ir.onnx_write_data import (
    available_array,
    data_bytes,
    raw_bytes,
    refer,
    write_header,
    write_sparse,
    write_tensor,
)
from gecompiler.ir.types import DType

SMALL_ELEMENTS = 1024
"""A constant of at most so many elements may be a shape or an index; it is no weight."""

MAX_TABLE_BYTES = 4 * 2**20
"""A mask or table of integers up to this size is no weight either."""

MAX_MODEL_BYTES = 2**31 - 2**27
"""Data beyond this goes to a file of its own: protobuf stops at 2 GiB."""

EXTERNAL_FROM_BYTES = 1024
_PAGE, _LINE = 4096, 64


def to_onnx(graph: Graph, *, include_data: bool = True) -> ModelProto:
    """The graph as an ONNX model.

    Data in memory is written into it; data in files is referred to by the names the files have;
    absent constants are tensors without data. Without ``include_data`` weights lose theirs as
    well: floats of more than 1,024 elements, other constants of more than 4 MiB. Ops come in
    topological order and equal graphs give equal bytes. ModelError for ops that ONNX lacks.
    """
    return build_model(graph, _write_all if include_data else _write_without_weights)


def _write_all(proto: GraphProto, name: str, constant: Constant) -> str:
    if isinstance(constant.source, SparseData):
        write_sparse(proto.sparse_initializer.add(), name, constant.type, constant.source)
    else:
        write_tensor(proto.initializer.add(), name, constant)
    return name


def is_weight(constant: Constant) -> bool:
    """Whether a constant is so large that it must be a weight, not a shape, mask or table."""
    if constant.size <= SMALL_ELEMENTS:
        return False
    return constant.type.dtype.is_float or constant.type.bytes > MAX_TABLE_BYTES


def _write_without_weights(proto: GraphProto, name: str, constant: Constant) -> str:
    if is_weight(constant):
        write_header(proto.initializer.add(), name, constant.type)
        return name
    return _write_all(proto, name, constant)


def save_onnx(
    graph: Graph, path: str | os.PathLike[str], *, external_data: bool | None = None
) -> None:
    """Writes the graph as a model file, whole or not at all.

    Weights go to ``<path>.data`` when ``external_data`` is true or, by default, when the model
    would exceed 2 GiB. Data in other files stays there if they lie in the same folder, else it
    is copied; what is missing stays missing. UsageError when the place cannot be written to.
    """
    target = Path(path)
    inline = sum(data_bytes(c) for g in every_graph(graph) for c in g.constants.values())
    split = inline > MAX_MODEL_BYTES if external_data is None else external_data
    try:
        if target.exists() and not target.is_file():
            raise UsageError("is no file that could be replaced", where=str(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        store = _DataFile(graph, target, split=split)
        model = build_model(graph, store.write)
        with _whole_files(target, store.path if store.chunks else None) as (file, data):
            if data is not None:
                store.copy_to(data)
            file.write(model.SerializeToString(deterministic=True))
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror or error}",
            where=str(target),
            hint="choose another folder, or check permissions and free space",
        ) from error
    except ValueError as error:  # protobuf: larger than 2 GiB
        raise UsageError(
            f"cannot be written: {error}", where=str(target), hint="use external_data=True"
        ) from error


class _DataFile:
    """The file beside the model that takes its large constants."""

    def __init__(self, graph: Graph, model: Path, *, split: bool) -> None:
        self._folder = model.parent.resolve()
        self._split = split
        self._end = 0
        self.path = self._free_path(graph, model)
        self.chunks: list[tuple[int, Constant]] = []

    def _free_path(self, graph: Graph, model: Path) -> Path:
        """A path that no constant goes on referring to: those files must stay as they are."""
        names = {
            Path(c.source.location).name
            for g in every_graph(graph)
            for c in g.constants.values()
            if isinstance(c.source, ExternalData) and not self._belongs_here(c)
        }
        name, count = f"{model.name}.data", 0
        while name in names:
            count += 1
            name = f"{model.name}.{count}.data"
        return model.parent / name

    def write(self, proto: GraphProto, name: str, constant: Constant) -> str:
        """The `ConstantWriter`: refers to this file what belongs here."""
        if not self._belongs_here(constant):
            return _write_all(proto, name, constant)
        size = constant.type.bytes
        unit = _PAGE if size >= 2**20 else _LINE
        offset = -(-self._end // unit) * unit
        self._end = offset + size
        self.chunks.append((offset, constant))
        tensor = proto.initializer.add()
        write_header(tensor, name, constant.type)
        refer(tensor, ExternalData(name, self._folder, self.path.name, offset, size))
        return name

    def _belongs_here(self, constant: Constant) -> bool:
        source = constant.source
        if constant.data is not None or source is None or isinstance(source, SparseData):
            in_memory = constant.data is not None and not isinstance(source, SparseData)
            large = constant.type.bytes >= EXTERNAL_FROM_BYTES
            return self._split and in_memory and large and constant.type.dtype is not DType.STRING
        if not isinstance(source, ExternalData):
            return self._split and available_array(constant) is not None
        if source.folder == self._folder or source.folder is None:
            return False
        try:
            source.file(constant.type)
        except MissingDataError:
            return False
        return True

    def copy_to(self, file: BinaryIO) -> None:
        """Writes all data, one constant after the other."""
        for offset, constant in self.chunks:
            file.seek(offset)
            file.write(raw_bytes(constant.array(), constant.type.dtype))


@contextmanager
def _whole_files(model: Path, data: Path | None) -> Iterator[tuple[BinaryIO, BinaryIO | None]]:
    """Files that take their places together when the block succeeds, and vanish when it fails."""
    parts = {path: _part(path) for path in (data, model) if path is not None}
    try:
        with parts[model].open("xb") as file:
            if data is None:
                yield file, None
            else:
                with parts[data].open("xb") as beside:
                    yield file, beside
        for path, part in parts.items():
            part.replace(path)
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")
