"""Broadcasting is left to the ops that broadcast anyway, or put off.

An element-wise op that reads an expanded tensor reads the small one instead. Where its result
then is smaller too, the Expand moves behind it, so that less is computed, and vanishes at the
next op that broadcasts.
"""

from __future__ import annotations

from gecompiler.ir.dims import Dim, broadcast
from gecompiler.ir.op import Op
from gecompiler.ir.types import Shape, TensorType
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable

BROADCASTING = (
    *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "And", "Or", "Xor", "Where", "Max", "Min", "Sum"),
    *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
    *("BitwiseAnd", "BitwiseOr", "BitwiseXor"),
)
_ELEMENTWISE = (
    *("Abs", "Cast", "Ceil", "Cos", "Erf", "Exp", "Floor", "IsNaN", "Log", "Neg", "Not"),
    *("Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sqrt", "Tanh"),
)


def broadcast_without_expand(r: Rewriter, op: Op) -> Result | None:
    """An op that broadcasts reads what was expanded, where that gives the same shape."""
    target = r.facts.shape(op.outputs[0])
    for index, value in enumerate(op.inputs):
        maker = r.graph.producer(value) if value else None
        if target is None or maker is None or not maker.is_("Expand"):
            continue
        inputs = (*op.inputs[:index], maker.inputs[0], *op.inputs[index + 1 :])
        if together(r, inputs) == target:
            return op.with_(inputs=inputs)
    return None


def sink_expand(r: Rewriter, op: Op) -> Result | None:
    """f(Expand(x)) is Expand(f(x)) where only f uses the expanded tensor."""
    known = r.graph.tensor(op.outputs[0])
    for index, value in enumerate(op.inputs):
        maker = r.graph.producer(value) if value else None
        if known is None or maker is None or not maker.is_("Expand"):
            continue
        inputs = (*op.inputs[:index], maker.inputs[0], *op.inputs[index + 1 :])
        small = together(r, inputs)
        if small is None or known.shape is None or not r.graph.single_use(value):
            continue
        type_ = TensorType(known.dtype, small)
        inner = r.emit(op.op_type, inputs, type_, attrs=op.attrs, info=op.info, stem=op.name)
        return op.with_(op_type="Expand", inputs=(inner, maker.inputs[1]), attrs={})
    return None


def together(r: Rewriter, values: tuple[str, ...]) -> Shape | None:
    """The shape that the values have when broadcast together, None when not known."""
    shapes = [r.facts.shape(v) for v in values]
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes):
        return None
    rank = max(len(s) for s in known)
    result: list[Dim] = [1] * rank
    try:
        for shape in known:
            for i, dim in enumerate(shape, rank - len(shape)):
                result[i] = broadcast(result[i], dim)
    except ValueError:
        return None
    return tuple(result)


RULES: RuleTable = {
    **dict.fromkeys(BROADCASTING, (broadcast_without_expand, sink_expand)),
    **dict.fromkeys(_ELEMENTWISE, (sink_expand,)),
}
