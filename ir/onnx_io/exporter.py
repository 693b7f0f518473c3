"""Writing graphs as ONNX models that any runtime reads."""

from __future__ import annotations

import os
from pathlib import Path

from onnx import GraphProto, ModelProto

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import UsageError
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.files import ModelFile
from gecompiler.ir.onnx_io.model import build_model, every_graph
from gecompiler.ir.onnx_io.write_data import data_bytes, write_constant, write_header

SMALL_ELEMENTS = 1024
"""A constant of at most so many elements may be a shape or an index; it is no weight."""

MAX_TABLE_BYTES = 4 * 2**20
"""A mask or table of integers up to this size is no weight either."""

MAX_MODEL_BYTES = 2**31 - 2**27
"""Data beyond this goes to a file of its own: protobuf stops at 2 GiB."""


def to_onnx(graph: Graph, *, include_data: bool = True) -> ModelProto:
    """The graph as an ONNX model.

    Data in memory is written into it; data in files is referred to by the names the files have;
    absent constants are tensors without data. Without ``include_data`` weights lose theirs as
    well: floats of more than 1,024 elements, other constants of more than 4 MiB. Ops come in
    topological order and equal graphs give equal bytes. ModelError for ops that ONNX lacks.
    """
    return build_model(graph, write_constant if include_data else _write_without_weights)


def is_weight(constant: Constant) -> bool:
    """Whether a constant is so large that it must be a weight, not a shape, mask or table."""
    if constant.size <= SMALL_ELEMENTS:
        return False
    return constant.type.dtype.is_float or constant.type.bytes > MAX_TABLE_BYTES


def _write_without_weights(proto: GraphProto, name: str, constant: Constant) -> str:
    if is_weight(constant):
        write_header(proto.initializer.add(), name, constant.type)
        return name
    return write_constant(proto, name, constant)


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
    external = inline > MAX_MODEL_BYTES if external_data is None else external_data
    try:
        if target.exists() and not target.is_file():
            raise UsageError("is no file that could be replaced", where=str(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        file = ModelFile(graph, target, external=external)
        file.write(build_model(graph, file.add))
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror or error}",
            where=str(target),
            hint="choose another folder, or check permissions and free space",
        ) from error
    except ValueError as error:  # more than a model file can hold
        raise UsageError(
            f"cannot be written: {error}", where=str(target), hint="use external_data=True"
        ) from error
