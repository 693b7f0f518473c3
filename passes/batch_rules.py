"""Along which axis the samples of a batch stay apart: a rule for each op.

A value is *split* along an axis when its parts along it are the values of the parts of the
batch: computed part by part they are the same numbers. A rule says along which axis an op's
outputs are split when its inputs are, which other inputs must be cut the same way, or why the
op mixes samples. The sizes along split axes are multiples of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from gecompiler.ir.op import GE_DOMAIN
from gecompiler.passes.batch_site import MixedSamplesError, Rule, Site
from gecompiler.passes.memory_lifetimes import IN_PLACE_OPS


def find_rule(site: Site) -> Rule:
    """The rule of an op of which at least one input is split; MixedSamplesError when none fits."""
    op = site.op
    site.require(not op.bodies, "its body is not looked into")
    known = RULES.get(op.kind)
    site.require(known is not None, "no rule says that it keeps samples apart")
    assert known is not None
    return known(site)


# ------------------------------------------------------------------ rules


def _broadcast(site: Site) -> Rule:
    """Right-aligned elementwise; what is whole but has the full size is cut along."""
    return _aligned(site, range(len(site.op.inputs)), site.made())


def _aligned(site: Site, indexes: Sequence[int], out: tuple[int, ...], tail: int = 0) -> Rule:
    """Broadcast over all dims but the last ``tail``, which must not be split."""
    found = {
        len(out) - len(site.shape(i)) + axis for i in indexes if (axis := site.axis(i)) is not None
    }
    site.require(len(found) == 1, "its inputs are split along different axes")
    at = found.pop()
    site.require(at < len(out) - tail, "the axis of the batch is summed over")
    cut: dict[int, int] = {}
    for i in indexes:
        shape = site.shape(i)
        own = at - (len(out) - len(shape))
        if own < 0 or shape[own] == 1:
            site.require(site.axis(i) is None, "a split input is broadcast along the batch")
        elif site.axis(i) is None:
            cut[i] = own
    return Rule((at,) * len(site.op.outputs), cut)


def _matmul(site: Site) -> Rule:
    a, b, out = site.shape(0), site.shape(1), site.made()
    site.require(min(len(a), len(b)) >= 2, "it has a vector operand")
    if site.axis(0) == len(a) - 2:
        site.require(site.axis(1) is None, "both its operands are split along rows")
        return Rule((len(out) - 2,))
    return _aligned(site, (0, 1), out, tail=2)


def _gemm(site: Site) -> Rule:
    site.require(site.only(0) == 0 and not site.op.attr("transA", 0), "it sums over the batch")
    bias = site.shape(2)
    whole_rows = len(bias) == 2 and bias[0] != 1
    return Rule((0,), {2: 0} if whole_rows else {})


def _transpose(site: Site) -> Rule:
    order = site.op.attr("perm") or tuple(reversed(range(len(site.shape(0)))))
    return Rule((order.index(site.only(0)),))


def _reshape(site: Site) -> Rule:
    """Contiguous parts stay contiguous where the dims before the axis have the same product."""
    axis, source, out = site.only(0), site.shape(0), site.made()
    before = math.prod(source[:axis])
    for i, size in enumerate(out):
        if math.prod(out[:i]) == before and size != 1:
            return Rule((i,))
    raise MixedSamplesError(f"{site.op.name!r} ({site.op.kind}): it folds the batch into others")


def _last_axes(site: Site) -> Rule:
    """Normalisation over all dims from ``axis`` on."""
    axis, rank = site.only(0), len(site.shape(0))
    start = site.op.attr("axis", -1) % rank
    site.require(axis < start, "it normalises over the batch")
    return Rule((axis,) * len(site.op.outputs))


def _one_axis(site: Site) -> Rule:
    """Work along one axis (Softmax since opset 13, CumSum, ArgMax): any other may be split."""
    axis, rank = site.only(0), len(site.shape(0))
    default = -1 if "oftmax" in site.op.op_type else 0
    along = site.op.attr("axis", default) % rank
    old = "oftmax" in site.op.op_type and site.graph.opsets.get("", 0) < 13
    site.require(axis < along if old else axis != along, "it works along the batch")
    dropped = site.op.op_type.startswith("Arg") and not site.op.attr("keepdims", 1)
    return Rule((axis - 1 if dropped and axis > along else axis,))


def _reduce(site: Site) -> Rule:
    axis, rank = site.only(0), len(site.shape(0))
    given = site.ints(1, "axes")
    site.require(bool(given), "it reduces over the batch")
    along = sorted(a % rank for a in given or ())
    site.require(axis not in along, "it reduces over the batch")
    keep = site.op.attr("keepdims", 1)
    return Rule((axis if keep else axis - sum(a < axis for a in along),))


def _gather(site: Site) -> Rule:
    along = site.op.attr("axis", 0) % len(site.shape(0))
    if site.axis(0) is None:
        return Rule((along + site.only(1),))
    axis = site.only(0)
    site.require(axis != along, "it picks along the batch")
    return Rule((axis if axis < along else axis - 1 + len(site.shape(1)),))


def _concat(site: Site) -> Rule:
    rule = _aligned(site, range(len(site.op.inputs)), site.made())
    along = site.op.attr("axis", 0) % len(site.made())
    site.require(along != rule.outputs[0], "it joins along the batch")
    return rule


def _split(site: Site) -> Rule:
    axis = site.only(0)
    along = site.op.attr("axis", 0) % len(site.shape(0))
    site.require(axis != along, "it splits along the batch")
    return Rule((axis,) * len(site.op.outputs))


def _slice(site: Site) -> Rule:
    axis, rank = site.only(0), len(site.shape(0))
    starts = site.ints(1, "starts") or ()
    along = site.ints(3, "axes") or tuple(range(len(starts)))
    site.require(axis not in [a % rank for a in along], "it cuts the batch")
    return Rule((axis,))


def _expand(site: Site) -> Rule:
    axis, out = site.only(0), site.made()
    return Rule((axis + len(out) - len(site.shape(0)),))


def _attention(site: Site) -> Rule:
    """FlashAttention: Q, K, V and mask along the first axis."""
    site.require(site.axis(0) == 0, "its queries are not split by samples")
    cut: dict[int, int] = {}
    for i in (1, 2, 3):
        shape = site.shape(i)
        if len(shape) == 4 and shape[0] != 1:
            site.require(site.axis(i) in (None, 0), "it is split along another axis than the batch")
            if site.axis(i) is None:
                cut[i] = 0
        else:
            site.require(site.axis(i) is None, "its mask is split along another axis")
    site.require(site.axis(4) is None, "its sinks are split")
    return Rule((0,), cut)


def _first_axis(site: Site) -> Rule:
    """Ops whose first input has the samples first, and whose other inputs are weights."""
    site.require(site.only(0) == 0, "its samples do not come first")
    return Rule((0,) * len(site.op.outputs))


def _rotary(site: Site) -> Rule:
    site.require(site.axis(0) == 0, "its samples do not come first")
    cut: dict[int, int] = {}
    for i in range(1, len(site.op.inputs)):
        shape = site.shape(i)
        per_sample = len(shape) == 3 or (len(shape) == 2 and i == (3 if not site.op.domain else 1))
        if per_sample and shape[0] != 1:
            site.require(site.axis(i) in (None, 0), "its positions are split along another axis")
            if site.axis(i) is None:
                cut[i] = 0
        else:
            site.require(site.axis(i) is None, "its tables are split")
    return Rule((0,), cut)


def _trilu(site: Site) -> Rule:
    axis = site.only(0)
    site.require(axis < len(site.shape(0)) - 2, "it is a triangle over the batch")
    return Rule((axis,))


_ELEMENTWISE = IN_PLACE_OPS | {
    "CastLike",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Identity",
    "IsInf",
    "IsNaN",
    "Less",
    "LessOrEqual",
}

_BY_RULE: tuple[tuple[Callable[[Site], Rule], tuple[str, ...]], ...] = (
    (_broadcast, tuple(sorted(_ELEMENTWISE))),
    (_matmul, ("MatMul", "MatMulInteger")),
    (_gemm, ("Gemm",)),
    (_transpose, ("Transpose",)),
    (_reshape, ("Reshape", "Squeeze", "Unsqueeze", "Flatten")),
    (_last_axes, ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")),
    (_one_axis, ("Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin")),
    (
        _reduce,
        tuple(
            f"Reduce{kind}"
            for kind in (
                *("Max", "Min", "Mean", "Sum", "Prod", "L1", "L2"),
                "SumSquare",
                "LogSumExp",
            )
        ),
    ),
    (_gather, ("Gather",)),
    (_concat, ("Concat",)),
    (_split, ("Split",)),
    (_slice, ("Slice",)),
    (_expand, ("Expand",)),
    (_attention, (f"{GE_DOMAIN}.FlashAttention",)),
    (
        _first_axis,
        (
            *("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool"),
            *("GlobalMaxPool", "InstanceNormalization", "GroupNormalization"),
        ),
    ),
    (_rotary, ("RotaryEmbedding", "com.microsoft.RotaryEmbedding")),
    (_trilu, ("Trilu",)),
)

RULES: Mapping[str, Callable[[Site], Rule]] = {
    kind: rule for rule, kinds in _BY_RULE for kind in kinds
}
"""Which rule an op follows, by its qualified type."""
