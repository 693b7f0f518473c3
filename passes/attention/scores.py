"""From the softmax back to the product of Q and K.

Whatever lies between is brought into the normal form

    softmax input = softcap(alpha * Q K^T) + sum of biases, where masks overwrite

by walking backwards, one op at a time. The operand that leads to a product is continued; the
other is a number (it goes into ``alpha``), a bias, or a mask. So it does not matter in which
order operands stand. `SCORE_STEPS` has a function per op type, which takes the walk one op
further or refuses; a new spelling is one function there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.anchors import Anchor, reduced_axes
from gecompiler.passes.attention.contraction import Contraction, contraction
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.layout import Axis, Layout
from gecompiler.passes.attention.limits import limits
from gecompiler.passes.attention.noops import inference_dropout, maker, origin
from gecompiler.passes.attention.origin_kinds import PRODUCT, PROJECTION
from gecompiler.passes.attention.pieces import Joining
from gecompiler.passes.attention.probabilities import Probabilities
from gecompiler.passes.attention.refusal import at
from gecompiler.passes.attention.scalars import scaled
from gecompiler.passes.attention.terms import Bias, Multiplier, Overwrite, Term

MAX_STEPS = 64


@dataclass
class Scores:
    """The walk's state. ``terms`` are outermost first; ``ops`` lie between product and softmax."""

    e: Elements
    leads: Callable[[str], int]
    value: str
    layout: Layout
    keys: Axis
    alpha: float = 1.0
    softcap: float = 0.0
    floor: float | None = None
    terms: list[Term] = field(default_factory=list)
    multipliers: list[Multiplier] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    dtypes: tuple[DType, ...] = ()
    sinks: tuple[str, Layout, float] | None = None
    """The logits of an extra column: value, layout, factor."""
    sink_column: int | None = None
    product: Contraction | None = None

    def only_plain(self, op: Op, what: str) -> None:
        """Refuses ``what`` inside a softcap or a factor that is no number."""
        if self.softcap:
            raise at(op, f"{what} inside the softcap")
        if self.multipliers:
            raise at(op, f"{what} inside a factor that is not one number")

    def are_scores(self, value: str) -> bool:
        """Whether a value comes from a product in a way that scores do."""
        return self.leads(value) in (PROJECTION, PRODUCT)

    def continued(self, op: Op, index: int) -> None:
        """Goes on with that operand, whose shape must be the output's."""
        value, shape = op.inputs[index], self.e.shape(op.outputs[0])
        given = self.e.shape(value)
        if given is None or shape is None or not _agree(self.e, given, shape):
            raise at(op, "broadcasts the scores to a larger shape")
        lay.resize(self.layout, given)
        self.value = value


def peel(e: Elements, anchor: Anchor, after: Probabilities, leads: Callable[[str], int]) -> Scores:
    """Walks to the product of Q and K; Refusal tells where it was left."""
    shape = e.shape(anchor.input)
    dtype = e.dtype(anchor.input)
    if shape is None or dtype is None or anchor.axis is None:
        raise at(anchor.op, "has an input of unknown shape")
    start = after.start
    walk = Scores(e, leads, anchor.input, start, start[anchor.axis], dtypes=(dtype,))
    for _ in range(MAX_STEPS):
        op = e.graph.producer(walk.value)
        if op is None:
            raise at(anchor.op, f"normalises {walk.value!r}, which is no product of Q and K")
        walk.product = contraction(e.graph, op)
        if walk.product is not None:
            return walk
        step = SCORE_STEPS.get(op.op_type) if not op.domain else None
        if step is None:
            raise at(op, "stands between the softmax and the product of Q and K")
        walk.ops.append(op)
        step(walk, op)
    raise at(anchor.op, "is too far from the product of Q and K")


def _agree(e: Elements, a: tuple[Dim, ...], b: tuple[Dim, ...]) -> bool:
    return len(a) == len(b) and all(x == y or e.agree(x, y) for x, y in zip(a, b, strict=True))


def _best(walk: Scores, op: Op, indices: tuple[int, ...]) -> int:
    """The operand that leads to the product of Q and K."""
    best = max(indices, key=lambda n: walk.leads(op.inputs[n]))
    if not walk.leads(op.inputs[best]):
        raise at(op, "does not lead to a product of Q and K")
    return best


# ---------------------------------------------------------------- steps


def _pass(walk: Scores, op: Op) -> None:
    walk.continued(op, 0)


def _cast(walk: Scores, op: Op) -> None:
    dtype = walk.e.dtype(op.inputs[0])
    if dtype is None or not dtype.is_float:
        raise at(op, "makes scores of something that is no floating-point number")
    walk.dtypes = (dtype, *walk.dtypes)
    walk.continued(op, 0)


def _dropout(walk: Scores, op: Op) -> None:
    if not inference_dropout(walk.e, op):
        raise at(op, "drops scores at random")
    walk.continued(op, 0)


def _view(walk: Scores, op: Op) -> None:
    found = lay.before(walk.e.graph, op, walk.layout)
    if found is None:
        raise at(op, "rearranges the scores in a way that cannot be followed")
    walk.layout, walk.value = found, op.inputs[0]


def _scale(walk: Scores, op: Op) -> None:
    """Mul, Div, Neg: by a number, or by a tensor that Q or K can take over."""
    ways = sorted(scaled(walk.e, op), key=lambda way: -walk.leads(way.value))
    if ways and walk.leads(ways[0].value):
        walk.alpha *= ways[0].factor
        walk.continued(op, op.inputs.index(ways[0].value))
        return
    index = _best(walk, op, (0, 1) if op.is_("Mul") else (0,))
    other = op.inputs[1 - index]
    walk.multipliers.append(
        Multiplier(op, other, walk.layout, op.is_("Div"), walk.dtypes, walk.floor)
    )
    walk.continued(op, index)


def _add(walk: Scores, op: Op) -> None:
    _bias(walk, op, _best(walk, op, (0, 1)), 1.0)


def _sub(walk: Scores, op: Op) -> None:
    """``scores - bias``, ``bias - scores``, or a shift by the row's maximum, which is nothing."""
    index = _best(walk, op, (0, 1))
    other = maker(walk.e, op.inputs[1 - index])
    if index == 0 and other is not None and _is_row_maximum(walk, other, op.inputs[0]):
        walk.ops.append(other)
        walk.continued(op, 0)
        return
    _bias(walk, op, index, -1.0 if index == 0 else 1.0)
    if index == 1:
        walk.alpha = -walk.alpha


def _is_row_maximum(walk: Scores, op: Op, value: str) -> bool:
    shape = walk.e.shape(value)
    same = origin(walk.e, op.inputs[0]) == origin(walk.e, value)
    if not op.is_("ReduceMax") or not same or shape is None:
        return False
    axes = reduced_axes(walk.e, op, len(shape))
    keys = [n for n, axis in enumerate(walk.layout) if lay.same_axis(axis, walk.keys)]
    return bool(op.attr("keepdims", 1)) and axes is not None and list(axes) == keys


def _bias(walk: Scores, op: Op, index: int, sign: float) -> None:
    value = op.inputs[1 - index]
    dtype = walk.e.dtype(value)
    walk.only_plain(op, "adds a bias")
    if dtype is None or not dtype.is_float:
        raise at(op, f"adds {value!r}, which is not a floating-point number")
    factor = sign * walk.alpha
    walk.terms.append(Bias(op, value, walk.layout, factor, walk.dtypes, walk.floor))
    walk.continued(op, index)


def _where(walk: Scores, op: Op) -> None:
    index = _best(walk, op, (1, 2))
    other = op.inputs[3 - index]
    sentinel = walk.e.uniform(other)
    walk.only_plain(op, "masks scores")
    if sentinel is None and walk.are_scores(other):
        raise at(op, f"chooses between scores and {other!r}, which are scores too")
    walk.terms.append(
        Overwrite(
            op,
            op.inputs[0],
            walk.layout,
            index == 1,
            (1.0 if sentinel is None else sentinel) * walk.alpha,
            walk.dtypes,
            walk.floor,
            other if sentinel is None else "",
        )
    )
    walk.continued(op, index)


def _tanh(walk: Scores, op: Op) -> None:
    """``c * tanh(x / c)``: what multiplies the tanh is the cap."""
    walk.only_plain(op, "takes a tanh")
    walk.softcap = abs(walk.alpha)
    if not walk.softcap:
        raise at(op, "is multiplied by 0")
    walk.continued(op, 0)


def _at_least(walk: Scores, op: Op) -> None:
    """Max or Clip with a bound so low that it only keeps sums of masks from overflowing."""
    operands = [n for n, name in enumerate(op.inputs) if name]
    index = _best(walk, op, tuple(operands) if op.is_("Max") else (0,))
    if op.is_("Max"):
        bounds = [walk.e.uniform(op.inputs[n]) for n in operands if n != index]
        low, high = (bounds[0] if len(bounds) == 1 else None), None
    else:
        low = op.attr("min") if walk.e.graph.opsets[""] < 11 else _operand(walk, op, 1)
        high = op.attr("max") if walk.e.graph.opsets[""] < 11 else _operand(walk, op, 2)
    limit = limits(walk.dtypes[0]).flooring
    if low is None or low > -limit or (high is not None and high < limit):
        raise at(op, "bounds the scores")
    walk.floor = low * walk.alpha
    walk.continued(op, index)


def _operand(walk: Scores, op: Op, index: int) -> float | None:
    return walk.e.uniform(op.inputs[index]) if op.input(index) else None


def _concat(walk: Scores, op: Op) -> None:
    """A column of sink logits beside the scores, or scores of keys in pieces."""
    axis = op.attr("axis", 0) % len(walk.layout)
    if len(op.inputs) > 1 and all(map(walk.are_scores, op.inputs)):
        if not lay.same_axis(walk.layout[axis], walk.keys):
            raise at(op, "joins scores along another axis than the keys'")
        walk.value = Joining(walk.e, walk.leads, op, axis, walk.ops).whole(op.inputs)
        return
    index = _best(walk, op, tuple(range(len(op.inputs))))
    if len(op.inputs) != 2 or not lay.same_axis(walk.layout[axis], walk.keys):
        raise at(op, "joins the scores with something that is no sink")
    sink, scores = op.inputs[1 - index], op.inputs[index]
    shape, rest = walk.e.shape(sink), walk.e.shape(scores)
    if shape is None or rest is None or shape[axis] != 1 or walk.terms or walk.softcap:
        raise at(op, "joins the scores with something that is no sink")
    column = tuple(() if n == axis else a for n, a in enumerate(walk.layout))
    walk.sinks, walk.sink_column = (sink, column, walk.alpha), 1 - index
    walk.keys = (lay.Factor(rest[axis]),)
    walk.layout = (*walk.layout[:axis], walk.keys, *walk.layout[axis + 1 :])
    walk.value = scores


SCORE_STEPS: Mapping[str, Callable[[Scores, Op], None]] = {
    **dict.fromkeys(("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"), _view),
    **dict.fromkeys(("Mul", "Div", "Neg"), _scale),
    **dict.fromkeys(("Max", "Clip"), _at_least),
    **dict.fromkeys(("Identity", "Expand"), _pass),
    "Add": _add,
    "Cast": _cast,
    "Concat": _concat,
    "Dropout": _dropout,
    "Sub": _sub,
    "Tanh": _tanh,
    "Where": _where,
}
"""What each op may do to the scores between the product and the softmax."""
