"""Ops whose form changed between versions of ai.onnx, written in the other form.

An adapter is a function ``(build, op, source, target)`` that returns the values that stand for
the op's outputs, or an op in its place; `Refusal` says why there is no such form. The graph's
opset is ``target`` already, so that what ``build`` emits is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gecompiler.ir.op import Attr, Op
from gecompiler.ir.types import DType
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.refusal import Refusal

Adapter = Callable[[Builder, Op, int, int], Op | tuple[str, ...] | None]
"""None: the op may stay as far as the adapter is concerned."""


@dataclass(frozen=True, slots=True)
class Moved:
    """An attribute that became input ``index`` in version ``since``."""

    attribute: str
    index: int
    since: int
    floats: bool = False
    scalar: bool = False


_AXES = (Moved("axes", 1, 13),)
_LATE_AXES = (Moved("axes", 1, 18),)
_MOVED: Mapping[str, tuple[Moved, ...]] = {
    "Clip": (
        Moved("min", 1, 11, floats=True, scalar=True),
        Moved("max", 2, 11, floats=True, scalar=True),
    ),
    "Pad": (Moved("pads", 1, 11), Moved("value", 2, 11, floats=True, scalar=True)),
    **dict.fromkeys(
        ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"), _LATE_AXES
    ),
    **dict.fromkeys(("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"), _LATE_AXES),
    "ReduceSum": _AXES,
    "Slice": (Moved("starts", 1, 10), Moved("ends", 2, 10), Moved("axes", 3, 10)),
    "Split": (Moved("split", 1, 13),),
    "Squeeze": _AXES,
    "TopK": (Moved("k", 1, 10, scalar=True),),
    "Unsqueeze": _AXES,
}
"""What moved, by kind of op; the rest of such an op must have kept its form."""


def move(build: Builder, op: Op, source: int, target: int) -> Op | None:
    """Attributes become inputs, or the other way round."""
    inputs, attrs = list(op.inputs), dict(op.attrs)
    for moved in _MOVED[op.op_type]:
        if source < moved.since <= target and moved.attribute in attrs:
            inputs += [""] * (moved.index + 1 - len(inputs))
            inputs[moved.index] = _as_input(build, op, moved, attrs.pop(moved.attribute))
        elif target < moved.since <= source and op.input(moved.index):
            attrs[moved.attribute] = _as_attribute(build, op, moved)
            inputs[moved.index] = ""
    if op.op_type == "Slice" and target < 10 <= source:
        _drop_unit_steps(build, op, inputs)
    while inputs and not inputs[-1]:
        inputs.pop()
    if op.op_type == "Split" and source < 18 <= target and len(inputs) < 2:
        attrs["num_outputs"] = len(op.outputs)
    if op.op_type == "Split" and target < 18 <= source:
        attrs.pop("num_outputs", None)
        _check_even(build, op, inputs)
    return op.with_(inputs=tuple(inputs), attrs=attrs)


_UNREDUCED = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log"}
"""What reductions over no axis at all do with each element; most nothing."""


def reduction(build: Builder, op: Op, source: int, target: int) -> Op | tuple[str, ...] | None:
    """Versions in which axes are an attribute reduce over all where none are given."""
    if target >= _MOVED[op.op_type][0].since or not _has_no_axes(build, op):
        return move(build, op, source, target)
    kept = {k: v for k, v in op.attrs.items() if k not in ("axes", "noop_with_empty_axes")}
    if not op.attr("noop_with_empty_axes", 0):
        return op.with_(inputs=op.inputs[:1], attrs=kept)
    x = op.inputs[0]
    if op.op_type == "ReduceSumSquare":
        return (build.binary("Mul", x, x),)
    return (build.unary(_UNREDUCED.get(op.op_type, "Identity"), x),)


def _has_no_axes(build: Builder, op: Op) -> bool:
    if not op.input(1):
        return not op.attr("axes")
    shape = build.shape(op.inputs[1])
    return shape == (0,)


def _as_input(build: Builder, op: Op, moved: Moved, value: Attr) -> str:
    if not moved.floats:
        numbers = value if isinstance(value, tuple) else (value,)
        return build.constant(np.array(numbers, np.int64), DType.I64, moved.attribute)
    return build.constant(np.array(value), build.dtype(op.inputs[0]), moved.attribute)


def _as_attribute(build: Builder, op: Op, moved: Moved) -> Attr:
    constant = build.graph.constant(op.inputs[moved.index])
    if constant is None or constant.data is None:
        raise Refusal(f"its {moved.attribute} must be constant there, and are computed")
    numbers = [n.item() for n in np.asarray(constant.data).reshape(-1)]
    return numbers[0] if moved.scalar else tuple(numbers)


def _drop_unit_steps(build: Builder, op: Op, inputs: list[str]) -> None:
    constant = build.graph.constant(op.input(4)) if op.input(4) else None
    if op.input(4) and (constant is None or constant.data is None or (constant.data != 1).any()):
        raise Refusal("slices have no steps there")
    del inputs[4:]


def _check_even(build: Builder, op: Op, inputs: Sequence[str]) -> None:
    """Without sizes, older versions split evenly only."""
    size = build.shape(op.inputs[0])[op.attr("axis", 0)]
    given = len(inputs) > 1 or "split" in op.attrs
    if not given and (not isinstance(size, int) or size % len(op.outputs)):
        raise Refusal("it splits unevenly, or what is not known to be even")


def softmax(build: Builder, op: Op, source: int, target: int) -> Op | None:
    """Before opset 13 from ``axis`` (default 1) to the last, since then along ``axis`` (-1)."""
    if not min(source, target) < 13 <= max(source, target):
        return None
    shape = build.shape(op.inputs[0])
    axis = op.attr("axis", 1 if source < 13 else -1) % max(len(shape), 1)
    if any(d != 1 for d in shape[axis + 1 :]):
        raise Refusal(f"it is over axis {axis} of {len(shape)}, which that opset cannot say")
    return op.with_(attrs={**op.attrs, "axis": axis})


def shape_part(build: Builder, op: Op, source: int, target: int) -> tuple[str, ...] | None:
    """Shape from ``start`` to ``end``, which came with opset 15, as a Slice."""
    if target >= 15 or not (op.attr("start", 0) or op.attr("end") is not None):
        return None
    rank = len(build.shape(op.inputs[0]))
    places = range(rank)[slice(op.attr("start", 0), op.attr("end"))]
    whole = build.emit("Shape", op.inputs, DType.I64, (rank,))
    part = build.emit(
        "Gather", (whole, build.ints(list(places))), DType.I64, (len(places),), axis=0
    )
    return (part,)


def bitwise(build: Builder, op: Op, source: int, target: int) -> tuple[str, ...] | None:
    """BitwiseAnd, Or and Xor (opset 18) of flags, which are 0 or 1."""
    if target >= 18:
        return None
    if not all(_is_flag(build, v) for v in op.inputs):
        raise Refusal(f"{op.op_type} is not in opset {target}, and its operands are no flags")
    kind, logic = build.dtype(op.outputs[0]), op.op_type.removeprefix("Bitwise")
    a, b = (build.cast(v, DType.BOOL) for v in op.inputs)
    return (build.cast(build.binary(logic, a, b), kind),)


def _is_flag(build: Builder, value: str, steps: int = 16) -> bool:
    """Whether a value is cast from booleans, by way of ops that only move numbers."""
    op = build.graph.producer(value)
    constant = build.graph.constant(value)
    if constant is not None:
        return constant.data is not None and bool(np.isin(constant.data, (0, 1)).all())
    if build.dtype(value) is DType.BOOL:
        return True
    if op is None or not steps or op.domain:
        return False
    if op.op_type == "Cast":
        return build.dtype(op.inputs[0]) is DType.BOOL
    follow = op.inputs if op.op_type.startswith("Bitwise") else op.inputs[:1]
    moves = ("Expand", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Identity", "Gather")
    known = op.op_type in moves or op.op_type in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")
    return known and all(_is_flag(build, v, steps - 1) for v in follow)


def dropout(build: Builder, op: Op, source: int, target: int) -> tuple[str, ...] | None:
    """In inference it changes nothing."""
    read = [v for v in op.outputs[1:] if v and (build.graph.uses(v) or build.graph.is_output(v))]
    if not min(source, target) < 12 <= max(source, target):
        return None
    if read:
        raise Refusal("its mask is read, of which versions below 12 do not say what it holds")
    return (op.inputs[0],)


ADAPTERS: Mapping[str, Adapter] = {
    **dict.fromkeys(_MOVED, move),
    **dict.fromkeys((name for name in _MOVED if name.startswith("Reduce")), reduction),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), softmax),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), bitwise),
    "Dropout": dropout,
    "Shape": shape_part,
}
"""How ops are adapted, by kind."""
