"""How large the numbers of a tensor can be, as far as the graph tells.

A finite mask and a bias can be told apart only if no row is masked by the two together, so what
is not proven small may be a mask. Proven are constants whose values are at hand, functions of
bounded range, and what is computed from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.errors import MissingDataError
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.attention.contraction import contraction
from gecompiler.passes.attention.element_constants import MAX_ELEMENTS
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.limits import limits

MAX_DEPTH = 64
"""Longest chain of ops that is followed."""

_LONGEST = float(2**40)
"""No tensor has more elements."""


def magnitude(e: Elements, value: str) -> float:
    """A number that no absolute value in ``value`` exceeds; infinity where none is proven."""
    return _Magnitudes(e).of(value)


def is_plausible(e: Elements, value: str) -> bool:
    """Whether a value is a bias with numbers as scores have them, not a mask.

    It is computed from products of activations or weights, which are scores themselves, or from
    numbers proven small.
    """
    queue, seen = [value], dict[str, None]()
    while queue:
        name = queue.pop()
        if name in seen:
            continue
        seen[name] = None
        op = e.graph.producer(name)
        if op is not None and contraction(e.graph, op) is not None:
            continue
        if op is None or op.domain or op.op_type not in _CARRIERS or len(seen) > MAX_DEPTH:
            if not magnitude(e, name) <= PLAIN:
                return False
        elif op.is_("Div") and not e.uniform(op.inputs[1]):
            return False
        else:
            queue += [op.inputs[n] for n in _CARRIERS[op.op_type] if n < len(op.inputs)]
    return True


PLAIN = 1e4
"""Biases in use are not larger than this, masks are."""

_CARRIERS: Mapping[str, Sequence[int]] = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "Slice", "Split"), (0,)),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Expand", "Tile", "Flatten"), (0,)),
    **dict.fromkeys(("Identity", "Transpose", "Neg", "Cast", "Div"), (0,)),
    **dict.fromkeys(("Add", "Sub", "Mul"), (0, 1)),
}
"""Ops that a bias is made with, and the operands that make it large or small."""


class _Magnitudes:
    """One question; values met twice are looked at once."""

    def __init__(self, e: Elements) -> None:
        self.e = e
        self._known: dict[str, float] = {}
        self._depth = 0

    def of(self, value: str) -> float:
        if value not in self._known:
            self._depth += 1
            bound = self._bound(value) if self._depth <= MAX_DEPTH else math.inf
            self._depth -= 1
            self._known[value] = min(bound, self._range(value))
        return self._known[value]

    def _range(self, value: str) -> float:
        """What the element type alone says: whole numbers end somewhere, floats do not."""
        dtype = self.e.dtype(value)
        if dtype is DType.BOOL:
            return 1.0
        if dtype is None or dtype.is_float or not np.issubdtype(dtype.numpy, np.integer):
            return math.inf
        unsigned = np.issubdtype(dtype.numpy, np.unsignedinteger)
        return 2.0 ** (dtype.numpy.itemsize * 8 - (not unsigned))

    def _bound(self, value: str) -> float:
        constant = self.e.graph.constant(value)
        if constant is not None:
            return _largest(constant)
        op = self.e.graph.producer(value)
        if op is None or op.domain or op.bodies:
            return math.inf
        rule = _RULES.get(op.op_type)
        return math.inf if rule is None else self._fitting(value, rule(self, op))

    def _fitting(self, value: str, bound: float) -> float:
        """The bound, unless the result may have overflowed: then it is infinite or wraps."""
        dtype = self.e.dtype(value)
        if dtype is not None and dtype.is_float:
            return bound if bound <= limits(dtype).largest else math.inf
        return bound if bound <= self._range(value) else math.inf

    def each(self, names: Sequence[str]) -> list[float]:
        return [self.of(name) for name in names if name]


def _largest(constant: Constant) -> float:
    if constant.size > MAX_ELEMENTS or not (constant.has_data or constant.source):
        return math.inf  # a weight that is not needed to compile
    if not constant.size:
        return 0.0
    try:
        array = constant.array().astype(np.float64)
    except (MissingDataError, ValueError, TypeError):
        return math.inf
    found = float(np.max(np.abs(array)))
    return math.inf if math.isnan(found) else found


_Rule = Callable[[_Magnitudes, Op], float]


def _carried(m: _Magnitudes, op: Op) -> float:
    """The first input's numbers, moved or with their sign changed."""
    return m.of(op.inputs[0])


def _padded(m: _Magnitudes, op: Op) -> float:
    if op.attr("mode", "constant") != "constant":
        return m.of(op.inputs[0])
    value = m.of(op.input(2)) if op.input(2) else abs(float(op.attr("value", 0.0)))
    return max(m.of(op.inputs[0]), value)


def _largest_of(m: _Magnitudes, op: Op) -> float:
    return max(m.each(op.inputs))


def _chosen(m: _Magnitudes, op: Op) -> float:
    return max(m.each(op.inputs[1:3]))


def _written(m: _Magnitudes, op: Op) -> float:
    if op.attr("reduction", "none") != "none":
        return math.inf
    return max(m.of(op.inputs[0]), m.of(op.inputs[2]))


def _sum(m: _Magnitudes, op: Op) -> float:
    return sum(m.each(op.inputs))


def _product(m: _Magnitudes, op: Op) -> float:
    a, b = m.each(op.inputs)
    return a * b if a and b else (0.0 if max(a, b) < math.inf else math.inf)


def _quotient(m: _Magnitudes, op: Op) -> float:
    divisor = m.e.uniform(op.inputs[1])
    return m.of(op.inputs[0]) / abs(divisor) if divisor else math.inf


def _clipped(m: _Magnitudes, op: Op) -> float:
    given = m.of(op.inputs[0])
    if m.e.graph.opsets.get("", 0) < 11:
        bounds = [op.attr("min"), op.attr("max")]
    else:
        bounds = [m.e.uniform(op.inputs[n]) if op.input(n) else None for n in (1, 2)]
    known = [abs(float(b)) for b in bounds if b is not None]
    # Both bounds together bound anything; one alone may only raise what is bounded already.
    return max(known) if len(known) == 2 else max([given, *known])


def _raised(m: _Magnitudes, op: Op) -> float:
    exponent, base = m.e.uniform(op.inputs[1]), m.of(op.inputs[0])
    if exponent is None or exponent < 0 or base == math.inf:
        return math.inf
    try:
        return math.pow(max(1.0, base), exponent)
    except OverflowError:
        return math.inf


def _root(m: _Magnitudes, op: Op) -> float:
    return max(1.0, m.of(op.inputs[0]))


def _one(m: _Magnitudes, op: Op) -> float:
    return 1.0


def _size(m: _Magnitudes, op: Op) -> float:
    return _LONGEST


_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "Slice", "Split", "Trilu"), _carried),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Expand", "Tile", "Flatten"), _carried),
    **dict.fromkeys(("Identity", "Transpose", "Neg", "Abs", "Cast", "Relu"), _carried),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "ReduceMean"), _carried),
    **dict.fromkeys(("Max", "Min", "Concat"), _largest_of),
    **dict.fromkeys(("Add", "Sub", "Sum"), _sum),
    **dict.fromkeys(("Tanh", "Sigmoid", "HardSigmoid", "Softsign", "Erf", "Sign"), _one),
    **dict.fromkeys(("Softmax", "Hardmax", "Sin", "Cos"), _one),
    **dict.fromkeys(("Shape", "Size", "ArgMax", "ArgMin", "NonZero"), _size),
    **dict.fromkeys(("ScatterND", "ScatterElements"), _written),
    "Clip": _clipped,
    "Div": _quotient,
    "Mul": _product,
    "Pad": _padded,
    "Pow": _raised,
    "Sqrt": _root,
    "Where": _chosen,
}
"""How large the results of ops are; ops that are not here may give any number."""
