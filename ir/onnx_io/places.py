"""Scope, group and origin of the ops made from ONNX nodes."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto

from gecompiler.ir.onnx_io.frame import Frame
from gecompiler.ir.onnx_io.text import one_line
from gecompiler.ir.op import OpInfo
from gecompiler.ir.scope import scope_of_metadata, scope_of_name
from gecompiler.ir.scope_inference import Place, ScopeNode, infer_places

SCOPE_KEY = "gecompiler.scope"
GROUP_KEY = "gecompiler.group"
LABEL_KEY = "gecompiler.label"
"""Keys under which a saved model keeps what its nodes' names do not tell."""


def node_places(nodes: Sequence[NodeProto], frame: Frame) -> list[Place]:
    """The place of every node of a graph or function body; nodes stand in order."""
    names = frame.names
    constants = set(frame.constants)
    records = []
    for node in nodes:
        if node.op_type == "Constant":
            constants.update(node.output)
        inputs = [names.get(v, v) for v in node.input]
        records.append(ScopeNode(node.op_type, inputs, list(node.output), _own_scope(node)))
    return infer_places(records, constants)


def _own_scope(node: NodeProto) -> str:
    if node.metadata_props:
        props = _props(node)
        found = props.get(SCOPE_KEY) or scope_of_metadata(props)
        if found:
            return found
    return scope_of_name(one_line(node.name))


def node_info(node: NodeProto, name: str, frame: Frame, place: Place) -> OpInfo:
    """What is known of the op that stands for the node."""
    props = _props(node)
    return OpInfo(
        scope=place.scope or frame.scope,
        group=props.get(GROUP_KEY, place.group),
        label=props.get(LABEL_KEY),
        sources=frame.sources or (one_line(node.name) or name,),
    )


def _props(node: NodeProto) -> dict[str, str]:
    if not node.metadata_props:
        return {}
    pairs = ((p.key, p.value) for p in node.metadata_props)
    return {k: one_line(v) for k, v in pairs if isinstance(k, str) and isinstance(v, str)}
