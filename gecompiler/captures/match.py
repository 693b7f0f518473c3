"""Which measured operator is which op of a graph: by name, else by type, shapes and dtype."""

from __future__ import annotations

import statistics
from collections.abc import Hashable
from typing import NamedTuple

from gecompiler.captures import layouts
from gecompiler.captures.ge_types import KINDS, plain_type
from gecompiler.captures.heads import heads
from gecompiler.captures.read import Capture, MeasuredOp
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, TensorType

Key = tuple[Hashable, ...]

_INDICES = (DType.I32, DType.I64, DType.U32, DType.U64)


class Match(NamedTuple):
    """A measured time of an op, and what it was found by: ``name`` or ``shapes``."""

    us: float
    by: str


class Durations:
    """The times of a capture, ready to be looked up. Of rows that are alike, the median."""

    def __init__(self, capture: Capture) -> None:
        self.file_name = capture.file_name
        self._by_name: dict[str, list[MeasuredOp]] = {}
        self._by_key: dict[Key, list[float]] = {}
        for one in capture.ops:
            if one.name:
                self._by_name.setdefault(one.name, []).append(one)
            key = _measured_key(one)
            if key is not None:
                self._by_key.setdefault(key, []).append(one.duration_us)

    def find(self, graph: Graph, op: Op) -> Match | None:
        """The op's measured time; None where nothing in the capture is it.

        A row of the op's name counts only where its output has the op's size (or the file has
        no sizes): the same model run with another batch is another op.
        """
        key = _op_key(graph, op)
        size = _elements(graph, op)
        named = [
            one.duration_us
            for one in self._by_name.get(op.name, ())
            if _output_size(one) in (None, size)
        ]
        if named:
            return Match(statistics.median(named), "name")
        times = self._by_key.get(key) if key is not None else None
        return Match(statistics.median(times), "shapes") if times else None


def _output_size(one: MeasuredOp) -> int | None:
    """Elements of the first output, in the model's layout; None where the file does not say."""
    output = one.outputs[0] if one.outputs else None
    if output is None:
        return None
    count = 1
    for size in layouts.logical(output):
        count *= size
    return count


def _elements(graph: Graph, op: Op) -> int | None:
    found = graph.tensor(op.outputs[0]) if op.outputs and op.outputs[0] else None
    elements = found.elements if found is not None else None
    return elements if isinstance(elements, int) else None


def _measured_key(one: MeasuredOp) -> Key | None:
    kind = KINDS.get(plain_type(one.op_type))
    name = kind.op_type if kind is not None else plain_type(one.op_type)
    outputs = tuple(o.shape for o in one.outputs if o is not None)
    operands = [(layouts.logical(o), o.dtype) for o in one.inputs if o is not None]
    output = one.outputs[0] if one.outputs else None
    if output is None:
        return None
    result = (layouts.logical(output), output.dtype)
    return _key(name, operands, result, outputs)


def _op_key(graph: Graph, op: Op) -> Key | None:
    inputs = [graph.tensor(v) for v in op.inputs if v]
    output = graph.tensor(op.outputs[0]) if op.outputs and op.outputs[0] else None
    if output is None or not _static(output) or not all(_static(t) for t in inputs):
        return None
    operands = [(t.sizes, t.dtype) for t in inputs if t is not None]
    return _key(op.op_type, operands, (output.sizes, output.dtype), ())


def _static(found: TensorType | None) -> bool:
    return found is not None and found.is_static


Shaped = tuple[tuple[int, ...], DType]


def _key(
    op_type: str, operands: list[Shaped], output: Shaped, outputs: tuple[tuple[int, ...], ...]
) -> Key | None:
    """What two ops that take equally long have in common."""
    if op_type in ("MatMul", "Gemm", "FusedMatMul") and len(operands) > 1:
        return _product_key(operands, output)
    if op_type == "FlashAttention" and len(operands) > 2:
        (q, dtype), (k, _), (v, _) = operands[:3]
        return ("attention", heads(q, k, v, outputs), dtype)
    # Sizes of 1, and small vectors of integers (axes, permutations), say how and not how much.
    shapes = sorted(
        tuple(size for size in shape if size != 1)
        for shape, dtype in operands
        if not (dtype in _INDICES and len(shape) < 2 and output[1] not in _INDICES)
    )
    return (op_type, tuple(shapes), tuple(s for s in output[0] if s != 1), output[1])


def _product_key(operands: list[Shaped], output: Shaped) -> Key | None:
    """(batch, m, n, k): however the batch is folded and whichever matrix is stored turned."""
    (a, dtype), (b, _) = operands[:2]
    out = output[0]
    if min(len(a), len(b), len(out)) < 2:
        return None
    turned = layouts.turns(a, b, out)
    if turned is None:
        return None
    k = a[-2] if turned[0] else a[-1]
    rows = 1
    for size in out[:-1]:
        rows *= size
    shared = all(size == 1 for size in b[:-2])
    batch = () if shared else tuple(size for size in out[:-2] if size != 1)
    return ("product", batch, rows, out[-1], k, dtype)
