"""What runs apart from us: onnx's checker and shape inference on one model after another.

Started by `onnx_sandbox` as a script, so it imports onnx only. It says `HELLO`, then reads a
length and a serialised model from stdin and answers with a length and a verdict on stdout, until
stdin ends.
A verdict is empty for a valid model, else the length of the reason, the reason, and the model
with the types that could be told.
"""

from __future__ import annotations

import struct
import sys
from typing import IO

import onnx
from onnx import GraphProto, ModelProto, TensorShapeProto, TypeProto, ValueInfoProto
from onnx.shape_inference import infer_shapes

LENGTH = struct.Struct("<Q")
HELLO = b"ready"
MAX_MEMORY = 2**30
"""Of its heap: a model of 10,000 ops takes a tenth."""
MAX_SECONDS = 3
"""Of processor time for one model: a valid one of 10,000 nodes takes a twentieth."""


def examine(data: bytes) -> bytes:
    """The verdict on a serialised model."""
    model = ModelProto()
    model.ParseFromString(data)
    try:
        _check(model)
        infer_shapes(model, check_type=True, strict_mode=True)
    except Exception as error:  # onnx raises six unrelated classes
        reason = str(error).encode(errors="replace")
        return LENGTH.pack(len(reason)) + reason + _with_types(model)
    return b""


def _check(model: ModelProto) -> None:
    """Runs the checker, which wants a type and a shape even where a model may leave them out."""
    values = _declared(model.graph)
    untyped = [v for v in values if v.type.WhichOneof("value") is None]
    tensors = [v.type.tensor_type for v in values if v.type.HasField("tensor_type")]
    unranked = [t for t in tensors if not t.HasField("shape")]
    for value in untyped:
        value.type.CopyFrom(_SCALAR)
    for tensor in unranked:
        tensor.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    finally:
        for tensor in unranked:
            tensor.ClearField("shape")
        for value in untyped:
            value.ClearField("type")


_SCALAR = TypeProto(tensor_type=TypeProto.Tensor(elem_type=1, shape=TensorShapeProto()))


def _declared(graph: GraphProto) -> list[ValueInfoProto]:
    """Inputs and outputs of the graph and its subgraphs."""
    found = [*graph.input, *graph.output]
    for node in graph.node:
        for attr in node.attribute:
            bodies = [attr.g] if attr.HasField("g") else attr.graphs
            found += [value for body in bodies for value in _declared(body)]
    return found


def _with_types(model: ModelProto) -> bytes:
    try:
        return bytes(infer_shapes(model).SerializeToString())
    except Exception:  # what can be said without is said
        return bytes(model.SerializeToString())


def read_block(stream: IO[bytes]) -> bytes | None:
    """The next block of a stream, None at its end."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    data = stream.read(size)
    return data if len(data) == size else None


def write_block(stream: IO[bytes], data: bytes) -> None:
    """Writes a block that `read_block` reads."""
    stream.write(LENGTH.pack(len(data)))
    stream.write(data)
    stream.flush()


def main() -> None:
    """Answers until stdin ends."""
    _limit_memory()
    write_block(sys.stdout.buffer, HELLO)
    while (data := read_block(sys.stdin.buffer)) is not None:
        _limit_time()
        write_block(sys.stdout.buffer, examine(data))


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, AttributeError, ValueError, OSError):
        return


def _limit_time() -> None:
    """Ends the process when the next model takes too long."""
    try:
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime) + MAX_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    except (ImportError, AttributeError, ValueError, OSError):
        return


if __name__ == "__main__":
    main()
