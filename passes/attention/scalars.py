"""Factors: operands that multiply a whole tensor by one number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gecompiler.ir.op import Op
from gecompiler.passes.attention.elements import Elements


@dataclass(frozen=True, slots=True)
class Scaled:
    """``op`` is ``factor`` times its operand ``value``."""

    value: str
    factor: float


def scaled(e: Elements, op: Op) -> tuple[Scaled, ...]:
    """The ways to see an op as a number times one of its operands, best first."""
    rule = SCALINGS.get(op.op_type) if not op.domain else None
    return () if rule is None else rule(e, op)


def _mul(e: Elements, op: Op) -> tuple[Scaled, ...]:
    found: list[Scaled] = []
    for index in (0, 1):
        factor = _number(e, op, 1 - index)
        if factor is not None:
            found.append(Scaled(op.inputs[index], factor))
    return tuple(found)


def _div(e: Elements, op: Op) -> tuple[Scaled, ...]:
    divisor = _number(e, op, 1)
    return (Scaled(op.inputs[0], 1 / divisor),) if divisor else ()


def _neg(e: Elements, op: Op) -> tuple[Scaled, ...]:
    return (Scaled(op.inputs[0], -1.0),)


def _number(e: Elements, op: Op, index: int) -> float | None:
    """The number an operand is everywhere, if broadcasting it does not grow the other."""
    name, other = op.inputs[index], op.inputs[1 - index]
    shape, wide = e.shape(name), e.shape(op.outputs[0])
    if shape is None or wide is None or e.shape(other) != wide:
        return None
    return e.uniform(name)


SCALINGS: Mapping[str, Callable[[Elements, Op], tuple[Scaled, ...]]] = {
    "Mul": _mul,
    "Div": _div,
    "Neg": _neg,
}
"""Ops that may multiply by a number."""
