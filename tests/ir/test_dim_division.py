"""Division of dims is exact, and has one form for one meaning."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir.dim_division import cancel, exact_quotient
from gecompiler.ir.dims import Dim, ceildiv, floordiv, mod, substitute, symbol

A, B, H, S = symbol("a"), symbol("b"), symbol("h"), symbol("s")

linear = st.builds(
    lambda x, y, z: x * A + y * B + z,
    st.integers(-9, 9),
    st.integers(-9, 9),
    st.integers(-9, 9),
)
factors = st.lists(
    st.sampled_from([A, B, A + B, A - B, A + 2 * B + 1, A * A + B, 3 * A]), min_size=1, max_size=3
)


@given(linear, st.integers(1, 9), st.integers(0, 12), st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_rounding_is_that_of_numbers(dim: Dim, by: int, a: int, b: int) -> None:
    at = {"a": a, "b": b}
    value = substitute(dim, at)
    assert isinstance(value, int)
    assert substitute(floordiv(dim, by), at) == value // by
    assert substitute(ceildiv(dim, by), at) == -(-value // by)
    assert substitute(mod(dim, by), at) == value % by


@given(factors, factors)
@settings(max_examples=150, deadline=None)
def test_a_product_divides_by_its_factors(left: list[Dim], right: list[Dim]) -> None:
    top: Dim = 1
    below: Dim = 1
    for dim in left:
        top = top * dim
    for dim in right:
        top, below = top * dim, below * dim
    expected: Dim = 1
    for dim in left:
        expected = expected * dim
    assert exact_quotient(top, below) == expected


@given(linear, linear, st.integers(0, 12), st.integers(0, 12))
@settings(max_examples=200, deadline=None)
def test_a_reduced_fraction_is_the_same_number(top: Dim, below: Dim, a: int, b: int) -> None:
    at = {"a": a, "b": b}
    x, y = substitute(top * A, at), substitute(below * A, at)
    assert isinstance(x, int)
    assert isinstance(y, int)
    if y and below != 0:
        assert substitute(floordiv(top * A, below * A), at) == x // y


def test_no_quotient_where_there_is_none() -> None:
    assert exact_quotient(A * A + B * B, A + B) is None
    assert exact_quotient(A, 2) is None
    assert exact_quotient(A, 0) is None
    assert exact_quotient(0, A) == 0


def test_one_form() -> None:
    assert floordiv(H - 1, 2) + 1 == floordiv(H + 1, 2) == ceildiv(H, 2)
    assert floordiv(2 * S + 1, 2) == S
    assert floordiv(8 * A * B, 24) == floordiv(A * B, 3)
    assert floordiv(12 * A + 4, 8) == A + floordiv(A + 1, 2)
    assert floordiv(1024 * A, 32 * B) == floordiv(32 * A, B)
    assert floordiv(S * H + S, 2 * S) == floordiv(H + 1, 2)
    assert mod(2 * S + 1, 2) == 1
    assert mod(5 * S + 7, 5) == 2


def test_factors_cancel_one_by_one() -> None:
    assert cancel([A, A, 4], [A, 8]) == ([A, 4], [8])
    assert cancel([A + B, S], [S, A + B]) == ([], [])
