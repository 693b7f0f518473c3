"""What a value's type becomes: what is inferred, refined by what the model declares."""

from __future__ import annotations

from typing import NoReturn

from gecompiler.ir.dims import Dim
from gecompiler.ir.errors import ModelError
from gecompiler.ir.infer.node import PartialShape
from gecompiler.ir.infer.scope import Scope
from gecompiler.ir.op import Op
from gecompiler.ir.types import DType, Shape, TensorType


def settle(
    scope: Scope, op: Op, index: int, dtype: DType | None, shape: PartialShape | None
) -> TensorType | None:
    """The final type of an output, every size known or named; None when even the dtype is not.

    What is inferred wins over declared expressions; a declared number wins over sizes that
    stay unknown. ModelError when two numbers, ranks or element types contradict each other.
    """
    declared = scope.graph.tensor(op.outputs[index])
    if declared is not None and dtype is not None and dtype is not declared.dtype:
        _conflict(scope, op, index, TensorType(dtype, None), declared)
    dtype = dtype or (None if declared is None else declared.dtype)
    if dtype is None:
        return None
    if shape is not None and any(isinstance(d, int) and d < 0 for d in shape):
        _refuse(op, f"output {op.outputs[index]!r} would have a negative size", declared)
    if shape is None:
        return _as_declared(scope, op, index, TensorType(dtype, None), declared)
    if declared is None or declared.shape is None:
        return TensorType(dtype, _named(scope, op, index, shape))
    if declared.shape == shape:
        return declared
    if len(declared.shape) != len(shape):
        _conflict(scope, op, index, TensorType(dtype, _named(scope, op, index, shape)), declared)
    sizes = [_size(scope, op, index, axis, size) for axis, size in enumerate(shape)]
    return TensorType(dtype, tuple(sizes))


def _as_declared(
    scope: Scope, op: Op, index: int, inferred: TensorType, declared: TensorType | None
) -> TensorType:
    if declared is None or declared.shape is None:
        return inferred
    for axis, size in enumerate(declared.shape):
        scope.note(size, op.outputs[index], axis, op)
    return declared


def _named(scope: Scope, op: Op, index: int, shape: PartialShape) -> Shape:
    return tuple(scope.fresh(op, index, i) if d is None else d for i, d in enumerate(shape))


def _size(scope: Scope, op: Op, index: int, axis: int, inferred: Dim | None) -> Dim:
    value = op.outputs[index]
    known = scope.graph.shape(value)
    declared = known[axis] if known is not None else None
    if inferred is None:
        return scope.fresh(op, index, axis)
    if inferred == declared or not isinstance(declared, int):
        return inferred
    if isinstance(inferred, int):
        dtype = scope.graph.tensor(value)
        name = "?" if dtype is None else dtype.dtype.short
        _refuse(
            op, f"axis {axis} of output {value!r} ({name}) is {inferred} by its inputs", declared
        )
    if scope.shared.is_settled(inferred):
        scope.shared.stale.append(value)
        return inferred
    return declared


def _conflict(
    scope: Scope, op: Op, index: int, found: TensorType, declared: TensorType
) -> NoReturn:
    kinds = ", ".join(str(scope.graph.tensor(v) or "?") if v else "-" for v in op.inputs)
    told = f"output {op.outputs[index]!r} is {found} by its inputs ({kinds})"
    _refuse(op, told, declared)


def _refuse(op: Op, found: str, declared: object) -> NoReturn:
    raise ModelError(
        found if declared is None else f"{found}, but the model declares {declared}",
        where=f"node {op.name!r} ({op.kind})",
        hint="correct or remove the declared shape or type of that value (value_info or output)",
    )
