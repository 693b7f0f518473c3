"""Products that sum over one axis: MatMul, Einsum, Gemm, FusedMatMul, seen as one thing.

Attention is two of them with a softmax between. What matters of each is which axis of which
operand every output axis comes from, and which axis is summed over; whether the op is a MatMul
with a transposed operand, or an Einsum with the operands the other way round, does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gecompiler.ir.graph import Graph
from gecompiler.ir.op import Op
from gecompiler.ir.types import Shape

Source = tuple["int | None", ...]
"""For each output axis, the operand's axis it comes from; None where the operand has none."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """``out[...] = alpha * sum_k operands[0][..., k, ...] * operands[1][..., k, ...]``.

    ``sources[n]`` says where the output's axes come from in operand ``n``, ``summed[n]`` which
    of its axes is summed over.
    """

    op: Op
    sources: tuple[Source, Source]
    summed: tuple[int, int]
    alpha: float = 1.0

    @property
    def operands(self) -> tuple[str, str]:
        """The names of the two operands."""
        return self.op.inputs[0], self.op.inputs[1]

    @property
    def output(self) -> str:
        """The name of the product."""
        return self.op.outputs[0]


def contraction(graph: Graph, op: Op) -> Contraction | None:
    """The op as a contraction, or None when it is none (or a shape is not known)."""
    rule = CONTRACTIONS.get(op.kind)
    if rule is None or len(op.inputs) < 2:
        return None
    left, right = graph.shape(op.inputs[0]), graph.shape(op.inputs[1])
    return None if left is None or right is None else rule(op, left, right)


def _matmul(op: Op, left: Shape, right: Shape) -> Contraction | None:
    return _batched(op, len(left), len(right))


def _batched(
    op: Op, left: int, right: int, flip: tuple[bool, bool] = (False, False), alpha: float = 1.0
) -> Contraction | None:
    """A matmul of those ranks; ``flip``: whether an operand's last two axes are swapped."""
    if left < 2 or right < 2:
        return None
    rank = max(left, right)
    rows, inner_l = (left - 1, left - 2) if flip[0] else (left - 2, left - 1)
    inner_r, columns = (right - 1, right - 2) if flip[1] else (right - 2, right - 1)
    batch_l = [k if (k := axis - (rank - left)) >= 0 else None for axis in range(rank - 2)]
    batch_r = [k if (k := axis - (rank - right)) >= 0 else None for axis in range(rank - 2)]
    sources = ((*batch_l, rows, None), (*batch_r, None, columns))
    return Contraction(op, sources, (inner_l, inner_r), alpha)


def _gemm(op: Op, left: Shape, right: Shape) -> Contraction | None:
    if op.input(2):
        return None
    flip = bool(op.attr("transA", 0)), bool(op.attr("transB", 0))
    return _batched(op, 2, 2, flip, float(op.attr("alpha", 1.0)))


def _fused_matmul(op: Op, left: Shape, right: Shape) -> Contraction | None:
    if op.attr("transBatchA", 0) or op.attr("transBatchB", 0):
        return None
    flip = bool(op.attr("transA", 0)), bool(op.attr("transB", 0))
    return _batched(op, len(left), len(right), flip, float(op.attr("alpha", 1.0)))


def _einsum(op: Op, left: Shape, right: Shape) -> Contraction | None:
    """Two operands, distinct labels in each, exactly one label summed, and it is in both."""
    labels = _labels(op.attr("equation", ""), len(left), len(right))
    if labels is None or len(op.inputs) != 2:
        return None
    a, b, out = labels
    summed = [x for x in a if x not in out]
    distinct = all(len(set(part)) == len(part) for part in labels)
    if not distinct or len(summed) != 1 or [x for x in b if x not in out] != summed:
        return None
    if any(x not in a and x not in b for x in out):
        return None
    sources = (_where(out, a), _where(out, b))
    return Contraction(op, sources, (a.index(summed[0]), b.index(summed[0])))


def _where(out: list[str], labels: list[str]) -> Source:
    return tuple(labels.index(x) if x in labels else None for x in out)


def _labels(equation: str, left: int, right: int) -> tuple[list[str], list[str], list[str]] | None:
    """The labels of both operands and the output, an ellipsis spelt out; None: not understood."""
    text = "".join(equation.split())
    terms, arrow, result = text.partition("->")
    parts = terms.split(",")
    if len(parts) != 2:
        return None
    ranks = (left, right)
    lengths = [r - len(p.replace("...", "")) for p, r in zip(parts, ranks, strict=True)]
    if any(n < 0 or (n > 0 and "..." not in p) for n, p in zip(lengths, parts, strict=True)):
        return None
    if not arrow:
        letters = sorted(set(terms) - set(",."))
        once = "".join(x for x in letters if terms.count(x) == 1)
        result = ("..." if "..." in terms else "") + once
    longest = max(lengths)
    expand = [_spell(p, n, longest) for p, n in zip(parts, lengths, strict=True)]
    return expand[0], expand[1], _spell(result, longest, longest)


def _spell(term: str, count: int, longest: int) -> list[str]:
    """A term's labels; the axes of an ellipsis are numbered, aligned to the right."""
    before, dots, after = term.partition("...")
    numbers = [str(n) for n in range(longest - count, longest)] if dots else []
    return [*before, *numbers, *after]


CONTRACTIONS: Mapping[str, Callable[[Op, Shape, Shape], Contraction | None]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "com.microsoft.FusedMatMul": _fused_matmul,
}
"""Ops that are contractions, by kind."""
