"""Dims obey the laws of a ring, agree with integers, have one form, and stay bounded."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gecompiler.ir.dim_parse import DimSyntaxError, parse_dim, read_dim
from gecompiler.ir.dims import (
    Dim,
    DimError,
    DimTooLargeError,
    Expr,
    broadcast,
    ceildiv,
    dim_text,
    floordiv,
    maximum,
    minimum,
    mod,
    product,
    substitute,
    symbol,
    symbols,
)
from gecompiler.ir.errors import GraphError

NAMES = ["a", "b", "seq", "odd name", "x*y", "max(a, b)", "批"]


@dataclass(frozen=True)
class Case:
    """A dim, and the same computation on plain integers."""

    dim: Dim
    value: Callable[[dict[str, int]], int]


def _join(symbolic: Callable[..., Dim], concrete: Callable[..., int], a: Case, b: Case) -> Case:
    return Case(symbolic(a.dim, b.dim), lambda e: concrete(a.value(e), b.value(e)))


def _named(name: str) -> Case:
    return Case(symbol(name), lambda e: e[name])


def _number(number: int) -> Case:
    return Case(number, lambda _: number)


OPERATIONS: list[tuple[str, Callable[..., Dim], Callable[..., int]]] = [
    ("+", lambda a, b: a + b, lambda a, b: a + b),
    ("-", lambda a, b: a - b, lambda a, b: a - b),
    ("*", lambda a, b: a * b, lambda a, b: a * b),
    ("max", maximum, max),
    ("min", minimum, min),
    ("//", floordiv, lambda a, b: a // b),
    ("%", mod, lambda a, b: a % b),
    ("ceil", ceildiv, lambda a, b: -(-a // b)),
]

leaves = st.one_of(st.sampled_from(NAMES).map(_named), st.integers(-4, 9).map(_number))


@st.composite
def cases(draw: st.DrawFn, depth: int = 4) -> Case:
    stack = [draw(leaves)]
    for _ in range(draw(st.integers(0, depth))):
        other = draw(leaves) if draw(st.booleans()) else stack[draw(st.integers(0, len(stack) - 1))]
        name, symbolic, concrete = draw(st.sampled_from(OPERATIONS))
        if name in ("//", "%", "ceil"):
            other = draw(st.sampled_from(NAMES).map(_named) | st.integers(1, 9).map(_number))
        stack.append(_join(symbolic, concrete, stack[-1], other))
    return stack[-1]


bindings = st.fixed_dictionaries({name: st.integers(1, 12) for name in NAMES})
dims = cases().map(lambda case: case.dim)


@settings(deadline=None, max_examples=400)
@given(cases(), bindings)
def test_a_dim_is_worth_what_the_integers_say(case: Case, binding: dict[str, int]) -> None:
    assert substitute(case.dim, binding) == case.value(binding)


@settings(deadline=None, max_examples=300)
@given(cases(), bindings, st.sets(st.sampled_from(NAMES)))
def test_binding_in_two_steps_is_binding_at_once(
    case: Case, binding: dict[str, int], first: set[str]
) -> None:
    part = substitute(case.dim, {k: v for k, v in binding.items() if k in first})
    assert substitute(part, binding) == substitute(case.dim, binding)
    assert symbols(part).isdisjoint(first)


@settings(deadline=None, max_examples=300)
@given(dims, dims, dims)
def test_the_laws_of_a_ring(a: Dim, b: Dim, c: Dim) -> None:
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a + 0 == a == a * 1
    assert a - a == 0 == a * 0
    negative = -a
    assert -negative == a
    assert a - b == a + (-b) == -(b - a)


@settings(deadline=None, max_examples=200)
@given(st.lists(dims, min_size=2, max_size=4))
def test_order_of_construction_does_not_show(parts: list[Dim]) -> None:
    for fold in (product, sum, lambda d: maximum(*d), lambda d: minimum(*d)):
        spelled = {dim_text(fold(list(p))) for p in permutations(parts)}
        assert len(spelled) == 1


@settings(deadline=None, max_examples=200)
@given(dims, dims, dims)
def test_extrema_are_associative_and_idempotent(a: Dim, b: Dim, c: Dim) -> None:
    for extremum in (maximum, minimum):
        assert extremum(extremum(a, b), c) == extremum(a, extremum(b, c))
        assert extremum(a, a, b) == extremum(a, b)


@settings(deadline=None, max_examples=300)
@given(dims)
def test_text_reads_back(dim: Dim) -> None:
    text = dim_text(dim)
    assert read_dim(text, 0) == (dim, len(text))
    assert hash(read_dim(text, 0)[0]) == hash(dim)
    if not (isinstance(dim, int) and dim < 0):
        assert parse_dim(str(dim)) == dim


@given(st.text(max_size=12))
def test_any_symbol_reads_back(name: str) -> None:
    assert parse_dim(dim_text(symbol(name))) == symbol(name)
    assert parse_dim(str(symbol(name))) == symbol(name) or name != name.strip()


@settings(deadline=None)
@given(st.text(alphabet="ab12+-*/%(), \"'\\.max", max_size=30))
def test_any_text_is_some_dim(text: str) -> None:
    dim = parse_dim(text)
    assert isinstance(dim, (int, Expr))
    assert not (isinstance(dim, int) and dim < 0)


@settings(deadline=None, max_examples=300)
@given(cases(), cases())
def test_a_product_divides_exactly(a: Case, b: Case) -> None:
    assume(b.dim != 0 and a.dim != 0)
    assert floordiv(a.dim * b.dim, b.dim) == a.dim
    assert mod(a.dim * b.dim, b.dim) == 0


@settings(deadline=None, max_examples=300)
@given(cases(), st.integers(1, 6), bindings)
def test_quotient_and_remainder_belong_together(
    case: Case, divisor: int, binding: dict[str, int]
) -> None:
    back = floordiv(case.dim, divisor) * divisor + mod(case.dim, divisor)
    assert substitute(back, binding) == case.value(binding)


# ---------------------------------------------------------------- cases by hand


def test_equality_is_proof() -> None:
    a, b = symbol("a"), symbol("b")
    assert (a + 1) * (a - 1) == a * a - 1
    assert floordiv(2 * a * b, a) == 2 * b
    assert floordiv(2 * a + 1, 2) == a
    assert mod(4 * a + 3, 4) == 3
    assert a != b
    assert a - b != 0
    assert isinstance(a - a, int)


def test_numbers_on_the_left() -> None:
    a = symbol("a")
    assert substitute(7 - a, {"a": 3}) == 4
    assert substitute(7 // a, {"a": 3}) == 2
    assert substitute(7 % a, {"a": 3}) == 1


def test_broadcast() -> None:
    a, b = symbol("a"), symbol("b")
    assert broadcast(a, 1) == a == broadcast(1, a) == broadcast(a, a)
    assert broadcast(a, 4) == 4 == broadcast(4, a)
    both = broadcast(a, b)
    assert both == broadcast(b, a) == broadcast(both, a) == broadcast(b, both)
    assert substitute(both, {"a": 1, "b": 7}) == 7
    assert substitute(both, {"a": 7}) == 7
    with pytest.raises(DimError, match="sizes 2 and 3 do not broadcast"):
        substitute(both, {"a": 2, "b": 3})


def test_binding_to_nonsense_is_the_users_error() -> None:
    with pytest.raises(GraphError, match=r"floordiv\(7, a\) divides by zero"):
        substitute(floordiv(7, symbol("a")), {"a": 0})


@given(st.permutations(["a", "b", "c", "d"]))
def test_broadcast_in_any_order(names: list[str]) -> None:
    total: Dim = 1
    for name in names:
        total = broadcast(total, symbol(name))
    assert total == parse_dim("bcast(a, b, c, d)")


def test_names_that_look_like_arithmetic_stay_names() -> None:
    odd, a, b = symbol("a + b"), symbol("a"), symbol("b")
    assert odd != a + b
    assert {odd * a, a * odd} == {odd * a}
    assert dim_text(odd + 1) == '"a + b" + 1'
    assert parse_dim("a b") == symbol("a b")
    assert str(symbol("a b")) == "a b"
    assert str(symbol("+ -x")) == "+ -x"


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        ("8", 8),
        (" batch ", symbol("batch")),
        ("2*s + 1", symbol("s") * 2 + 1),
        ("s0**2 - (s0 - 1)", symbol("s0") * symbol("s0") - symbol("s0") + 1),
        ("Max(1, s0)", maximum(1, symbol("s0"))),
        ("past + seq", symbol("past") + symbol("seq")),
        ("s//2", floordiv(symbol("s"), 2)),
        ("--s", symbol("s")),
        ("unk__3", symbol("unk__3")),
        ("onnx::Shape_3", symbol("onnx::Shape_3")),
        ("-1", symbol("-1")),
        ("4 % 0", symbol("4 % 0")),
        ("foo(s)", symbol("foo(s)")),
        ("a b", symbol("a b")),
        ("", symbol("")),
        ("(" * 500, symbol("(" * 500)),
        ("9" * 5000, symbol("9" * 5000)),
    ],
)
def test_spellings(text: str, dim: Dim) -> None:
    assert parse_dim(text) == dim


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("a + ", 4, "expected a size"),
        ("a + *", 4, "expected a size"),
        ("(a", 2, "expected ')'"),
        ("f(a)", 0, "no function of sizes is named 'f'"),
        ("4 // 0 ", 5, "cannot be computed"),
        ("mod(a)", 0, "cannot be computed"),
        ("2 ** a", 5, "power"),
        ('"\\q"', 0, "bad escape"),
    ],
)
def test_syntax_errors_say_where(text: str, position: int, message: str) -> None:
    with pytest.raises(DimSyntaxError, match=re.escape(message)) as caught:
        read_dim(text, 0)
    assert caught.value.position == position


def _squared(dim: Dim) -> Dim:
    return dim * dim


def _doubled_call(dim: Dim) -> Dim:
    return maximum(floordiv(dim, 3), mod(dim, 5)) * dim


def _more_terms(dim: Dim) -> Dim:
    return dim * (dim + symbol("b"))


def _deeper(dim: Dim) -> Dim:
    return floordiv(dim + 1, 2)


@pytest.mark.parametrize("grow", [_squared, _doubled_call, _more_terms, _deeper])
def test_growth_is_refused_before_it_hurts(grow: Callable[[Dim], Dim]) -> None:
    seen: list[Dim] = [symbol("a")]

    def forever() -> None:
        for _ in range(1000):
            seen.append(grow(seen[-1]))

    with pytest.raises(DimTooLargeError, match="grew beyond"):
        forever()
    assert len(dim_text(seen[-1])) < 100_000


def test_a_spelling_that_explodes_is_a_name() -> None:
    text = "(" + "+".join(f"s{i}" for i in range(30)) + ")"
    bomb = "*".join([text] * 12)
    assert parse_dim(bomb) == symbol(bomb)


def test_big_but_honest_products_pass() -> None:
    shape = [symbol(n) + 1 for n in "abcdef"]
    assert substitute(product(shape), dict.fromkeys("abcdef", 1)) == math.prod([2] * 6)
