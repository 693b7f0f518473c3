"""What of an op speaks of sizes, said again for the part that a rank holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gecompiler.ir.op import Attr, Op
from gecompiler.ir.parallel import Layout
from gecompiler.passes.parallel.local_graph import LocalGraph
from gecompiler.passes.parallel.signature import Runs, Signature, compose, spec_size
from gecompiler.ir.parallel.layout import local_size


def adapted(
    local: LocalGraph,
    op: Op,
    found: Signature,
    layouts: Mapping[str, Layout],
    inputs: Sequence[str],
    shapes: Sequence[Sequence[int]],
) -> Op:
    """The op on local inputs, making outputs of the local ``shapes``."""
    given = list(inputs)
    attrs: dict[str, Attr] = dict(op.attrs)
    if found.adapt == "shape" and layouts:
        return _reshaped(local, op, given, attrs, shapes[0])
    if found.adapt == "split" and layouts:
        _split(local, given, attrs, found, shapes, local.graph.opsets.get("", 13))
    if found.adapt == "slice" and layouts:
        _sliced(local, given, attrs, found, layouts, shapes[0])
    return op.with_(inputs=tuple(given), attrs=attrs)


def _reshaped(
    local: LocalGraph, op: Op, given: list[str], attrs: dict[str, Attr], shape: Sequence[int]
) -> Op:
    if op.is_("Unsqueeze", "Flatten") or (op.is_("Squeeze") and len(given) > 1):
        return op.with_(inputs=tuple(given))
    sizes = local.numbers(shape, "sizes")
    if op.is_("Expand"):
        return op.with_(inputs=(given[0], sizes))
    return op.with_(op_type="Reshape", inputs=(given[0], sizes), attrs={})


def _split(
    local: LocalGraph,
    given: list[str],
    attrs: dict[str, Attr],
    found: Signature,
    shapes: Sequence[Sequence[int]],
    opset: int,
) -> None:
    operand = found.inputs[0]
    assert operand is not None
    axis = int(attrs.get("axis", 0)) % len(operand)  # type: ignore[arg-type]
    sizes = [shape[axis] for shape in shapes]
    attrs.pop("num_outputs", None)
    if opset < 13:
        attrs["split"] = tuple(sizes)
    else:
        given[1:] = [local.numbers(sizes, "sizes")]


def _sliced(
    local: LocalGraph,
    given: list[str],
    attrs: dict[str, Attr],
    found: Signature,
    layouts: Mapping[str, Layout],
    shape: Sequence[int],
) -> None:
    """Bounds of every dim that is not whole; steps other than 1 are of whole dims."""
    operand = found.inputs[0]
    assert operand is not None
    bounds: dict[int, tuple[int, int]] = {}
    for n, spec in enumerate(operand):
        first = 0
        if isinstance(spec, Runs):
            for part in spec.parts:
                label = part[0] if not isinstance(part, Runs) and part else ""
                if label.startswith("kept") or (not label and shape[n] == 1 and len(part) == 0):
                    break
                size = spec_size(part, found.sizes)
                first += local_size(compose(part, found.sizes, layouts), size, local.mesh)
        bounds[n] = (first, first + shape[n])
    stepped = {n for n, spec in enumerate(operand) if spec and spec[0:1] == (f"i{n}",)} \
        if all(not isinstance(s, Runs) for s in operand) else set()
    if stepped:
        return
    axes = sorted(bounds)
    starts, ends = [bounds[n][0] for n in axes], [bounds[n][1] for n in axes]
    if len(given) == 1:
        attrs.update(starts=tuple(starts), ends=tuple(ends), axes=tuple(axes))
        return
    given[1:] = [local.numbers(numbers, "bounds") for numbers in (starts, ends, axes)]
