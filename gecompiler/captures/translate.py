"""A measured operator as the op whose cost the device model predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gecompiler.captures import layouts
from gecompiler.captures.ge_types import KINDS, Kind, is_collective_type, plain_type
from gecompiler.captures.heads import heads
from gecompiler.captures.read import MeasuredOp, Operand
from gecompiler.ir.graph import Graph
from gecompiler.ir.op import GE_DOMAIN, Attr, Op
from gecompiler.ir.types import DType, TensorType, tensor

_COMPRESSED_MASK = (2048, 2048)
"""The mask that stands for a causal one of any length."""

_LINKS = ("HCCL", "COMMUNICATION")
_ELSEWHERE = ("AI_CPU", "AICPU", "DSA_SQE")


@dataclass(frozen=True)
class Modelled:
    """One op in a graph of its own, and the family whose errors it counts to."""

    graph: Graph
    op: Op
    family: str


def modelled(measured: MeasuredOp, *, causal: bool = False) -> Modelled | str:
    """The op, or in words why there is none.

    ``causal``: whether fused attentions are; the files do not say, except by a compressed mask.
    """
    kind = KINDS.get(plain_type(measured.op_type))
    if measured.core in _LINKS or (kind is None and is_collective_type(measured.op_type)):
        return "the file does not give the sizes of collectives"
    if kind is None or measured.core in _ELSEWHERE:
        return "no formula for ops of this type"
    if not any(o is not None for o in measured.outputs):
        return "its output's shape is not in the file"
    if kind.family == "gemm":
        return _gemm(measured)
    if kind.family == "convolution":
        return _convolution(measured)
    if kind.family == "attention":
        return _attention(measured, causal)
    return _plain(measured, kind)


def _plain(measured: MeasuredOp, kind: Kind) -> Modelled | str:
    """An op of the vector cores: its operands as they are, but for those that say how."""
    output = next(o for o in measured.outputs if o is not None)
    inputs = [o for o in measured.inputs if o is not None]
    if not inputs and kind.family != "fill":
        return "its inputs' shapes are not in the file"
    attributes: dict[str, Attr] = {}
    if kind.op_type == "Transpose":
        permutation = _permutation(inputs[0].shape, output.shape)
        if permutation is None:
            return "the permutation cannot be told from the shapes"
        attributes, inputs = {"perm": permutation}, inputs[:1]
    if kind.op_type in ("Tile", "Expand", "Slice"):
        inputs = inputs[:1]
    return _one(kind.family, kind.op_type, kind.domain, inputs, output, **attributes)


def _one(
    family: str,
    op_type: str,
    domain: str,
    inputs: Sequence[Operand | TensorType],
    output: Operand | TensorType,
    **attributes: Attr,
) -> Modelled:
    graph = Graph("measured")
    names = [graph.add_input(f"x{i}", _type(x)) for i, x in enumerate(inputs)]
    op = Op("measured", op_type, tuple(names), ("y",), attributes, domain)
    return Modelled(graph, graph.add_op(op, [_type(output)]), family)


def _type(operand: Operand | TensorType) -> TensorType:
    if isinstance(operand, TensorType):
        return operand
    return tensor(operand.dtype, operand.shape)


def _gemm(measured: MeasuredOp) -> Modelled | str:
    """(m, k) by (k, n) and a bias; which is stored turned follows from the sizes."""
    if len(measured.inputs) < 2 or measured.inputs[0] is None or measured.inputs[1] is None:
        return "its inputs' shapes are not in the file"
    first, second, result = measured.inputs[0], measured.inputs[1], measured.outputs[0]
    if result is None:
        return "its output's shape is not in the file"
    a, b, out = (layouts.logical(o) for o in (first, second, result))
    turned = layouts.turns(a, b, out)
    if turned is None:
        return "the sizes of the matrix product do not fit together"
    bias = [o for o in measured.inputs[2:3] if o is not None and o.shape]
    operands = [tensor(first.dtype, a), tensor(second.dtype, b), *(_type(o) for o in bias)]
    attributes: dict[str, Attr] = {"transA": int(turned[0]), "transB": int(turned[1])}
    return _one("gemm", "MatMul", "", operands, tensor(result.dtype, out), **attributes)


def _convolution(measured: MeasuredOp) -> Modelled | str:
    if len(measured.inputs) < 2 or measured.inputs[0] is None or measured.inputs[1] is None:
        return "its inputs' shapes are not in the file"
    image, weight, result = measured.inputs[0], measured.inputs[1], measured.outputs[0]
    if result is None:
        return "its output's shape is not in the file"
    x, y = layouts.channels_first(image), layouts.channels_first(result)
    w = layouts.filters(weight, x[1] if len(x) > 1 else 1)
    if w is None or len(x) < 3 or len(y) < 3:
        return "the sizes of the convolution do not fit together"
    group = x[1] // w[1] if w[1] and not x[1] % w[1] else 1
    attributes: dict[str, Attr] = {"group": max(1, group)}
    bias = [_type(o) for o in measured.inputs[2:3] if o is not None and o.shape]
    operands = [tensor(image.dtype, x), tensor(weight.dtype, w), *bias]
    return _one("convolution", "Conv", "", operands, tensor(result.dtype, y), **attributes)


def _attention(measured: MeasuredOp, causal: bool) -> Modelled | str:
    operands = measured.inputs
    if len(operands) < 3 or any(o is None for o in operands[:3]):
        return "its inputs' shapes are not in the file"
    q, k, v = (o for o in operands[:3] if o is not None)
    outputs = tuple(o.shape for o in measured.outputs if o is not None)
    sizes = heads(q.shape, k.shape, v.shape, outputs)
    if sizes is None:
        return "the heads of the attention cannot be told from the shapes"
    rest = [o for o in operands[3:] if o is not None and o.shape]
    scores = sizes.batch * sizes.q_heads * sizes.q_len * sizes.kv_len
    if any(o.dtype is DType.U8 and len(o.shape) == 1 and o.shape[0] * 8 >= scores for o in rest):
        return "attention with dropout has no formula"  # a bit of its mask for every score
    small = sizes.kv_len != _COMPRESSED_MASK[1]
    hidden = causal or (small and any(o.shape[-2:] == _COMPRESSED_MASK for o in rest))
    mask = [o for o in rest if o.shape[-2:] == (sizes.q_len, sizes.kv_len)]
    attributes: dict[str, Attr] = {}
    if hidden and sizes.q_len > 1:
        attributes = {"window_right": 0, "align": "bottom_right"}
        mask = []
    shape = (sizes.batch, sizes.q_heads, sizes.q_len)
    keys = (sizes.batch, sizes.kv_heads, sizes.kv_len)
    inputs: list[TensorType] = [
        tensor(q.dtype, (*shape, sizes.head_dim)),
        tensor(k.dtype, (*keys, sizes.head_dim)),
        tensor(v.dtype, (*keys, sizes.v_dim)),
        *(_type(o) for o in mask[:1]),
    ]
    out = tensor(q.dtype, (*shape, sizes.v_dim))
    return _one("attention", "FlashAttention", GE_DOMAIN, inputs, out, **attributes)


def _permutation(source: tuple[int, ...], target: tuple[int, ...]) -> tuple[int, ...] | None:
    """A permutation that gives the target; axes of size 1 are as good anywhere."""
    if len(source) != len(target) or sorted(source) != sorted(target):
        return None
    free = list(range(len(source)))
    found: list[int] = []
    for size in target:
        axis = next(a for a in free if source[a] == size)
        free.remove(axis)
        found.append(axis)
    return tuple(found)
