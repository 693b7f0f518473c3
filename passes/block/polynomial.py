"""Polynomials in one value, read off products, sums and powers with numbers."""

from __future__ import annotations

from dataclasses import dataclass

from gecompiler.ir.op import Op
from gecompiler.passes.block.patterns import keeps_shape, maker, number
from gecompiler.passes.rewriting import Rewriter

_DEGREE = 3
_MAX_DEPTH = 8
_READ = ("Add", "Div", "Mul", "Neg", "Pow", "Sub")


@dataclass(frozen=True, slots=True)
class Polynomial:
    """``sum(coefficients[n] * x ** n)``, computed by ``ops``."""

    coefficients: tuple[float, ...]
    ops: tuple[Op, ...] = ()

    def close_to(self, *wanted: float, relative: float) -> bool:
        """Whether the coefficients are those wanted, but for rounding."""
        return all(
            abs(have - want) <= relative * abs(want)
            for have, want in zip(self.coefficients, wanted, strict=True)
        )

    def opposite(self) -> Polynomial:
        """The polynomial with every sign turned."""
        return Polynomial(tuple(-c for c in self.coefficients), self.ops)


def polynomial(r: Rewriter, value: str, x: str, depth: int = 0) -> Polynomial | None:
    """The polynomial in ``x`` that a value is, up to degree 3; None when it is none."""
    if value == x:
        return Polynomial((0.0, 1.0, 0.0, 0.0))
    constant = number(r, value)
    if constant is not None:
        return Polynomial((constant, 0.0, 0.0, 0.0))
    op = maker(r, value, *_READ)
    if op is None or depth >= _MAX_DEPTH or not any(keeps_shape(r, op, v) for v in op.inputs):
        return None
    parts = [polynomial(r, v, x, depth + 1) for v in op.inputs]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    coefficients = _combined(op.op_type, [p.coefficients for p in known])
    if coefficients is None:
        return None
    ops = dict.fromkeys(o.name for p in known for o in p.ops)
    return Polynomial(coefficients, (*(r.graph.op(n) for n in ops), op))


def _combined(op_type: str, parts: list[tuple[float, ...]]) -> tuple[float, ...] | None:
    a = parts[0]
    b = parts[1] if len(parts) > 1 else a
    if op_type == "Neg":
        return tuple(-n for n in a)
    if op_type in ("Add", "Sub"):
        sign = 1 if op_type == "Add" else -1
        return tuple(m + sign * n for m, n in zip(a, b, strict=True))
    if op_type == "Mul":
        return _product(a, b)
    if any(b[1:]):
        return None
    if op_type == "Div":
        return tuple(n / b[0] for n in a) if b[0] else None
    return _power(a, b[0])


def _power(base: tuple[float, ...], exponent: float) -> tuple[float, ...] | None:
    if exponent not in (1, 2, 3):
        return None
    found: tuple[float, ...] | None = base
    for _ in range(int(exponent) - 1):
        found = None if found is None else _product(found, base)
    return found


def _product(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...] | None:
    found = [0.0] * (_DEGREE + 1)
    for m, x in enumerate(a):
        for n, y in enumerate(b):
            if x and y:
                if m + n > _DEGREE:
                    return None
                found[m + n] += x * y
    return tuple(found)
