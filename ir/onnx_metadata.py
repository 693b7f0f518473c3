"""What a model says of itself: producer, versions, doc strings, free entries."""

from __future__ import annotations

from onnx import ModelProto

_TEXTS = ("producer_name", "producer_version", "domain", "doc_string")
_NUMBERS = ("ir_version", "model_version")
_GRAPH_DOC = "graph_doc_string"
_PREFIX = "metadata_props."
_KNOWN = frozenset((*_TEXTS, *_NUMBERS, _GRAPH_DOC))


def read_metadata(model: ModelProto) -> dict[str, str]:
    """The entries that are not empty. Free ones keep their keys, unless a key is taken."""
    found = {key: _text(getattr(model, key)) for key in _TEXTS}
    found.update((key, str(getattr(model, key) or "")) for key in _NUMBERS)
    found[_GRAPH_DOC] = _text(model.graph.doc_string)
    found = {key: value for key, value in found.items() if value}
    for entry in model.metadata_props:
        key = _text(entry.key)
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
