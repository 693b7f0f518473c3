"""Transposes that cancel, merge, or move no element."""

from __future__ import annotations

from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.ir.types import Shape, TensorType
from gecompiler.passes.canonical.reshape_forms import reshape_target, reshaped
from gecompiler.passes.op_params import perm
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable
from gecompiler.passes.rule_pass import RulePass


def merge_transposes(r: Rewriter, op: Op) -> Result | None:
    """Transpose of Transpose is one Transpose, or nothing."""
    outer = perm(r, op)
    maker = r.graph.producer(op.inputs[0])
    if outer is None or maker is None or not maker.is_("Transpose"):
        return None
    inner = perm(r, maker)
    if inner is None or len(inner) != len(outer):
        return None
    merged = tuple(inner[axis] for axis in outer)
    return op.with_(inputs=maker.inputs, attrs={"perm": merged})


def drop_identity(r: Rewriter, op: Op) -> Result | None:
    """A Transpose that leaves every axis in its place is its input."""
    found = perm(r, op)
    return op.inputs[0] if found is not None and found == tuple(range(len(found))) else None


def as_reshape(r: Rewriter, op: Op) -> Result | None:
    """A Transpose that moves only dims of size 1 past others is a reshape."""
    found, shape = perm(r, op), r.facts.shape(op.inputs[0])
    if found is None or shape is None or len(found) != len(shape):
        return None
    kept = [axis for axis in found if shape[axis] != 1]
    if kept != sorted(kept):
        return None
    target = tuple(shape[axis] for axis in found)
    return op.inputs[0] if target == shape else reshaped(r, op, op.inputs[0], target)


def through_grouping(r: Rewriter, op: Op) -> Result | None:
    """Reshape(Transpose(Reshape(x))) is Transpose(Reshape(x)) when the last only splits dims.

    Exporters flatten (B, H, S, D) to (B*H, S, D), swap the last two, and split again.
    """
    swap = r.graph.producer(op.inputs[0])
    if swap is None or not swap.is_("Transpose") or not r.graph.single_use(op.inputs[0]):
        return None
    group = r.graph.producer(swap.inputs[0])
    if group is None or not group.is_("Reshape"):
        return None
    moved, target = perm(r, swap), r.facts.shape(op.outputs[0])
    source, middle = r.facts.shape(group.inputs[0]), r.facts.shape(group.outputs[0])
    dtype = r.facts.dtype(op.outputs[0])
    if moved is None or target is None or source is None or middle is None or dtype is None:
        return None
    split = _split(target, [middle[axis] for axis in moved])
    if split is None:
        return None
    runs = dict(zip(moved, split, strict=True))
    order = [i for axis in sorted(runs) for i in runs[axis]]
    shape = tuple(target[i] for i in order)
    if shape == source:
        value = group.inputs[0]
    else:
        numbers = reshape_target(source, shape)
        if numbers is None:
            return None
        inputs = (group.inputs[0], r.ints(numbers, f"{group.name}_shape"))
        stem, type_ = group.name, TensorType(dtype, shape)
        value = r.emit("Reshape", inputs, type_, info=group.info, stem=stem)
    attrs = {"perm": tuple(order.index(i) for i in range(len(target)))}
    return op.with_(op_type="Transpose", domain="", inputs=(value,), attrs=attrs)


def _split(target: Shape, sizes: list[Dim]) -> list[tuple[int, ...]] | None:
    """Which dims of ``target``, in order, make up each of the sizes; None if not whole ones."""
    found: list[tuple[int, ...]] = []
    at = 0
    for size in sizes:
        start: int = at
        total: Dim | None = 1 if size == 1 else None
        while at < len(target) and total != size:
            total = target[at] if total is None else total * target[at]
            at += 1
        if total != size:
            return None
        found.append(tuple(range(start, at)))
    return found if at == len(target) else None


RULES: RuleTable = {
    "Transpose": (drop_identity, merge_transposes, as_reshape),
    "Reshape": (through_grouping,),
}


class TransposeMerging(RulePass):
    """Merges and removes Transposes."""

    name = "transpose-merging"
    rules = RULES
