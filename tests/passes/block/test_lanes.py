"""The normal form of lanes says what a value is: judged on random graphs by their numbers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from block_help import Net, evaluate, feeds_of
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir import parse
from gecompiler.ir.infer import infer_types
from gecompiler.passes.block.lane_reader import LaneReader
from gecompiler.passes.block.lanes import Lanes
from gecompiler.passes.canonical.value_facts import ValueFacts
from gecompiler.passes.rewriting import Rewriter

LEAD = ("b", 2)
SIZES = {"b": 3}


class Maker:
    """A random graph of moves, signs, products with tables and sums on (b, 2, ...) tensors."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.net = Net()
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.shapes[self.net.input("x", "f32[b, 2, 8]")] = (8,)
        self.tables = [self.net.input(n, f"f32[{k}]") for n, k in (("c", "1, 2, 8"), ("t", "8"))]
        self.tables.append(self.net.input("wide", "f32[b, 2, 8]"))
        self.tables += self.views_of_tables()
        for _ in range(self.draw.randrange(3, 14)):
            self.draw.choice(self.MOVES)(self)
        self.value = list(self.shapes)[-1]
        self.net.out(self.value)

    def views_of_tables(self) -> list[str]:
        """Tables with ones that came or went, and columns that are there twice."""
        net, (c, t, wide) = self.net, self.tables
        half = net.cut(t, 0, 4)
        turned = net("Transpose", net("Unsqueeze", wide, net.ints(1)), perm=[1, 0, 2, 3])
        tiled = net("Tile", net("Unsqueeze", half, net.ints(0, 2)), net.ints(1, 1, 2))
        return [
            net("Squeeze", c, net.ints(0)),
            net("Neg", net("Unsqueeze", t, net.ints(0))),
            net("Concat", half, net("Neg", half), axis=-1),
            net("Reshape", tiled, net.ints(1, 1, 8)),
            net("Squeeze", turned, net.ints(0)),
            net("Unsqueeze", net("Squeeze", net.cut(t, 3, 4), net.ints(0)), net.ints(0)),
        ]

    def pick(self) -> tuple[str, tuple[int, ...]]:
        name = self.draw.choice(list(self.shapes)[-4:])
        return name, self.shapes[name]

    def add(self, value: str, tail: tuple[int, ...]) -> None:
        self.shapes[value] = tail

    def neg(self) -> None:
        value, tail = self.pick()
        self.add(self.net("Neg", value), tail)

    def cut(self) -> None:
        value, tail = self.pick()
        axis = self.draw.randrange(len(tail))
        if tail[axis] < 2:
            return
        step = self.draw.choice([1, 2, -1])
        start = self.draw.randrange(tail[axis] - 1)
        bounds = (start, 2**62, step) if step > 0 else (tail[axis] - 1, -(2**62), -1)
        kept = len(range(tail[axis])[slice(start, None, step)]) if step > 0 else tail[axis]
        limits = [self.net.ints(n) for n in (bounds[0], bounds[1], axis - len(tail), bounds[2])]
        out = self.net("Slice", value, *limits)
        self.add(out, (*tail[:axis], kept, *tail[axis + 1 :]))

    def split(self) -> None:
        value, tail = self.pick()
        axis = self.draw.randrange(len(tail))
        if tail[axis] < 2:
            return
        first = self.draw.randrange(1, tail[axis])
        sizes = (first, tail[axis] - first)
        outs = self.net("Split", value, self.net.ints(*sizes), outputs=2, axis=axis - len(tail))
        for out, size in zip(outs, sizes, strict=True):
            self.add(out, (*tail[:axis], size, *tail[axis + 1 :]))

    def gather(self) -> None:
        value, tail = self.pick()
        axis = self.draw.randrange(len(tail))
        if len(tail) > 1 and self.draw.random() < 0.4:
            place = self.net.const(self.draw.randrange(tail[axis]), "i64")
            out = self.net("Gather", value, place, axis=axis - len(tail))
            self.add(out, (*tail[:axis], *tail[axis + 1 :]))
            return
        places = [
            self.draw.randrange(-tail[axis], tail[axis]) for _ in range(self.draw.choice([2, 4]))
        ]
        out = self.net("Gather", value, self.net.ints(*places), axis=axis - len(tail))
        self.add(out, (*tail[:axis], len(places), *tail[axis + 1 :]))

    def concat(self) -> None:
        value, tail = self.pick()
        axis = self.draw.randrange(len(tail))
        same = [
            n
            for n, t in self.shapes.items()
            if len(t) == len(tail) and t[:axis] == tail[:axis] and t[axis + 1 :] == tail[axis + 1 :]
        ]
        other = self.draw.choice(same)
        size = tail[axis] + self.shapes[other][axis]
        if size <= 16:
            out = self.net("Concat", value, other, axis=axis - len(tail))
            self.add(out, (*tail[:axis], size, *tail[axis + 1 :]))

    def reshape(self) -> None:
        value, tail = self.pick()
        count = int(np.prod(tail))
        options = [t for t in ((count,), (count // 2, 2), (2, count // 2)) if np.prod(t) == count]
        after = self.draw.choice(options)
        self.add(self.net("Reshape", value, self.net.ints(0, 0, *after)), after)

    def unsqueeze(self) -> None:
        value, tail = self.pick()
        if len(tail) == 1:
            self.add(self.net("Unsqueeze", value, self.net.ints(-1)), (*tail, 1))

    def transpose(self) -> None:
        value, tail = self.pick()
        if len(tail) == 2:
            self.add(self.net("Transpose", value, perm=[0, 1, 3, 2]), tail[::-1])

    def expand(self) -> None:
        value, tail = self.pick()
        if tail[-1] == 1:
            after = (*tail[:-1], 2)
            self.add(self.net("Expand", value, self.net.ints(1, 1, *after)), after)

    def product(self) -> None:
        value, tail = self.pick()
        table = self.draw.choice(self.tables)
        if tail == (8,):
            pair = (value, table) if self.draw.random() < 0.5 else (table, value)
            self.add(self.net("Mul", *pair), tail)

    def pairs(self) -> None:
        """A product with a table of several axes, which may make the last one larger."""
        value, tail = self.pick()
        if len(tail) == 2:
            size = self.draw.choice([1, tail[0]])
            last = 2 if tail[1] == 1 else tail[1]
            lead = self.draw.choice(["", "2, ", "1, 2, "])
            table = self.net.input(f"p{len(self.shapes)}", f"f32[{lead}{size}, {last}]")
            self.add(self.net("Mul", table, value), (tail[0], last))

    def add_or_sub(self) -> None:
        value, tail = self.pick()
        other = self.draw.choice([n for n, t in self.shapes.items() if t == tail])
        self.add(self.net(self.draw.choice(["Add", "Sub"]), value, other), tail)

    MOVES = (
        neg, cut, split, gather, concat, reshape, reshape, unsqueeze, transpose, expand,
        product, product, pairs, pairs, add_or_sub,
    )  # fmt: skip


def said(form: Lanes, values: dict[str, Any]) -> Any:
    """What the form says the value is."""
    total = 0
    root = values[form.root]
    for n in range(form.terms):
        lanes = root[..., form.lane[n]] * form.sign[n]
        factors = np.ones((*root.shape[:-1], *form.tail))
        for k, (table, lead, _) in enumerate(form.tables):
            whole = values[table].reshape(*(SIZES.get(str(d), d) for d in lead), -1)
            column = whole[..., np.clip(form.column[n], 0, whole.shape[-1] - 1)]
            factors = np.where(form.table[n] == k, column, factors)
        total = total + lanes * factors
    return total


def test_huge_tensors_are_not_read() -> None:
    net = Net()
    x = net.input("x", "f32[b, 2, 8]")
    many = 2**40
    tiled = net("Tile", x, net.ints(1, 1, many))
    wide = net("Expand", net("Unsqueeze", x, net.ints(-1)), net.ints(1, 1, 1, many))
    net.out(net("Mul", tiled, net.input("t", "f32[1]")), wide)
    graph = parse(net.text)
    facts = infer_types(graph)
    reader = LaneReader(Rewriter(graph, ValueFacts(graph, facts.values)))
    for value in graph.values:
        assert all(form.lane.size <= 2**16 for form in reader.forms(value))


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_forms_say_what_values_are(seed: int, deep: bool) -> None:
    maker = Maker(seed)
    graph = parse(maker.net.text)
    facts = infer_types(graph)
    feeds = feeds_of(graph, SIZES)
    for name in maker.shapes:
        graph.set_outputs([*graph.outputs, name] if name not in graph.inputs else graph.outputs)
    values = {**feeds, **evaluate(graph, feeds)}
    reader = LaneReader(Rewriter(graph, ValueFacts(graph, facts.values)), deep)
    for name, tail in maker.shapes.items():
        forms = reader.forms(name)
        assert forms
        for form in forms:
            assert form.tail == tail[len(tail) - len(form.tail) :]
            if form.root in values and all(t.root in values for t in form.tables):
                np.testing.assert_allclose(said(form, values), values[name], rtol=1e-5, atol=1e-5)
