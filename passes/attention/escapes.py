"""Values between the two products must be nobody else's business."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gecompiler.ir.op import Op
from gecompiler.ir.types import Shape
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.noops import is_noop, names
from gecompiler.passes.attention.refusal import Refusal, at


def check_escapes(e: Elements, ops: Sequence[Op], results: Collection[str]) -> list[Op]:
    """The ops that ask for the shape of a value inside; Refusal when one asks for more."""
    inside = {op.name for op in ops}
    pinned = {name for pair in e.graph.controls for name in pair}
    asking: dict[str, Op] = {}
    for op in ops:
        if op.name in pinned:
            raise at(op, "is held in place by an order of control")
        for value in op.outputs:
            if value and value not in results:
                _check_value(e, op, value, inside, asking)
    return list(asking.values())


def _check_value(
    e: Elements, op: Op, value: str, inside: Collection[str], asking: dict[str, Op]
) -> None:
    for name in names(e, value):
        if e.graph.is_output(name):
            raise at(op, f"makes {name!r}, which is an output of the model")
        for user in e.graph.users(name):
            if user.is_("Shape"):
                asking[user.name] = user
            elif user.name not in inside and not is_noop(e, user):
                raise at(op, f"makes {name!r}, which {user.name} ({user.kind}) uses too")


def answers(build: Builder, asking: Sequence[Op]) -> list[tuple[str, str]]:
    """What ops ask for the shape of a value inside, answered from Q, K and V: (old, new)."""
    found: list[tuple[str, str]] = []
    for op in asking:
        shape: Shape = build.shape(op.inputs[0])
        part = shape[slice(op.attr("start", 0), op.attr("end", None))]
        if not part:
            raise Refusal(f"{op.name} asks for no dim of {op.inputs[0]!r}")
        found.append((op.outputs[0], build.runtime_shape(part)))
    return found
