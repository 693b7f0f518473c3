"""From the softmax forward to the product with V.

`PROBABILITY_STEPS` says of each op what it may do to the probabilities on their way: nothing
(Cast, Identity, Dropout at inference), move them (views), guard them against NaN, or drop the
column of a sink. Anything else means they are not just the weights of a sum over V.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gecompiler.ir.op import Op
from gecompiler.ir.types import DType
from gecompiler.passes.attention import layout as lay
from gecompiler.passes.attention.anchors import Anchor
from gecompiler.passes.attention.contraction import Contraction, contraction
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.layout import Axis, Layout
from gecompiler.passes.attention.noops import inference_dropout, maker, names, origin, readers
from gecompiler.passes.attention.pieces import parted
from gecompiler.passes.attention.refusal import Refusal, at
from gecompiler.passes.attention.terms import Overwrite

MAX_STEPS = 32


@dataclass
class Probabilities:
    """The walk's state: ``value`` has ``layout``; ``keys`` is the axis the softmax went over.

    ``start`` is the layout at the softmax, with which the walk of the scores begins too.
    """

    e: Elements
    value: str
    layout: Layout
    keys: Axis
    start: Layout
    ops: list[Op] = field(default_factory=list)
    guarded: bool = False
    """Whether NaN is replaced by 0."""
    zeroed: list[Overwrite] = field(default_factory=list)
    """Masks by which probabilities are set to 0."""
    first_key: int | None = None
    """The first column that is kept, where some are dropped (for sinks)."""
    product: Contraction | None = None
    out: str = ""
    """The sum that the product stands for, where V comes in pieces."""
    others: list[tuple[Contraction, str]] = field(default_factory=list)
    """Further products with the same probabilities, and the name these go by there."""

    @property
    def operand(self) -> int:
        """Which operand of the product they are."""
        assert self.product is not None
        return self.product.operands.index(self.value)


def follow(e: Elements, anchor: Anchor) -> Probabilities:
    """Walks to the product with V; Refusal tells where it was left."""
    shape = e.shape(anchor.output)
    if shape is None:
        raise at(anchor.op, "has an output of unknown rank")
    if anchor.axis is None:
        raise at(anchor.op, "normalises several axes at once")
    # The keys' axis keeps a factor even where its size is 1: it must be told apart.
    layout = tuple(
        (lay.Factor(d),) if d != 1 or n == anchor.axis else () for n, d in enumerate(shape)
    )
    walk = Probabilities(e, anchor.output, layout, layout[anchor.axis], layout)
    for _ in range(MAX_STEPS):
        if _in_pieces(walk):
            return walk
        op = _next(walk)
        walk.product = contraction(e.graph, op)
        if walk.product is not None:
            return walk
        step = PROBABILITY_STEPS.get(op.op_type) if not op.domain else None
        if step is None:
            raise at(op, "uses the probabilities and is no product with V")
        walk.ops.append(op)
        step(walk, op)
    raise at(anchor.op, "is too far from the product with V")


def _in_pieces(walk: Probabilities) -> bool:
    """Whether the probabilities are multiplied by V piece by piece."""
    found = readers(walk.e, walk.value)
    axes = [n for n, axis in enumerate(walk.layout) if lay.same_axis(axis, walk.keys)]
    if not found or len(axes) != 1 or not all(op.is_("Slice", "Split") for op, _ in found):
        return False
    if any(walk.e.graph.is_output(name) for name in names(walk.e, walk.value)):
        return False
    whole = parted(walk.e, walk.value, axes[0], found)
    if whole is None:
        return False
    walk.ops += whole.ops
    walk.product, walk.out = whole.product, whole.out
    return True


def _next(walk: Probabilities) -> Op:
    """The op that takes the probabilities on; a test for NaN may stand beside it."""
    e = walk.e
    if any(e.graph.is_output(name) for name in names(e, walk.value)):
        raise Refusal(f"the probabilities {walk.value!r} are an output of the model")
    found = readers(e, walk.value)
    if len(found) == 2 and any(op.is_("IsNaN") for op, _ in found):
        guard = next(op for op, _ in found if op.is_("IsNaN"))
        walk.ops.append(guard)
        found = [(op, name) for op, name in found if op is not guard]
    if len(found) > 1:
        products = [contraction(e.graph, op) for op, _ in found]
        if all(p is not None for p in products):
            pairs = [(p, name) for p, (_, name) in zip(products, found, strict=True) if p]
            walk.others, found = pairs[1:], found[:1]
    if len(found) != 1:
        users = ", ".join(op.name for op, _ in found) or "nothing"
        raise Refusal(f"the probabilities {walk.value!r} are used by {users}")
    op, walk.value = found[0]
    if len(op.inputs) > 1 and origin(e, op.inputs[0]) == origin(e, op.inputs[1]):
        raise at(op, "takes the probabilities twice")
    return op


def _pass(walk: Probabilities, op: Op) -> None:
    walk.value = op.outputs[0]


def _cast(walk: Probabilities, op: Op) -> None:
    dtype = walk.e.dtype(op.outputs[0])
    if dtype is None or not dtype.is_float:
        raise at(op, "makes the probabilities something else than numbers")
    walk.value = op.outputs[0]


def _dropout(walk: Probabilities, op: Op) -> None:
    if not inference_dropout(walk.e, op):
        raise at(op, "drops probabilities at random")
    walk.value = op.outputs[0]


def _view(walk: Probabilities, op: Op) -> None:
    found = lay.after(walk.e.graph, op, walk.layout)
    if found is None:
        raise at(op, "rearranges the probabilities in a way that cannot be followed")
    walk.layout, walk.value = found, op.outputs[0]


def _where(walk: Probabilities, op: Op) -> None:
    """A NaN guard or a mask, which put zeros in."""
    e, index = walk.e, op.inputs.index(walk.value)
    if index == 0 or e.uniform(op.inputs[3 - index]) != 0:
        raise at(op, "replaces probabilities by something else than 0")
    if not _is_guard(walk, op, index):
        _zero(walk, op, op.inputs[0], index == 1)
    walk.value = op.outputs[0]


def _mul(walk: Probabilities, op: Op) -> None:
    """A product with a mask of ones and zeros."""
    _zero(walk, op, op.inputs[1 - op.inputs.index(walk.value)], True)
    walk.value = op.outputs[0]


def _zero(walk: Probabilities, op: Op, mask: str, keep: bool) -> None:
    shape = walk.e.shape(op.outputs[0])
    if shape is None or shape != walk.e.shape(walk.value):
        raise at(op, "broadcasts the probabilities to a larger shape")
    walk.zeroed.append(Overwrite(op, mask, walk.layout, keep, 0.0, (DType.F32,), None))


def _is_guard(walk: Probabilities, op: Op, index: int) -> bool:
    """``Where(IsNaN(p), 0, p)``, or with Not the other way round."""
    e = walk.e
    test = maker(e, op.inputs[0])
    negated = test is not None and test.is_("Not")
    if test is not None and negated:
        inner = maker(e, test.inputs[0])
        if inner is not None and inner.is_("IsNaN"):
            walk.ops.append(test)
        test = inner
    if test is None or not test.is_("IsNaN"):
        return False
    if origin(e, test.inputs[0]) != origin(e, walk.value):
        return False
    if index != (1 if negated else 2):
        raise at(op, "keeps the probabilities where they are NaN")
    walk.guarded = True
    return True


def _slice(walk: Probabilities, op: Op) -> None:
    """Drops the first or the last column, which is the sink's."""
    e = walk.e
    shape, after = e.shape(walk.value), e.shape(op.outputs[0])
    starts, axes = e.dims(op.input(1)), e.ints(op.input(3)) if op.input(3) else (0,)
    if shape is None or after is None or len(op.inputs) < 3 or starts is None or axes is None:
        raise at(op, "takes a part of the probabilities that is not known")
    changed = [n for n in range(len(shape)) if shape[n] != after[n]]
    if not changed:
        walk.value = op.outputs[0]
        return
    axis = changed[0]
    begin = dict(zip((a % len(shape) for a in axes), starts, strict=True)).get(axis, 0)
    begin = begin + shape[axis] if isinstance(begin, int) and begin < 0 else begin
    keys = lay.same_axis(walk.layout[axis], walk.keys)
    if len(changed) > 1 or not keys or shape[axis] - after[axis] != 1 or begin not in (0, 1):
        raise at(op, "takes a part of the probabilities")
    _drop_column(walk, op.outputs[0], axis, after[axis], int(begin == 1))


def _split(walk: Probabilities, op: Op) -> None:
    """A Split that parts the keys from the sink's column."""
    e, shape = walk.e, walk.e.shape(walk.value)
    axis = op.attr("axis", 0) % len(shape or (0,))
    live = [o for o in op.outputs if o and (e.graph.uses(o) or e.graph.is_output(o))]
    parts = [e.shape(o) for o in op.outputs]
    if shape is None or None in parts or len(live) != 1 or len(op.outputs) != 2:
        raise at(op, "splits the probabilities")
    kept = op.outputs.index(live[0])
    lost, left = parts[1 - kept], parts[kept]
    if not lay.same_axis(walk.layout[axis], walk.keys) or lost is None or lost[axis] != 1:
        raise at(op, "splits the probabilities")
    assert left is not None
    _drop_column(walk, live[0], axis, left[axis], kept)


def _drop_column(walk: Probabilities, value: str, axis: int, dim: object, first: int) -> None:
    if walk.first_key is not None:
        raise Refusal("columns are taken from the probabilities twice")
    walk.first_key, walk.value = first, value
    walk.keys = (lay.Factor(dim),)  # type: ignore[arg-type]
    walk.layout = (*walk.layout[:axis], walk.keys, *walk.layout[axis + 1 :])


PROBABILITY_STEPS: Mapping[str, Callable[[Probabilities, Op], None]] = {
    **dict.fromkeys(("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze"), _view),
    "Cast": _cast,
    "Dropout": _dropout,
    "Identity": _pass,
    "Mul": _mul,
    "Slice": _slice,
    "Split": _split,
    "Where": _where,
}
"""What each op may do to the probabilities between softmax and product."""
