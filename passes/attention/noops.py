"""Looking through ops that hand on what they get: Identity, and Cast to the type there is."""

from __future__ import annotations

from gecompiler.ir.op import Op
from gecompiler.passes.attention.elements import Elements


def is_noop(e: Elements, op: Op) -> bool:
    """Whether the op's output is its input."""
    if op.is_("Identity"):
        return True
    return op.is_("Cast") and e.dtype(op.inputs[0]) is e.dtype(op.outputs[0]) is not None


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
