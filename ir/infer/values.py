"""Contents of small tensors that ops move about without computing: Shape, Gather, Concat, ...

A rule gets the node, which output, and that output's type, whose sizes are numbers; it returns
the contents, or None when nothing is known of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gecompiler.ir.constants import Constant
from gecompiler.ir.dims import product
from gecompiler.ir.infer.arrays import SymbolicArray, contents, known
from gecompiler.ir.infer.generate import shape_range
from gecompiler.ir.infer.node import Node
from gecompiler.ir.types import TensorType

ValueRule = Callable[[Node, int, TensorType], "SymbolicArray | None"]


def _shape(node: Node, _output: int, _type: TensorType) -> SymbolicArray | None:
    shape = node.shape(0)
    if shape is None or node.op.inputs[0] in node.scope.bounded:
        return None
    taken = shape[shape_range(node)]
    return SymbolicArray((len(taken),), taken)


def _size(node: Node, _output: int, _type: TensorType) -> SymbolicArray | None:
    shape = node.shape(0)
    if shape is None or node.op.inputs[0] in node.scope.bounded:
        return None
    return SymbolicArray((), (product(shape),))


def _constant(node: Node, _output: int, _type: TensorType) -> SymbolicArray | None:
    value = node.op.attrs.get("value")
    if isinstance(value, Constant):
        return contents(value)
    given = node.op.attrs.get("value_int", node.op.attrs.get("value_ints"))
    if isinstance(given, int):
        return SymbolicArray((), (given,))
    numbers = node.ints("value_ints", 0) if isinstance(given, tuple) else None
    return None if numbers is None else SymbolicArray((len(numbers),), numbers)


def _constant_of_shape(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
    value = node.op.attrs.get("value")
    fill = contents(value) if isinstance(value, Constant) else SymbolicArray((1,), (0,))
    return None if fill is None else SymbolicArray(type_.sizes, fill.items * product_of(type_))


def product_of(type_: TensorType) -> int:
    """The number of elements of a static type."""
    count = 1
    for size in type_.sizes:
        count *= size
    return count


def _cast(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
    found, source = node.value(0), node.dtype(0)
    if found is None or source is None:
        return None
    if type_.dtype.short == "bool" and source.short != "bool":
        items = [int(i != 0) if isinstance(i, int) else None for i in found.items]
        return SymbolicArray(found.shape, tuple(items))
    return known(found.shape, found.items, type_.dtype)


def _same(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
    """The elements in order, under the output's shape: Reshape, Squeeze, Identity, ..."""
    found = node.value(0)
    if found is None or product_of(type_) != len(found.items):
        return None
    return SymbolicArray(type_.sizes, found.items)


def _transpose(node: Node, _output: int, _type: TensorType) -> SymbolicArray | None:
    found, perm = node.value(0), node.op.attrs.get("perm")
    if found is None:
        return None
    axes = [int(str(p)) for p in perm] if isinstance(perm, tuple) else None
    return SymbolicArray.of_objects(found.objects().transpose(axes))


def _gather(node: Node, _output: int, _type: TensorType) -> SymbolicArray | None:
    data, indices = node.value(0), node.value(1)
    if data is None or indices is None or not data.shape:
        return None
    numbers = indices.numbers
    if numbers is None:
        return None
    axis = node.axis(len(data.shape))
    size = data.shape[axis]
    if any(not -size <= n < size for n in numbers):
        node.fail(f"index out of range for axis {axis} of size {size}")
    picked = np.asarray(numbers, dtype=np.int64).reshape(indices.shape)
    return SymbolicArray.of_objects(np.take(data.objects(), picked, axis=axis))


def _gather_elements(node: Node, _output: int, _type: TensorType) -> SymbolicArray | None:
    data, indices = node.value(0), node.value(1)
    if data is None or indices is None or indices.numbers is None:
        return None
    axis = node.axis(len(data.shape))
    picked = np.asarray(indices.numbers, dtype=np.int64).reshape(indices.shape)
    size = data.shape[axis]
    if ((picked < -size) | (picked >= size)).any():
        node.fail(f"index out of range for axis {axis} of size {size}")
    return SymbolicArray.of_objects(np.take_along_axis(data.objects(), picked % size, axis))


def _concat(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
    parts: list[Any] = []
    for index in range(len(node.op.inputs)):
        found, part = node.value(index), node.type(index)
        if found is None:
            if part is None or not part.is_static:
                return None
            found = SymbolicArray.unknown(part.sizes)
        parts.append(found.objects())
    return SymbolicArray.of_objects(np.concatenate(parts, axis=node.axis(len(type_.sizes))))


def _split(node: Node, output: int, type_: TensorType) -> SymbolicArray | None:
    found = node.value(0)
    if found is None:
        return None
    axis = node.axis(len(found.shape))
    start = 0
    for value in node.op.outputs[:output]:
        shape = node.scope.graph.shape(value)
        size = None if shape is None else shape[axis]
        if not isinstance(size, int):
            return None
        start += size
    window = [slice(None)] * axis + [slice(start, start + type_.sizes[axis])]
    return SymbolicArray.of_objects(found.objects()[tuple(window)])


def _slice(node: Node, _output: int, _type: TensorType) -> SymbolicArray | None:
    found = node.value(0)
    if found is None:
        return None
    old = node.version < 10
    starts, ends = node.ints("starts", 1), node.ints("ends", 2)
    if starts is None or ends is None:
        return None
    axes: tuple[int, ...] | None = tuple(range(len(starts)))
    if node.has(3) or (old and "axes" in node.op.attrs):
        axes = node.ints("axes", 3)
    steps = node.ints("steps", 4) if node.has(4) else (1,) * len(starts)
    if axes is None or steps is None:
        return None
    window = [slice(None)] * len(found.shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        window[node.front(axis, len(found.shape))] = _window(start, end, step)
    return SymbolicArray.of_objects(found.objects()[tuple(window)])


def _window(start: int, end: int, step: int) -> slice:
    """Python's slice for ONNX's bounds; they differ where a backward end lies before the start."""
    return slice(start, None if step < 0 and end <= -(2**31) + 1 else end, step)


def _expand(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
    found = node.value(0)
    if found is None:
        return None
    return SymbolicArray.of_objects(np.broadcast_to(found.objects(), type_.sizes))


def _tile(node: Node, _output: int, _type: TensorType) -> SymbolicArray | None:
    found, repeats = node.value(0), node.value(1)
    if found is None or repeats is None or repeats.numbers is None:
        return None
    return SymbolicArray.of_objects(np.tile(found.objects(), repeats.numbers))


def _range(node: Node, _output: int, type_: TensorType) -> SymbolicArray | None:
    start, delta = node.scalar(0), node.scalar(2)
    if start is None or delta is None:
        return None
    count = type_.sizes[0]
    return known((count,), [start + delta * i for i in range(count)], type_.dtype)


def _scattered(node: Node) -> tuple[SymbolicArray, np.ndarray, SymbolicArray] | None:
    """Data, indices as numbers, and updates of a scatter that replaces; None unless all known."""
    data, indices, updates = node.value(0), node.value(1), node.value(2)
    if data is None or indices is None or updates is None or indices.numbers is None:
        return None
    if node.op.attr("reduction", "none") != "none":
        return None
    return data, np.asarray(indices.numbers, dtype=np.int64).reshape(indices.shape), updates


def _scatter_nd(node: Node, _output: int, _type: TensorType) -> SymbolicArray | None:
    found = _scattered(node)
    if found is None or not found[1].shape or not found[1].shape[-1]:
        return None
    data, picked, updates = found
    result = data.objects()
    limits = np.asarray(data.shape[: picked.shape[-1]])
    if ((picked < -limits) | (picked >= limits)).any():
        node.fail(f"an index is out of range for shape {list(data.shape)}")
    result[tuple(np.moveaxis(picked, -1, 0))] = updates.objects()
    return SymbolicArray.of_objects(result)


def _scatter_elements(node: Node, _output: int, _type: TensorType) -> SymbolicArray | None:
    found = _scattered(node)
    if found is None:
        return None
    data, picked, updates = found
    axis = node.axis(len(data.shape))
    size = data.shape[axis]
    if ((picked < -size) | (picked >= size)).any():
        node.fail(f"index out of range for axis {axis} of size {size}")
    result = data.objects()
    np.put_along_axis(result, picked % max(size, 1), updates.objects(), axis)
    return SymbolicArray.of_objects(result)


def _non_zero(node: Node, _output: int, _type: TensorType) -> SymbolicArray | None:
    found = node.value(0)
    if found is None or found.numbers is None:
        return None
    numbers = np.asarray(found.numbers, dtype=object).reshape(found.shape or (1,))
    return SymbolicArray.of_objects(np.array(np.nonzero(numbers)).astype(object))


RULES: dict[str, ValueRule] = {
    "Shape": _shape,
    "Size": _size,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Cast": _cast,
    "CastLike": _cast,
    **dict.fromkeys(("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"), _same),
    "Transpose": _transpose,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Expand": _expand,
    "Tile": _tile,
    "Range": _range,
    "ScatterND": _scatter_nd,
    "ScatterElements": _scatter_elements,
    "Scatter": _scatter_elements,
    "NonZero": _non_zero,
}
