"""The canonical op that turns one shape into another without moving an element.

The same tensor can be reshaped by Reshape, Squeeze, Unsqueeze or Flatten, and by Reshape with
many targets. The form chosen here needs nothing computed: Unsqueeze or Squeeze where only dims
of size 1 come or go, else Reshape to a constant target of numbers, zeros ("as in the input")
and at most one -1. The -1 is the last resort, for it needs the other sizes to be above 0 (a
tensor without elements has no unique answer); symbolic sizes are taken to be.
"""

from __future__ import annotations

from functools import lru_cache

from onnx import TensorProto

from gecompiler.ir.dims import Dim
from gecompiler.ir.onnx_io.schema import schema
from gecompiler.ir.op import Op
from gecompiler.ir.types import Shape
from gecompiler.passes.rewriting import Rewriter


def reshape_target(source: Shape, target: Shape) -> tuple[int, ...] | None:
    """The constant target of a Reshape from ``source`` to ``target``, None if there is none."""
    if 0 in target:
        return None
    found: list[int] = []
    for i, dim in enumerate(target):
        if isinstance(dim, int):
            found.append(dim)
        else:
            found.append(0 if i < len(source) and source[i] == dim else -1)
    return tuple(found) if found.count(-1) <= 1 else None


def inserted_ones(source: Shape, target: Shape) -> tuple[int, ...] | None:
    """Where ``target`` has dims of size 1 that ``source`` lacks, if that is all; None if not."""
    at, found = 0, []
    for i, dim in enumerate(target):
        if at < len(source) and source[at] == dim:
            at += 1
        elif dim == 1:
            found.append(i)
        else:
            return None
    return tuple(found) if at == len(source) and found else None


def needed_expand(shape: Shape, target: Shape) -> list[Dim]:
    """The Expand target that makes ``target`` of ``shape``, 1 where nothing is to be done."""
    padded = (*(1,) * (len(target) - len(shape)), *shape)
    return [1 if have == want else want for have, want in zip(padded, target, strict=True)]


def reshaped(r: Rewriter, op: Op, source: str, target: Shape) -> Op | None:
    """``op`` turned into the canonical reshape of ``source`` to ``target``.

    None when no constant target does it, or when ``op`` is that already.
    """
    shape = r.facts.shape(source)
    if shape is None:
        return None
    ones = inserted_ones(shape, target)
    if ones is not None and _takes(r, "Unsqueeze", source):
        return _with_axes(r, op, "Unsqueeze", source, ones)
    ones = inserted_ones(target, shape)
    if ones is not None and _takes(r, "Squeeze", source):
        return _with_axes(r, op, "Squeeze", source, ones)
    numbers = reshape_target(shape, target)
    if numbers is None:
        return None
    if op.is_("Reshape") and op.inputs[0] == source:
        same = r.facts.ints(op.inputs[1]) == numbers and op.inputs[1] in r.graph.constants
        if same and not op.attr("allowzero"):
            return None
    inputs = (source, r.ints(numbers, f"{op.name}_shape"))
    return op.with_(op_type="Reshape", domain="", inputs=inputs, attrs={})


def _takes(r: Rewriter, op_type: str, value: str) -> bool:
    """Whether that op takes the value's element type; Reshape takes 8-bit floats before others."""
    dtype = r.facts.dtype(value)
    return dtype is None or dtype.code in _codes_taken(op_type, r.opset)


@lru_cache(maxsize=64)
def _codes_taken(op_type: str, opset: int) -> frozenset[int]:
    known = schema(op_type, "", opset)
    names = set() if known is None else known.inputs[0].types
    return frozenset(
        code for name, code in TensorProto.DataType.items() if f"tensor({name.lower()})" in names
    )


def _with_axes(r: Rewriter, op: Op, op_type: str, source: str, ones: tuple[int, ...]) -> Op | None:
    here = op.is_(op_type) and op.inputs[0] == source
    if r.opset < 13:
        if here and op.attr("axes") == ones:
            return None
        return op.with_(op_type=op_type, domain="", inputs=(source,), attrs={"axes": ones})
    if here and op.input(1) in r.graph.constants and r.facts.ints(op.inputs[1]) == ones:
        return None
    inputs = (source, r.ints(ones, f"{op.name}_axes"))
    return op.with_(op_type=op_type, domain="", inputs=inputs, attrs={})
