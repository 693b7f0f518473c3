"""Element-wise arithmetic, logic, casts, reductions and products."""

from __future__ import annotations

from onnx import TensorProto as T

from random_graphs.arrays import FLOAT8, FLOATS, INT4, INTS, LEAST_OPSET
from random_graphs.builder import Scope, Value

EXACT_UNARY = ("Neg", "Abs", "Floor", "Ceil", "Round", "Sign", "Relu", "Not", "Sqrt", "Reciprocal")
INEXACT_UNARY = (
    *("Exp", "Log", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Softplus", "Elu", "LeakyRelu"),
    *("Selu", "HardSigmoid", "HardSwish", "Mish", "Gelu", "Atan", "Swish"),
)
UNSIGNED = (T.UINT8, T.UINT16, T.UINT32, T.UINT64)
NEUTRAL = {
    "Add": (0.0, -0.0),
    "Sub": (0.0, -0.0),
    "Mul": (1.0, -1.0, 0.0),
    "Div": (1.0, -1.0),
    "Pow": (1.0, 2.0, 0.5, 0.0),
}


def unary(s: Scope) -> None:
    x = s.pick()
    if x is None:
        return
    op = s.rng.choice(EXACT_UNARY if s.rng.random() < 0.5 else INEXACT_UNARY)
    if op in ("Floor", "Ceil", "Round", "Sign"):
        x = s.pick_steady(FLOATS) or x
    s.add(op, x)


def binary(s: Scope) -> None:
    pair = operands(s)
    if pair is None:
        return
    op = s.rng.choice(["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "PRelu"])
    x, other = pair
    if x.dtype in INTS and op == "Pow":
        return  # beyond 2^53 each runtime has its own idea
    if x.dtype in INTS and op == "Div":
        other = s.random_positive(x.dtype, other.shape)
    if op == "PRelu" and any(
        d not in (1, n) for d, n in zip(reversed(other.shape), reversed(x.shape), strict=False)
    ):
        return  # its slope broadcasts in one direction only
    if op == "PRelu" and other.rank > x.rank:
        return
    if op in ("Max", "Min") and s.rng.random() < 0.4:
        s.add(op, x, other, x)
        return
    s.add(op, x, other)


def operands(s: Scope, *, steady: bool = False) -> tuple[Value, Value] | None:
    """Two values that broadcast; often a constant, also one that is larger than the other."""
    numeric = (*FLOATS, *INTS)
    x = s.pick_steady(numeric) if steady else s.pick(lambda v: v.dtype in numeric)
    if x is None:
        return None
    other = None
    if s.rng.random() < 0.5:

        def fits(v: Value) -> bool:
            return v.dtype == x.dtype and broadcasts(v.shape, x.shape)

        found = s.pick(fits)
        other = found if found and (not steady or s.is_steady(found)) else None
    if other is None:
        shape = [d if s.rng.random() < 0.6 else 1 for d in x.shape]
        shape = shape[s.rng.randint(0, len(shape)) :] if s.rng.random() < 0.5 else shape
        other = s.random_constant(x.dtype, shape, odd=s.rng.random() < 0.2)
    return (x, other) if s.rng.random() < 0.6 else (other, x)


def broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    pairs = zip(reversed(a), reversed(b), strict=False)
    return all(x == y or 1 in (x, y) for x, y in pairs)


def neutral(s: Scope) -> None:
    """Arithmetic with a number that may change nothing."""
    x = s.pick(lambda v: v.dtype in (*FLOATS, T.INT32, T.INT64, T.INT8, T.UINT8))
    if x is None:
        return
    op = s.rng.choice(list(NEUTRAL))
    number = s.rng.choice(NEUTRAL[op])
    if x.dtype not in FLOATS and (number < 0 or number == 0.5 or op == "Div"):
        number = 1.0
    if x.dtype not in FLOATS and op == "Pow" and not s.is_tame(x):
        return
    shape = s.rng.choice([(), (1,), (1,) * x.rank, x.shape, (1,) * (x.rank + 1)])
    c = s.number(x.dtype, number, shape)
    turned = s.rng.random() < 0.4 and (x.dtype in FLOATS or op not in ("Div", "Pow"))
    s.add(op, *((c, x) if turned else (x, c)))


def compare(s: Scope) -> None:
    pair = operands(s, steady=True)
    if pair is not None:
        ops = ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]
        s.add(s.rng.choice(ops), *pair)


def logic(s: Scope) -> None:
    x = s.pick(lambda v: v.dtype == T.BOOL)
    if x is None:
        return
    if s.rng.random() < 0.25:
        s.add("Not", x)
        return
    other = s.pick(lambda v: v.dtype == T.BOOL and broadcasts(v.shape, x.shape))
    if other is None or s.rng.random() < 0.5:
        shape = s.rng.choice([(), (1,), x.shape])
        other = s.number(T.BOOL, s.rng.random() < 0.5, shape)
    s.add(s.rng.choice(["And", "Or", "Xor"]), *((x, other) if s.rng.random() < 0.5 else (other, x)))


def bits(s: Scope) -> None:
    x = s.pick(lambda v: v.dtype in INTS)
    if x is None:
        return
    if s.rng.random() < 0.3:
        s.add("BitwiseNot", x)
        return
    other = s.random_constant(x.dtype, s.rng.choice([(), (1,), x.shape]), odd=True)
    s.add(s.rng.choice(["BitwiseAnd", "BitwiseOr", "BitwiseXor"]), x, other)


def modulo(s: Scope) -> None:
    x = s.pick(lambda v: v.dtype in INTS)
    if x is not None and s.opset >= 10:
        other = s.random_positive(x.dtype, s.rng.choice([(), (1,), x.shape]))
        s.add("Mod", x, other, fmod=s.rng.choice([0, 0, 1]))


def cast(s: Scope) -> None:
    """Casts, chains of them; floats that are no plain numbers go to no integer."""
    x = s.pick(lambda v: v.dtype != T.STRING)
    if x is None:
        return
    for _ in range(s.rng.randint(1, 2)):
        target = s.rng.choice([*FLOATS, *FLOAT8[:2], *INTS, *INT4, T.BOOL, T.FLOAT, T.FLOAT])
        if s.opset < LEAST_OPSET.get(target, 0) or not _may_cast(s, x, target):
            return
        found = s.add("Cast", x, to=target)
        if found is None:
            return
        x = found


def _may_cast(s: Scope, x: Value, target: int) -> bool:
    floats = (*FLOATS, *FLOAT8)
    if target in INT4 and x.dtype in floats:
        return False
    if x.dtype not in floats or target in FLOATS:
        return target not in FLOAT8 or s.is_tame(x)
    return s.is_tame(x) and target not in UNSIGNED


def cast_like(s: Scope) -> None:
    x, like = s.pick_float(), s.pick_float()
    if x is not None and like is not None and s.opset >= 15:
        s.add("CastLike", x, like)


def one_hot(s: Scope) -> None:
    x = s.pick(lambda v: v.dtype in (T.INT32, T.INT64) and v.rank <= 3 and s.is_tame(v))
    if x is None or s.opset < 11:
        return
    values = s.random_constant(T.FLOAT, (2,), odd=s.rng.random() < 0.2)
    s.add("OneHot", x, s.ints([4], ()), values, axis=s.rng.choice([-1, 0]))


def clip(s: Scope) -> None:
    x = s.pick(lambda v: v.dtype in (*FLOATS[:3], T.INT32, T.INT64))
    if x is None:
        return
    if s.opset < 11:
        s.add("Clip", x, min=-1.0, max=1.0)
        return
    low = s.number(x.dtype, -1) if s.rng.random() < 0.7 else None
    high = s.number(x.dtype, 2) if s.rng.random() < 0.7 else None
    s.add("Clip", x, low, *([high] if high else []))


def reduce(s: Scope) -> None:
    """Reductions, over no axis and over empty ones too."""
    x = s.pick(lambda v: v.dtype in (*FLOATS[:3], T.INT32, T.INT64))
    if x is None:
        return
    op = s.rng.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"])
    op = s.rng.choice([op, op, "ReduceL2", "ReduceSumSquare", "ReduceL1"])
    if x.size == 0 and op in ("ReduceMean", "ReduceMax", "ReduceMin"):
        return
    axes = sorted(s.rng.sample(range(x.rank), s.rng.randint(0, x.rank)))
    if s.opset >= 11 and s.rng.random() < 0.4:
        axes = [a - x.rank for a in axes]
    attrs = {"keepdims": s.rng.choice([0, 1])}
    if s.opset < (13 if op == "ReduceSum" else 18):
        s.add(op, x, **attrs, **({"axes": axes} if axes else {}))
    elif axes or s.rng.random() < 0.5:
        noop = s.rng.choice([0, 1]) if not axes else 0
        s.add(op, x, s.ints(axes, (len(axes),)), **attrs, noop_with_empty_axes=noop)
    else:
        s.add(op, x, **attrs)


def running_sum(s: Scope) -> None:
    x = s.pick(lambda v: v.rank >= 1 and v.dtype in (T.FLOAT, T.DOUBLE, T.INT32, T.INT64))
    if x is not None and s.opset >= 11:
        axis = s.ints([s.rng.randrange(-x.rank, x.rank)], ())
        s.add("CumSum", x, axis, exclusive=s.rng.choice([0, 0, 1]), reverse=s.rng.choice([0, 0, 1]))


def choose(s: Scope) -> None:
    """Positions of the extremes."""
    x = s.pick_steady((*FLOATS[:2], T.INT32, T.INT64))
    if x is None or not x.rank or 0 in x.shape:
        return
    axis = s.rng.randrange(x.rank)
    if s.rng.random() < 0.6:
        s.add(s.rng.choice(["ArgMax", "ArgMin"]), x, axis=axis, keepdims=s.rng.choice([0, 1]))
    elif s.opset >= 11:
        k = s.ints([s.rng.randint(1, x.shape[axis])])
        s.add_many("TopK", x, k, outputs=2, axis=axis, shape=None)


def matmul(s: Scope) -> None:
    x = s.pick(lambda v: v.rank >= 1 and v.dtype in (*FLOATS, T.INT32))
    if x is None:
        return
    inner = x.shape[-1]
    other = None
    if s.rng.random() < 0.3:
        other = s.pick(lambda v: v.dtype == x.dtype and v.rank >= 2 and v.shape[-2] == inner)
    if other is None:
        other = s.random_constant(x.dtype, (inner, s.rng.choice([1, 2, 4])), odd=False)
    found = s.add("MatMul", x, other)
    if found is not None and s.rng.random() < 0.5 and found.rank:
        s.add("Add", found, s.random_constant(x.dtype, found.shape[-1:], odd=False))


def gemm(s: Scope) -> None:
    x = s.pick(lambda v: v.rank == 2 and v.dtype in FLOATS[:3])
    if x is None:
        return
    trans_a, trans_b = s.rng.choice([0, 0, 1]), s.rng.choice([0, 1])
    inner, rows = (x.shape[0], x.shape[1]) if trans_a else (x.shape[1], x.shape[0])
    w = s.random_constant(x.dtype, (3, inner) if trans_b else (inner, 3), odd=False)
    shape = s.rng.choice([(3,), (1, 3), (rows, 1), (rows, 3), ()])
    bias = [s.random_constant(x.dtype, shape, odd=False)] if s.rng.random() < 0.7 else []
    if not bias and s.opset < 11:
        return
    attrs = {"alpha": 0.5} if s.rng.random() < 0.3 else {}
    s.add("Gemm", x, w, *bias, transA=trans_a, transB=trans_b, **attrs)


def einsum(s: Scope) -> None:
    x = s.pick(lambda v: v.rank in (2, 3) and v.dtype in FLOATS[:2])
    if x is None or s.opset < 12:
        return
    w = s.random_constant(x.dtype, (x.shape[-1], 3), odd=False)
    s.add("Einsum", x, w, equation="ij,jk->ik" if x.rank == 2 else "bij,jk->bik")


def softmax(s: Scope) -> None:
    x = s.pick_float(1)
    if x is None:
        return
    axis = s.rng.choice([x.rank - 1, *range(x.rank)])
    axis = axis - x.rank if s.opset >= 11 and s.rng.random() < 0.5 else axis
    s.add(s.rng.choice(["Softmax", "Softmax", "LogSoftmax"]), x, axis=axis)


def quantize(s: Scope) -> None:
    """Linear quantization and back."""
    x = s.pick_steady((T.FLOAT,))
    if x is None or s.opset < 10:
        return
    scale = s.number(T.FLOAT, s.rng.choice([0.5, 0.125]))
    zero = s.number(s.rng.choice([T.INT8, T.UINT8]), 3)
    low = s.add("QuantizeLinear", x, scale, zero)
    if low is not None:
        s.add("DequantizeLinear", low, scale, zero)


def variadic(s: Scope) -> None:
    x = s.pick(lambda v: v.dtype in FLOATS[:2])
    if x is None:
        return
    others = [x, s.random_constant(x.dtype, s.rng.choice([(), x.shape]), odd=False)]
    s.add(s.rng.choice(["Sum", "Mean", "Max", "Min"]), *others[: s.rng.randint(1, 2)])


def nan_tests(s: Scope) -> None:
    x = s.pick(lambda v: v.dtype in FLOATS)
    if x is not None and s.is_steady(x):
        s.add(s.rng.choice(["IsNaN", "IsInf"]), x)


ARITHMETIC = {
    unary: 7,
    binary: 8,
    neutral: 5,
    compare: 3,
    logic: 3,
    bits: 1,
    modulo: 1,
    cast: 5,
    cast_like: 1,
    one_hot: 1,
    clip: 2,
    reduce: 4,
    running_sum: 1,
    choose: 1,
    matmul: 4,
    gemm: 2,
    einsum: 1,
    softmax: 2,
    quantize: 1,
    variadic: 1,
    nan_tests: 1,
}
"""How often each is taken, relative to the others."""
