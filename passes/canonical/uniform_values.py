"""Values whose every element is the same number, also where their shape is symbolic.

Besides constants: ConstantOfShape, moves and broadcasts of uniform values, logic on them, and
comparisons of index arithmetic that come out alike everywhere (``position >= 0``).
"""

from __future__ import annotations

from gecompiler.ir.dim_bounds import at_least
from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.passes.canonical.affine_index import affine
from gecompiler.passes.rewriting import Rewriter

Number = int | float | bool

_MOVES = frozenset(
    {"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Transpose", "Tile"}
)
_MAX_DEPTH = 12


def uniform(r: Rewriter, value: str, depth: int = 0) -> Number | None:
    """The number that every element of ``value`` is (0.0 and -0.0 told apart), or None."""
    if not value or depth > _MAX_DEPTH:
        return None
    if value in r.graph.constants:
        return r.facts.uniform(value)
    op = r.graph.producer(value)
    if op is None or op.domain:
        return None
    if op.op_type in _MOVES:
        return uniform(r, op.inputs[0], depth + 1)
    if op.op_type == "ConstantOfShape":
        fill = op.attr("value")
        return 0.0 if fill is None else fill.scalar()
    if op.op_type in ("And", "Or"):
        return _logic(r, op, depth + 1)
    if op.op_type in _COMPARISONS:
        return _comparison(r, op)
    return None


def _logic(r: Rewriter, op: Op, depth: int) -> bool | None:
    deciding = op.op_type == "Or"
    parts = [uniform(r, value, depth) for value in op.inputs]
    if deciding in [p for p in parts if p is not None]:
        return deciding
    return None if None in parts else not deciding


_COMPARISONS = {
    "GreaterOrEqual": (1, 0),
    "Greater": (1, 1),
    "LessOrEqual": (-1, 0),
    "Less": (-1, 1),
}
"""``a op b`` holds when ``sign * (a - b) >= bound``."""


def _comparison(r: Rewriter, op: Op) -> bool | None:
    """True or False when that is proven for every coordinate of the index arithmetic compared."""
    a, b = affine(r, op.inputs[0]), affine(r, op.inputs[1])
    shape = r.facts.shape(op.outputs[0])
    if a is None or b is None or shape is None:
        return None
    sign, bound = _COMPARISONS[op.op_type]
    rank = len(shape)
    steps = [
        sign * (x - y)
        for x, y in zip(_padded(a.coefficients, rank), _padded(b.coefficients, rank), strict=True)
    ]
    rest = sign * (a.constant - b.constant)
    least = _least(rest, steps, shape)
    if least is not None and at_least(least - bound, 0):
        return True
    most = _least(-rest, [-step for step in steps], shape)
    return False if most is not None and at_least(most + bound - 1, 0) else None


def _padded(coefficients: tuple[Dim, ...], rank: int) -> tuple[Dim, ...]:
    return (*(0,) * (rank - len(coefficients)), *coefficients)


def _least(rest: Dim, steps: list[Dim], shape: tuple[Dim, ...]) -> Dim | None:
    """The least value of ``rest + sum(step * coordinate)``, None where a step's sign is open."""
    total = rest
    for step, size in zip(steps, shape, strict=True):
        if at_least(step, 0):
            continue
        if not at_least(-step, 0):
            return None
        total = total + step * (size - 1)
    return total
