"""Gathers whose indices count through the data in order: a reshape of the data.

Exporters index a padding mask by batch and key position, which gives back the mask with two
dims of size 1 inserted. That is seen once the indices are affine in their coordinates.
"""

from __future__ import annotations

from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.passes.canonical.affine_index import Affine, affine, affine_array
from gecompiler.passes.canonical.reshape_merging import reshape_of_chain
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable
from gecompiler.passes.rule_pass import RulePass


def whole_gather(r: Rewriter, op: Op) -> Result | None:
    """Gather that takes each element along its axis once, in order."""
    data, target = r.facts.shape(op.inputs[0]), r.facts.shape(op.outputs[0])
    if not data or target is None:
        return None
    index = affine(r, op.inputs[1])
    axis = op.attr("axis", 0) % len(data)
    if index is None or not _counts_through(index, data[axis]):
        return None
    return reshape_of_chain(r, op, op.inputs[0], target)


def _counts_through(index: Affine, size: Dim) -> bool:
    """Whether the index runs 0, 1, ..., size - 1 in row-major order."""
    stride: Dim = 1
    for have, coefficient in zip(index.shape[::-1], index.coefficients[::-1], strict=True):
        if have == 1:
            continue
        if coefficient != stride:
            return False
        stride = stride * have
    return index.constant == 0 and stride == size


def whole_gather_nd(r: Rewriter, op: Op) -> Result | None:
    """GatherND whose index tuples count through the leading dims of the data in order."""
    data, target = r.facts.shape(op.inputs[0]), r.facts.shape(op.outputs[0])
    if data is None or target is None or op.attr("batch_dims", 0):
        return None
    parts = _components(r, op.inputs[1])
    if parts is None or len(parts) > len(data):
        return None
    shape = parts[0].shape
    used = [axis for part, size in zip(parts, data, strict=False) for axis in _axis(part, size)]
    if -1 in used or used != sorted(set(used)):
        return None
    if any(size != 1 for axis, size in enumerate(shape) if axis not in used):
        return None
    return reshape_of_chain(r, op, op.inputs[0], target)


def _axis(part: Affine, size: Dim) -> tuple[int, ...]:
    """The one axis along which the component counts 0 to size - 1; () for size 1; (-1,): no."""
    axes = tuple(axis for axis, c in enumerate(part.coefficients) if c != 0)
    if part.constant != 0:
        return (-1,)
    if not axes:
        return () if size == 1 else (-1,)
    whole = len(axes) == 1 and part.coefficients[axes[0]] == 1 and part.shape[axes[0]] == size
    return axes if whole else (-1,)


def _components(r: Rewriter, value: str) -> list[Affine] | None:
    """The components of index tuples along the last axis, each without that axis."""
    shape, maker = r.facts.shape(value), r.graph.producer(value)
    if not shape or not isinstance(shape[-1], int):
        return None
    if maker is not None and maker.is_("Concat"):
        if maker.attr("axis") not in (-1, len(shape) - 1) or len(maker.inputs) != shape[-1]:
            return None
        return _all([_without_last(affine(r, part)) for part in maker.inputs])
    array = r.facts.array(value)
    if array is None or shape[-1] > 8:
        return None
    return _all([affine_array(array[..., i]) for i in range(shape[-1])])


def _all(parts: list[Affine | None]) -> list[Affine] | None:
    known = [part for part in parts if part is not None]
    return known if known and len(known) == len(parts) else None


def _without_last(part: Affine | None) -> Affine | None:
    if part is None or not part.shape or part.shape[-1] != 1:
        return None
    return Affine(part.shape[:-1], part.coefficients[:-1], part.constant)


RULES: RuleTable = {"Gather": (whole_gather,), "GatherND": (whole_gather_nd,)}


class IdentityGathers(RulePass):
    """Turns gathers that take everything in order into reshapes."""

    name = "identity-gathers"
    rules = RULES
