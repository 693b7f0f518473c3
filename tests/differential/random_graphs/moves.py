"""Ops that move elements: every one must hand them on bit for bit."""

from __future__ import annotations

from onnx import TensorProto as T
from onnx import numpy_helper

from random_graphs.arrays import FLOATS, make
from random_graphs.builder import Scope, Value


def transpose(s: Scope) -> None:
    x = s.pick(lambda v: v.rank >= 1)
    if x is None:
        return
    for _ in range(s.rng.randint(1, 3)):  # chains, for merging
        order = list(range(x.rank))
        s.rng.shuffle(order)
        found = s.add("Transpose", x, perm=order) if s.rng.random() < 0.9 else s.add("Transpose", x)
        if found is None:
            return
        x = found


def reshape(s: Scope) -> None:
    x = s.pick()
    if x is None:
        return
    for _ in range(s.rng.randint(1, 3)):
        sizes = _factors(s, x)
        target = _target(s, x, list(sizes))
        if target is None:
            return
        zeros = 0 in sizes and s.opset >= 14
        if 0 in sizes and not zeros and [*x.shape, 1][: len(sizes)] != sizes:
            return  # 0 would stand for the size of x there
        found = s.add("Reshape", x, target, shape=sizes, **({"allowzero": 1} if zeros else {}))
        if found is None:
            return
        x = found


def _target(s: Scope, x: Value, sizes: list[int]) -> Value | None:
    """A constant target, now and then with 0 or -1, or one computed from Shape."""
    leads = bool(x.size and x.rank and sizes) and sizes[0] == x.shape[0]
    if leads and s.rng.random() < 0.3:
        return _computed_shape(s, x, sizes)
    if x.size and sizes and s.rng.random() < 0.3:
        sizes[s.rng.randrange(len(sizes))] = -1
    elif leads and s.rng.random() < 0.3:
        sizes[0] = 0
    return s.ints(sizes, (len(sizes),))


def _factors(s: Scope, x: Value) -> list[int]:
    shape = [d for d in x.shape if d != 1 or s.rng.random() < 0.5]
    choice = s.rng.random()
    if choice < 0.3:
        return [x.size]
    if choice < 0.6 and len(shape) >= 2:
        at = s.rng.randrange(len(shape) - 1)
        return [*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]]
    if choice < 0.8:
        for at, size in enumerate(shape):
            for factor in (2, 3):
                if size and size % factor == 0:
                    return [*shape[:at], factor, size // factor, *shape[at + 1 :]]
    shape.insert(s.rng.randint(0, len(shape)), 1)
    return shape


def _computed_shape(s: Scope, x: Value, sizes: list[int]) -> Value | None:
    """``Concat(Gather(Shape(x), 0), rest)`` with -1 somewhere in the rest."""
    dims = s.add("Shape", x, keep=False)
    head = s.add("Gather", dims, s.ints([0], ()), keep=False) if dims else None
    row = unsqueezed(s, head, [0]) if head else None
    if row is None or len(sizes) == 1:
        return row
    rest = sizes[1:]
    rest[s.rng.randrange(len(rest))] = -1
    return s.add("Concat", row, s.ints(rest), axis=0, keep=False)


def unsqueezed(s: Scope, x: Value, axes: list[int], *, keep: bool = False) -> Value | None:
    if s.opset < 13:
        return s.add("Unsqueeze", x, axes=axes, keep=keep)
    return s.add("Unsqueeze", x, s.ints(axes, (len(axes),)), keep=keep)


def unsqueeze(s: Scope) -> None:
    x = s.pick(lambda v: v.rank <= 3)
    if x is not None:
        axis = s.rng.randint(-x.rank - 1 if s.opset >= 11 else 0, x.rank)
        unsqueezed(s, x, [axis], keep=True)


def squeeze(s: Scope) -> None:
    x = s.pick(lambda v: 1 in v.shape)
    if x is None:
        return
    axes = [i for i, d in enumerate(x.shape) if d == 1]
    some = axes[: s.rng.randint(1, len(axes))]
    if s.rng.random() < 0.2 and not s.symbols:
        s.add("Squeeze", x)
    elif s.opset < 13:
        s.add("Squeeze", x, axes=some)
    else:
        s.add("Squeeze", x, s.ints(some, (len(some),)))


def flatten(s: Scope) -> None:
    x = s.pick()
    if x is not None:
        s.add("Flatten", x, axis=s.rng.randint(-x.rank if s.opset >= 11 else 0, x.rank))


def cut(s: Scope) -> None:
    """Slices, chains of them, steps and negative ends too."""
    x = s.pick(lambda v: v.rank >= 1)
    if x is None:
        return
    for _ in range(s.rng.randint(1, 2)):
        axis = s.rng.randrange(x.rank)
        size = x.shape[axis]
        start = s.rng.choice([0, 1, -2, size // 2, -(2**31), size + 3])
        end = s.rng.choice([size, 2**31 - 1, 2**63 - 1, -1, size // 2, 0])
        step = s.rng.choice([1, 1, 1, 2, -1, -2])
        if step < 0:
            start, end = s.rng.choice([(-1, -(2**63)), (2**31 - 1, 0), (size - 1, -size - 1)])
        if s.opset < 10:
            found = s.add("Slice", x, starts=[start], ends=[end], axes=[axis])
        else:
            ints = [s.ints([n]) for n in (start, end, axis)]
            found = s.add("Slice", x, *ints, *([s.ints([step])] if step != 1 else []))
        if found is None:
            return
        x = found


def halves(s: Scope) -> None:
    """Two slices of one axis, as rotary embedding takes them, and often their Concat."""
    x = s.pick(lambda v: v.rank >= 1 and v.shape[-1] >= 2)
    if x is None or s.opset < 10:
        return
    at = s.rng.randint(1, x.shape[-1] - 1)
    axis = s.ints([-1])
    low = s.add("Slice", x, s.ints([0]), s.ints([at]), axis)
    high = s.add("Slice", x, s.ints([at]), s.ints([2**63 - 1]), axis)
    if low and high and s.rng.random() < 0.7:
        pair = (low, high) if s.rng.random() < 0.6 else (high, low)
        s.add("Concat", *pair, axis=s.rng.choice([-1, x.rank - 1]) if s.opset >= 11 else x.rank - 1)


def concat(s: Scope) -> None:
    x = s.pick(lambda v: v.rank >= 1)
    if x is None:
        return
    axis = s.rng.randrange(x.rank)
    rest = [d for i, d in enumerate(x.shape) if i != axis]
    parts = [x]
    for _ in range(s.rng.randint(0, 2)):
        other = s.pick(
            lambda v: (
                v.dtype == x.dtype
                and v.rank == x.rank
                and [d for i, d in enumerate(v.shape) if i != axis] == rest
            )
        )
        parts.append(other or x)
    if s.rng.random() < 0.2 and not s.symbols:
        empty = [0 if i == axis else d for i, d in enumerate(x.shape)]
        parts.insert(s.rng.randint(0, 1), s.random_constant(x.dtype, empty, odd=False))
    s.add("Concat", *parts, axis=axis)


def split(s: Scope) -> None:
    x = s.pick(lambda v: v.rank >= 1 and v.shape[-1] >= 2)
    if x is None:
        return
    axis, size = x.rank - 1, x.shape[-1]
    first = s.rng.randint(0, size)
    sizes = [first, size - first]
    if s.rng.random() < 0.4 and s.opset >= 18:
        found = s.add_many("Split", x, outputs=2, axis=axis, num_outputs=2)
    elif s.opset >= 13:
        found = s.add_many("Split", x, s.ints(sizes), outputs=2, axis=axis)
    else:
        found = s.add_many("Split", x, outputs=2, axis=axis, split=sizes)
    if len(found) == 2 and s.rng.random() < 0.4:
        s.add("Concat", *found, axis=axis)


def expand(s: Scope) -> None:
    x = s.pick(lambda v: v.rank <= 4)
    if x is None:
        return
    shape = [s.rng.choice([2, 3]) if d == 1 and s.rng.random() < 0.6 else d for d in x.shape]
    if s.rng.random() < 0.3:
        shape = [1 if s.rng.random() < 0.5 else d for d in shape]
    if s.rng.random() < 0.3:
        shape.insert(0, s.rng.choice([1, 2]))
    s.add("Expand", x, s.ints(shape, (len(shape),)))


def tile(s: Scope) -> None:
    x = s.pick(lambda v: 1 <= v.rank <= 4)
    if x is not None:
        s.add("Tile", x, s.ints([s.rng.choice([1, 1, 2, 0]) for _ in x.shape]))


def gather(s: Scope) -> None:
    x = s.pick(lambda v: v.rank >= 1 and 0 not in v.shape)
    if x is None:
        return
    axis = s.rng.randrange(x.rank)
    size = x.shape[axis]
    low = -size if s.opset >= 11 else 0
    choice = s.rng.random()
    if choice < 0.3:
        index = s.ints(range(size)) if s.rng.random() < 0.7 else s.ints(range(-size, 0))
    elif choice < 0.6:
        index = s.ints([s.rng.randrange(low, size)], ())
    elif choice < 0.8:
        index = s.ints([s.rng.randrange(low, size) for _ in range(3)])
    else:
        index = s.ints([s.rng.randrange(low, size) for _ in range(2)], (1, 2))
    s.add("Gather", x, index, axis=s.rng.choice([axis, axis - x.rank]) if s.opset >= 11 else axis)


def gather_elements(s: Scope) -> None:
    x = s.pick(lambda v: v.rank >= 1 and 0 not in v.shape)
    if x is None or s.opset < 11:
        return
    axis = s.rng.randrange(x.rank)
    count = x.size
    s.add(
        "GatherElements",
        x,
        s.ints([s.rng.randrange(-x.shape[axis], x.shape[axis]) for _ in range(count)], x.shape),
        axis=axis,
    )


def gather_nd(s: Scope) -> None:
    x = s.pick(lambda v: v.rank >= 2 and 0 not in v.shape)
    if x is None or s.opset < 11:
        return
    rows = [[s.rng.randrange(-d, d) for d in x.shape[:2]] for _ in range(2)]
    s.add("GatherND", x, s.ints([n for row in rows for n in row], (2, 2)))


def pad(s: Scope) -> None:
    x = s.pick(lambda v: v.rank >= 1)
    if x is None or s.opset < 11:
        return
    pads = [s.rng.choice([0, 0, 1]) for _ in range(2 * x.rank)]
    s.add("Pad", x, s.ints(pads))


def where(s: Scope) -> None:
    test = s.pick(lambda v: v.dtype == T.BOOL)
    x = s.pick(lambda v: v.rank <= 4)
    if x is None:
        return
    if test is None or s.rng.random() < 0.2:
        shape = x.shape if s.rng.random() < 0.5 else ()
        test = s.number(T.BOOL, s.rng.random() < 0.5, shape)
    other = s.pick(lambda v: v.dtype == x.dtype) if s.rng.random() < 0.6 else None
    if other is None:
        other = s.random_constant(x.dtype, (), odd=s.rng.random() < 0.3)
    pair = (x, other) if s.rng.random() < 0.5 else (other, x)
    s.add("Where", test, *pair)


def identity(s: Scope) -> None:
    x = s.pick()
    if x is not None:
        s.add("Identity", x)


def size(s: Scope) -> None:
    x = s.pick()
    if x is not None:
        s.add("Size", x)


def dropout(s: Scope) -> None:
    x = s.pick_float()
    if x is None:
        return
    count = s.rng.choice([1, 2])
    if s.opset < 12:
        s.add("Dropout", x, ratio=0.5)
    elif s.rng.random() < 0.5:
        s.add_many("Dropout", x, s.number(T.FLOAT, 0.5), outputs=count)
    else:
        s.add_many("Dropout", x, outputs=count)


def scatter(s: Scope) -> None:
    x = s.pick(lambda v: v.rank >= 1 and v.shape[0] >= 1 and 0 not in v.shape)
    if x is None or s.opset < 11:
        return
    rows = s.rng.sample(range(x.shape[0]), s.rng.randint(1, x.shape[0]))
    updates = s.random_constant(x.dtype, (len(rows), *x.shape[1:]), odd=False)
    s.add("ScatterND", x, s.ints(rows, (len(rows), 1)), updates)


def positions(s: Scope) -> None:
    """A mask of positions made from a shape, as exporters do."""
    x = s.pick(lambda v: v.rank >= 1)
    if x is None or s.opset < 13:
        return
    axis = s.rng.randrange(x.rank)
    dims = s.add("Shape", x)
    size = s.add("Gather", dims, s.ints([axis], ())) if dims else None
    if size is None:
        return
    start, step = s.rng.choice([0, 0, 1]), s.rng.choice([1, 1, 2])
    count = len(range(start, x.shape[axis], step))
    line = s.add("Range", s.ints([start], ()), size, s.ints([step], ()), shape=[count])
    if line is None:
        return
    column = unsqueezed(s, line, [1]) if s.rng.random() < 0.6 else s.ints([0, 2], (2, 1))
    if column is not None:
        op = s.rng.choice(["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Sub"])
        s.add(op, *((line, column) if s.rng.random() < 0.5 else (column, line)))


def constant_of_shape(s: Scope) -> None:
    x = s.pick(lambda v: 1 <= v.rank <= 3)
    if x is None or s.opset < 9:
        return
    dims = s.add("Shape", x)
    dtype = x.dtype if x.dtype in (*FLOATS[:3], T.INT64, T.INT32, T.BOOL) else T.FLOAT
    fill = numpy_helper.from_array(make(s.rng, dtype, (1,), odd=s.rng.random() < 0.3))
    if dims is not None:
        s.add("ConstantOfShape", dims, value=fill, shape=x.shape)


def triangle(s: Scope) -> None:
    """Trilu of what a mask may be."""
    x = s.pick(lambda v: v.rank >= 2)
    if x is not None and s.opset >= 14:
        if s.rng.random() < 0.5:
            s.add("Trilu", x, s.ints([s.rng.choice([-1, 0, 1])], ()), upper=s.rng.choice([0, 1]))
        else:
            s.add("Trilu", x, upper=s.rng.choice([0, 1]))


MOVES = {
    transpose: 5,
    reshape: 6,
    unsqueeze: 3,
    squeeze: 3,
    flatten: 1,
    cut: 5,
    halves: 2,
    concat: 4,
    split: 3,
    expand: 3,
    tile: 1,
    gather: 4,
    gather_elements: 1,
    gather_nd: 1,
    pad: 1,
    where: 4,
    identity: 2,
    size: 1,
    dropout: 1,
    scatter: 1,
    positions: 2,
    constant_of_shape: 1,
    triangle: 1,
}
"""How often each is taken, relative to the others."""
