"""What fusions look for, and near misses that they must leave alone or get right."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto as T

from random_graphs.builder import Scope, Value
from random_graphs.moves import unsqueezed


def _reduced(s: Scope, op: str, x: Value, axis: int = -1) -> Value | None:
    axis = axis if s.opset >= 11 else x.rank - 1
    if s.opset >= 18:
        return s.add(op, x, s.ints([axis]), keep=False)
    return s.add(op, x, axes=[axis], keep=False)


def _sum(s: Scope, x: Value, axis: int = -1) -> Value | None:
    if 13 <= s.opset < 18:
        return s.add("ReduceSum", x, s.ints([axis]), keep=False)
    return _reduced(s, "ReduceSum", x, axis)


def gelu(s: Scope) -> None:
    """``0.5 x (1 + erf(x / sqrt 2))`` in several orders, sometimes with a wrong number."""
    x = s.pick_float()
    if x is None:
        return
    root = s.rng.choice([math.sqrt(2), math.sqrt(2), 1.414, 1.5])
    half, one = s.rng.choice([0.5, 0.5, 0.5, 0.51]), s.rng.choice([1.0, 1.0, 1.0, 2.0])
    if s.rng.random() < 0.5:
        inner = s.add("Div", x, s.number(x.dtype, root), keep=False)
    else:
        inner = s.add("Mul", x, s.number(x.dtype, 1 / root), keep=False)
    erf = s.add("Erf", inner, keep=s.rng.random() < 0.1) if inner else None
    plus = s.add("Add", erf, s.number(x.dtype, one), keep=False) if erf else None
    other = x if s.rng.random() < 0.85 else (s.pick(lambda v: _alike(v, x)) or x)
    if plus is None:
        return
    first, second = s.rng.choice(
        [(other, s.number(x.dtype, half)), (s.number(x.dtype, half), other)]
    )
    product = s.add("Mul", plus, first, keep=False)
    if product is not None:
        s.add("Mul", product, second)


def gelu_tanh(s: Scope) -> None:
    x = s.pick_float()
    if x is None:
        return
    k, c = s.rng.choice([0.044715, 0.044715, 0.05]), s.rng.choice([0.7978845608, 0.8])
    cube = s.add("Pow", x, s.number(x.dtype, s.rng.choice([3.0, 3.0, 2.0])), keep=False)
    scaled = s.add("Mul", cube, s.number(x.dtype, k), keep=False) if cube else None
    inner = s.add("Add", x, scaled, keep=False) if scaled else None
    inner = s.add("Mul", inner, s.number(x.dtype, c), keep=False) if inner else None
    tanh = s.add("Tanh", inner, keep=False) if inner else None
    plus = s.add("Add", tanh, s.number(x.dtype, 1.0), keep=False) if tanh else None
    half = s.add("Mul", x, s.number(x.dtype, 0.5), keep=False)
    if plus and half:
        s.add("Mul", half, plus)


def gated(s: Scope) -> None:
    """Swish, alone or as a gate; the sigmoid may be of something else."""
    x = s.pick_float()
    if x is None:
        return
    source = x if s.rng.random() < 0.8 else (s.pick(lambda v: _alike(v, x)) or x)
    if s.rng.random() < 0.2:
        scaled = s.add("Mul", source, s.number(x.dtype, 1.702), keep=False)
        source = scaled or source
    sigmoid = s.add("Sigmoid", source, keep=s.rng.random() < 0.1)
    swish = (
        s.add("Mul", *((x, sigmoid) if s.rng.random() < 0.5 else (sigmoid, x))) if sigmoid else None
    )
    other = s.pick(lambda v: _alike(v, x))
    if swish and other and s.rng.random() < 0.6:
        s.add("Mul", swish, other)


def _alike(v: Value, x: Value) -> bool:
    return v.dtype == x.dtype and v.shape == x.shape


def norm(s: Scope) -> None:
    """Layer and RMS norm written out; epsilon outside the root or another axis are near misses."""
    x = s.pick_float(1)
    if x is None or 0 in x.shape:
        return
    wide = s.add("Cast", x, to=T.FLOAT, keep=False) if s.rng.random() < 0.2 else x
    if wide is None:
        return
    axis = -1 if s.rng.random() < 0.85 else -x.rank
    root = _root(s, wide, axis)
    if root is None:
        return
    centred, deviation = root
    if s.rng.random() < 0.6:
        y = s.add("Div", centred, deviation, keep=False)
    else:
        inverse = s.add("Reciprocal", deviation, keep=False)
        y = s.add("Mul", centred, inverse, keep=False) if inverse else None
    y = s.add("Cast", y, to=x.dtype, keep=False) if y and y.dtype != x.dtype else y
    if y is None:
        return
    shape = s.rng.choice([x.shape[-1:], x.shape[-1:], (), x.shape])
    y = s.add("Mul", y, s.random_constant(x.dtype, shape, odd=False)) or y
    if s.rng.random() < 0.5:
        s.add("Add", y, s.random_constant(x.dtype, s.rng.choice([x.shape[-1:], ()]), odd=False))


def _root(s: Scope, x: Value, axis: int) -> tuple[Value, Value] | None:
    """What is divided, and by what."""
    centred = x
    if s.rng.random() < 0.5:
        mean = _reduced(s, "ReduceMean", x, axis)
        found = s.add("Sub", x, mean, keep=False) if mean else None
        if found is None:
            return None
        centred = found
    other = centred if s.rng.random() < 0.9 else x
    if s.rng.random() < 0.5:
        square = s.add("Mul", centred, other, keep=False)
    else:
        square = s.add("Pow", other, s.number(x.dtype, s.rng.choice([2.0, 2.0, 3.0])), keep=False)
    variance = _reduced(s, "ReduceMean", square, axis) if square else None
    epsilon = s.number(x.dtype, s.rng.choice([1e-5, 1e-6, 0.1]), s.rng.choice([(), (1,)]))
    if variance is None:
        return None
    if s.rng.random() < 0.85:
        inside = s.add("Add", variance, epsilon, keep=False)
        deviation = s.add("Sqrt", inside, keep=False) if inside else None
    else:
        inside = s.add("Sqrt", variance, keep=False)
        deviation = s.add("Add", inside, epsilon, keep=False) if inside else None
    return (centred, deviation) if deviation else None


def whole_norm(s: Scope) -> None:
    """The norms that ONNX has, behind a residual Add."""
    x = s.pick_float(1)
    if x is None or 0 in x.shape:
        return
    other = s.pick(lambda v: _alike(v, x))
    summed = s.add("Add", x, other or x)
    if summed is None:
        return
    scale = s.random_constant(x.dtype, x.shape[-1:], odd=False)
    bias = s.random_constant(x.dtype, x.shape[-1:], odd=False)
    if s.rng.random() < 0.5:
        s.add_many("LayerNormalization", summed, scale, bias, axis=-1)
    else:
        s.add("RMSNormalization", summed, scale, axis=-1)


def rotary(s: Scope) -> None:
    """``x cos + rotate(x) sin`` over halves; the halves may be swapped or the sign missing."""
    x = s.pick(lambda v: v.dtype in (T.FLOAT, T.FLOAT16) and v.rank == 4 and v.shape[-1] % 2 == 0)
    if x is None:
        x = _heads(s)
    if x is None or s.opset < 10 or x.size == 0:
        return
    half, axis = x.shape[-1] // 2, s.ints([-1])
    low = s.add("Slice", x, s.ints([0]), s.ints([half]), axis, keep=False)
    high = s.add("Slice", x, s.ints([half]), s.ints([2**63 - 1]), axis, keep=False)
    if not (low and high):
        return
    miss = s.rng.random()
    turned = s.add("Neg", low if 0.8 < miss < 0.9 else high, keep=False) if miss > 0.1 else high
    kept = high if 0.8 < miss < 0.9 else low
    if turned is None:
        return
    rotated = s.add("Concat", turned, kept, axis=x.rank - 1, keep=False)
    angles = np.outer(np.arange(x.shape[-2]), 1 / 10 ** np.arange(half))
    table = np.concatenate([angles, angles], axis=-1)
    if s.rng.random() < 0.15:
        table = np.concatenate([angles, angles * 2], axis=-1)
    kind = np.dtype("float32" if x.dtype == T.FLOAT else "float16")
    cos, sin = (s.constant(f(table).astype(kind)) for f in (np.cos, np.sin))
    straight = s.add("Mul", x, cos, keep=False)
    across = s.add("Mul", rotated, sin, keep=False) if rotated else None
    if straight and across:
        s.add("Add", straight, across)


def _heads(s: Scope, heads: int = 0) -> Value | None:
    """A projection of some value to [batch, heads, rows, 4]."""
    x = s.pick(lambda v: v.dtype in (T.FLOAT, T.FLOAT16) and v.rank == 3 and 0 not in v.shape)
    if x is None:
        return None
    return _projected(s, x, heads or s.rng.choice([1, 2]))


def _projected(
    s: Scope, x: Value, heads: int, size: int = 4, *, flat: bool = False
) -> Value | None:
    w = s.random_constant(x.dtype, (x.shape[-1], heads * size), odd=False)
    y = s.add("MatMul", x, w, keep=False)
    if y is None or flat:
        return y
    shape = [0, s.rng.choice([0, -1]), heads, size]
    y = s.add("Reshape", y, s.ints(shape), keep=False, shape=(*x.shape[:2], heads, size))
    return s.add("Transpose", y, perm=[0, 2, 1, 3], keep=False) if y else None


def attention(s: Scope) -> None:
    """Attention written out, over heads; masks, caps, groups and near misses of each."""
    x = s.pick(lambda v: v.dtype in (T.FLOAT, T.FLOAT16) and v.rank == 3 and 0 not in v.shape)
    if x is None or s.opset < 11:
        return
    memory = (
        x
        if s.rng.random() < 0.7
        else (
            s.pick(
                lambda v: (
                    v.dtype == x.dtype
                    and v.rank == 3
                    and v.shape[0] == x.shape[0]
                    and 0 not in v.shape
                )
            )
            or x
        )
    )
    heads = s.rng.choice([1, 2, 4])
    groups = s.rng.choice([1, 1, 2]) if heads > 1 else 1
    q = _projected(s, x, heads)
    k, v = _projected(s, memory, heads // groups), _projected(s, memory, heads // groups)
    if not (q and k and v):
        return
    if groups > 1:
        k, v = _repeated(s, k, groups), _repeated(s, v, groups)
    scale = s.number(x.dtype, s.rng.choice([0.5, 0.5, 1.0, 2.0]))
    place = s.rng.choice(["q", "k", "scores", "none"])
    q = s.add("Mul", q, scale, keep=False) if place == "q" and q else q
    order = [0, 1, 3, 2]
    across = s.add("Transpose", k, perm=order, keep=False) if k else None
    across = s.add("Mul", across, scale, keep=False) if place == "k" and across else across
    scores = s.add("MatMul", q, across, keep=s.rng.random() < 0.05) if q and across else None
    if scores and place == "scores":
        op = s.rng.choice(["Mul", "Div"])
        scores = s.add(op, scores, scale, keep=False)
    if scores is None or v is None:
        return
    scores = _capped(s, scores) if s.rng.random() < 0.15 else scores
    scores = _masked(s, scores) if scores and s.rng.random() < 0.7 else scores
    if scores is None:
        return
    axis = -1 if s.rng.random() < 0.92 else 2
    probabilities = s.add("Softmax", scores, axis=axis, keep=s.rng.random() < 0.07)
    if probabilities and s.rng.random() < 0.1:
        zero = s.number(x.dtype, 0.0)
        bad = s.add("IsNaN", probabilities, keep=False)
        probabilities = s.add("Where", bad, zero, probabilities, keep=False) if bad else None
    out = s.add("MatMul", probabilities, v, keep=False) if probabilities else None
    rows = s.add("Transpose", out, perm=[0, 2, 1, 3], keep=False) if out else None
    if rows is not None:
        s.add("Reshape", rows, s.ints([0, -1, heads * 4]), shape=(*x.shape[:2], heads * 4))


def _repeated(s: Scope, x: Value, groups: int) -> Value | None:
    """Every head several times in turn; as a near miss all heads one after the other."""
    batch, heads, rows, size = x.shape
    if s.rng.random() < 0.2:
        return s.add("Concat", *[x] * groups, axis=1, keep=False)
    y = unsqueezed(s, x, [2])
    y = s.add("Expand", y, s.ints([batch, heads, groups, rows, size]), keep=False) if y else None
    shape = [batch, heads * groups, rows, size]
    return s.add("Reshape", y, s.ints(shape), keep=False) if y else None


def _capped(s: Scope, scores: Value) -> Value | None:
    cap = s.number(scores.dtype, s.rng.choice([5.0, 30.0]))
    y = s.add("Div", scores, cap, keep=False)
    y = s.add("Tanh", y, keep=False) if y else None
    back = cap if s.rng.random() < 0.8 else s.number(scores.dtype, 7.0)
    return s.add("Mul", y, back, keep=False) if y else None


def _masked(s: Scope, scores: Value) -> Value | None:
    """An added or chosen mask: causal, banded, from an input, or random."""
    batch, _, rows, columns = scores.shape
    low = s.rng.choice([-math.inf, -1e4, -65504.0, -3.4028234663852886e38])
    if scores.dtype == T.FLOAT16:
        low = max(low, -65504.0) if low > -math.inf else low
    lower = np.tril(np.ones((rows, columns), dtype=bool), s.rng.choice([0, 0, 1, -1]))
    if s.rng.random() < 0.2:
        lower &= ~np.tril(np.ones((rows, columns), dtype=bool), -2)
    choice = s.rng.random()
    if choice < 0.3:
        mask = np.where(lower, 0.0, low)
        kind = np.float32 if scores.dtype == T.FLOAT else np.float16
        shape = s.rng.choice([(rows, columns), (1, 1, rows, columns)])
        return s.add("Add", scores, s.constant(mask.astype(kind).reshape(shape)), keep=False)
    if choice < 0.6:
        other = s.number(scores.dtype, low)
        if s.rng.random() < 0.15:  # the wrong way round
            return s.add("Where", s.constant(lower), other, scores, keep=False)
        return s.add("Where", s.constant(lower), scores, other, keep=False)
    shapes = [(columns,), (batch, 1, 1, columns), (rows, columns), (batch, 1, rows, columns)]
    flags = s.pick(lambda v: v.dtype == T.BOOL and v.shape in shapes)
    if flags is not None and choice < 0.85:
        zero, below = s.number(scores.dtype, 0.0), s.number(scores.dtype, low)
        bias = s.add("Where", flags, zero, below, keep=False)
        return s.add("Add", scores, bias, keep=False) if bias else None
    bias = s.pick(lambda v: v.dtype == scores.dtype and v.shape in shapes)
    return s.add("Add", scores, bias, keep=False) if bias is not None else scores


def attention_op(s: Scope) -> None:
    """The op itself, with heads given by rank 4."""
    x = s.pick(lambda v: v.dtype in (T.FLOAT, T.FLOAT16) and v.rank == 3 and 0 not in v.shape)
    if x is None or s.opset < 23:
        return
    q, k, v = (_projected(s, x, 2) for _ in range(3))
    if q and k and v:
        s.add_many("Attention", q, k, v, is_causal=s.rng.choice([0, 1]))


def twins(s: Scope) -> None:
    """The same computation twice, for merging; or nearly the same."""
    made = [n for n in s.nodes if len(n.output) == 1 and n.op_type != "Constant"]
    known = {v.name: v for v in s.values}
    made = [n for n in made if n.output[0] in known]
    if not made:
        return
    node = type(made[0])()
    node.CopyFrom(s.rng.choice(made))
    old = known[node.output[0]]
    node.name, node.output[0] = s.names.new("n"), s.names.new("v")
    twin = Value(node.output[0], old.dtype, old.shape)
    s.append(node, [twin])
    s.add(s.rng.choice(["Add", "Sub", "Mul", "Equal", "And", "Max"]), old, twin)


MOTIFS = {
    gelu: 3,
    gelu_tanh: 2,
    gated: 3,
    norm: 5,
    whole_norm: 2,
    rotary: 3,
    attention: 7,
    attention_op: 1,
    twins: 4,
}
"""How often each is taken, relative to the others."""
