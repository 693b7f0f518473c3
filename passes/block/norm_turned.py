"""Norms over axes before the last, as of images with channels first.

Such a norm is one over the last axes between two transpositions. Where the model turns its
tensors to and fro itself, as ConvNeXt does, canonicalization takes them out again.
"""

from __future__ import annotations

from collections.abc import Iterable

from gecompiler.ir.block_ops import Norm, NormInputs
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import Shape, TensorType
from gecompiler.passes.block.norm_op import keeps_operand, read_norm
from gecompiler.passes.block.patterns import maker
from gecompiler.passes.block.region import fused
from gecompiler.passes.op_params import perm as perm_of
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable


def turned_norm(
    r: Rewriter, last: Op, members: Iterable[Op], spec: Norm, x: str, end: int
) -> Op | None:
    """The norm of X over the ``-spec.axis`` axes before ``end``, in the place of ``last``.

    ``spec`` is the norm of X turned; what it ends in is the transposition back.
    """
    kind = r.graph.tensor(x)
    if kind is None or kind.shape is None:
        return None
    rank = len(kind.shape)
    first = rank + end + spec.axis
    perm = (*range(first), *range(rank + end, rank), *range(first, rank + end))
    back = tuple(perm.index(n) for n in range(rank))
    made = fused(r, last, members, "Transpose", (x,), {"perm": back}, domain="")
    if made is None:
        return None
    shape = tuple(kind.shape[p] for p in perm)
    stem, info = f"{last.name}_norm", made.info
    turned = r.emit(
        "Transpose",
        (x,),
        TensorType(kind.dtype, shape),
        attrs={"perm": perm},
        info=info,
        stem=f"{last.name}_turned",
    )
    value = r.graph.emit(
        spec.op_type,
        NormInputs(turned).listed(adds=False),
        TensorType(spec.output, shape),
        attrs=spec.attrs(),
        domain=GE_DOMAIN,
        info=info,
        stem=stem,
    )
    return made.with_(inputs=(value,))


def row_before_turn(r: Rewriter, op: Op) -> Result | None:
    """A scale or shift of the normalised axes behind the transposition of a norm goes before it."""
    for value, row in (op.inputs, op.inputs[::-1]):
        turn = maker(r, value, "Transpose")
        norm_op = None if turn is None else r.graph.producer(turn.inputs[0])
        found, perm = read_norm(r, norm_op), None if turn is None else perm_of(r, turn)
        if turn is None or found is None or perm is None or r.is_pinned(turn):
            continue
        spec, inputs = found
        if spec.adds or inputs.shift or (inputs.scale and op.op_type == "Mul"):
            continue
        sizes = _row_sizes(r.facts.shape(row), perm, spec.axis)
        if sizes is None or not keeps_operand(r, op, value) or not r.graph.single_use(value):
            continue
        return _moved(r, op, turn, row, sizes)
    return None


def _row_sizes(shape: Shape | None, perm: tuple[int, ...], axis: int) -> list[int] | None:
    """The sizes of a row along the normalised axes; None when it has others."""
    if shape is None or len(shape) > len(perm):
        return None
    whole = (*(1,) * (len(perm) - len(shape)), *shape)
    first = len(perm) + axis
    inner = [n for n, p in enumerate(perm) if p >= first]
    if [perm[n] for n in inner] != list(range(first, len(perm))):
        return None
    sizes = [whole[n] for n in inner]
    if any(whole[n] != 1 for n in range(len(perm)) if n not in inner):
        return None
    known = [s for s in sizes if isinstance(s, int)]
    return known if len(known) == len(sizes) else None


def _moved(r: Rewriter, op: Op, turn: Op, row: str, sizes: list[int]) -> Op:
    """The op on what ``turn`` turns, then the transposition in the place of ``op``."""
    kind, target = r.graph.tensor(turn.inputs[0]), r.ints(sizes, f"{op.name}_sizes")
    row_kind = r.facts.dtype(row)
    assert row_kind is not None
    view = row
    if r.facts.shape(row) != tuple(sizes):
        stem = f"{op.name}_row"
        view = r.emit("Reshape", (row, target), TensorType(row_kind, tuple(sizes)), stem=stem)
    value = r.emit(op.op_type, (turn.inputs[0], view), kind, info=op.info, stem=f"{op.name}_before")
    return op.with_(op_type="Transpose", inputs=(value,), attrs=turn.attrs)


def look_behind(r: Rewriter, op: Op) -> None:
    """A norm that took in a row may take in another one from behind its transposition."""
    if read_norm(r, r.graph.producer(op.inputs[0])) is not None:
        for user in r.graph.users(op.outputs[0]):
            r.push(user)


RULES: RuleTable = {
    "Add": (row_before_turn,),
    "Mul": (row_before_turn,),
    "Transpose": (look_behind,),
}
