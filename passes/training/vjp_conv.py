"""Gradients of convolutions."""

from __future__ import annotations

from gecompiler.ir.op import Attr
from gecompiler.passes.training.site import Gradients, Rule, Site


def _conv(site: Site) -> Gradients:
    t, op, found = site.tape, site.op, {}
    attrs: dict[str, Attr] = {
        "strides": tuple(op.attr("strides") or (1,) * _spatial(site)),
        "dilations": tuple(op.attr("dilations") or (1,) * _spatial(site)),
        "group": int(op.attr("group", 1)),
    }
    kernel = site.shape(1)[2:]
    attrs["pads"] = pads_of(site, kernel, attrs["strides"], attrs["dilations"])  # type: ignore[arg-type]
    if site.wants(0):
        more: dict[str, Attr] = {**attrs, "shape": site.shape(0)}
        found[0] = t.own("ConvGradInput", [site.dy, site.x(1)], site.type(0), attrs=more)[0]
    if site.wants(1):
        more = {**attrs, "shape": site.shape(1)}
        found[1] = t.own("ConvGradWeight", [site.dy, site.x(0)], site.type(1), attrs=more)[0]
    if site.wants(2):
        over = [i for i in range(len(site.shape(0))) if i != 1]
        found[2] = t.reduce("ReduceSum", site.dy, over)
    return found


def _spatial(site: Site) -> int:
    return len(site.shape(0)) - 2


def pads_of(
    site: Site, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[int, ...]:
    """The pads as numbers, also where ``auto_pad`` says how to find them."""
    auto = site.op.attr("auto_pad", "NOTSET")
    count = len(kernel)
    if auto == "NOTSET":
        return tuple(site.op.attr("pads") or (0,) * (2 * count))
    if auto == "VALID":
        return (0,) * (2 * count)
    size = site.shape(0)[2:]
    before, after = [], []
    for k, n, stride, dilation in zip(kernel, size, strides, dilations, strict=True):
        total = max(0, (-(-n // stride) - 1) * stride + dilation * (k - 1) + 1 - n)
        less, more = total // 2, total - total // 2
        before.append(less if auto == "SAME_UPPER" else more)
        after.append(more if auto == "SAME_UPPER" else less)
    return (*before, *after)


RULES: dict[str, Rule] = {"Conv": _conv}
