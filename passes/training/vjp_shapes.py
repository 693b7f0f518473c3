"""Gradients of ops that move elements: views, transposes, cuts, joins, picks."""

from __future__ import annotations

from collections.abc import Sequence

from gecompiler.ir.op import Attr
from gecompiler.ir.training_ops import SLICE_GRAD
from gecompiler.ir.types import TensorType
from gecompiler.passes.training.site import Gradients, Rule, Site


def _view(site: Site) -> Gradients:
    return {0: site.tape.reshape(site.dy, site.shape(0))}


def _transpose(site: Site) -> Gradients:
    rank = len(site.shape(0))
    perm = tuple(site.op.attr("perm") or reversed(range(rank)))
    back = sorted(range(rank), key=lambda axis: perm[axis])
    return {0: site.tape.transpose(site.dy, back)}


def _expand(site: Site) -> Gradients:
    return {0: site.tape.sum_to(site.dy, site.shape(0))}


def _tile(site: Site) -> Gradients:
    """Repeats become axes of their own, which are summed over."""
    t, shape = site.tape, site.shape(0)
    times = [
        big // small if small else 1 for big, small in zip(t.shape(site.dy), shape, strict=True)
    ]
    apart = [n for pair in zip(times, shape, strict=True) for n in pair]
    over = [2 * i for i, n in enumerate(times) if n > 1]
    return {0: t.reshape(t.reduce("ReduceSum", t.reshape(site.dy, apart), over), shape)}


def _concat(site: Site) -> Gradients:
    t, rank = site.tape, len(site.shape(0))
    axis = int(site.op.attr("axis", 1)) % rank
    count = len(site.op.inputs)
    wanted = [i for i in range(count) if site.wants(i)]
    if len(wanted) == 1:  # the one part is cut out
        first = sum(site.shape(i)[axis] for i in range(wanted[0]))
        return {wanted[0]: _cut(site, axis, first, site.shape(wanted[0]))}
    parts = t.split(site.dy, axis, [site.shape(i)[axis] for i in range(count)])
    return {i: parts[i] for i in wanted}


def _cut(site: Site, axis: int, first: int, shape: Sequence[int]) -> str:
    """A part of dY along an axis, as Split gives it; the rest is not written."""
    t, length = site.tape, site.tape.shape(site.dy)[axis]
    last = first + shape[axis]
    parts = [n for n in (first, last - first, length - last) if n]
    return t.split(site.dy, axis, parts)[1 if first else 0]


def _split(site: Site) -> Gradients:
    t, rank = site.tape, len(site.shape(0))
    axis = int(site.op.attr("axis", 0)) % rank
    parts = [
        grad if grad is not None else t.zeros(t.type(value))
        for grad, value in zip(site.grads, site.op.outputs, strict=True)
    ]
    return {0: t.concat(parts, axis)}


def _slice(site: Site) -> Gradients:
    t, op, shape = site.tape, site.op, site.shape(0)
    if t.opset < 10:
        starts, stops, given, steps = (op.attr(n) for n in ("starts", "ends", "axes", "steps"))
    else:
        known = [t.ints(op.input(i)) if op.input(i) else None for i in range(1, 5)]
        if any(k is None for i, k in enumerate(known) if op.input(i + 1)):
            site.fail("takes a part that is only known in the run")
        starts, stops, given, steps = known
    assert starts is not None
    assert stops is not None
    axes = given or range(len(starts))
    strides = steps or [1] * len(starts)
    first, step = [0] * len(shape), [1] * len(shape)
    for axis, start, stop, stride in zip(axes, starts, stops, strides, strict=True):
        span = slice(start, stop if abs(stop) < 2**62 else None, stride)
        first[axis % len(shape)], _, step[axis % len(shape)] = span.indices(shape[axis])
    return {0: slice_grad(site, site.dy, first, step)}


def slice_grad(site: Site, dy: str, starts: Sequence[int], steps: Sequence[int]) -> str:
    """Zeros like the first input with ``dy`` where it was cut out."""
    shape = site.shape(0)
    attrs: dict[str, Attr] = {"shape": shape, "starts": tuple(starts), "steps": tuple(steps)}
    return site.tape.own(SLICE_GRAD, [dy], site.type(0), attrs=attrs)[0]


def _pad(site: Site) -> Gradients:
    """What was put around is cut off; the fill value is no parameter."""
    t, op, shape = site.tape, site.op, site.shape(0)
    if op.attr("mode", "constant") not in ("constant", b"constant"):
        site.fail(f"of mode {op.attr('mode')!r} has no gradient here")
    pads = op.attr("pads") or (t.ints(op.input(1)) if op.input(1) else None)
    axes = t.ints(op.input(3)) if op.input(3) else tuple(range(len(shape)))
    if pads is None or axes is None or min(pads) < 0:
        site.fail("has pads that are negative or only known in the run")
    assert axes is not None
    assert pads is not None
    dy = site.dy
    for place, axis in enumerate(axes):
        before, size = pads[place], shape[axis]
        after = pads[place + len(axes)]
        parts = [n for n in (before, size, after) if n]
        dy = t.split(dy, axis % len(shape), parts)[1 if before else 0]
    return {0: dy}


def _trilu(site: Site) -> Gradients:
    t = site.tape
    inputs = [site.dy, *([site.x(1)] if site.has(1) else [])]
    return {0: t.emit("Trilu", inputs, site.type(0), attrs=site.op.attrs)[0]}


def _cumsum(site: Site) -> Gradients:
    attrs = {**site.op.attrs, "reverse": 1 - int(site.op.attr("reverse", 0))}
    return {0: site.tape.emit("CumSum", [site.dy, site.x(1)], site.type(0), attrs=attrs)[0]}


# -------------------------------------------------------------------- by index


def _picked(
    site: Site, op_type: str, dy: str, indices: str, kind: TensorType, **attrs: Attr
) -> str:
    given: dict[str, Attr] = {**attrs, "shape": kind.sizes}
    return site.tape.own(op_type, [dy, indices], kind, attrs=given)[0]


def _axis(site: Site, default: int = 0) -> int:
    return int(site.op.attr("axis", default)) % max(1, len(site.shape(0)))


def _gather(site: Site) -> Gradients:
    found = _picked(site, "GatherGrad", site.dy, site.x(1), site.type(0), axis=_axis(site))
    return {0: found}


def _gather_elements(site: Site) -> Gradients:
    kind = site.type(0)
    return {0: _picked(site, "GatherElementsGrad", site.dy, site.x(1), kind, axis=_axis(site))}


def _gather_nd(site: Site) -> Gradients:
    batch = int(site.op.attr("batch_dims", 0))
    kind = site.type(0)
    return {0: _picked(site, "GatherNDGrad", site.dy, site.x(1), kind, batch_dims=batch)}


def _top_k(site: Site) -> Gradients:
    if site.grads[0] is None:
        return {}
    axis, kind = _axis(site, -1), site.type(0)
    return {0: _picked(site, "GatherElementsGrad", site.dy, site.y(1), kind, axis=axis)}


def _scatter_elements(site: Site) -> Gradients:
    """Updates take their places' gradient; what they replace has none."""
    t, axis, found = site.tape, _axis(site), {}
    kept = _kept(site)
    if t.opset < 11 and site.wants(2):
        site.fail("has no gradient here before opset 11")
    if site.wants(0):
        zeros = t.zeros(site.type(2))
        inputs = [site.dy, site.x(1), zeros]
        found[0] = (
            site.dy
            if kept
            else t.emit(site.op.op_type, inputs, site.type(0), attrs={"axis": axis})[0]
        )
    if site.wants(2):
        inputs = [site.dy, site.x(1)]
        found[2] = t.emit("GatherElements", inputs, site.type(2), attrs={"axis": axis})[0]
    return found


def _scatter_nd(site: Site) -> Gradients:
    t, found = site.tape, {}
    kept = _kept(site)
    if site.wants(0):
        inputs = [site.dy, site.x(1), t.zeros(site.type(2))]
        found[0] = site.dy if kept else t.emit("ScatterND", inputs, site.type(0))[0]
    if site.wants(2):
        found[2] = t.emit("GatherND", [site.dy, site.x(1)], site.type(2))[0]
    return found


def _kept(site: Site) -> bool:
    """Whether updates are added to what lies there, instead of replacing it."""
    reduction = site.op.attr("reduction", "none")
    if reduction not in ("none", "add"):
        site.fail(f"with reduction {reduction!r} has no gradient here")
    return bool(reduction == "add")


RULES: dict[str, Rule] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"), _view),
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Trilu": _trilu,
    "CumSum": _cumsum,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "TopK": _top_k,
    **dict.fromkeys(("ScatterElements", "Scatter"), _scatter_elements),
    "ScatterND": _scatter_nd,
}
