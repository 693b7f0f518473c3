"""How much arithmetic an op is, before it is done: an estimate from sizes alone.

In multiply-adds; an element that is read or written counts as `ELEMENT` of them, which is what it
costs a processor to move it. Ops not named here do about that for each element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gecompiler.ir.flash_attention import FLASH_ATTENTION
from gecompiler.ir.op import GE_DOMAIN, Op
from gecompiler.ir.training_ops import FLASH_ATTENTION_GRAD

Shape = tuple[int, ...]
ELEMENT = 40

_PRODUCTS = ("MatMul", "FusedMatMul", "MatMulInteger", "QLinearMatMul", "FusedGemm", "Gemm")
_CONVOLUTIONS = ("Conv", "ConvInteger", "QLinearConv", "FusedConv", "DeformConv")
_POOLS = ("AveragePool", "LpPool", "MaxPool")
_ATTENTION = ("Attention", "MultiHeadAttention", "GroupQueryAttention")


def work_of(op: Op, inputs: Sequence[Shape | None], outputs: Sequence[Shape | None]) -> int:
    """Multiply-adds of the op, from the sizes of its inputs and outputs (None: not known)."""
    moved = sum(math.prod(s) for s in (*inputs, *outputs) if s is not None)
    return ELEMENT * moved + _products(op, inputs, outputs)


def _products(op: Op, inputs: Sequence[Shape | None], outputs: Sequence[Shape | None]) -> int:
    out = outputs[0] if outputs else None
    first, second = (*inputs, None, None)[:2]
    if out is None or first is None:
        return 0
    if op.domain == GE_DOMAIN:
        passes = {FLASH_ATTENTION: 2, FLASH_ATTENTION_GRAD: 5}.get(op.op_type, 0)
        return passes * math.prod(first) * _longest(second)
    kind = op.op_type
    if kind in _PRODUCTS and first:
        inner = first[0] if op.attr("transA", 0) else first[-1]
        return math.prod(out) * inner
    if kind in _CONVOLUTIONS:
        weight = next((s for s in inputs[1:] if s is not None and len(s) == len(first)), ())
        return math.prod(out) * math.prod(weight[1:])
    if kind == "ConvTranspose" and second is not None:
        return math.prod(first) * math.prod(second[1:])
    if kind in _POOLS:
        return math.prod(out) * math.prod(op.attr("kernel_shape") or ())
    if kind in _ATTENTION:
        return 2 * math.prod(first) * max(map(_longest, (first, second)))
    if kind in ("DFT", "STFT", "Det"):
        return math.prod(out) * _longest(first)
    return _einsum(op, inputs) if kind == "Einsum" else 0


def _longest(shape: Shape | None) -> int:
    return max(shape or (1,))


def _einsum(op: Op, inputs: Sequence[Shape | None]) -> int:
    """The product of all sizes that the equation names."""
    equation = op.attr("equation", "")
    text = equation.decode(errors="replace") if isinstance(equation, bytes) else str(equation)
    sizes: dict[str, int] = {}
    for term, shape in zip(text.partition("->")[0].split(","), inputs, strict=False):
        letters = [c for c in term if c.isalpha()]
        for letter, size in zip(letters, shape or (), strict=False):
            sizes[letter] = max(size, sizes.get(letter, 1))
    return math.prod(sizes.values())
