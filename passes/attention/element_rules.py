"""How each op computes an element of its output from elements of its inputs.

`RULES` has a function per op type: ``rule(elements, op, value, coords)`` gives the element of the
output ``value`` at ``coords``, or None when it cannot tell. Moving ops translate coordinates and
ask on; computing ops combine what they are told. A new op in mask builders is one function here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.attention import element_logic as logic
from gecompiler.passes.attention.coordinates import Coords
from gecompiler.passes.attention.element_constants import constant_element
from gecompiler.passes.attention.element_moves import MOVES
from gecompiler.passes.attention.elements import (
    Element,
    Elements,
    Number,
    Opaque,
    Real,
    Truth,
    number_of,
    real,
)
from gecompiler.passes.attention.predicates import (
    Predicate,
    conjunction,
    disjunction,
    negate,
    select,
)

Rule = Callable[[Elements, Op, str, Coords], "Element | None"]


def _two(e: Elements, op: Op, coords: Coords) -> tuple[Element, Element] | None:
    a, b = e.operand(op, 0, coords), e.operand(op, 1, coords)
    return None if a is None or b is None else (a, b)


def _arithmetic(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    pair, dtype = _two(e, op, coords), e.dtype(value)
    return None if pair is None or dtype is None else logic.arithmetic(op.op_type, dtype, *pair)


def _compare(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    pair = _two(e, op, coords)
    found = None if pair is None else logic.compare(e, op.op_type, *pair)
    return None if found is None else Truth(found)


def _logical(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    pair = _two(e, op, coords)
    if pair is None or not isinstance(pair[0], Truth) or not isinstance(pair[1], Truth):
        return None
    a, b = pair[0].predicate, pair[1].predicate
    combine: Mapping[str, Callable[[], Predicate]] = {
        "And": lambda: conjunction(a, b),
        "Or": lambda: disjunction(a, b),
        "Xor": lambda: select(a, negate(b), b),
    }
    return Truth(combine[op.op_type]())


def _not(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    found = e.operand(op, 0, coords)
    return Truth(negate(found.predicate)) if isinstance(found, Truth) else None


def _where(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    condition = e.operand(op, 0, coords)
    if not isinstance(condition, Truth):
        return None
    if isinstance(condition.predicate, bool):
        return e.operand(op, 1 if condition.predicate else 2, coords)
    yes, no = e.operand(op, 1, coords), e.operand(op, 2, coords)
    return None if yes is None or no is None else logic.choice(condition.predicate, yes, no)


def _cast(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    found, target, source = e.operand(op, 0, coords), e.dtype(value), e.dtype(op.inputs[0])
    if found is None or target is None or source is None:
        return None
    if target is DType.BOOL:
        predicate = logic.lift(lambda x: _truth(e, x), found)
        return predicate if isinstance(predicate, Truth) else None
    return logic.lift(lambda x: _converted(x, source, target), logic.as_number(found))


def _truth(e: Elements, element: Element) -> Element | None:
    found = logic.truth(e, element)
    return None if found is None else Truth(found)


def _converted(element: Element, source: DType, target: DType) -> Element | None:
    if isinstance(element, Opaque):
        return element if source in (target, DType.BOOL) else None
    number = number_of(element)
    if number is None:
        return element if isinstance(element, Number) else None
    if target.is_float:
        with np.errstate(all="ignore"):
            return real(float(target.numpy.type(number)))
    if target.is_integer and np.isfinite(number):
        return Number(int(number))
    return None


def _function(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    number, dtype = number_of(e.operand(op, 0, coords)), e.dtype(value)
    if number is None or dtype is None or not dtype.is_float:
        return None
    return real(float(dtype.numpy.type(logic.FUNCTIONS[op.op_type](number))))


def _pow(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    pair, dtype = _two(e, op, coords), e.dtype(value)
    if pair is None or dtype is None or not dtype.is_float:
        return None
    base, exponent = number_of(pair[0]), number_of(pair[1])
    if base is None or exponent is None or base <= 0 or abs(exponent) > 64:
        return None
    numbers = np.array([base, exponent]).astype(dtype.numpy)
    return real(float(np.power(numbers[0], numbers[1])))


def _negative(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    found = e.operand(op, 0, coords)
    return None if found is None else logic.lift(logic.negative, logic.as_number(found))


def _absolute(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    found = e.operand(op, 0, coords)
    if found is None:
        return None
    return logic.lift(lambda x: logic.magnitude(e, x), logic.as_number(found))


def _extremum(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    """Max or Min of whole numbers whose order the coordinates' ranges decide."""
    pair = _two(e, op, coords) if len(op.inputs) == 2 else None
    if pair is None:
        return None
    smaller = logic.compare(e, "LessOrEqual", *pair)
    if not isinstance(smaller, bool):
        return None
    return pair[smaller] if op.op_type == "Max" else pair[not smaller]


def _range(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    bounds = [e.dims(name) for name in op.inputs]
    if bounds[0] is None or bounds[2] is None:
        return None
    return Number(bounds[0][0] + bounds[2][0] * coords[0])


def _shape(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    shape = e.shape(op.inputs[0])
    if shape is None or not isinstance(coords[0], int):
        return None
    part = shape[slice(op.attr("start", 0), op.attr("end", None))]
    return Number(part[coords[0]]) if coords[0] < len(part) else None


def _size(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    known = e.graph.tensor(op.inputs[0])
    count = None if known is None else known.elements
    return None if count is None else Number(count)


def _filled(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    given = op.attr("value")
    if not isinstance(given, Constant):
        return Number(0)
    return constant_element(e, Constant.of(given.array().reshape(())), ())


def _trilu(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    shift = e.dims(op.input(1)) if op.input(1) else (0,)
    found = e.operand(op, 0, coords)
    if shift is None or found is None or len(coords) < 2:
        return None
    diagonal: Dim = coords[-1] - coords[-2] - shift[0]
    inside = logic.at_most(e, -diagonal if op.attr("upper", 1) else diagonal)
    zero: Element = Truth(False) if isinstance(found, Truth) else Number(0)
    return logic.choice(inside, found, zero)


def _cumsum(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    """The running sum of what is the same everywhere along the axis."""
    axes, shape = e.ints(op.input(1)), e.shape(op.inputs[0])
    if axes is None or shape is None or op.attr("reverse", 0) or op.attr("exclusive", 0):
        return None
    axis = axes[0] % len(shape)
    anywhere = e.coordinates.variable("sum", shape[axis])
    item = e.at(op.inputs[0], (*coords[:axis], anywhere, *coords[axis + 1 :]))
    constant = number_of(item)
    if not isinstance(item, Number) or constant is None:
        return None
    return Number(item.value * (coords[axis] + 1))


def _is_nan(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    found = e.operand(op, 0, coords)
    if isinstance(found, Number):
        return Truth(False)
    return Truth(bool(np.isnan(found.value))) if isinstance(found, Real) else None


def _dropout(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    """Without a training mode it passes its input on."""
    if value != op.outputs[0] or op.input(2):
        return None
    return e.operand(op, 0, coords)


RULES: Mapping[str, Rule] = {
    **MOVES,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _arithmetic),
    **dict.fromkeys(("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"), _compare),
    **dict.fromkeys(("And", "Or", "Xor"), _logical),
    **dict.fromkeys(logic.FUNCTIONS, _function),
    **dict.fromkeys(("Max", "Min"), _extremum),
    **dict.fromkeys(("Cast", "CastLike"), _cast),
    "Abs": _absolute,
    "ConstantOfShape": _filled,
    "CumSum": _cumsum,
    "Dropout": _dropout,
    "IsNaN": _is_nan,
    "Neg": _negative,
    "Not": _not,
    "Pow": _pow,
    "Range": _range,
    "Shape": _shape,
    "Size": _size,
    "Trilu": _trilu,
    "Where": _where,
}
"""The rule of each op type of ai.onnx that can be looked into."""
