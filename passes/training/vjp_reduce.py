"""Gradients of reductions and softmax."""

from __future__ import annotations

import math

from gecompiler.passes.training.site import Gradients, Rule, Site


def _reduced(site: Site) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes that are reduced, and X's shape with 1 in their places."""
    shape = site.shape(0)
    given = site.axes()
    if not given and site.op.attr("noop_with_empty_axes", 0):
        return (), shape
    axes = tuple(sorted(a % len(shape) for a in given)) if given else tuple(range(len(shape)))
    return axes, tuple(1 if i in axes else d for i, d in enumerate(shape))


def _spread(site: Site, grad: str) -> str:
    """What has one element a reduced row, over the rows."""
    kept = _reduced(site)[1]
    return site.tape.expand(site.tape.reshape(grad, kept), site.shape(0))


def _sum(site: Site) -> Gradients:
    return {0: _spread(site, site.dy)}


def _mean(site: Site) -> Gradients:
    axes, _ = _reduced(site)
    count = math.prod(site.shape(0)[a] for a in axes)
    return {0: _spread(site, site.tape.scaled(site.dy, 1 / max(1, count)))}


def _times_x(site: Site, grad: str) -> str:
    t = site.tape
    return t.mul(site.x(0), t.reshape(grad, _reduced(site)[1]))


def _sum_square(site: Site) -> Gradients:
    return {0: _times_x(site, site.tape.scaled(site.dy, 2))}


def _l2(site: Site) -> Gradients:
    return {0: _times_x(site, site.tape.binary("Div", site.dy, site.y()))}


def _l1(site: Site) -> Gradients:
    t = site.tape
    return {0: t.mul(t.unary("Sign", site.x(0)), t.reshape(site.dy, _reduced(site)[1]))}


def _log_sum(site: Site) -> Gradients:
    t = site.tape
    return {0: _spread(site, t.binary("Div", site.dy, t.unary("Exp", site.y())))}


def _log_sum_exp(site: Site) -> Gradients:
    t, kept = site.tape, _reduced(site)[1]
    part = t.unary("Exp", t.binary("Sub", site.x(0), t.reshape(site.y(), kept)))
    return {0: t.mul(part, t.reshape(site.dy, kept))}


def _extreme(site: Site) -> Gradients:
    """To the elements that are the extreme, in equal parts where several are."""
    t, (axes, kept) = site.tape, _reduced(site)
    most = t.cast(t.compare("Equal", site.x(0), t.reshape(site.y(), kept)), t.dtype(site.dy))
    count = t.reduce("ReduceSum", most, axes, keep=True)
    return {0: t.mul(most, t.binary("Div", t.reshape(site.dy, kept), count))}


def _prod(site: Site) -> Gradients:
    """Y over X; of a row with a 0 that is no number, as it is in other frameworks' first try."""
    t, kept = site.tape, _reduced(site)[1]
    share = t.reshape(t.mul(site.dy, site.y()), kept)
    return {0: t.binary("Div", share, site.x(0))}


def _average_all(site: Site) -> Gradients:
    """GlobalAveragePool: over all axes but batch and channels."""
    t, shape = site.tape, site.shape(0)
    return {0: t.expand(t.scaled(site.dy, 1 / math.prod(shape[2:])), shape)}


def _softmax(site: Site) -> Gradients:
    """By the output alone; before opset 13 all axes from ``axis`` on are one."""
    t, shape = site.tape, site.shape(0)
    old = t.opset < 13
    axis = int(site.op.attr("axis", 1 if old else -1)) % len(shape)
    dy, y = site.dy, site.y()
    if old:
        flat = (math.prod(shape[:axis]), math.prod(shape[axis:]))
        dy, y, axis = t.reshape(dy, flat), t.reshape(y, flat), 1
    found = t.own(f"{site.op.op_type}Grad", [dy, y], t.type(dy), attrs={"axis": axis})[0]
    return {0: t.reshape(found, shape)}


RULES: dict[str, Rule] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceSumSquare": _sum_square,
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _extreme,
    "ReduceMin": _extreme,
    "ReduceProd": _prod,
    "GlobalAveragePool": _average_all,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
}
