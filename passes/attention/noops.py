"""Looking through ops that hand on what they get: Identity, Cast to the type there is, ..."""

from __future__ import annotations

from gecompiler.ir.op import Op
from gecompiler.passes.attention.elements import Elements

_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile")


def is_noop(e: Elements, op: Op) -> bool:
    """Whether the op's output is its input."""
    if op.domain:
        return False
    if op.op_type == "Identity":
        return True
    if op.op_type == "Cast":
        return e.dtype(op.inputs[0]) is e.dtype(op.outputs[0]) is not None
    if op.op_type == "Dropout":
        return inference_dropout(e, op)
    if op.op_type == "Transpose":
        perm = op.attr("perm", None)
        return perm is not None and list(perm) == list(range(len(perm)))
    shape = e.shape(op.inputs[0]) if op.op_type in _VIEWS else None
    return shape is not None and shape == e.shape(op.outputs[0])


def inference_dropout(e: Elements, op: Op) -> bool:
    """Whether a Dropout does nothing: its mask is unused, its mode is known.

    The torch exporter leaves ``training_mode`` a constant True in models meant for inference;
    onnxruntime removes such a Dropout, and torch's own outputs are those without it.
    """
    if any(o and (e.graph.uses(o) or e.graph.is_output(o)) for o in op.outputs[1:]):
        return False
    ratio = e.uniform(op.inputs[1]) if op.input(1) else None
    return not op.input(2) or ratio == 0 or e.graph.constant(op.inputs[2]) is not None


def origin(e: Elements, value: str) -> str:
    """The value that this one is handed on from."""
    op = e.graph.producer(value)
    while op is not None and is_noop(e, op):
        value = op.inputs[0]
        op = e.graph.producer(value)
    return value


def maker(e: Elements, value: str) -> Op | None:
    """The op that computes a value."""
    return e.graph.producer(origin(e, value))


def names(e: Elements, value: str) -> list[str]:
    """The value and all that hand it on."""
    found = [value]
    for name in found:  # grows as it goes
        found += [op.outputs[0] for op in e.graph.users(name) if is_noop(e, op)]
    return found


def readers(e: Elements, value: str) -> list[tuple[Op, str]]:
    """The ops that use a value for more than its shape, each with the name they know it by."""
    return [
        (op, name)
        for name in names(e, value)
        for op in e.graph.users(name)
        if not op.is_("Shape", "Size") and not is_noop(e, op)
    ]
