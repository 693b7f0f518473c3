"""Model files and the data files beside them, written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from onnx import GraphProto, ModelProto, TensorProto

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import MissingDataError
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.data import ExternalData, SparseData
from gecompiler.ir.onnx_io.model import every_graph
from gecompiler.ir.onnx_io.wire import LARGE_BYTES, Buffer, Tensor, model_bytes, put_together
from gecompiler.ir.onnx_io.write_data import (
    available_array,
    raw_bytes,
    refer,
    write_constant,
    write_header,
)
from gecompiler.ir.types import DType

MAX_FILE_BYTES = 2**31 - 1
EXTERNAL_FROM_BYTES = 1024
_PAGE, _LINE = 4096, 64


class ModelFile:
    """A model being written: which of its constants lie in it, and which beside it."""

    def __init__(self, graph: Graph, path: Path, *, external: bool) -> None:
        self._graph = graph
        self._folder = path.parent.resolve()
        self._external = external
        self._end = 0
        self._path = path
        self._data_path = self._free_path()
        self._beside: list[tuple[int, Constant]] = []
        self._within: list[tuple[Tensor, Constant]] = []

    def _free_path(self) -> Path:
        """A path that no constant goes on referring to: those files must stay as they are."""
        names = {
            Path(c.source.location).name
            for g in every_graph(self._graph)
            for c in g.constants.values()
            if isinstance(c.source, ExternalData) and not self._belongs_beside(c)
        }
        name, count = f"{self._path.name}.data", 0
        while name in names:
            count += 1
            name = f"{self._path.name}.{count}.data"
        return self._path.parent / name

    def add(self, proto: GraphProto, name: str, constant: Constant) -> str:
        """The `ConstantWriter`: large data is kept back until `write`."""
        if self._belongs_beside(constant):
            size = constant.type.bytes
            unit = _PAGE if size >= 2**20 else _LINE
            offset = -(-self._end // unit) * unit
            self._end = offset + size
            self._beside.append((offset, constant))
            tensor = proto.initializer.add()
            write_header(tensor, name, constant.type)
            refer(tensor, ExternalData(name, self._folder, self._data_path.name, offset, size))
        elif self._is_large(name, constant):
            header = TensorProto()
            write_header(header, name, constant.type)
            tensor_ = Tensor(header.SerializeToString(deterministic=True), constant.type.bytes)
            self._within.append((tensor_, constant))
        else:
            write_constant(proto, name, constant)
        return name

    def _is_large(self, name: str, constant: Constant) -> bool:
        """Whether the constant is one of the outermost graph with much data to write inline."""
        source = constant.source
        if self._graph.constants.get(name) is not constant or isinstance(source, SparseData):
            return False
        if constant.type.bytes < LARGE_BYTES or constant.type.dtype is DType.STRING:
            return False
        if constant.data is not None:
            return True
        return not isinstance(source, ExternalData) and available_array(constant) is not None

    def _belongs_beside(self, constant: Constant) -> bool:
        """Whether the constant's data goes to the file beside the model."""
        source = constant.source
        if isinstance(source, ExternalData) and constant.data is None:
            return self._can_be_copied(source, constant)
        if not self._external or isinstance(source, SparseData):
            return False
        if constant.type.bytes < EXTERNAL_FROM_BYTES or constant.type.dtype is DType.STRING:
            return False
        return available_array(constant) is not None

    def _can_be_copied(self, source: ExternalData, constant: Constant) -> bool:
        if source.folder in (self._folder, None):
            return False
        try:
            source.file(constant.type)
        except MissingDataError:
            return False
        return True

    def write(self, model: ModelProto) -> None:
        """Writes model and data; ValueError when the model would exceed 2 GiB."""
        graph = model.graph.SerializeToString(deterministic=True)
        model.ClearField("graph")
        frame = model.SerializeToString(deterministic=True)
        if model_bytes(frame, graph, (t for t, _ in self._within)) > MAX_FILE_BYTES:
            raise ValueError("the model has more than 2 GiB of data")
        tensors = ((tensor, _pieces(constant)) for tensor, constant in self._within)
        with _whole_files(self._path, self._data_path if self._beside else None) as (file, data):
            for offset, constant in self._beside:
                assert data is not None
                data.seek(offset)
                data.write(raw_bytes(constant.array(), constant.type.dtype))
            put_together(file, frame, graph, tensors)


def _pieces(constant: Constant) -> Iterator[Buffer]:
    yield raw_bytes(constant.array(), constant.type.dtype)


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
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
