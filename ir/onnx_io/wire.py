"""The bytes of a model file, with the large tensors taken out or put in.

protobuf copies every byte it reads or writes, several times over. A model of a gigabyte is
handled here instead: reading finds the raw data of its initializers in the file and leaves them
there (mapped), writing puts arrays between the parts that protobuf made. Only as much of the
encoding is understood as that needs (protobuf.dev/programming-guides/encoding); a file that is
spelled in any unusual way is left to protobuf.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple, Union

Buffer = Union[bytes, memoryview]

LARGE_BYTES = 2**16
"""Raw data from this size on stays out of protobuf."""

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # fields of ModelProto, GraphProto, TensorProto
_INWARDS = ((1,), (5,), (6, 11))  # GraphProto.node, NodeProto.attribute, AttributeProto.g, .graphs
_VARINT, _FIXED64, _BLOCK, _FIXED32 = 0, 1, 2, 5  # wire types


class _Field(NamedTuple):
    number: int
    kind: int
    start: int  # of the tag
    body: int  # of the payload
    end: int


class Parts(NamedTuple):
    """A serialised model without its large data, and that data by index of the initializer."""

    model: bytes
    large: dict[int, memoryview]


def take_apart(data: memoryview) -> Parts | None:
    """The parts of a serialised model; None where there is nothing to gain or to be sure of."""
    try:
        graphs = [f for f in _fields(data, 0, len(data)) if f.number == _GRAPH]
        if len(graphs) != 1 or graphs[0].kind != _BLOCK:
            return None
        large: dict[int, memoryview] = {}
        pieces = list(_graph_pieces(data, graphs[0], large))
    except (ValueError, IndexError):
        return None
    if not large:
        return None
    graph = b"".join(pieces)
    before, after = data[: graphs[0].start], data[graphs[0].end :]
    return Parts(b"".join([before, *_block(_GRAPH, len(graph)), graph, after]), large)


def _graph_pieces(
    data: memoryview, graph: _Field, large: dict[int, memoryview]
) -> Iterator[Buffer]:
    """The graph's bytes without the large data, which goes to ``large``."""
    index = 0
    copied = graph.body
    for field in _fields(data, graph.body, graph.end):
        if field.number != _INITIALIZER or field.kind != _BLOCK:
            continue
        if field.end - field.body > LARGE_BYTES:
            raws = [f for f in _fields(data, field.body, field.end) if f.number == _RAW_DATA]
            if len(raws) == 1 and raws[0].end - raws[0].body >= LARGE_BYTES:
                raw = raws[0]
                large[index] = data[raw.body : raw.end]
                rest = (raw.start - field.body) + (field.end - raw.end)
                yield data[copied : field.start]
                yield from _block(_INITIALIZER, rest)
                yield data[field.body : raw.start]
                yield data[raw.end : field.end]
                copied = field.end
        index += 1
    yield data[copied : graph.end]


def nesting(data: memoryview, limit: int) -> int:
    """How many subgraphs a serialised model has in each other; not counted beyond ``limit``.

    0 for bytes that are no model. For telling why protobuf refuses a file.
    """
    deepest = 0
    try:
        stack = [(f, 0) for f in _fields(data, 0, len(data)) if f.number == _GRAPH]
        while stack and deepest < limit:
            message, depth = stack.pop()
            deepest = max(deepest, depth // len(_INWARDS))
            wanted = _INWARDS[depth % len(_INWARDS)]
            stack += (
                (field, depth + 1)
                for field in _fields(data, message.body, message.end)
                if field.number in wanted and field.kind == _BLOCK
            )
    except (ValueError, IndexError):
        return 0
    return deepest


def _fields(data: memoryview, start: int, end: int) -> Iterator[_Field]:
    """The fields of the message between two places; ValueError when it is malformed."""
    at = start
    while at < end:
        tag, body = _read_varint(data, at, end)
        kind = tag & 7
        if kind == _BLOCK:
            size, body = _read_varint(data, body, end)
            after = body + size
        elif kind == _VARINT:
            _, after = _read_varint(data, body, end)
        elif kind in (_FIXED32, _FIXED64):
            after = body + (4 if kind == _FIXED32 else 8)
        else:
            raise ValueError(f"wire type {kind}")
        if after > end:
            raise ValueError("a field runs over the end")
        yield _Field(tag >> 3, kind, at, body, after)
        at = after


def _read_varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number does not end")


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _block(number: int, size: int) -> tuple[bytes, bytes]:
    """What stands before a field of that many bytes."""
    return _varint(number << 3 | _BLOCK), _varint(size)


class Tensor(NamedTuple):
    """A serialised initializer without its data, and how many bytes of data there are."""

    header: bytes
    size: int

    @property
    def prefix(self) -> bytes:
        """What stands before the data, ``b""`` where there is none."""
        return b"".join(_block(_RAW_DATA, self.size)) if self.size else b""

    @property
    def length(self) -> int:
        """The length of the whole tensor."""
        return len(self.header) + len(self.prefix) + self.size


def put_together(
    file: BinaryIO, model: bytes, graph: bytes, tensors: Iterable[tuple[Tensor, Iterable[Buffer]]]
) -> None:
    """Writes a model from its serialised parts.

    ``model`` lacks the graph, ``graph`` these initializers; each comes with its data, in
    pieces that are asked for once the tensor is due.
    """
    known = list(tensors)
    prefixes = [b"".join(_block(_INITIALIZER, t.length)) for t, _ in known]
    total = len(graph) + sum(len(p) + t.length for p, (t, _) in zip(prefixes, known, strict=True))
    file.writelines([model, *_block(_GRAPH, total), graph])
    for prefix, (tensor, pieces) in zip(prefixes, known, strict=True):
        file.writelines([prefix, tensor.header, tensor.prefix])
        for piece in pieces:
            file.write(piece)


def model_bytes(model: bytes, graph: bytes, tensors: Iterable[Tensor]) -> int:
    """How long the file that `put_together` writes is, but for a few bytes."""
    return len(model) + len(graph) + sum(t.length + 8 for t in tensors) + 16
