"""The frame around an exported graph: versions, metadata, and what cannot be exported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import ModelProto
from onnx.helper import find_min_ir_version_for

from gecompiler.ir.collective_ops import is_collective_op
from gecompiler.ir.errors import ModelError
from gecompiler.ir.graph import Graph
from gecompiler.ir.onnx_io.graph_writer import ConstantWriter, GraphWriter
from gecompiler.ir.onnx_io.metadata import write_metadata, write_states
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import DType, TensorType

_OLDEST_IR = 4  # before it, initializers had to be inputs as well
_IR_OF_TYPE = {
    9: (DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ),
    10: (DType.U4, DType.I4),
    11: (DType.F4E2M1,),
    12: (DType.F8E8M0,),
    13: (DType.U2, DType.I2),
    14: (DType.F6E2M3, DType.F6E3M2),
}
_FIRST_IR = {dtype: version for version, dtypes in _IR_OF_TYPE.items() for dtype in dtypes}


def build_model(graph: Graph, constant: ConstantWriter) -> ModelProto:
    """The graph as a model whose constants ``constant`` writes.

    ModelError for ops of the product's own domain, which no other runtime knows.
    """
    _check_exportable(graph)
    model = ModelProto()
    for domain, version in graph.opsets.items():
        if domain != GE_DOMAIN:
            model.opset_import.add(domain=domain, version=version)
    model.ir_version = _ir_version(graph, model)
    GraphWriter(graph.opsets, graph.name, constant).write(graph, model.graph)
    model.producer_name = "gecompiler"
    write_metadata(model, graph.metadata)
    write_states(model, graph)
    return model


def every_graph(graph: Graph) -> Iterator[Graph]:
    """The graph and the bodies in it, at every depth."""
    yield graph
    for op in graph.ops:
        if op.attrs:
            for body in op.bodies:
                yield from every_graph(body)


def _check_exportable(graph: Graph) -> None:
    if graph.outer:
        raise ModelError(
            f"a body cannot be exported alone: it takes {graph.outer[0]!r} from around it",
            where=graph.name,
        )
    own = [op for inner in every_graph(graph) for op in inner.ops if op.domain == GE_DOMAIN]
    talk = [op for op in own if is_collective_op(op)]
    if talk:
        raise ModelError(
            f"{len(talk)} collectives have no form in ONNX: {talk[0].name!r} ({talk[0].kind})",
            where=graph.name,
            hint="export the model of one card, before it is cut over several",
        )
    if own:
        shown = ", ".join(f"{op.name!r} ({op.kind})" for op in own[:3])
        raise ModelError(
            f"{len(own)} ops have no form in ONNX: {shown}{', ...' if len(own) > 3 else ''}",
            where=graph.name,
            hint="expand them first: the pass expand-fused does",
        )


def _ir_version(graph: Graph, model: ModelProto) -> int:
    """The lowest version that opsets and types allow, but not below the imported model's own."""
    needed = find_min_ir_version_for(model.opset_import, ignore_unknown=True)
    used = (_FIRST_IR.get(dtype, 0) for g in every_graph(graph) for dtype in _dtypes(g))
    stated = graph.metadata.get("ir_version", "")
    kept = int(stated) if stated.isdecimal() else 0
    return max(_OLDEST_IR, needed, kept if kept <= onnx.IR_VERSION else 0, *used)


def _dtypes(graph: Graph) -> Iterable[DType]:
    types = map(graph.type, graph.values)
    return {t.dtype: None for t in types if isinstance(t, TensorType)}


def ops_named(graph: Graph, name: str) -> list[tuple[Graph, Op]]:
    """The ops of that name, in the graph and its bodies."""
    return [(g, g.op(name)) for g in every_graph(graph) if name in g]
