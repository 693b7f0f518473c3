"""ai.onnx's RotaryEmbedding whose tables are copied for every entry of the batch.

That op does not broadcast, so exporters (and our own export) write the copies out; the fused
op reads the one row of tables that there is.
"""

from __future__ import annotations

from gecompiler.ir.block_ops import ROTARY_EMBEDDING, Rotary
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import TensorType
from gecompiler.passes.block.patterns import maker
from gecompiler.passes.block.region import is_sound
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable


def shared_tables(r: Rewriter, op: Op) -> Result | None:
    """X (B, N, S, D) with two tables (B, S, R/2) that are expanded from (1, S, R/2)."""
    shape = r.facts.shape(op.inputs[0])
    tables = [_before_copies(r, v) for v in op.inputs[1:3]]
    if shape is None or len(shape) != 4 or op.input(3) or any(t is None for t in tables):
        return None
    known = [t for t in tables if t is not None]
    width = (r.facts.shape(known[0]) or (0,))[-1]
    dim = op.attr("rotary_embedding_dim", 0) or shape[3]
    if not isinstance(dim, int) or dim != 2 * width:
        return None
    spec = Rotary(dim, 0, "interleaved" if op.attr("interleaved", 0) else "half")
    inputs = (op.inputs[0], *(_with_heads(r, op, t) for t in known))
    found = op.with_(op_type=ROTARY_EMBEDDING, domain=GE_DOMAIN, inputs=inputs, attrs=spec.attrs())
    return found if is_sound(r, found) else None


def _before_copies(r: Rewriter, value: str) -> str | None:
    """What an Expand of the first of three axes copies."""
    expand = maker(r, value, "Expand")
    if expand is None:
        return None
    before, after = r.facts.shape(expand.inputs[0]), r.facts.shape(value)
    if before is None or after is None or len(before) != 3 or len(after) != 3:
        return None
    return expand.inputs[0] if before[0] == 1 and before[1:] == after[1:] else None


def _with_heads(r: Rewriter, op: Op, table: str) -> str:
    kind = r.graph.tensor(table)
    assert kind is not None
    assert kind.shape is not None
    wanted = TensorType(kind.dtype, (1, 1, *kind.shape[1:]))
    axes = r.ints([1], f"{table}_axes")
    return r.emit("Unsqueeze", (table, axes), wanted, info=op.info, stem=f"{table}_heads")


RULES: RuleTable = {ROTARY_EMBEDDING: (shared_tables,)}
