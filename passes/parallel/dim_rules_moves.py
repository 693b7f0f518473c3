"""The dims of ops that move data: reshapes, transposes, splits, slices, gathers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from gecompiler.passes.parallel.dim_site import DimSite
from gecompiler.passes.parallel.signature import Operand, Runs, Signature, Spec


def _reshape(site: DimSite) -> Signature:
    """Reshape, Squeeze, Unsqueeze, Flatten: the finest division that both shapes share."""
    before, after = site.shape(0), site.made()
    site.require(math.prod(before) == math.prod(after) > 0, "it is empty")
    left: list[tuple[str, ...]] = [()] * len(before)
    right: list[tuple[str, ...]] = [()] * len(after)
    at, to, rest, want, count = 0, 0, 1, 1, 0
    while True:
        while rest == 1 and at < len(before):
            rest, at = before[at], at + 1
        while want == 1 and to < len(after):
            want, to = after[to], to + 1
        if rest == want == 1:
            break
        size = _shared(rest, want)
        name = site.label(f"r{count}", size)
        left[at - 1] += name
        right[to - 1] += name
        rest, want, count = rest // size, want // size, count + 1
        if size == 1:  # the shapes do not nest: one label over all that is tangled
            return _tangled(site, before, after)
    inputs = (tuple(left), *site.others(1))
    return Signature(inputs, (tuple(right),), site.sizes, linear="first", adapt="shape")


def _shared(rest: int, want: int) -> int:
    """The outermost part that divides both, in row-major order, from the inside out."""
    small, large = sorted((rest, want))
    return small if large % small == 0 else 1


def _tangled(site: DimSite, before: Sequence[int], after: Sequence[int]) -> Signature:
    """Shapes whose dims do not nest: those equal from the front keep their labels."""
    site.sizes.clear()
    equal = 0
    while equal < min(len(before), len(after)) and before[equal] == after[equal]:
        equal += 1
    front = site.labels("f", before[:equal])
    left = (*front, *site.labels("i", before[equal:]))
    right = (*front, *site.labels("o", after[equal:]))
    whole = frozenset(name for name in site.sizes if name[0] in "io")
    inputs = (left, *site.others(1))
    return Signature(inputs, (right,), site.sizes, whole=whole, linear="first", adapt="shape")


def _transpose(site: DimSite) -> Signature:
    data = site.labels("d", site.shape(0))
    perm = site.op.attr("perm") or tuple(reversed(range(len(data))))
    return Signature((data,), (tuple(data[p] for p in perm),), site.sizes, linear="first")


def _expand(site: DimSite) -> Signature:
    shape = site.made()
    out = site.labels("d", shape)
    data = site.aligned(site.shape(0), out, shape)
    return Signature((data, *site.others(1)), (out,), site.sizes, linear="first", adapt="shape")


def _concat(site: DimSite) -> Signature:
    shape = site.made()
    axis = site.axis(0, len(shape))
    data: list[Spec] = list(site.labels("d", shape))
    inputs: list[Operand] = []
    runs: list[Spec] = []
    site.sizes.pop(f"d{axis}", None)
    for i in range(len(site.op.inputs)):
        run = site.label(f"run{i}", site.shape(i)[axis])
        runs.append(run)
        inputs.append((*data[:axis], run, *data[axis + 1 :]))
    out: Spec = Runs(tuple(runs)) if len(runs) > 1 else runs[0]
    data[axis] = out
    return Signature(tuple(inputs), (tuple(data),), site.sizes)


def _split(site: DimSite) -> Signature:
    shape = site.shape(0)
    axis = site.axis(0, len(shape))
    data = list(site.labels("d", shape))
    site.sizes.pop(f"d{axis}", None)
    runs = [site.label(f"run{n}", site.made(n)[axis]) for n in range(len(site.op.outputs))]
    site.require(all(site.op.outputs), "an output of it is left out")
    outputs = tuple((*data[:axis], run, *data[axis + 1 :]) for run in runs)
    whole: Operand = (*data[:axis], Runs(tuple(runs)), *data[axis + 1 :])
    return Signature((whole, *site.others(1)), outputs, site.sizes, linear="first", adapt="split")


def _slice(site: DimSite) -> Signature:
    shape, made = site.shape(0), site.made()
    site.require(math.prod(made) > 0, "it takes nothing")
    starts, ends = site.ints(1, "starts") or (), site.ints(2, "ends") or ()
    axes = site.ints(3, "axes") or tuple(range(len(starts)))
    steps = site.ints(4, "steps") or (1,) * len(starts)
    data: list[Spec] = list(site.labels("d", shape))
    out = list(data)
    stepped = any(step != 1 for step in steps)
    whole: list[str] = []
    for start, _, axis, _ in zip(starts, ends, axes, steps, strict=True):
        n = axis % len(shape)
        if not stepped and made[n] == shape[n]:
            continue
        site.sizes.pop(f"d{n}", None)
        if stepped:
            data[n], out[n] = site.label(f"i{n}", shape[n]), site.label(f"o{n}", made[n])
            whole += [f"i{n}", f"o{n}"]
            continue
        first = min(max(start + shape[n] if start < 0 else start, 0), shape[n])
        sizes = {"before": first, "kept": made[n], "after": shape[n] - first - made[n]}
        runs = {k: site.run(f"{k}{n}", size) for k, size in sizes.items() if size}
        data[n], out[n] = Runs(tuple(runs.values())), runs.get("kept", ())
    return Signature(
        (tuple(data), *site.others(1)),
        (tuple(out),),
        site.sizes,
        whole=frozenset(whole),
        linear="first",
        adapt="slice",
    )


def _gather(site: DimSite) -> Signature:
    shape = site.shape(0)
    axis = site.axis(0, len(shape))
    data = site.labels("d", shape)
    index = site.labels("i", site.shape(1))
    out = (*data[:axis], *index, *data[axis + 1 :])
    return Signature((data, index), (out,), site.sizes, whole=frozenset(data[axis]), linear="first")


def _gather_nd(site: DimSite) -> Signature:
    """Dims that the indices do not reach pass through; those of the batch are shared."""
    shape, index, batch = site.shape(0), site.shape(1), int(site.op.attr("batch_dims", 0))
    reached = batch + index[-1]
    site.require(0 <= batch < len(index) and reached <= len(shape), "it reaches past its data")
    outer = site.labels("u", index[:-1])
    data = (*outer[:batch], *site.labels("d", shape[batch:]))
    coordinates = site.label("coordinates", index[-1])
    whole = [label for spec in (*data[batch:reached], coordinates) for label in spec]
    return Signature(
        (data, (*outer, coordinates)),
        ((*outer, *data[reached:]),),
        site.sizes,
        whole=frozenset(whole),
        linear="first",
    )


def _gather_elements(site: DimSite) -> Signature:
    shape, index = site.shape(0), site.shape(1)
    axis = site.axis(0, len(shape))
    picked = site.labels("i", index)
    data = tuple(
        site.label("from", size) if n == axis else spec if index[n] == size else ()
        for n, (size, spec) in enumerate(zip(shape, picked, strict=True))
    )
    fits = all(index[n] == size for n, size in enumerate(shape) if n != axis)
    site.require(fits, "it picks from a part of a dim")
    return Signature((data, picked), (picked,), site.sizes, whole=frozenset({"from"}))


def _scatter_elements(site: DimSite) -> Signature:
    """Along ``axis`` anything goes; other dims pass where all of them is written to."""
    shape, index = site.shape(0), site.shape(1)
    axis = site.axis(0, len(shape))
    fits = all(index[n] == size for n, size in enumerate(shape) if n != axis)
    site.require(fits, "it writes to a part of a dim")
    data = site.labels("d", shape)
    picked = (*data[:axis], site.label("i", index[axis]), *data[axis + 1 :])
    whole = frozenset((*data[axis], "i"))
    return Signature((data, picked, picked), (data,), site.sizes, whole=whole)


def _scatter_nd(site: DimSite) -> Signature:
    """Dims that the indices do not reach pass through."""
    shape = site.shape(0)
    index = site.shape(1)
    reached = index[-1]
    data = site.labels("d", shape)
    outer = site.labels("u", index[:-1])
    whole = [label for spec in (*data[:reached], *outer) for label in spec]
    updates = (*outer, *data[reached:])
    site.label("coordinates", reached)
    index_spec = (*outer, ("coordinates",) if reached > 1 else ())
    return Signature(
        (data, index_spec, updates),
        (data,),
        site.sizes,
        whole=frozenset((*whole, "coordinates")),
    )


def _tile(site: DimSite) -> Signature:
    """Tile and Pad: dims that keep their size are as they were."""
    shape, made = site.shape(0), site.made()
    data, out, whole = [], [], []
    for n, (size, size_out) in enumerate(zip(shape, made, strict=True)):
        if size == size_out:
            label = site.label(f"d{n}", size)
            data.append(label)
            out.append(label)
        else:
            data.append(site.label(f"i{n}", size))
            out.append(site.label(f"o{n}", size_out))
            whole += [f"i{n}", f"o{n}"]
    if site.op.is_("Pad"):
        given = site.ints(1, "pads") or ()
        moved = [n for n in range(len(shape)) if shape[n] == made[n]]
        half = len(given) // 2
        shifts = not site.op.input(3) and any(given[n] or given[half + n] for n in moved)
        site.require(not shifts and not site.op.input(3), "it moves what it does not widen")
    inputs = (tuple(data), *site.others(1))
    return Signature(inputs, (tuple(out),), site.sizes, whole=frozenset(whole))


MOVE_RULES: Mapping[str, Callable[[DimSite], Signature]] = {
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Flatten"), _reshape),
    "Transpose": _transpose,
    "Expand": _expand,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    **dict.fromkeys(("Tile", "Pad"), _tile),
}
"""What ops that move data do with dims."""
