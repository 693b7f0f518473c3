"""What a node hands to the function it calls."""

from __future__ import annotations

from onnx import AttributeProto, FunctionProto, NodeProto

from gecompiler.ir.errors import ModelError
from gecompiler.ir.onnx_io.frame import Frame
from gecompiler.ir.onnx_io.functions import title


def check_call(node: NodeProto, function: FunctionProto, where: str) -> None:
    """ModelError when the node gives more than the function takes."""
    known = {*function.attribute, *(a.name for a in function.attribute_proto)}
    strange = [a.name for a in node.attribute if a.name not in known]
    if len(node.input) > len(function.input) or len(node.output) > len(function.output):
        raise ModelError(
            f"gives {len(node.input)} inputs and {len(node.output)} outputs to function "
            f"{title(function)!r}, which has {len(function.input)} and {len(function.output)}",
            where=where,
        )
    if strange:
        raise ModelError(
            f"function {title(function)!r} has no attribute {strange[0]!r}", where=where
        )


def arguments(
    node: NodeProto, reader: str, function: FunctionProto, frame: Frame, inner: Frame
) -> dict[str, tuple[AttributeProto, Frame]]:
    """The attributes that the body may refer to: defaults, then what the call gives."""
    found = {a.name: (a, inner) for a in function.attribute_proto}
    for proto in node.attribute:
        bound = frame.argument(proto, reader)
        if bound is not None:
            found[proto.name] = bound
    return found
