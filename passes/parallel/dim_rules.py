"""The dims of elementwise ops, products and reductions; and the table of all rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gecompiler.ir.collective_ops import Reduction
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.passes.parallel.dim_rules_layers import LAYER_RULES
from gecompiler.passes.parallel.dim_rules_moves import MOVE_RULES
from gecompiler.passes.parallel.dim_site import DimSite, NoSignatureError
from gecompiler.passes.parallel.signature import Linear, Operand, Signature

Rule = Callable[[DimSite], Signature]


def signature(graph: Graph, op: Op) -> Signature:
    """The labels of the op's dims; NoSignatureError says why there are none."""
    known = RULES.get(op.kind)
    if known is None or op.bodies:
        raise NoSignatureError(f"no rule says what {op.kind} does with dims")
    return known(DimSite(graph, op))


def _linear(site: DimSite) -> Linear:
    op = site.op
    if op.is_("Where"):
        other = site.graph.constant(op.inputs[2])
        number = other.scalar() if other is not None and other.has_data else None
        return "second" if number == 0 else ""
    if op.is_("Add", "Sub", "Sum"):
        return "sum"
    if op.is_("Mul"):
        return "product"
    return "first" if op.is_("Div", "Neg", "Identity") else ""


def _elementwise(site: DimSite) -> Signature:
    shape = site.made()
    out = site.labels("d", shape)
    inputs = tuple(
        site.aligned(site.shape(i), out, shape) if name else None
        for i, name in enumerate(site.op.inputs)
    )
    return Signature(inputs, (out,) * len(site.op.outputs), site.sizes, linear=_linear(site))


def _dropout(site: DimSite) -> Signature:
    site.require(not site.op.input(2), "it may draw random numbers")
    out = site.labels("d", site.shape(0))
    return Signature((out, *site.others(1)), (out,) * len(site.op.outputs), site.sizes)


def _matmul(site: DimSite) -> Signature:
    a, b = site.shape(0), site.shape(1)
    site.require(min(len(a), len(b)) >= 2, "it has a vector operand")
    site.require(not any(site.op.input(i) for i in (2, 3)), "it has zero points")
    shape = site.made()
    batch = site.labels("b", shape[:-2])
    m, k, n = site.label("m", a[-2]), site.label("k", a[-1]), site.label("n", b[-1])
    left = site.aligned(a[:-2], batch, shape[:-2])
    right = site.aligned(b[:-2], batch, shape[:-2])
    return Signature(
        ((*left, m, k), (*right, k, n)),
        ((*batch, m, n),),
        site.sizes,
        reduced={"k": "sum"} if k else {},
        linear="product",
    )


def _gemm(site: DimSite) -> Signature:
    a, b = site.shape(0), site.shape(1)
    turned = bool(site.op.attr("transA", 0)), bool(site.op.attr("transB", 0))
    rows, inner = (a[1], a[0]) if turned[0] else a
    columns = b[0] if turned[1] else b[1]
    m, k, n = site.label("m", rows), site.label("k", inner), site.label("n", columns)
    left = (k, m) if turned[0] else (m, k)
    right = (n, k) if turned[1] else (k, n)
    inputs: list[Operand | None] = [left, right]
    if site.op.input(2):
        inputs.append(site.aligned(site.shape(2), (m, n), site.made()))
    moving = bool(site.op.input(2)) and site.op.input(2) not in site.graph.constants
    return Signature(
        tuple(inputs),
        ((m, n),),
        site.sizes,
        reduced={"k": "sum"} if k else {},
        linear="" if moving else "product",
        adapt="bias",
    )


def _einsum(site: DimSite) -> Signature:
    equation = str(site.op.attr("equation", "")).replace(" ", "")
    terms, arrow, result = equation.partition("->")
    site.require(bool(arrow) and "." not in equation, "its equation leaves letters out")
    inputs = []
    for i, term in enumerate(terms.split(",")):
        shape = site.shape(i)
        site.require(len(set(term)) == len(term) == len(shape), "it takes a diagonal")
        inputs.append(tuple(site.label(c, n) for c, n in zip(term, shape, strict=True)))
    site.require(len(set(result)) == len(result), "it makes a diagonal")
    out = tuple(site.label(c, n) for c, n in zip(result, site.made(), strict=True))
    summed: dict[str, Reduction] = {c: "sum" for c in site.sizes if c not in result}
    return Signature(tuple(inputs), (out,), site.sizes, reduced=summed, linear="product")


def _along(site: DimSite) -> Signature:
    """Softmax and the like: over one axis since opset 13, over all from the axis on before."""
    op, shape = site.op, site.shape(0)
    old = site.graph.opsets.get("", 13) < 13 and not op.is_("CumSum", "TopK")
    out = site.labels("d", shape)
    if op.is_("CumSum"):
        given = site.ints(1, "axis")
        axis = given[0] % len(shape) if given else 0
    else:
        axis = site.axis(1 if old else -1, len(shape))
    whole = out[axis:] if old else out[axis : axis + 1]
    return Signature(
        (out, *site.others(1)),
        (out,),
        site.sizes,
        whole=frozenset(label for spec in whole for label in spec),
    )


def _selected(site: DimSite) -> Signature:
    """ArgMax, ArgMin, TopK: what is compared must be whole."""
    op, shape = site.op, site.shape(0)
    data = site.labels("d", shape)
    axis = site.axis(-1 if op.is_("TopK") else 0, len(shape))
    out = list(data)
    out[axis : axis + 1] = [site.label("kept", site.made()[axis])] if op.is_("TopK") else [()]
    if not op.is_("TopK") and not op.attr("keepdims", 1):
        del out[axis]
    whole = frozenset((*data[axis], "kept"))
    made = (tuple(out),) * len(op.outputs)
    return Signature((data, *site.others(1)), made, site.sizes, whole=whole)


_REDUCTIONS: Mapping[str, Reduction] = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
}


def _reduce(site: DimSite) -> Signature:
    op, shape = site.op, site.shape(0)
    data = site.labels("d", shape)
    given = site.ints(1, "axes")
    if not given:
        given = () if op.attr("noop_with_empty_axes", 0) else tuple(range(len(shape)))
    axes = {a % len(shape) for a in given} if shape else set()
    keep = bool(op.attr("keepdims", 1))
    out = tuple(() if n in axes else spec for n, spec in enumerate(data) if keep or n not in axes)
    gone = [label for n in sorted(axes) for label in data[n]]
    how = _REDUCTIONS.get(op.op_type)
    return Signature(
        (data, *site.others(1)),
        (out,),
        site.sizes,
        reduced=dict.fromkeys(gone, how) if how else {},
        whole=frozenset() if how else frozenset(gone),
        linear="first" if how in ("sum", "mean") else "",
    )


_ELEMENTWISE = (
    *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift"),
    *("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu"),
    *("Clip", "Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater"),
    *("GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu"),
    *("Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not"),
    *("Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign"),
    *("Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh"),
    *("ThresholdedRelu", "Where", "Xor"),
)

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "CumSum"), _along),
    **dict.fromkeys(("ArgMax", "ArgMin", "TopK"), _selected),
    **dict.fromkeys(
        (*_REDUCTIONS, "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"), _reduce
    ),
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp"), _reduce),
    "Dropout": _dropout,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    **MOVE_RULES,
    **LAYER_RULES,
}
"""What each op does with dims, by its qualified type."""
