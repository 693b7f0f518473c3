"""The op that a rotation becomes: its inputs and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from gecompiler.ir.block_ops import ROTARY_EMBEDDING
from gecompiler.ir.dims import Dim
from gecompiler.ir.op import GE_DOMAIN, Attr, Op
from gecompiler.ir.types import DType, Shape, TensorType
from gecompiler.passes.block.columns import columns
from gecompiler.passes.block.patterns import is_wider
from gecompiler.passes.block.rotary_form import Rotation
from gecompiler.passes.block.rotary_tables import HalfTables
from gecompiler.passes.rewriting import Rewriter


@dataclass(frozen=True, slots=True)
class RotaryOp:
    """What an op of that name is given."""

    domain: str
    inputs: tuple[str, ...]
    attrs: Mapping[str, Attr]


def is_rotary(op: Op) -> bool:
    """Whether the op is a RotaryEmbedding, ours or of ai.onnx."""
    return op.op_type == ROTARY_EMBEDDING and op.domain in ("", GE_DOMAIN)


def fits(r: Rewriter, rotation: Rotation, members: Sequence[Op], like: str) -> bool:
    """Whether what is turned and its tables are of the shapes that the op wants."""
    target, root = r.facts.shape(like), r.facts.shape(rotation.root)
    narrow, wide = r.facts.dtype(rotation.root), r.facts.dtype(like)
    if target is None or root is None or (*root[:-1], *rotation.heads) != target[:-1]:
        return False
    if rotation.heads and not _in_heads(rotation, root[-1]):
        return False
    if narrow is None or wide is None or not (narrow is wide or is_wider(wide, narrow)):
        return False
    given = _standard(members)
    if given is not None:
        return _keeps_standard(rotation, given) or not given.input(3)
    tables = (rotation.cos, rotation.sin)
    if any(len({r.facts.dtype(root.root) for root in t.roots}) > 1 for t in tables):
        return False
    return all(_broadcasts(t.lead, target[:-1]) for t in tables)


def rotary_op(
    r: Rewriter, tables: HalfTables, rotation: Rotation, members: Sequence[Op], like: str
) -> RotaryOp:
    """Emits what the op's inputs need; call it once nothing can refuse the fusion any more.

    ``like`` is a value of the type of what is made.
    """
    spec = rotation.spec
    x = _turned_part(r, rotation)
    x = _widened(r, x, r.facts.dtype(like))
    given = _standard(members)
    if given is not None and _keeps_standard(rotation, given):
        attrs = {**given.attrs, "rotary_embedding_dim": spec.dim}
        return RotaryOp("", (x, *given.inputs[1:]), attrs)
    if given is not None:
        cos, sin = (_with_heads(r, table) for table in given.inputs[1:3])
    else:
        cos, sin = (tables.operand(r, t, spec.style) for t in (rotation.cos, rotation.sin))
    sin = _opposite(r, sin) if rotation.backward else sin
    return RotaryOp(GE_DOMAIN, (x, cos, sin), spec.attrs())


def _in_heads(rotation: Rotation, width: Dim) -> bool:
    """Whether the lanes that all heads read are rows of ``stride`` lanes."""
    first = rotation.window // rotation.stride * rotation.stride
    fits = rotation.window - first + rotation.width <= rotation.stride
    return fits and isinstance(width, int) and first + _span(rotation) <= width


def _span(rotation: Rotation) -> int:
    return prod(rotation.heads) * rotation.stride


def _turned_part(r: Rewriter, rotation: Rotation) -> str:
    """The lanes of the root that are read, split into heads where these are."""
    if not rotation.heads:
        return columns(r, rotation.root, rotation.window, rotation.width)
    first = rotation.window // rotation.stride * rotation.stride
    value = columns(r, rotation.root, first, _span(rotation))
    kind = r.graph.tensor(value)
    assert kind is not None
    assert kind.shape is not None
    shape = (*kind.shape[:-1], *rotation.heads, rotation.stride)
    sizes = (*(0,) * (len(kind.shape) - 1), *rotation.heads, rotation.stride)
    target = r.ints(sizes, f"{value}_sizes")
    stem = f"{value}_heads"
    value = r.emit("Reshape", (value, target), TensorType(kind.dtype, shape), stem=stem)
    return columns(r, value, rotation.window - first, rotation.width)


def _standard(members: Sequence[Op]) -> Op | None:
    """The op of ai.onnx that does the turning already, if one does."""
    return next((m for m in members if m.is_(ROTARY_EMBEDDING)), None)


def _keeps_standard(rotation: Rotation, given: Op) -> bool:
    """Whether that op can say it all: it turns the first lanes."""
    style = "interleaved" if given.attr("interleaved", 0) else "half"
    return not rotation.spec.start and rotation.spec.style == style and not rotation.backward


def _with_heads(r: Rewriter, table: str) -> str:
    """A table (B, S, R/2) as one that broadcasts over the heads of (B, N, S, R)."""
    kind = r.graph.tensor(table)
    assert kind is not None
    assert kind.shape is not None
    batch, length, width = kind.shape
    wanted = TensorType(kind.dtype, (batch, 1, length, width))
    axes = r.ints([1], f"{table}_axes")
    return r.emit("Unsqueeze", (table, axes), wanted, stem=f"{table}_heads")


def _widened(r: Rewriter, value: str, kind: DType | None) -> str:
    """The value in a wider type, by a Cast that is there already or a new one."""
    known = r.graph.tensor(value)
    if kind is None or known is None or known.dtype is kind:
        return value
    for user in r.graph.users(value):
        if user.is_("Cast") and r.facts.dtype(user.outputs[0]) is kind:
            return user.outputs[0]
    wanted = TensorType(kind, known.shape)
    return r.emit("Cast", (value,), wanted, attrs={"to": kind.code}, stem=f"{value}_wide")


def _opposite(r: Rewriter, table: str) -> str:
    return r.emit("Neg", (table,), r.graph.tensor(table), stem=f"{table}_opposite")


def _broadcasts(lead: Shape, target: Shape) -> bool:
    pairs = zip(reversed(lead), reversed(target), strict=False)
    return len(lead) <= len(target) and all(a in (b, 1) for a, b in pairs)
