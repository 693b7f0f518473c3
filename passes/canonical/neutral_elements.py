"""Arithmetic with a neutral constant: ``x * 1``, ``x / 1``, ``x - 0``, ``x ** 1``, ``x and true``.

Only where the result is ``x`` bit for bit. In floating point ``x + 0.0`` turns -0.0 into 0.0
and ``x - (-0.0)`` does too, so these go only where every reader takes both zeros alike
(softmax, exp, cos, comparisons); ``x + (-0.0)`` and ``x - 0.0`` always go. Integers have one
zero. The constant must not broadcast ``x`` to a larger shape.
"""

from __future__ import annotations

import math

from gecompiler.ir.op import Op
from gecompiler.passes.canonical.reshape_forms import needed_expand
from gecompiler.passes.canonical.shape_recipes import sizes_vector
from gecompiler.passes.canonical.uniform_values import uniform
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable

_ZERO_BLIND = frozenset(
    {
        "Softmax",
        "LogSoftmax",
        "Exp",
        "Cos",
        "Sigmoid",
        "Abs",
        "Equal",
        "Less",
        "LessOrEqual",
        "Greater",
        "GreaterOrEqual",
    }
)
"""Ops whose result does not depend on the sign of a zero among their inputs."""


def times_one(r: Rewriter, op: Op) -> Result | None:
    """``x * 1`` and ``1 * x``."""
    for x, other in ((0, 1), (1, 0)):
        if uniform(r, op.inputs[other]) == 1 and _keeps_shape(r, op, x):
            return op.inputs[x]
    return None


def divided_by_one(r: Rewriter, op: Op) -> Result | None:
    """``x / 1``, and ``x ** 1`` (a power has the type of its base)."""
    return op.inputs[0] if uniform(r, op.inputs[1]) == 1 and _keeps_shape(r, op, 0) else None


def plus_zero(r: Rewriter, op: Op) -> Result | None:
    """``x + 0`` and ``0 + x``."""
    for x, other in ((0, 1), (1, 0)):
        if not _is_zero(r, op.inputs[other]) or not _keeps_shape(r, op, x):
            continue
        if _is_negative_zero(r, op.inputs[other]) or _sign_is_lost(r, op):
            return op.inputs[x]
    return None


def minus_zero(r: Rewriter, op: Op) -> Result | None:
    """``x - 0``."""
    if not _is_zero(r, op.inputs[1]) or not _keeps_shape(r, op, 0):
        return None
    if _is_negative_zero(r, op.inputs[1]) and not _sign_is_lost(r, op):
        return None
    return op.inputs[0]


def and_true(r: Rewriter, op: Op) -> Result | None:
    """``x and true``, ``true and x``."""
    return _logical(r, op, True)


def or_false(r: Rewriter, op: Op) -> Result | None:
    """``x or false``, ``false or x``, and exclusive or alike."""
    return _logical(r, op, False)


def _logical(r: Rewriter, op: Op, neutral: bool) -> Result | None:
    for x, other in ((0, 1), (1, 0)):
        if uniform(r, op.inputs[other]) is neutral:
            return op.inputs[x] if _keeps_shape(r, op, x) else _expanded(r, op, x)
    same = op.inputs[0] == op.inputs[1] and not op.is_("Xor")
    return op.inputs[0] if same and _keeps_shape(r, op, 0) else None


def _expanded(r: Rewriter, op: Op, index: int) -> Op | None:
    """The operand broadcast to the op's shape, for the next op to take away again."""
    shape, target = r.facts.shape(op.inputs[index]), r.facts.shape(op.outputs[0])
    if shape is None or target is None:
        return None
    sizes = sizes_vector(r, op, needed_expand(shape, target))
    inputs = (op.inputs[index], sizes or "")
    return op.with_(op_type="Expand", inputs=inputs, attrs={}) if sizes else None


def known_choice(r: Rewriter, op: Op) -> Result | None:
    """Where with a condition that is the same everywhere, or with equal branches."""
    choice = uniform(r, op.inputs[0])
    if op.inputs[1] == op.inputs[2]:
        chosen = 1
    elif choice is None:
        return None
    else:
        chosen = 1 if choice else 2
    return op.inputs[chosen] if _keeps_shape(r, op, chosen) else None


def _keeps_shape(r: Rewriter, op: Op, index: int) -> bool:
    shape = r.facts.shape(op.inputs[index])
    return shape is not None and shape == r.facts.shape(op.outputs[0])


def _is_zero(r: Rewriter, value: str) -> bool:
    number = uniform(r, value)
    return number is not None and number == 0


def _is_negative_zero(r: Rewriter, value: str) -> bool:
    number = uniform(r, value)
    return isinstance(number, float) and math.copysign(1.0, number) < 0


def _sign_is_lost(r: Rewriter, op: Op) -> bool:
    """Whether no reader of the result can tell 0.0 from -0.0."""
    dtype = r.facts.dtype(op.outputs[0])
    if dtype is not None and dtype.is_integer:
        return True
    if r.graph.is_output(op.outputs[0]):
        return False
    return all(user.is_(*_ZERO_BLIND) for user in r.graph.users(op.outputs[0]))


RULES: RuleTable = {
    "Mul": (times_one,),
    "Div": (divided_by_one,),
    "Pow": (divided_by_one,),
    "Add": (plus_zero,),
    "Sub": (minus_zero,),
    "And": (and_true,),
    "Or": (or_false,),
    "Xor": (or_false,),
    "Where": (known_choice,),
}
