"""Reading ONNX models: opsets 1 to the newest, subgraphs, functions, external data."""

from __future__ import annotations

from onnx import ModelProto

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.check import check_graph
from gecompiler.ir.onnx_io.frame import Frame
from gecompiler.ir.onnx_io.functions import Functions, every_node
from gecompiler.ir.onnx_io.graph_reader import GraphReader
from gecompiler.ir.onnx_io.legacy import raise_opset
from gecompiler.ir.onnx_io.metadata import read_metadata, read_states
from gecompiler.ir.onnx_io.order import check_nesting
from gecompiler.ir.onnx_io.read import RawModel, Source, read_model
from gecompiler.ir.onnx_io.sandbox import warm_up
from gecompiler.ir.onnx_io.schema import OLDEST_OPSET, UnknownOps, read_opsets
from gecompiler.ir.onnx_io.text import check_texts, one_line

DEFAULT_OPSET = 20
"""For a model without a single op of ai.onnx."""


def load_onnx(source: Source, *, diagnostics: Diagnostics | None = None) -> Graph:
    """The graph of an ONNX model: a file's path, its bytes, or a ModelProto (left as it is).

    Constants keep their data where it lies; external data files need not exist. Functions are
    inlined, ``Constant`` ops become constants, initializers that are also inputs are constants.
    Types are those the file states. Raises `ModelError`, naming file and node, for anything
    that is no valid model; what is merely odd goes to ``diagnostics``.
    """
    raw = read_model(source)
    warm_up()
    try:
        return _load(raw, Diagnostics() if diagnostics is None else diagnostics)
    except (RecursionError, MemoryError) as error:
        raise ModelError(
            f"the model is too deep or too large to be read: {type(error).__name__}",
            where=raw.where,
        ) from error


def _load(raw: RawModel, warnings: Diagnostics) -> Graph:
    model, folder, where, large = raw
    check_nesting(model.graph.node, where)
    for function in model.functions:
        check_nesting(function.node, where)
    check_texts(model, where)
    model, raised = raise_opset(model, where)
    if raised is not None:
        warnings.warn("old-opset", f"{where}: opset {raised} was raised to {OLDEST_OPSET}")
    opsets = read_opsets(model.opset_import, where)
    functions = Functions(model, where)
    opsets = {"": DEFAULT_OPSET, **functions.merged_opsets(opsets)}
    _check_ops(model, functions, opsets, where)
    graph = Graph(one_line(model.graph.name) or "graph", opsets)
    graph.metadata = read_metadata(model)
    _warn_of_omissions(model, where, warnings)
    reader = GraphReader(functions, opsets, folder, warnings.warn)
    reader.fill(model.graph, Frame(graph, where, large=large))
    read_states(model, graph)
    check_graph(graph, where)
    return graph


def _check_ops(model: ModelProto, functions: Functions, opsets: dict[str, int], where: str) -> None:
    """ModelError listing every op that is not known, in the graph and the functions it calls."""
    unknown = UnknownOps()
    pending = [(model.graph.node, opsets, "")]
    seen: set[int] = set()
    while pending:
        nodes, versions, prefix = pending.pop()
        for index, node in every_node(nodes):
            function = functions.find(node)
            if function is None:
                name = prefix + (node.name or f"{node.op_type}_{index}")
                unknown.check(node, name, versions)
            elif id(function) not in seen:
                seen.add(id(function))
                own = dict(functions.opsets(function))
                pending.append((function.node, own, f"{function.name}/"))
    unknown.raise_if_any(where)


def _warn_of_omissions(model: ModelProto, where: str, warnings: Diagnostics) -> None:
    graph = model.graph
    if model.training_info:
        warnings.warn("training-info", f"{where}: the model's training information is not kept")
    if graph.quantization_annotation:
        warnings.warn(
            "quantization-annotation", f"{where}: the model's quantization notes are not kept"
        )
    stored = {t.name for t in graph.initializer}
    both = [v.name for v in graph.input if v.name in stored]
    if both and model.ir_version >= 4:
        shown = ", ".join(repr(n) for n in both[:3]) + (", ..." if len(both) > 3 else "")
        warnings.warn(
            "initializer-is-input",
            f"{where}: {len(both)} inputs have a default and are taken as constants: {shown}",
            "remove an initializer to make it an input again",
        )
