"""What the rules of block fusion ask of a graph: makers, numbers, parameters, square and mean."""

from __future__ import annotations

from collections.abc import Iterator

from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, Shape
from gecompiler.passes.rewriting import Rewriter

_MAX_STEPS = 6


def maker(r: Rewriter, value: str, *op_types: str) -> Op | None:
    """The op of ai.onnx of one of those types that makes the value, if one does."""
    op = r.graph.producer(value)
    return op if op is not None and not op.domain and op.op_type in op_types else None


def number(r: Rewriter, value: str) -> float | None:
    """The number that a constant is everywhere."""
    found = r.facts.uniform(value) if value in r.graph.constants else None
    return None if found is None or isinstance(found, bool) else float(found)


def with_number(r: Rewriter, op: Op) -> Iterator[tuple[str, float]]:
    """The ways to see a binary op as one operand and a number that does not make it larger."""
    for index in (0, 1):
        found = number(r, op.inputs[1 - index])
        if found is not None and keeps_shape(r, op, op.inputs[index]):
            yield op.inputs[index], found


def keeps_shape(r: Rewriter, op: Op, value: str) -> bool:
    """Whether the op's first output has the shape of that operand, which is known."""
    shape = r.facts.shape(value)
    return shape is not None and shape == r.facts.shape(op.outputs[0])


def same_type(r: Rewriter, *values: str) -> DType | None:
    """The element type of the values, if it is one."""
    found = dict.fromkeys(r.facts.dtype(v) for v in values if v)
    return next(iter(found)) if len(found) == 1 else None


def is_row(r: Rewriter, value: str, width: Dim) -> bool:
    """Whether the value is a row as long as a last axis: a bias."""
    shape = r.facts.shape(value)
    return bool(shape) and shape[-1] == width and all(d == 1 for d in shape[:-1])  # type: ignore[index]


def covers(r: Rewriter, value: str, axes: Shape) -> bool:
    """Whether the value broadcasts to those last axes and is the same along all before."""
    shape = r.facts.shape(value)
    if shape is None:
        return False
    over = max(0, len(shape) - len(axes))
    rest = shape[over:]
    return all(d == 1 for d in shape[:over]) and all(
        a in (1, b) for a, b in zip(reversed(rest), reversed(axes), strict=False)
    )


def is_free_of(r: Rewriter, value: str, other: str, steps: int = _MAX_STEPS) -> bool:
    """Whether a value is computed from inputs in a few steps, none of which reads ``other``."""
    if value == other:
        return False
    op = r.graph.producer(value) if value else None
    if op is None:
        return True
    return steps > 0 and all(is_free_of(r, v, other, steps - 1) for v in r.graph.reads(op))


def widened_from(r: Rewriter, value: str) -> str | None:
    """What the value is a Cast of to a wider float type, which loses nothing."""
    cast = maker(r, value, "Cast")
    if cast is None:
        return None
    before, after = r.facts.dtype(cast.inputs[0]), r.facts.dtype(value)
    if before is None or after is None or not is_wider(after, before):
        return None
    return cast.inputs[0]


def is_wider(wide: DType, narrow: DType) -> bool:
    """Whether a float type holds every number of another one, and more."""
    if wide is DType.F64:
        return narrow in (DType.F32, DType.F16, DType.BF16)
    return wide is DType.F32 and narrow in (DType.F16, DType.BF16)
