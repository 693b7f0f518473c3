"""Ops that move elements: which element of the input is the output's at some coordinates."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gecompiler.ir.constants import Constant
from gecompiler.ir.dim_bounds import at_least
from gecompiler.ir.dims import Dim, substitute, symbol
from gecompiler.ir.op import Op
from gecompiler.passes.attention.coordinates import Coords
from gecompiler.passes.attention.elements import Element, Elements, Number
from gecompiler.passes.attention.layout import permutation

Rule = Callable[[Elements, Op, str, Coords], "Element | None"]


def _same(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    return e.at(op.inputs[0], coords)


def _constant(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    from gecompiler.passes.attention.element_constants import constant_element

    given = op.attr("value")
    return constant_element(e, given, coords) if isinstance(given, Constant) else None


def _reshape(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    """Reshape, Flatten, Squeeze and Unsqueeze keep the order of elements in memory."""
    before, after = e.shape(op.inputs[0]), e.shape(value)
    if before is None or after is None:
        return None
    found = e.coordinates.reshape(after, coords, before)
    return None if found is None else e.at(op.inputs[0], found)


def _transpose(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    found: list[Dim] = [0] * len(coords)
    for position, coord in zip(permutation(op, len(coords)), coords, strict=True):
        found[position] = coord
    return e.at(op.inputs[0], tuple(found))


def _expand(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    return e.operand(op, 0, coords)


def _tile(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    before, after = e.shape(op.inputs[0]), e.shape(value)
    if before is None or after is None or len(before) != len(after):
        return None
    found: list[Dim] = []
    for dim, grown, coord in zip(before, after, coords, strict=True):
        found.append(coord if dim == grown else e.coordinates.divide(coord, dim)[1])
    return e.at(op.inputs[0], tuple(found))


def _slice(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    shape = e.shape(op.inputs[0])
    if shape is None or len(op.inputs) < 3:
        return None
    starts = e.dims(op.inputs[1])
    axes = e.ints(op.input(3)) if op.input(3) else None if starts is None else range(len(starts))
    steps = e.ints(op.input(4)) if op.input(4) else (1,) * len(starts or ())
    if starts is None or axes is None or steps is None or any(s < 1 for s in steps):
        return None
    found = list(coords)
    for start, axis, step in zip(starts, axes, steps, strict=True):
        first = shape[axis] + start if isinstance(start, int) and start < 0 else start
        # A start before the axis is clamped or counts from the end: not what the formula says.
        if not at_least(first, 0):
            return None
        found[axis] = first + step * coords[axis]
    return e.at(op.inputs[0], tuple(found))


def _split(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    shape = e.shape(op.inputs[0])
    if shape is None:
        return None
    axis = op.attr("axis", 0) % len(shape)
    offset: Dim = 0
    for output in op.outputs[: op.outputs.index(value)]:
        part = e.shape(output)
        if part is None:
            return None
        offset = offset + part[axis]
    return e.at(op.inputs[0], (*coords[:axis], coords[axis] + offset, *coords[axis + 1 :]))


def _concat(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    """The piece a known index falls into, or one formula that all pieces follow."""
    shape = e.shape(value)
    if shape is None:
        return None
    axis = op.attr("axis", 0) % len(shape)
    sizes = [s[axis] for s in map(e.shape, op.inputs) if s is not None]
    if len(sizes) != len(op.inputs):
        return None

    def piece(index: int, along: Dim) -> Element:
        return e.at(op.inputs[index], (*coords[:axis], along, *coords[axis + 1 :]))

    if len(op.inputs) == 1:
        return piece(0, coords[axis])
    if isinstance(coords[axis], int):
        found = _locate(sizes, coords[axis])
        return None if found is None else piece(*found)
    return _common_formula(e, piece, sizes, coords[axis])


def _locate(sizes: list[Dim], index: Dim) -> tuple[int, Dim] | None:
    for n, size in enumerate(sizes):
        if not isinstance(size, int) or not isinstance(index, int):
            return None
        if index < size:
            return n, index
        index -= size
    return None


def _common_formula(
    e: Elements, piece: Callable[[int, Dim], Element], sizes: list[Dim], along: Dim
) -> Element | None:
    longest = next((n for n, s in enumerate(sizes) if not isinstance(s, int)), None)
    longest = sizes.index(max(sizes, key=lambda s: int(str(s)))) if longest is None else longest
    offset = sum(sizes[:longest], 0)
    variable = e.coordinates.variable("piece", sizes[longest])
    model = piece(longest, variable)
    if not isinstance(model, Number):
        return None
    formula = _replaced(e, model.value, variable, symbol("#along") - offset)
    position: Dim = 0
    for n, size in enumerate(sizes):
        if n != longest:
            if not isinstance(size, int) or size > 4:
                return None
            for k in range(size):
                if piece(n, k) != Number(substitute(formula, {"#along": position + k})):
                    return None
        position = position + size
    return Number(substitute(formula, {"#along": along}))


def _replaced(e: Elements, dim: Dim, variable: Dim, new: Dim) -> Dim:
    names = list(e.coordinates.within([variable]))
    return substitute(dim, {names[0]: new}) if names else dim


def _gather(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    data, indices = e.shape(op.inputs[0]), e.shape(op.inputs[1])
    if data is None or indices is None:
        return None
    axis = op.attr("axis", 0) % len(data)
    middle = coords[axis : axis + len(indices)]
    along = _index(e, e.at(op.inputs[1], middle), data[axis])
    if along is None:
        return None
    return e.at(op.inputs[0], (*coords[:axis], along, *coords[axis + len(indices) :]))


def _gather_elements(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    data = e.shape(op.inputs[0])
    if data is None:
        return None
    axis = op.attr("axis", 0) % len(data)
    along = _index(e, e.at(op.inputs[1], coords), data[axis])
    return (
        None if along is None else e.at(op.inputs[0], (*coords[:axis], along, *coords[axis + 1 :]))
    )


def _gather_nd(e: Elements, op: Op, value: str, coords: Coords) -> Element | None:
    data, indices = e.shape(op.inputs[0]), e.shape(op.inputs[1])
    if data is None or indices is None or not isinstance(indices[-1], int):
        return None
    batch, depth = op.attr("batch_dims", 0), indices[-1]
    lead = coords[: len(indices) - 1]
    found: list[Dim] = []
    for n in range(depth):
        along = _index(e, e.at(op.inputs[1], (*lead, n)), data[batch + n])
        if along is None:
            return None
        found.append(along)
    return e.at(op.inputs[0], (*coords[:batch], *found, *coords[len(lead) :]))


def _index(e: Elements, element: Element, size: Dim) -> Dim | None:
    """An index as a coordinate; a negative one counts from the end."""
    if not isinstance(element, Number):
        return None
    if isinstance(element.value, int):
        return element.value + size if element.value < 0 else element.value
    return element.value if e.coordinates.never_above(-element.value, 0) else None


MOVES: Mapping[str, Rule] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    "Concat": _concat,
    "Constant": _constant,
    "Expand": _expand,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Identity": _same,
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
    "Transpose": _transpose,
}
"""The rule of each moving op type of ai.onnx."""
