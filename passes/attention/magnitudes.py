"""Whether a bias may hold numbers as low as those that masks are made of.

A finite mask and a bias can be told apart only if no row is masked by the two together. What is
looked up in stored tables, or comes out of a product, is of the size of scores; a tensor that the
caller passes in may be a mask like any other.
"""

from __future__ import annotations

import numpy as np

from gecompiler.ir.errors import MissingDataError
from gecompiler.passes.attention.element_constants import MAX_ELEMENTS
from gecompiler.passes.attention.elements import Elements

HUGE = 1e20
"""Numbers of this size swallow scores, or nearly."""

MAX_VALUES = 64

_CARRIED = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND", "Slice", "Split", "Pad"), (0,)),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Expand", "Tile", "Flatten"), (0,)),
    **dict.fromkeys(("Identity", "Transpose", "Neg", "Abs", "Trilu", "Dropout"), (0,)),
    **dict.fromkeys(("Clip", "CumSum"), (0,)),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min", "Concat", "ScatterND"), None),
    "Where": (1, 2),
}
"""Ops whose output holds numbers of their inputs' size: which inputs (None: all)."""


def may_mask(e: Elements, value: str) -> bool:
    """Whether some number in ``value`` may be huge, as far as the graph tells."""
    seen: dict[str, None] = {}
    stack = [value]
    while stack:
        name = stack.pop()
        if name in seen or not name:
            continue
        seen[name] = None
        dtype, op = e.dtype(name), e.graph.producer(name)
        if len(seen) > MAX_VALUES:
            return True
        if dtype is None or not dtype.is_float:
            continue  # integers and booleans are small
        if e.graph.constant(name) is not None:
            if _holds_huge(e, name):
                return True
        elif op is None or op.bodies:
            return True
        elif op.is_("Cast"):
            stack.append(op.inputs[0])
        elif not op.domain and op.op_type in _CARRIED:
            indices = _CARRIED[op.op_type]
            stack += [n for i, n in enumerate(op.inputs) if indices is None or i in indices]
    return False


def _holds_huge(e: Elements, name: str) -> bool:
    constant = e.graph.constants[name]
    if constant.size > MAX_ELEMENTS or not (constant.has_data or constant.source):
        return False  # a weight, which is not needed to compile
    try:
        array = constant.array().astype(np.float64)
    except MissingDataError:
        return False
    return bool(np.any(np.abs(array) >= HUGE))
