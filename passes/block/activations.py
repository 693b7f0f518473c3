"""GELU and SiLU written out: a product of x and a squashing function of a polynomial in x.

And the square of a Relu.

Every spelling is ``x * (a + b * f(p(x)))`` with f one of erf, tanh and sigmoid; the table below
says which numbers make which activation, and constants may stand anywhere in the product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from gecompiler.ir.block_ops import Activation
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.block.activation_op import activation_in_place, read_activation
from gecompiler.passes.block.norm_parts import square
from gecompiler.passes.block.patterns import keeps_shape, maker, number, with_number
from gecompiler.passes.block.polynomial import Polynomial, polynomial
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable

_PRECISION = {DType.F16: 2e-3, DType.BF16: 1e-2}
"""How far constants may be off, by the type they are in; else `_FINE`."""

_FINE = 4e-6
_MAX_STEPS = 6


@dataclass(frozen=True, slots=True)
class _Gate:
    """``factor * (a + b * f(argument))``, ``factor`` a value or ``""`` so far."""

    function: str
    argument: str
    a: float
    b: float
    factor: str
    ops: tuple[Op, ...]


def fuse_activation(r: Rewriter, op: Op) -> Result | None:
    """The product that ends a GELU or SiLU."""
    gate = _gate(r, op.outputs[0], 0)
    if gate is None or not gate.factor:
        return None
    tolerance = _PRECISION.get(r.facts.dtype(op.outputs[0]) or DType.F32, _FINE)
    for x, times, scaling in _bases(r, gate.factor):
        argument = polynomial(r, gate.argument, x)
        if argument is None:
            continue
        a, b = gate.a * times, gate.b * times
        if gate.function in _ODD and argument.coefficients[1] < 0:
            b, argument = -b, argument.opposite()
        spec = _RECOGNISED[gate.function](a, b, argument, tolerance)
        if spec is None or r.facts.shape(x) != r.facts.shape(op.outputs[0]):
            continue
        members = (*gate.ops, *scaling, *argument.ops)
        named_after = gate.ops[0]
        made = activation_in_place(r, op, members, spec, x, named_after=named_after)
        if made is not None:
            return made
    return None


def _gate(r: Rewriter, value: str, steps: int) -> _Gate | None:
    """The value as a gate, read from its end towards the squashing function."""
    op = r.graph.producer(value)
    if op is None or op.domain or steps > _MAX_STEPS:
        return None
    if op.op_type in _RECOGNISED:
        return _Gate(op.op_type, op.inputs[0], 0.0, 1.0, "", (op,))
    rule = _GATE_STEPS.get(op.op_type)
    return None if rule is None else rule(r, op, steps + 1)


def _sum(r: Rewriter, op: Op, steps: int) -> _Gate | None:
    for value, constant in with_number(r, op):
        inner = _gate(r, value, steps)
        if inner is not None and not inner.factor:
            return replace(inner, a=inner.a + constant, ops=(*inner.ops, op))
    return None


def _difference(r: Rewriter, op: Op, steps: int) -> _Gate | None:
    """A gate less a number, or a number less a gate (``erfc`` is 1 less ``erf``)."""
    first, second = op.inputs
    for value, other, sign in ((first, second, 1.0), (second, first, -1.0)):
        constant = number(r, other)
        if constant is None or not keeps_shape(r, op, value):
            continue
        inner = _gate(r, value, steps)
        if inner is not None and not inner.factor:
            a, b = sign * (inner.a - constant), sign * inner.b
            return replace(inner, a=a, b=b, ops=(*inner.ops, op))
    return None


def _product(r: Rewriter, op: Op, steps: int) -> _Gate | None:
    for value, constant in with_number(r, op):
        return _times(_gate(r, value, steps), constant, op)
    for value, factor in (op.inputs, op.inputs[::-1]):
        inner = _gate(r, value, steps)
        if inner is not None and not inner.factor and keeps_shape(r, op, factor):
            return replace(inner, factor=factor, ops=(*inner.ops, op))
    return None


def _quotient(r: Rewriter, op: Op, steps: int) -> _Gate | None:
    divisor = number(r, op.inputs[1])
    if divisor:
        return _times(_gate(r, op.inputs[0], steps), 1 / divisor, op)
    return _logistic(r, op)


def _times(inner: _Gate | None, constant: float, op: Op) -> _Gate | None:
    if inner is None:
        return None
    return replace(inner, a=inner.a * constant, b=inner.b * constant, ops=(*inner.ops, op))


def _logistic(r: Rewriter, op: Op) -> _Gate | None:
    """``x / (1 + exp(-p))`` is x times the sigmoid of p."""
    total = maker(r, op.inputs[1], "Add")
    for value, one in with_number(r, total) if total is not None else ():
        power = maker(r, value, "Exp")
        if power is None or one != 1 or total is None or not keeps_shape(r, op, op.inputs[0]):
            continue
        opposite = maker(r, power.inputs[0], "Neg")
        if opposite is not None:
            ops = (power, opposite, total, op)
            return _Gate("Sigmoid", opposite.inputs[0], 0.0, 1.0, op.inputs[0], ops)
    return None


def _bases(r: Rewriter, factor: str) -> Iterator[tuple[str, float, tuple[Op, ...]]]:
    """What may be x: the factor, or what it is a multiple of, with that number."""
    yield factor, 1.0, ()
    op = maker(r, factor, "Mul", "Div")
    for x, times in with_number(r, op) if op is not None else ():
        if op is not None and times and (op.op_type == "Mul" or x == op.inputs[0]):
            yield x, times if op.op_type == "Mul" else 1 / times, (op,)


# ------------------------------------------------------------------ which activation it is


def _close(have: float, want: float, tolerance: float) -> bool:
    return abs(have - want) <= tolerance * abs(want)


def _of_erf(a: float, b: float, p: Polynomial, tolerance: float) -> Activation | None:
    halves = _close(a, 0.5, tolerance) and _close(b, 0.5, tolerance)
    if halves and p.close_to(0, math.sqrt(0.5), 0, 0, relative=tolerance):
        return Activation("Gelu")
    return None


_ROOT = math.sqrt(2 / math.pi)


def _of_tanh(a: float, b: float, p: Polynomial, tolerance: float) -> Activation | None:
    halves = _close(a, 0.5, tolerance) and _close(b, 0.5, tolerance)
    if halves and p.close_to(0, _ROOT, 0, 0.044715 * _ROOT, relative=2 * tolerance):
        return Activation("Gelu", approximate="tanh")
    return None


def _of_sigmoid(a: float, b: float, p: Polynomial, tolerance: float) -> Activation | None:
    if a or not _close(b, 1, 1e-7):
        return None
    if p.close_to(0, 2 * _ROOT, 0, 0.08943 * _ROOT, relative=2 * tolerance):
        return Activation("Gelu", approximate="tanh")
    constant, alpha, *higher = p.coefficients
    return Activation("Silu", alpha=alpha) if alpha and not constant and not any(higher) else None


_RECOGNISED: Mapping[str, Callable[[float, float, Polynomial, float], Activation | None]] = {
    "Erf": _of_erf,
    "Sigmoid": _of_sigmoid,
    "Tanh": _of_tanh,
}
"""Squashing functions, and the activation that they and some numbers make."""

_ODD = ("Erf", "Tanh")
"""Squashing functions f with ``f(-p) = -f(p)``."""

_GATE_STEPS: Mapping[str, Callable[[Rewriter, Op, int], _Gate | None]] = {
    "Add": _sum,
    "Div": _quotient,
    "Mul": _product,
    "Sub": _difference,
}
"""Ops between the squashing function and the end."""


def fuse_square(r: Rewriter, op: Op) -> Result | None:
    """The square of a Relu (So et al. 2021, Primer)."""
    part = square(r, op.outputs[0])
    inner = None if part is None else r.graph.producer(part.value)
    found = read_activation(inner)
    if inner is None or found is None or found[0] != Activation("Relu"):
        return None
    spec, inputs = Activation("SquaredRelu"), found[1]
    return activation_in_place(r, op, (inner,), spec, inputs.x, bias=inputs.bias, named_after=inner)


RULES: RuleTable = {
    "Div": (fuse_activation,),
    "Mul": (fuse_activation, fuse_square),
    "Pow": (fuse_square,),
}
