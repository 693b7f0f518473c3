"""Batch rules of ops that move elements: views, cuts, joins, picking by index."""

from __future__ import annotations

import math
from collections.abc import Callable

from gecompiler.passes.micro_batches.batch_site import Rule, Site, aligned, same_axis


def _transpose(site: Site) -> Rule:
    order = site.op.attr("perm") or tuple(reversed(range(len(site.shape(0)))))
    return Rule((order.index(site.only(0)),))


def _reshape(site: Site) -> Rule:
    """Contiguous parts stay contiguous where the dims before the axis have the same product."""
    axis, source, out = site.only(0), site.shape(0), site.made()
    before = math.prod(source[:axis])
    found = [i for i, size in enumerate(out) if size != 1 and math.prod(out[:i]) == before]
    site.require(bool(found), "it folds the batch into others")
    return Rule((found[0],))


def _expand(site: Site) -> Rule:
    axis, out = site.only(0), site.made()
    return Rule((axis + len(out) - len(site.shape(0)),))


def _tile(site: Site) -> Rule:
    axis, repeats = site.only(0), site.ints(1, "repeats") or ()
    site.require(axis < len(repeats) and repeats[axis] == 1, "it repeats the batch")
    return Rule((axis,))


def _concat(site: Site) -> Rule:
    rule = aligned(site, range(len(site.op.inputs)), site.made())
    along = site.op.attr("axis", 0) % len(site.made())
    site.require(along != rule.outputs[0], "it joins along the batch")
    return rule


def _split(site: Site) -> Rule:
    axis = site.only(0)
    along = site.op.attr("axis", 0) % len(site.shape(0))
    site.require(axis != along, "it splits along the batch")
    return same_axis(site, axis)


def _slice(site: Site) -> Rule:
    axis, rank = site.only(0), len(site.shape(0))
    starts = site.ints(1, "starts") or ()
    along = site.ints(3, "axes") or tuple(range(len(starts)))
    site.require(axis not in [a % rank for a in along], "it cuts the batch")
    return Rule((axis,))


def _pad(site: Site) -> Rule:
    axis, rank = site.only(0), len(site.shape(0))
    pads = site.ints(1, "pads") or ()
    along = [a % rank for a in site.ints(3, "axes") or range(len(pads) // 2)]
    site.require(len(pads) == 2 * len(along), "its pads are not two an axis")
    for i, padded in enumerate(along):
        unpadded = not pads[i] and not pads[i + len(along)]
        site.require(padded != axis or unpadded, "it pads the batch")
    return Rule((axis,))


def _resize(site: Site) -> Rule:
    """By scales; sizes would name the batch. Samples are not blended where the scale is 1."""
    axis = site.only(0)
    index = 1 if site.op.is_("Upsample") or site.graph.opsets.get("", 11) < 11 else 2
    site.require(not site.op.input(3), "it is given sizes")
    site.require(not site.op.attr("axes"), "it names axes")
    site.require(site.op.attr("coordinate_transformation_mode") != "tf_crop_and_resize", "it crops")
    constant = site.graph.constant(site.op.input(index))
    scales = constant.small_array() if constant is not None else None
    site.require(scales is not None and scales.reshape(-1)[axis] == 1, "it resizes the batch")
    return Rule((axis,))


def _trilu(site: Site) -> Rule:
    axis = site.only(0)
    site.require(axis < len(site.shape(0)) - 2, "it is a triangle over the batch")
    return Rule((axis,))


def _along(default: int, of: Callable[[Site], int | None] | None = None) -> Callable[[Site], Rule]:
    """Work along one axis, which must not be the batch's; ``of`` finds it where no attribute."""

    def rule(site: Site) -> Rule:
        axis = site.only(0)
        along = of(site) if of is not None else site.op.attr("axis", default)
        site.require(along is not None, "its axis is not constant")
        assert along is not None
        site.require(axis != along % len(site.shape(0)), "it works along the batch")
        return same_axis(site, axis)

    return rule


def _scan_axis(site: Site) -> int | None:
    given = site.ints(1, "axis")
    return given[0] if given else None


def _one_hot(site: Site) -> Rule:
    axis, rank = site.only(0), len(site.shape(0))
    new = site.op.attr("axis", -1) % (rank + 1)
    return Rule((axis if axis < new else axis + 1,))


def _gather(site: Site) -> Rule:
    along = site.op.attr("axis", 0) % len(site.shape(0))
    if site.axis(0) is None:
        return Rule((along + site.only(1),))
    axis = site.only(0)
    site.require(axis != along, "it picks along the batch")
    return Rule((axis if axis < along else axis - 1 + len(site.shape(1)),))


def _elements(site: Site) -> Rule:
    """GatherElements, ScatterElements: all inputs side by side on every axis but one."""
    count = len(site.op.inputs)
    found = {axis for i in range(count) if (axis := site.axis(i)) is not None}
    site.require(len(found) == 1, "its inputs are split along different axes")
    axis, rank = found.pop(), len(site.shape(0))
    site.require(axis != site.op.attr("axis", 0) % rank, "it picks along the batch")
    sizes = {site.shape(i)[axis] for i in range(count)}
    site.require(len(sizes) == 1, "it leaves samples out")
    return Rule((axis,), {i: axis for i in range(count) if site.axis(i) is None})


def _gather_nd(site: Site) -> Rule:
    """Batch dims are shared by data and indices; other dims of indices come first in the result."""
    shared, data, indices = site.op.attr("batch_dims", 0), site.axis(0), site.axis(1)
    if data is None:
        site.require(indices != len(site.shape(1)) - 1, "the batch is part of an index")
    axis = data if data is not None else indices
    assert axis is not None
    if axis >= shared:
        site.whole(0, why="it picks along the batch")
        return Rule((axis,))
    site.require(indices in (None, axis), "its inputs are split along different axes")
    return Rule((axis,), {i: axis for i in (0, 1) if site.axis(i) is None})


def _scatter_nd(site: Site) -> Rule:
    """Indices pick along the first axes of the data; the others come last in the updates."""
    picked, lead = site.shape(1)[-1], len(site.shape(1)) - 1
    site.whole(1, why="it picks along the batch")
    data, updates = site.axis(0), site.axis(2)
    axis = data if data is not None else (updates or 0) - lead + picked
    site.require(axis >= picked, "it picks along the batch")
    places = {0: axis, 2: axis - picked + lead}
    site.require(updates in (None, places[2]), "its inputs are split along different axes")
    return Rule((axis,), {i: at for i, at in places.items() if site.axis(i) is None})


def _reverse_sequence(site: Site) -> Rule:
    axis = site.op.attr("batch_axis", 1)
    site.require(site.axis(0) in (None, axis), "it works along the batch")
    site.require(site.axis(1) in (None, 0), "it works along the batch")
    cut = {i: at for i, at in ((0, axis), (1, 0)) if site.axis(i) is None}
    return Rule((axis,), cut)


MOVE_RULES: tuple[tuple[Callable[[Site], Rule], tuple[str, ...]], ...] = (
    (_transpose, ("Transpose",)),
    (_reshape, ("Reshape", "Squeeze", "Unsqueeze", "Flatten")),
    (_expand, ("Expand",)),
    (_tile, ("Tile",)),
    (_concat, ("Concat",)),
    (_split, ("Split",)),
    (_slice, ("Slice",)),
    (_pad, ("Pad",)),
    (_resize, ("Resize", "Upsample")),
    (_trilu, ("Trilu",)),
    (_along(-1), ("TopK", "LpNormalization")),
    (_along(0, _scan_axis), ("CumSum", "CumProd")),
    (_one_hot, ("OneHot",)),
    (_gather, ("Gather",)),
    (_elements, ("GatherElements", "ScatterElements")),
    (_gather_nd, ("GatherND",)),
    (_scatter_nd, ("ScatterND",)),
    (_reverse_sequence, ("ReverseSequence",)),
)
