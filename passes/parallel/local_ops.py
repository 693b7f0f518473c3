"""What of an op speaks of sizes, said again for the part that a rank holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gecompiler.ir.op import Attr, Op
from gecompiler.ir.parallel import Layout
from gecompiler.ir.parallel.layout import local_size
from gecompiler.passes.parallel.local_graph import LocalGraph
from gecompiler.passes.parallel.signature import (
    Runs,
    Signature,
    Spec,
    compose,
    spec_labels,
    spec_size,
)


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
    """Bounds of every dim; steps other than 1 are of whole dims, which are left as they are."""
    operand = found.inputs[0]
    assert operand is not None
    if any(label.startswith("i") for label in found.whole):
        return
    starts = [_kept_from(local, spec, found, layouts) for spec in operand]
    ends = [start + size for start, size in zip(starts, shape, strict=True)]
    axes = list(range(len(operand)))
    if len(given) == 1:
        attrs.update(starts=tuple(starts), ends=tuple(ends), axes=tuple(axes))
        return
    given[1:] = [local.numbers(numbers, "bounds") for numbers in (starts, ends, axes)]


def _kept_from(
    local: LocalGraph, spec: Spec, found: Signature, layouts: Mapping[str, Layout]
) -> int:
    """Where what is kept of a dim begins: after the runs before it."""
    if not isinstance(spec, Runs):
        return 0
    first = 0
    for part in spec.parts:
        if any(label.startswith("kept") for label in spec_labels(part)):
            break
        size = spec_size(part, found.sizes)
        first += local_size(compose(part, found.sizes, layouts), size, local.mesh)
    return first
