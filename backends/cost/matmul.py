"""Ops that are matrix products: MatMul, Gemm, Einsum, the quantised ones, recurrent layers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from gecompiler.backends.cost.base import Sizes, Tensor, serial, vector_demand
from gecompiler.backends.cost.gemm import Gemm, gemm_demand
from gecompiler.ir.op import Op
from gecompiler.ir.schedule import Demand
from gecompiler.ir.types import DType

if TYPE_CHECKING:
    from gecompiler.backends.device import Device


def matmul(device: Device, op: Op, s: Sizes) -> Demand | None:
    """MatMul and its relatives: A (..., m, k) by B (..., k, n), batches broadcast.

    Where B has no batch of its own, A's batch is folded into m: one product of (batch * m, k).
    """
    quantised = op.op_type == "QLinearMatMul"
    a, b, out = s.input(0), s.input(3 if quantised else 1), s.output()
    if op.op_type == "MatMulNBits":
        b = _packed_weight(op, a, s.input(1))
    if a is None or b is None or out is None or not a.shape or not b.shape:
        return None
    a_shape = _turned(a.shape, bool(op.attr("transA", 0)))
    b_shape = _turned(b.shape, bool(op.attr("transB", 0)))
    m, k = (a_shape[-2] if len(a_shape) > 1 else 1), a_shape[-1]
    n = b_shape[-1] if len(b_shape) > 1 else 1
    batch = 1 if not m or not n else max(1, out.elements // (m * n))
    if math.prod(b_shape[:-2]) == 1:
        batch, m = 1, batch * m
    extra = s.load - a.bytes - b.bytes
    return _product(device, batch, m, n, k, a, b, max(0.0, extra), s.store)


def gemm(device: Device, op: Op, s: Sizes) -> Demand | None:
    """Gemm: (m, k) by (k, n) plus C, which the cube adds as it stores."""
    a, b = s.input(0), s.input(1)
    if a is None or b is None or len(a.shape) != 2 or len(b.shape) != 2:
        return None
    m, k = _turned(a.shape, bool(op.attr("transA", 0)))
    n = _turned(b.shape, bool(op.attr("transB", 0)))[1]
    extra = max(0.0, s.load - a.bytes - b.bytes)
    return _product(device, 1, m, n, k, a, b, extra, s.store)


def einsum(device: Device, op: Op, s: Sizes) -> Demand | None:
    """Einsum of two operands as a batched product, in the letters of its equation.

    Letters of both operands and the output are batch, of one operand and the output m or n,
    of both operands only k; what only one operand has is summed away there, as it is loaded.
    None for any other number of operands or a letter that stands twice in a term.
    """
    terms = _terms(str(op.attr("equation", "")), s)
    if terms is None:
        return None
    left, right, out, size, a, b = terms

    def span(letters: set[str]) -> int:
        return math.prod(size[c] for c in letters)

    both = set(left) & set(right)
    batch, k = span(both & set(out)), span(both - set(out))
    m, n = span((set(left) - both) & set(out)), span((set(right) - both) & set(out))
    if batch and not set(right) & set(out) - both and not both & set(out):
        batch, m = 1, batch * m
    return _product(device, batch, m, n, k, a, b, 0.0, s.store)


def _terms(equation: str, s: Sizes) -> tuple[str, str, str, dict[str, int], Tensor, Tensor] | None:
    """The operands' letters, the output's, their sizes, the operands; ``...`` becomes digits."""
    a, b = s.input(0), s.input(1)
    source, arrow, target = equation.replace(" ", "").partition("->")
    operands = source.split(",")
    if len(operands) != 2 or len(s.inputs) != 2 or a is None or b is None:
        return None
    size: dict[str, int] = {}
    spelled: list[str] = []
    for term, tensor in zip(operands, (a, b), strict=True):
        rest = len(tensor.shape) - len(term.replace("...", ""))
        if rest < 0 or rest > 9 or (rest and "..." not in term):
            return None
        letters = term.replace("...", "0123456789"[10 - rest :])
        if len(set(letters)) < len(letters):
            return None
        for letter, length in zip(letters, tensor.shape, strict=True):
            size[letter] = max(size.get(letter, 1), length)
        spelled.append(letters)
    widest = max((t for t in spelled), key=lambda t: sum(c.isdigit() for c in t))
    if not arrow:
        counts = "".join(operands).replace(".", "")
        target = "..." + "".join(sorted(c for c in set(counts) if counts.count(c) == 1))
    out = target.replace("...", "".join(c for c in widest if c.isdigit()))
    if any(letter not in size for letter in out):
        return None
    return spelled[0], spelled[1], out, size, a, b


def recurrent(device: Device, op: Op, s: Sizes) -> Demand | None:
    """LSTM, GRU, RNN: one product for all inputs, then one small one per time step.

    X (steps, batch, in), W (directions, gates * hidden, in), R (directions, gates * hidden,
    hidden). The steps depend on each other; each multiplies (batch, hidden) by R and applies
    the gates, about 30 full-rate passes per gate element (three to five functions).
    """
    x, w, r = s.input(0), s.input(1), s.input(2)
    if x is None or w is None or r is None or {len(t.shape) for t in (x, w, r)} != {3}:
        return None
    steps, batch, features = x.shape
    directions, gates, hidden = r.shape
    if op.attr("layout", 0):
        steps, batch = batch, steps
    whole = _product(device, directions, steps * batch, gates, features, x, w, 0.0, 0.0)
    element = r.dtype.bits / 8
    state = Tensor(r.dtype, (directions, batch, hidden))
    step = [
        _product(device, directions, batch, gates, hidden, state, r, 0.0, 0.0),
        vector_demand(device, 0.0, 0.0, 30.0 * directions * batch * gates, r.dtype.bits),
    ]
    each = serial(device, step, float(steps))
    # R lies in L2 after the first step: HBM sees it once
    again = directions * gates * hidden * element * max(0, steps - 1)
    each = replace(each, load_bytes=max(0.0, each.load_bytes - again), store_bytes=s.store)
    return serial(device, [whole, each])


def _product(
    device: Device,
    batch: int,
    m: int,
    n: int,
    k: int,
    a: Tensor,
    b: Tensor,
    extra: float,
    out: float,
) -> Demand:
    # a wider operand than the other: the cube multiplies in the wider type
    dtype = a.dtype if a.dtype.bits >= b.dtype.bits else b.dtype
    if dtype is DType.STRING or dtype.bits > 64:
        dtype = DType.F64
    return gemm_demand(device, Gemm(batch, m, n, k, dtype, a.bytes, b.bytes, extra, out))


def _turned(shape: tuple[int, ...], turn: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if turn and len(shape) > 1 else shape


def _packed_weight(op: Op, a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """MatMulNBits keeps B (n, k) in few bits; it is unpacked on its way to the cube."""
    k, n = op.attr("K"), op.attr("N")
    if a is None or b is None or not isinstance(k, int) or not isinstance(n, int):
        return None
    return Tensor(DType.U4 if op.attr("bits", 4) == 4 else DType.U8, (k, n))
