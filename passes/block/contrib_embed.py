"""onnxruntime's EmbedLayerNormalization: rows of up to three tables, added and normalised."""

from __future__ import annotations

from gecompiler.ir.block_ops import Norm, NormInputs
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import DType, TensorType
from gecompiler.passes.block.contrib import DOMAIN, emit, is_read
from gecompiler.passes.block.contrib_moves import counted
from gecompiler.passes.block.norm_parts import is_plain_norm
from gecompiler.passes.block.patterns import same_type
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable


def embed_norm(r: Rewriter, op: Op) -> Result | None:
    """Word, position and segment rows of ids (B, S); the sum is the last output.

    Left as it is where the count of words that a mask leaves is read.
    """
    ids, word, places, segments = (op.input(n) for n in (0, 2, 3, 4))
    results = (op.outputs[0], *op.outputs[2:3])
    kind, shape = same_type(r, word, places, segments, *results), r.facts.shape(ids)
    known = kind is not None and shape is not None and len(shape) == 2 and r.opset >= 11
    if not known or is_read(r, op.outputs[1:2]) or r.is_pinned(op) or not (ids and word):
        return None
    if bool(op.input(1)) != bool(segments) and segments:
        return None
    if not is_plain_norm(op, 1e-12):
        return None
    total = _row(r, op, word, ids)
    if places:
        assert shape is not None
        total = _sum(r, op, total, _row(r, op, places, op.input(8) or counted(r, op, shape[1], 1)))
    if segments:
        total = _sum(r, op, total, _row(r, op, segments, op.input(1)))
    stash = DType.F64 if kind is DType.F64 else DType.F32
    assert kind is not None
    epsilon = float(op.attr("epsilon", 1e-12))
    spec = Norm(True, axis=-1, epsilon=epsilon, stash=stash, scale_type=stash, output=kind)
    inputs = NormInputs(total, scale=op.input(5), shift=op.input(6)).listed(adds=False)
    value = emit(r, op, spec.op_type, inputs, spec.attrs(), domain=GE_DOMAIN)
    return (value, None, total)[: len(op.outputs)]


def _row(r: Rewriter, op: Op, table: str, places: str) -> str:
    kind, shape, at = r.facts.dtype(table), r.facts.shape(table), r.facts.shape(places)
    assert kind is not None
    wanted = None if shape is None or at is None else TensorType(kind, (*at, *shape[1:]))
    return r.emit("Gather", (table, places), wanted, info=op.info, stem=f"{op.name}_Gather")


def _sum(r: Rewriter, op: Op, total: str, row: str) -> str:
    return emit(r, op, "Add", (total, row), {})


RULES: RuleTable = {f"{DOMAIN}.EmbedLayerNormalization": (embed_norm,)}
