"""What a model says of itself: producer, versions, doc strings, free entries."""

from __future__ import annotations

import json

from onnx import ModelProto

from gecompiler.ir.errors import GraphError
from gecompiler.ir.graph import Graph, State

_TEXTS = ("producer_name", "producer_version", "domain", "doc_string")
_NUMBERS = ("ir_version", "model_version")
_GRAPH_DOC = "graph_doc_string"
_PREFIX = "metadata_props."
_STATES = "gecompiler.states"
_KNOWN = frozenset((*_TEXTS, *_NUMBERS, _GRAPH_DOC))


def read_metadata(model: ModelProto) -> dict[str, str]:
    """The entries that are not empty. Free ones keep their keys, unless a key is taken."""
    found = {key: _text(getattr(model, key)) for key in _TEXTS}
    found.update((key, str(getattr(model, key) or "")) for key in _NUMBERS)
    found[_GRAPH_DOC] = _text(model.graph.doc_string)
    found = {key: value for key, value in found.items() if value}
    for entry in model.metadata_props:
        key = _text(entry.key)
        if key == _STATES:
            continue
        taken = key in _KNOWN or key.startswith(_PREFIX)
        found[_PREFIX + key if taken else key] = _text(entry.value)
    return found


def _text(value: str | bytes) -> str:
    """The text, of which protobuf hands out bytes where it is not UTF-8."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def write_metadata(model: ModelProto, metadata: dict[str, str]) -> None:
    """Puts the entries back where `read_metadata` found them, all but the IR version."""
    for key, value in metadata.items():
        if key in _TEXTS:
            setattr(model, key, value)
        elif key == "model_version":
            model.model_version = int(value) if value.lstrip("-").isdecimal() else 0
        elif key == _GRAPH_DOC:
            model.graph.doc_string = value
        elif key != "ir_version":
            model.metadata_props.add(key=key.removeprefix(_PREFIX), value=value)


def write_states(model: ModelProto, graph: Graph) -> None:
    """Keeps the declared state, which ONNX has no place for, as an entry of its own."""
    if graph.states:
        rows = [[s.input, s.output, s.axis] for s in graph.states]
        model.metadata_props.add(key=_STATES, value=json.dumps(rows))


def read_states(model: ModelProto, graph: Graph) -> None:
    """Declares the state that `write_states` kept; an entry that makes no sense is passed over."""
    text = next((_text(e.value) for e in model.metadata_props if e.key == _STATES), "[]")
    try:
        graph.set_states(_state(row) for row in json.loads(text))
    except (ValueError, TypeError, RecursionError, GraphError):
        return


def _state(row: object) -> State:
    match row:
        case [str(source), str(target), (int() | None) as axis]:
            return State(source, target, axis)
    raise ValueError("not a state")
