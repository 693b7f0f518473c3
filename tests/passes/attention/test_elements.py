"""Elements as functions of coordinates: what is said of them is what onnxruntime computes."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from attention_help import run
from element_values import Env, value_of
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir import parse
from gecompiler.ir.dims import symbol
from gecompiler.ir.infer import infer_types
from gecompiler.ir.types import tensor
from gecompiler.passes.attention.elements import (
    Elements,
    Opaque,
    Truth,
)
from gecompiler.passes.attention.predicates import AtMost


class MaskMaker:
    """Random programs that compute integers and booleans the way mask builders do."""

    def __init__(self, seed: int, length: int) -> None:
        self.draw = random.Random(seed)
        self.sizes = {"b": self.draw.choice([1, 2, 3]), "s": self.draw.choice([1, 4, 5])}
        self.lines = ["graph @masks (opset 20) {", "  input %m: i64[b, s]", "  input %f: f32[b, s]"]
        self.lines.append("  input %o: bool[b, 1, s, s]")
        self.count = 0
        self.shapes: dict[str, tuple[str, tuple[Any, ...]]] = {
            "m": ("i64", ("b", "s")),
            "o": ("bool", ("b", 1, "s", "s")),
        }
        for size, axis in (("b", 0), ("s", 1)):
            self.lines.append(f"  %shape_{size} = Shape(%m)")
            at = self.const("i64", "", axis)
            self.lines.append(f"  %size_{size} = Gather(%shape_{size}, %{at})")
            zero, one = self.const("i64", "", 0), self.const("i64", "", 1)
            self.add(f"Range(%{zero}, %size_{size}, %{one})", "i64", (size,))
        for _ in range(length):
            self.draw.choice(self.MOVES)(self)
        self.values = [n for n in self.shapes if n not in ("m", "o")]
        self.lines += [f"  return {', '.join('%' + n for n in self.values)}", "}"]
        self.text = "\n".join(self.lines)

    def const(self, kind: str, shape: str, data: object) -> str:
        self.count += 1
        text = str(data).replace("True", "true").replace("False", "false")
        self.lines.append(f"  const %c{self.count}: {kind}[{shape}] = {text}")
        return f"c{self.count}"

    def add(self, line: str, kind: str, shape: tuple[Any, ...]) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {line}")
        self.shapes[f"v{self.count}"] = (kind, shape)
        return f"v{self.count}"

    def pick(self, *kinds: str, rank: int = 0) -> str | None:
        found = [n for n, (k, s) in self.shapes.items() if k in kinds and len(s) >= rank]
        return self.draw.choice(found) if found else None

    def together(self, a: str, b: str) -> tuple[Any, ...] | None:
        x, y = self.shapes[a][1], self.shapes[b][1]
        rank = max(len(x), len(y))
        x, y = (1,) * (rank - len(x)) + x, (1,) * (rank - len(y)) + y
        if any(m != n and 1 not in (m, n) for m, n in zip(x, y, strict=True)):
            return None
        return tuple(n if m == 1 else m for m, n in zip(x, y, strict=True))

    def pair(self, kind: str) -> tuple[str, str, tuple[Any, ...]] | None:
        a = self.pick(kind)
        others = [n for n, (k, _) in self.shapes.items() if k == kind and a and self.together(a, n)]
        if not a or not others:
            return None
        b = self.draw.choice(others)
        shape = self.together(a, b)
        return (a, b, shape) if shape is not None and len(shape) <= 5 else None

    def arithmetic(self) -> None:
        found = self.pair("i64")
        if found:
            a, b, shape = found
            op = self.draw.choice(["Add", "Sub", "Max", "Min"])
            self.add(f"{op}(%{a}, %{b})", "i64", shape)

    def shift(self) -> None:
        a = self.pick("i64")
        if a:
            op, value = self.draw.choice([("Add", 1), ("Sub", 2), ("Mul", 3), ("Mul", -1)])
            self.add(f"{op}(%{a}, %{self.const('i64', '', value)})", "i64", self.shapes[a][1])

    def unary(self) -> None:
        a = self.pick("i64")
        if a:
            op = self.draw.choice(["Neg", "Abs", "Identity"])
            self.add(f"{op}(%{a})", "i64", self.shapes[a][1])

    def compare(self) -> None:
        found = self.pair("i64")
        if found:
            a, b, shape = found
            ops = ["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"]
            self.add(f"{self.draw.choice(ops)}(%{a}, %{b})", "bool", shape)

    def compare_number(self) -> None:
        a = self.pick("i64")
        if a:
            ops = ["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"]
            c = self.const("i64", "", self.draw.choice([0, 1, 2]))
            self.add(f"{self.draw.choice(ops)}(%{a}, %{c})", "bool", self.shapes[a][1])

    def logic(self) -> None:
        found = self.pair("bool")
        if found:
            a, b, shape = found
            self.add(f"{self.draw.choice(['And', 'Or', 'Xor'])}(%{a}, %{b})", "bool", shape)

    def negation(self) -> None:
        a = self.pick("bool")
        if a:
            self.add(f"Not(%{a})", "bool", self.shapes[a][1])

    def cast(self) -> None:
        a = self.pick("i64", "bool")
        if a:
            kind, code = self.draw.choice([("bool", 9), ("i64", 7)])
            self.add(f"Cast(%{a}) {{to = {code}}}", kind, self.shapes[a][1])

    def where(self) -> None:
        found, c = self.pair("i64"), self.pick("bool")
        if found and c:
            a, b, shape = found
            self.shapes["?"] = ("i64", shape)
            whole = self.together("?", c)
            del self.shapes["?"]
            if whole is not None and len(whole) <= 5:
                self.add(f"Where(%{c}, %{a}, %{b})", "i64", whole)

    def unsqueeze(self) -> None:
        a = self.pick("i64", "bool")
        if a and len(self.shapes[a][1]) < 4:
            kind, shape = self.shapes[a]
            axis = self.draw.randrange(len(shape) + 1)
            c = self.const("i64", "1", [axis])
            self.add(f"Unsqueeze(%{a}, %{c})", kind, (*shape[:axis], 1, *shape[axis:]))

    def transpose(self) -> None:
        a = self.pick("i64", "bool", rank=2)
        if a:
            kind, shape = self.shapes[a]
            perm = list(range(len(shape)))
            self.draw.shuffle(perm)
            self.add(f"Transpose(%{a}) {{perm = {perm}}}", kind, tuple(shape[p] for p in perm))

    def flatten_and_back(self) -> None:
        """A reshape to a row, and another to the shape it had."""
        a = self.pick("i64", "bool", rank=2)
        if a:
            kind, shape = self.shapes[a]
            self.count += 1
            flat, dims = f"flat{self.count}", f"dims{self.count}"
            minus = self.const("i64", "1", [-1])
            self.lines.append(f"  %{flat} = Reshape(%{a}, %{minus})")
            self.lines.append(f"  %{dims} = Shape(%{a})")
            self.add(f"Reshape(%{flat}, %{dims})", kind, shape)

    def trilu(self) -> None:
        a = self.pick("i64", "bool", rank=2)
        if a:
            kind, shape = self.shapes[a]
            upper, k = self.draw.randrange(2), self.const("i64", "", self.draw.choice([0, 1, -1]))
            self.add(f"Trilu(%{a}, %{k}) {{upper = {upper}}}", kind, shape)

    def cumsum(self) -> None:
        a = self.pick("i64", rank=1)
        if a:
            shape = self.shapes[a][1]
            c = self.const("i64", "", self.draw.randrange(len(shape)))
            self.add(f"CumSum(%{a}, %{c})", "i64", shape)

    def gather(self) -> None:
        """Elements picked by positions that are in range."""
        a = self.pick("i64", "bool", rank=1)
        if a:
            kind, shape = self.shapes[a]
            axis = self.draw.randrange(len(shape))
            same = [n for n, (k, s) in self.shapes.items() if k == "i64" and s == (shape[axis],)]
            index = "v2" if shape[axis] == "b" else None
            index = next((n for n in same if n in self.first_positions()), index)
            if index and self.shapes[index][1] == (shape[axis],):
                self.add(f"Gather(%{a}, %{index}) {{axis = {axis}}}", kind, shape)

    def first_positions(self) -> list[str]:
        return list(self.shapes)[2:4]

    def stored(self) -> None:
        """A stored band or a stored row."""
        s = self.sizes["s"]
        low, high = self.draw.choice([(-9, 0), (0, 9), (-1, 1), (-2, 0)])
        i, j = np.arange(s)[:, None], np.arange(s)[None, :]
        band = ((j - i >= low) & (j - i <= high)).tolist()
        name = self.const("bool", f"{s}, {s}", band)
        # A stored size meets the symbolic one in a broadcast, as it does in real exports.
        a = self.pick("bool", rank=2)
        if a and self.shapes[a][1][-2:] == ("s", "s"):
            self.add(f"And(%{a}, %{name})", "bool", self.shapes[a][1])

    MOVES = (
        arithmetic, shift, unary, compare, compare, compare_number, logic, negation, cast, where,
        unsqueeze, unsqueeze, transpose, flatten_and_back, trilu, cumsum, gather, stored,
    )  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32), st.integers(4, 22))
def test_an_element_is_what_the_program_computes(seed: int, length: int) -> None:
    maker = MaskMaker(seed, length)
    graph = parse(maker.text)
    infer_types(graph)
    draw = np.random.default_rng(seed % 1000)
    b, s = maker.sizes["b"], maker.sizes["s"]
    feeds = {
        "m": draw.integers(0, 2, (b, s)),
        "f": draw.standard_normal((b, s)).astype(np.float32),
        "o": draw.random((b, 1, s, s)) < 0.5,
    }
    inside = [v for v in graph.values if v not in graph.inputs and v not in graph.constants]
    graph.set_outputs(list(dict.fromkeys([*graph.outputs, *inside])))
    arrays = run(graph, feeds) | feeds
    arrays |= {name: c.array() for name, c in graph.constants.items()}
    elements = Elements(graph)
    for name in maker.values:
        shape = graph.shape(name)
        assert shape is not None
        variables = [elements.coordinates.variable(f"x{n}", d) for n, d in enumerate(shape)]
        element = elements.at(name, tuple(variables))
        actual = arrays[name]
        for index in itertools.product(*map(range, actual.shape)):
            env: Env = dict(maker.sizes)
            for variable, position in zip(variables, index, strict=True):
                if not isinstance(variable, int):
                    env[str(variable)] = position
            assert value_of(element, arrays, env) == actual[index], (name, element)


def test_the_causal_mask_of_a_torchscript_export_is_understood() -> None:
    graph = parse("""
    graph (opset 17) {
      input %m: i64[b, s]
      %dims = Shape(%m)
      const %one: i64[] = 1
      const %zero: i64[] = 0
      %n = Gather(%dims, %one) {axis = 0}
      %r = Range(%zero, %n, %one)
      const %a0: i64[1] = [0]
      const %a1: i64[1] = [1]
      %j = Unsqueeze(%r, %a0)
      %i = Unsqueeze(%r, %a1)
      %c = LessOrEqual(%j, %i)
      return %c
    }""")
    infer_types(graph)
    e = Elements(graph)
    s = graph.shape("c")
    assert s is not None
    i, j = e.coordinates.variable("i", s[0]), e.coordinates.variable("j", s[1])
    assert e.at("c", (i, j)) == Truth(AtMost(j - i))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%y = Sqrt(%four)", 2.0),
        ("%y = Reciprocal(%four)", 0.25),
        ("%y = Pow(%four, %half)", 2.0),
        ("%y = Div(%half, %four)", 0.125),
        ("%r = Sqrt(%four)\n%y = Div(%half, %r)", 0.25),
    ],
)
def test_scalars_computed_in_steps_are_known(line: str, expected: float) -> None:
    graph = parse(
        f"graph (opset 17) {{ const %four: f32[] = 4.0 const %half: f32[] = 0.5 {line} return %y }}"
    )
    infer_types(graph)
    assert Elements(graph).uniform("y") == expected


def test_a_head_size_read_from_a_shape_is_a_number() -> None:
    graph = parse("""
    graph (opset 17) {
      input %q: f32[b, 4, s, 64]
      %d = Shape(%q)
      const %last: i64[] = -1
      %w = Gather(%d, %last)
      %f = Cast(%w) {to = 1}
      %r = Sqrt(%f)
      const %one: f32[] = 1.0
      %scale = Div(%one, %r)
      return %scale
    }""")
    infer_types(graph)
    assert Elements(graph).uniform("scale") == 0.125


def test_a_chain_longer_than_the_limit_is_left_opaque() -> None:
    lines = "\n".join(f"%v{n + 1} = Identity(%v{n})" for n in range(400))
    graph = parse(f"graph (opset 17) {{ input %v0: i64[s] {lines} return %v400 }}")
    infer_types(graph)
    e = Elements(graph)
    shape = graph.shape("v400")
    assert shape is not None
    i = e.coordinates.variable("i", shape[0])
    found = e.at("v400", (i,))
    assert isinstance(found, Opaque)


BLOWUPS = [
    "Xor(%v{n}, %u{n}) %u{m} = Or(%v{n}, %u{n})",
    "Where(%v{n}, %u{n}, %t) %u{m} = Where(%u{n}, %v{n}, %t)",
]


@pytest.mark.parametrize("step", BLOWUPS)
def test_formulas_that_double_at_every_step_end_as_lookups(step: str) -> None:
    lines = " ".join(f"%v{n + 1} = " + step.format(n=n, m=n + 1) for n in range(70))
    graph = parse(
        f"graph (opset 17) {{ input %v0: bool[s] input %u0: bool[s] input %t: bool[s] {lines} "
        "return %v70 }"
    )
    infer_types(graph)
    e = Elements(graph)
    assert isinstance(e.at("v70", (e.coordinates.variable("i", symbol("s")),)), Truth)


@pytest.mark.parametrize("start", ["const %v0: i64[] = 3", "input %x: i64[s] %v0 = Shape(%x)"])
def test_numbers_that_grow_at_every_step_are_left(start: str) -> None:
    lines = " ".join(f"%v{n + 1} = Mul(%v{n}, %v{n})" for n in range(70))
    graph = parse(f"graph (opset 17) {{ {start} {lines} return %v70 }}")
    e = Elements(graph)
    graph.set_type("v70", tensor("i64", ()))
    for n in range(1, 70):
        graph.set_type(f"v{n}", tensor("i64", ()))
    assert isinstance(e.at("v70", ()), Opaque)
