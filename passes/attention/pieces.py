"""Keys and values in pieces: scores joined before the softmax, probabilities parted after it.

    [Q K1' | Q K2'] = Q [K1 | K2]'            p1 V1 + p2 V2 = [p1 | p2] [V1 ; V2]

Both hold for any matrices. The whole is put into the graph, to be matched in place of the pieces;
if matching fails it is taken out again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gecompiler.ir.dims import Dim
from gecompiler.ir.op import Op
from gecompiler.passes.attention.builder import Builder
from gecompiler.passes.attention.contraction import Contraction, contraction
from gecompiler.passes.attention.elements import Elements
from gecompiler.passes.attention.noops import is_noop, origin, readers
from gecompiler.passes.attention.refusal import Refusal, at

MAX_DEPTH = 32

_ALIKE = ("Cast", "Identity", "Tanh", "Neg", "Dropout")
_PAIRS = ("Add", "Sub", "Mul", "Div")


@dataclass
class Joining:
    """Pieces of scores, made in the same way one by one, being made as one.

    ``axis`` is that of the keys; ``ops`` are what the whole replaces.
    """

    e: Elements
    leads: Callable[[str], int]
    joint: Op
    axis: int
    ops: list[Op]

    def __post_init__(self) -> None:
        self.build = Builder(self.e.graph, scope=f"{self.joint.name}/")

    def whole(self, values: Sequence[str], depth: int = 0) -> str:
        """One value that is the pieces behind each other; Refusal where they differ too much."""
        made = [self._maker(value) for value in values]
        first = made[0]
        if depth > MAX_DEPTH or any(op.kind != first.kind for op in made):
            raise at(self.joint, "joins scores that are made in different ways")
        self.ops += made
        products = [contraction(self.e.graph, op) for op in made]
        if first.is_("MatMul"):
            return self._product([p for p in products if p is not None])
        if first.is_(*_ALIKE) and all(op.attrs == first.attrs for op in made):
            inner = self.whole([op.inputs[0] for op in made], depth + 1)
            shape = self.build.shape(inner)
            dtype = self.build.dtype(first.outputs[0])
            inputs = (inner, *first.inputs[1:])
            return self.build.emit(first.op_type, inputs, dtype, shape, **dict(first.attrs))
        if first.is_(*_PAIRS):
            return self._pair(made, depth)
        raise at(first, "makes a piece of scores in a way that cannot be joined")

    def _maker(self, value: str) -> Op:
        op = self.e.graph.producer(value)
        while op is not None and is_noop(self.e, op):
            self.ops.append(op)
            op = self.e.graph.producer(op.inputs[0])
        if op is None or op.domain:
            raise at(self.joint, f"joins {value!r}, which is no product of Q and K")
        return op

    def _product(self, products: Sequence[Contraction]) -> str:
        """Q times all keys: the operand that all have in common is Q."""
        rank = len(self.build.shape(products[0].output))
        keys = 1 if self.axis == rank - 1 else 0
        common = {origin(self.e, p.operands[1 - keys]) for p in products}
        if len(common) != 1 or self.axis < rank - 2:
            raise at(self.joint, "joins products of different Q")
        parts = [p.operands[keys] for p in products]
        shapes = [self.build.shape(part) for part in parts]
        if any(len(shape) != len(shapes[0]) or len(shape) < 2 for shape in shapes):
            raise at(self.joint, "joins products with keys of different ranks")
        place = len(shapes[0]) - (1 if keys else 2)
        joined = self.build.concat(self._levelled(parts, place), place)
        q = products[0].operands[1 - keys]
        self.build.sources = (*self.build.sources, q, *parts)
        total = sum((self.build.shape(p.output)[self.axis] for p in products), 0)
        shape = list(self.build.shape(products[0].output))
        shape[self.axis] = total
        inputs = (q, joined) if keys else (joined, q)
        return self.build.emit("MatMul", inputs, self.build.dtype(q), tuple(shape))

    def _levelled(self, parts: Sequence[str], place: int) -> list[str]:
        """The parts with the same sizes beside the axis that they are joined along."""
        shapes = [self.build.shape(part) for part in parts]
        common = [next((s[n] for s in shapes if s[n] != 1), 1) for n in range(len(shapes[0]))]
        found: list[str] = []
        for part, shape in zip(parts, shapes, strict=True):
            wanted = tuple(shape[n] if n == place else common[n] for n in range(len(shape)))
            found.append(self.build.expand(part, wanted))
        return found

    def _pair(self, made: Sequence[Op], depth: int) -> str:
        """Pieces with a factor or a bias each, or with one for all."""
        indices = [int(self.leads(op.inputs[1]) > self.leads(op.inputs[0])) for op in made]
        ordered = made[0].is_("Sub", "Div")
        if ordered and (len(set(indices)) != 1 or (made[0].is_("Div") and indices[0] != 0)):
            raise at(made[0], "has its operands the other way round than another piece")
        inner = self.whole([op.inputs[n] for op, n in zip(made, indices, strict=True)], depth + 1)
        others = [op.inputs[1 - n] for op, n in zip(made, indices, strict=True)]
        other = self._beside(made, others)
        pair = (inner, other) if indices[0] == 0 else (other, inner)
        return self.build.binary(made[0].op_type, *pair)

    def _beside(self, made: Sequence[Op], others: Sequence[str]) -> str:
        shapes = [self.build.shape(other) for other in others]
        rank = len(self.build.shape(made[0].outputs[0]))
        place = self.axis - (rank - len(shapes[0]))
        flat = all(self.axis - (rank - len(s)) < 0 or s[place] == 1 for s in shapes)
        if flat and (len({origin(self.e, o) for o in others}) == 1 or self._equal(others)):
            return others[0]
        wide = [
            self.build.expand(other, self.build.shape(op.outputs[0]))
            for op, other in zip(made, others, strict=True)
        ]
        return self.build.concat(wide, self.axis)

    def _equal(self, values: Sequence[str]) -> bool:
        found = [self.e.uniform(value) for value in values]
        return None not in found and len(set(found)) == 1


# ---------------------------------------------------------------- after the softmax


@dataclass(frozen=True, slots=True)
class Parted:
    """A product with all values, and the sum over pieces that it stands for."""

    product: Contraction
    out: str
    ops: tuple[Op, ...]


def parted(e: Elements, value: str, axis: int, found: Sequence[tuple[Op, str]]) -> Parted | None:
    """The sum of products of pieces of the probabilities along ``axis``; None: they are none.

    ``found`` are the readers of ``value``: one Split, or several Slices.
    """
    parts = _parts(e, value, axis, [op for op, _ in found])
    if parts is None or len(parts) < 2:
        return None
    ops: list[Op] = list(dict.fromkeys(op for op, _ in found))
    products: list[Op] = []
    for part in parts:
        users = readers(e, part)
        if len(users) != 1 or not users[0][0].is_("MatMul") or users[0][0].inputs[0] != users[0][1]:
            raise Refusal(f"{part!r}, a piece of the probabilities, is not just multiplied by V")
        products.append(users[0][0])
    out, adds = _sum(e, products)
    build = Builder(e.graph, scope=f"{found[0][0].name}/")
    build.sources = tuple(op.inputs[1] for op in products)
    values = [op.inputs[1] for op in products]
    shapes = [build.shape(v) for v in values]
    rank = len(build.shape(value))
    if axis != rank - 1 or any(len(s) != len(shapes[0]) or len(s) < 2 for s in shapes):
        raise at(products[0], "multiplies a piece of the probabilities by V of another rank")
    if any(s[:-2] != shapes[0][:-2] for s in shapes):
        raise at(products[0], "has a piece of V of another batch")
    whole = build.concat(values, len(shapes[0]) - 2)
    shape, dtype = build.shape(products[0].outputs[0]), build.dtype(values[0])
    name = build.emit("MatMul", (value, whole), dtype, shape)
    made = e.graph.producer(name)
    assert made is not None
    product = contraction(e.graph, made)
    assert product is not None
    return Parted(product, out, (*ops, *products, *adds))


def _parts(e: Elements, value: str, axis: int, users: Sequence[Op]) -> list[str] | None:
    """The pieces in order, if they are all of the value."""
    if len(users) == 1 and users[0].is_("Split"):
        shape = e.shape(value)
        on_axis = shape is not None and users[0].attr("axis", 0) % len(shape) == axis
        # A piece that nobody reads is dropped, as a sink's column is.
        whole = all(o and (e.graph.uses(o) or e.graph.is_output(o)) for o in users[0].outputs)
        return list(users[0].outputs) if on_axis and whole else None
    if not all(op.is_("Slice") for op in users):
        return None
    places: list[tuple[Dim, Dim, str]] = []
    for op in users:
        place = _place(e, op, value, axis)
        if place is None:
            return None
        places.append((*place, op.outputs[0]))
    ordered: list[str] = []
    end: Dim = 0
    while places:
        following = next((p for p in places if p[0] == end), None)
        if following is None:
            return None
        places.remove(following)
        ordered.append(following[2])
        end = end + following[1]
    shape = e.shape(value)
    return ordered if shape is not None and end == shape[axis] else None


def _place(e: Elements, op: Op, value: str, axis: int) -> tuple[Dim, Dim] | None:
    """Where a Slice along the axis begins, and how long it is."""
    shape, after = e.shape(value), e.shape(op.outputs[0])
    starts = e.dims(op.input(1)) if op.input(1) else op.attr("starts")
    axes = e.ints(op.input(3)) if op.input(3) else op.attr("axes", None)
    steps = e.ints(op.input(4)) if op.input(4) else (1,)
    if shape is None or after is None or starts is None or axes is None or steps != (1,):
        return None
    if len(starts) != 1 or tuple(a % len(shape) for a in axes) != (axis,):
        return None
    begin: Dim = starts[0]
    if isinstance(begin, int) and begin < 0:
        begin = shape[axis] + begin
    return begin, after[axis]


def _sum(e: Elements, products: Sequence[Op]) -> tuple[str, list[Op]]:
    """The value that is the sum of all products, and the ops that add them up."""
    terms, adds = [op.outputs[0] for op in products], list[Op]()
    while len(terms) > 1:
        found = None
        for term in terms:
            users = readers(e, term)
            if len(users) == 1 and users[0][0].is_("Add", "Sum"):
                op = users[0][0]
                if all(origin(e, name) in terms for name in op.inputs):
                    found = op
                    break
        if found is None:
            raise Refusal(f"{terms[0]!r}, of a piece of V, is not added to the other pieces")
        adds.append(found)
        gone = {origin(e, name) for name in found.inputs}
        terms = [t for t in terms if t not in gone] + [found.outputs[0]]
    return terms[0], adds


def piece_of(e: Elements, value: str) -> tuple[Op, str, int] | None:
    """The Split or Slice that a value is one entry of, what is cut, and which entry it is.

    Entries are those along the last axis.
    """
    op, after = e.graph.producer(value), e.shape(value)
    if op is None or not op.is_("Split", "Slice") or not after or after[-1] != 1:
        return None
    whole = e.shape(op.inputs[0])
    if whole is None:
        return None
    if op.is_("Split"):
        every = [e.shape(o) for o in op.outputs]
        on_last = op.attr("axis", 0) % len(whole) == len(whole) - 1
        if not on_last or any(s is None or s[-1] != 1 for s in every):
            return None
        return op, op.inputs[0], op.outputs.index(value)
    place = _place(e, op, op.inputs[0], len(whole) - 1)
    if place is None or not isinstance(place[0], int):
        return None
    return op, op.inputs[0], place[0]
