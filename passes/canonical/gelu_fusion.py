"""``0.5 * x * (1 + erf(x / sqrt(2)))`` written out is one Gelu.

In float32 and float64 only: in half precision the five ops round in between, one does not.
"""

from __future__ import annotations

import math

from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.canonical.opset_raise import raise_opset
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable
from gecompiler.passes.rule_pass import RulePass

_TOLERANCE = 1e-6


def fuse_gelu(r: Rewriter, op: Op) -> Result | None:
    """The last Mul of the product of x, 0.5 and 1 + erf(x / sqrt(2)), in any order."""
    if r.facts.dtype(op.outputs[0]) not in (DType.F32, DType.F64):
        return None
    for factors in _products(r, op):
        halves = [v for v in factors if r.facts.uniform(v) == 0.5]
        roots = [(v, _erf_argument(r, v)) for v in factors]
        for value, x in roots:
            rest = [v for v in factors if v != value]
            if x is None or len(halves) != 1 or sorted(rest) != sorted([halves[0], x]):
                continue
            if r.facts.shape(x) == r.facts.shape(op.outputs[0]) and raise_opset(r):
                attrs = {"approximate": "none"}
                return op.with_(op_type="Gelu", inputs=(x,), attrs=attrs)
    return None


def _products(r: Rewriter, op: Op) -> list[tuple[str, str, str]]:
    """The three factors of the op and of one Mul that feeds nothing but it, both ways."""
    found: list[tuple[str, str, str]] = []
    for inner, other in (op.inputs, op.inputs[::-1]):
        maker = r.graph.producer(inner)
        if maker is not None and maker.is_("Mul") and r.graph.single_use(inner):
            found.append((other, maker.inputs[0], maker.inputs[1]))
    return found


def _erf_argument(r: Rewriter, value: str) -> str | None:
    """X if the value is 1 + erf(x / sqrt(2)), computed for nothing else."""
    add = _sole_maker(r, value, "Add")
    if add is None:
        return None
    for inner, one in (add.inputs, add.inputs[::-1]):
        erf = _sole_maker(r, inner, "Erf")
        if erf is None or r.facts.uniform(one) != 1.0:
            continue
        return _over_root_two(r, erf.inputs[0])
    return None


def _over_root_two(r: Rewriter, value: str) -> str | None:
    divided = _sole_maker(r, value, "Div")
    if divided is not None:
        return divided.inputs[0] if _is(r, divided.inputs[1], math.sqrt(2)) else None
    scaled = _sole_maker(r, value, "Mul")
    if scaled is None:
        return None
    for x, factor in (scaled.inputs, scaled.inputs[::-1]):
        if _is(r, factor, math.sqrt(0.5)):
            return x
    return None


def _is(r: Rewriter, value: str, number: float) -> bool:
    found = r.facts.uniform(value)
    return found is not None and abs(float(found) - number) < _TOLERANCE


def _sole_maker(r: Rewriter, value: str, op_type: str) -> Op | None:
    maker = r.graph.producer(value)
    if maker is None or not maker.is_(op_type) or not r.graph.single_use(value):
        return None
    return maker


RULES: RuleTable = {"Mul": (fuse_gelu,)}


class GeluFusion(RulePass):
    """Makes one Gelu of the five ops that spell it with Erf."""

    name = "gelu-fusion"
    rules = RULES
