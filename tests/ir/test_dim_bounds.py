"""Bounds of dims hold for every value of the symbols; what is simplified means the same."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.ir.dim_bounds import (
    at_least,
    interval,
    largest,
    proven_le,
    proven_order,
    smallest,
)
from gecompiler.ir.dims import Dim, floordiv, maximum, minimum, mod, substitute, symbol

A, B, C = symbol("a"), symbol("b"), symbol("c")

leaves: st.SearchStrategy[Dim] = st.one_of(st.integers(-6, 6), st.sampled_from([A, B, C]))
dims = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda x, y: x + y, inner, inner),
        st.builds(lambda x, y: x - y, inner, inner),
        st.builds(lambda x, y: x * y, inner, inner),
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner),
        st.builds(floordiv, inner, st.integers(1, 5)),
        st.builds(mod, inner, st.integers(1, 5)),
    ),
    max_leaves=6,
)


def values(dim: Dim, least: int) -> list[int]:
    found = []
    for a, b, c in itertools.product(range(least, 5), repeat=3):
        value = substitute(dim, {"a": a, "b": b, "c": c})
        assert isinstance(value, int)
        found.append(value)
    return found


@given(dims, st.integers(0, 1))
@settings(max_examples=200, deadline=None)
def test_intervals_hold(dim: Dim, least: int) -> None:
    low, high = interval(dim, least)
    for value in values(dim, least):
        assert low is None or low <= value
        assert high is None or value <= high


@given(dims, dims, st.integers(0, 1))
@settings(max_examples=150, deadline=None)
def test_what_is_proven_holds(x: Dim, y: Dim, least: int) -> None:
    pairs = list(zip(values(x, least), values(y, least), strict=True))
    if proven_le(x, y, least):
        assert all(p <= q for p, q in pairs)
    small, large = smallest(x, y, least=least), largest(x, y, least=least)
    assert values(small, least) == [min(p) for p in pairs]
    assert values(large, least) == [max(p) for p in pairs]
    order = proven_order(x, y)
    if order is not None:
        assert all((p > q) - (p < q) == order for p, q in pairs if least == 0)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (smallest(A, A + B), A),
        (smallest(512, minimum(A, 512)), minimum(A, 512)),
        (largest(0, A - 1, least=1), A - 1),
        (largest(0, A - 1), maximum(0, A - 1)),
        (smallest(A, 1, least=1), 1),
        (smallest(largest(A - 1, 0), A), largest(A - 1, 0)),
    ],
)
def test_simplified(found: Dim, expected: Dim) -> None:
    assert found == expected


def test_at_least() -> None:
    assert at_least(A + 3, 3)
    assert not at_least(A - 1, 0)
    assert at_least(A - 1, 0, least=1)
    assert at_least(floordiv(A + 1, 2), 0)
    assert at_least(mod(A - B, 5), 0)


def test_order() -> None:
    assert proven_order(A, -1) == 1
    assert proven_order(A, A) == 0
    assert proven_order(A, A + 1) == -1
    assert proven_order(A, 3) is None
    assert proven_order(minimum(A, 4), 5) == -1
