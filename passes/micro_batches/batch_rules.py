"""Along which axis the samples of a batch stay apart: a rule for each op.

A value is *split* along an axis when its parts along it are the values of the parts of the
batch: computed part by part they are the same numbers. A rule says along which axis an op's
outputs are split when its inputs are, which other inputs must be cut the same way, or why the
op mixes samples. The sizes along split axes are multiples of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from gecompiler.passes.micro_batches.batch_rules_layers import LAYER_RULES
from gecompiler.passes.micro_batches.batch_rules_moves import MOVE_RULES
from gecompiler.passes.micro_batches.batch_site import Rule, Site, aligned, same_axis


def find_rule(site: Site) -> Rule:
    """The rule of an op of which at least one input is split; MixedSamplesError when none fits."""
    op = site.op
    site.require(not op.bodies, "its body is not looked into")
    known = RULES.get(op.kind)
    site.require(known is not None, "no rule says that it keeps samples apart")
    assert known is not None
    split = [site.shape(i) for i in range(len(op.inputs)) if site.axis(i) is not None]
    site.require(all(math.prod(shape) for shape in (*split, site.made())), "a tensor is empty")
    return known(site)


def _broadcast(site: Site) -> Rule:
    """Right-aligned elementwise; what is whole but has the full size is cut along."""
    return aligned(site, range(len(site.op.inputs)), site.made())


def _dropout(site: Site) -> Rule:
    site.require(not site.op.input(2), "it may draw random numbers")
    return same_axis(site, site.only(0))


def _matmul(site: Site) -> Rule:
    a, b, out = site.shape(0), site.shape(1), site.made()
    site.require(min(len(a), len(b)) >= 2, "it has a vector operand")
    for i in (2, 3):  # MatMulInteger: zero points, one or one a row
        site.whole(i)
        site.require(math.prod(site.shape(i)) == 1, "its zero points differ")
    if site.axis(0) == len(a) - 2:
        site.whole(1, why="both its operands are split along rows")
        return Rule((len(out) - 2,))
    return aligned(site, (0, 1), out, tail=2)


def _gemm(site: Site) -> Rule:
    site.whole(1)
    rows = 1 if site.op.attr("transA", 0) else 0
    site.require(site.axis(0) == rows, "it sums over the batch")
    bias = site.shape(2)
    if len(bias) < 2 or bias[0] == 1:
        site.whole(2)
        return Rule((0,))
    site.require(site.axis(2) in (None, 0), "its inputs are split along different axes")
    return Rule((0,), {2: 0} if site.axis(2) is None else {})


def _softmax(site: Site) -> Rule:
    """Along one axis since opset 13; over all from the axis on before."""
    axis, rank = site.only(0), len(site.shape(0))
    old = site.graph.opsets.get("", 13) < 13
    along = site.op.attr("axis", 1 if old else -1) % rank
    site.require(axis < along if old else axis != along, "it normalises over the batch")
    return same_axis(site, axis)


def _arg(site: Site) -> Rule:
    axis, rank = site.only(0), len(site.shape(0))
    along = site.op.attr("axis", 0) % rank
    site.require(axis != along, "it compares along the batch")
    kept = site.op.attr("keepdims", 1) or axis < along
    return same_axis(site, axis if kept else axis - 1)


def _reduce(site: Site) -> Rule:
    axis, rank = site.only(0), len(site.shape(0))
    given = site.ints(1, "axes")
    site.require(bool(given), "it reduces over the batch")
    along = sorted(a % rank for a in given or ())
    site.require(axis not in along, "it reduces over the batch")
    keep = site.op.attr("keepdims", 1)
    return Rule((axis if keep else axis - sum(a < axis for a in along),))


def _einsum(site: Site) -> Rule:
    """The samples' letter must be in the result; operands that have it are cut along it."""
    equation = str(site.op.attr("equation", "")).replace(" ", "")
    terms, arrow, result = equation.partition("->")
    site.require(bool(arrow) and "." not in equation, "its equation leaves letters out")
    letters = terms.split(",")
    found = {letters[i][a] for i in range(len(letters)) if (a := site.axis(i)) is not None}
    site.require(len(found) == 1, "its inputs are split along different axes")
    letter = found.pop()
    site.require(letter in result, "it sums over the batch")
    cut: dict[int, int] = {}
    for i, term in enumerate(letters):
        site.require(term.count(letter) < 2, "it takes a diagonal of the batch")
        if letter in term and site.axis(i) is None:
            cut[i] = term.index(letter)
            size = site.shape(i)[cut[i]]
            site.require(size == site.made()[result.index(letter)], "it broadcasts the batch")
    return Rule((result.index(letter),), cut)


_ELEMENTWISE = (
    *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift"),
    *("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu"),
    *("Clip", "Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater"),
    *("GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu"),
    *("Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not"),
    *("Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign"),
    *("Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh"),
    *("ThresholdedRelu", "Where", "Xor"),
    *("com.microsoft.BiasGelu", "com.microsoft.FastGelu", "com.microsoft.QuickGelu"),
)

_REDUCTIONS = tuple(
    f"Reduce{kind}"
    for kind in (
        *("Max", "Min", "Mean", "Sum", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"),
    )
)


def _by_rule() -> Iterator[tuple[Callable[[Site], Rule], tuple[str, ...]]]:
    yield _broadcast, _ELEMENTWISE
    yield _dropout, ("Dropout",)
    yield _matmul, ("MatMul", "MatMulInteger")
    yield _gemm, ("Gemm",)
    yield _softmax, ("Softmax", "LogSoftmax", "Hardmax")
    yield _arg, ("ArgMax", "ArgMin")
    yield _reduce, _REDUCTIONS
    yield _einsum, ("Einsum",)
    yield from MOVE_RULES
    yield from LAYER_RULES


RULES: Mapping[str, Callable[[Site], Rule]] = {
    kind: rule for rule, kinds in _by_rule() for kind in kinds
}
"""Which rule an op follows, by its qualified type."""
