"""onnxruntime's FusedMatMul and RotaryEmbedding as the ops that they mean."""

from __future__ import annotations

import numpy as np

from gecompiler.ir.block_ops import ROTARY_EMBEDDING, Rotary
from gecompiler.ir.constants import Constant
from gecompiler.ir.dims import Dim, floordiv
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.types import DType, Shape, TensorType
from gecompiler.passes.block.contrib import DOMAIN
from gecompiler.passes.rewriting import Result, Rewriter, RuleTable


def fused_matmul(r: Rewriter, op: Op) -> Result | None:
    """``alpha * A' @ B'``, either operand turned before."""
    kind, result = r.facts.dtype(op.outputs[0]), r.graph.tensor(op.outputs[0])
    shapes = [r.facts.shape(v) for v in op.inputs]
    if kind is None or any(s is None or len(s) < 2 for s in shapes):
        return None
    a, b = (_turned(r, op, n, side) for n, side in enumerate("AB"))
    alpha = float(op.attr("alpha", 1.0))
    if alpha == 1:
        return op.with_(op_type="MatMul", domain="", inputs=(a, b), attrs={})
    product = r.emit("MatMul", (a, b), result, info=op.info, stem=f"{op.name}_MatMul")
    factor = r.constant(Constant.of(np.array(alpha), kind), f"{op.name}_alpha")
    return op.with_(op_type="Mul", domain="", inputs=(product, factor), attrs={})


def _turned(r: Rewriter, op: Op, index: int, side: str) -> str:
    """The operand as it is multiplied: batch axes to the front, rows and columns swapped."""
    value = op.inputs[index]
    perm = list(range(len(r.facts.shape(value) or ())))
    if op.attr(f"transBatch{side}", 0):
        perm = [*perm[1:-1], perm[0], perm[-1]]
    if op.attr(f"trans{side}", 0):
        perm = [*perm[:-2], perm[-1], perm[-2]]
    return value if perm == sorted(perm) else _transposed(r, op, value, tuple(perm))


def _transposed(r: Rewriter, op: Op, value: str, perm: tuple[int, ...]) -> str:
    shape, kind = r.facts.shape(value), r.facts.dtype(value)
    assert shape is not None
    assert kind is not None
    turned, stem = TensorType(kind, tuple(shape[p] for p in perm)), f"{op.name}_Transpose"
    return r.emit("Transpose", (value,), turned, attrs={"perm": perm}, info=op.info, stem=stem)


def rotary(r: Rewriter, op: Op) -> Result | None:
    """X (B, S, N * D) or (B, N, S, D), positions (B, S) or the first of them, two tables."""
    shape, table = r.facts.shape(op.inputs[0]), r.facts.shape(op.inputs[2])
    odd = op.attr("is_packed_batching", 0) or op.attr("scale", 1.0) not in (0.0, 1.0)
    if shape is None or table is None or len(table) != 2 or odd or r.opset < 11:
        return None
    width, dim = _head_size(op, shape, table), op.attr("rotary_embedding_dim", 0)
    if not isinstance(width, int) or not isinstance(table[1], int) or not _known(r, op):
        return None
    dim = dim or 2 * table[1]
    if dim != 2 * table[1] or dim > width:
        return None
    spec = Rotary(dim, 0, "interleaved" if op.attr("interleaved", 0) else "half")
    lead = (1,) if len(shape) == 4 else (2,)
    length = shape[2] if len(shape) == 4 else shape[1]
    positions = _positions(r, op, length)
    tables = tuple(_rows(r, op, v, positions, lead) for v in op.inputs[2:4])
    if len(shape) == 4:
        inputs = (op.inputs[0], *tables)
        return op.with_(
            op_type=ROTARY_EMBEDDING, domain=GE_DOMAIN, inputs=inputs, attrs=spec.attrs()
        )
    return _by_heads(r, op, shape, width, tables, spec)


def _known(r: Rewriter, op: Op) -> bool:
    positions = r.facts.shape(op.inputs[1])
    return positions is not None and (len(positions) == 2 or positions == (1,))


def _head_size(op: Op, shape: Shape, table: Shape) -> Dim | None:
    if len(shape) == 4:
        return shape[3]
    heads = op.attr("num_heads", 0)
    if len(shape) != 3:
        return None
    return floordiv(shape[2], heads) if heads else 2 * table[1]


def _positions(r: Rewriter, op: Op, length: Dim) -> str:
    """Positions (B, S), or (S,) counted from the one that is given."""
    given = op.inputs[1]
    if len(r.facts.shape(given) or ()) == 2:
        return given
    axis = 2 if len(r.facts.shape(op.inputs[0]) or ()) == 4 else 1
    count = counted(r, op, length, axis)
    kind = TensorType(DType.I64, (length,))
    return r.emit("Add", (count, given), kind, info=op.info, stem=f"{op.name}_positions")


def counted(r: Rewriter, op: Op, length: Dim, axis: int) -> str:
    """``0, 1, ...`` up to the size ``length`` of an axis of the op's first input; opset 11."""
    if isinstance(length, int) and r.budget.allows(length, 64):
        return r.ints(range(length), f"{op.name}_range")
    sizes = r.emit("Shape", (op.inputs[0],), None, info=op.info, stem=f"{op.name}_Shape")
    zero, one, at = (
        r.constant(Constant.of(np.array(n, np.int64)), f"{op.name}_n") for n in (0, 1, axis)
    )
    size = r.emit("Gather", (sizes, at), TensorType(DType.I64, ()), info=op.info)
    kind, stem = TensorType(DType.I64, (length,)), f"{op.name}_Range"
    return r.emit("Range", (zero, size, one), kind, info=op.info, stem=stem)


def _rows(r: Rewriter, op: Op, table: str, positions: str, axes: tuple[int, ...]) -> str:
    """The rows of a table at the positions, with a 1 where X has its heads."""
    kind, shape, places = r.facts.dtype(table), r.facts.shape(table), r.facts.shape(positions)
    assert kind is not None
    assert shape is not None
    assert places is not None
    rows = TensorType(kind, (*places, shape[1]))
    value = r.emit("Gather", (table, positions), rows, info=op.info, stem=f"{op.name}_Gather")
    at = axes[0] - 2 + len(places)
    assert rows.shape is not None
    wanted = TensorType(kind, (*rows.shape[:at], 1, *rows.shape[at:]))
    stem = f"{op.name}_Unsqueeze"
    if r.opset < 13:
        attrs = {"axes": (at,)}
        return r.emit("Unsqueeze", (value,), wanted, attrs=attrs, info=op.info, stem=stem)
    listed = (value, r.ints((at,), f"{op.name}_axes"))
    return r.emit("Unsqueeze", listed, wanted, info=op.info, stem=stem)


def _by_heads(
    r: Rewriter, op: Op, shape: Shape, width: int, tables: tuple[str, ...], spec: Rotary
) -> Op:
    """X (B, S, N * D) seen as (B, S, N, D), turned, and seen as it was again."""
    kind = r.facts.dtype(op.inputs[0])
    assert kind is not None
    split = TensorType(kind, (*shape[:2], floordiv(shape[2], width), width))
    target = r.ints((0, 0, -1, width), f"{op.name}_heads")
    x = r.emit("Reshape", (op.inputs[0], target), split, info=op.info, stem=f"{op.name}_split")
    value = r.graph.emit(
        ROTARY_EMBEDDING,
        (x, *tables),
        split,
        attrs=spec.attrs(),
        domain=GE_DOMAIN,
        info=op.info,
        stem=f"{op.name}_{ROTARY_EMBEDDING}",
    )
    back = r.ints((0, 0, -1), f"{op.name}_whole")
    return op.with_(op_type="Reshape", domain="", inputs=(value, back), attrs={})


RULES: RuleTable = {
    f"{DOMAIN}.FusedMatMul": (fused_matmul,),
    f"{DOMAIN}.TransposeMatMul": (fused_matmul,),
    f"{DOMAIN}.{ROTARY_EMBEDDING}": (rotary,),
}
