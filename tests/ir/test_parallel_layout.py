"""Layouts: who holds what, what is a copy, and that nothing is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecompiler.ir.errors import UsageError
from gecompiler.ir.parallel import Layout, Mesh, Product, Segments, Sharding, Split
from gecompiler.ir.parallel.layout import (
    describe,
    held_first,
    held_indices,
    is_exact,
    local_size,
    product_of,
    segments_of,
)


@st.composite
def sized_layouts(draw: st.DrawFn, axes: str = "dp+tp", depth: int = 2) -> tuple[int, Layout]:
    """A size and a layout of a dim of that size; no two factors are cut over the same axis."""
    kind = draw(st.sampled_from(("whole", "split", "product", "segments")[: 2 + 2 * (depth > 0)]))
    if kind == "whole" or not axes:
        return draw(st.integers(1, 7)), None
    if kind == "split":
        return draw(st.integers(1, 7)), Split(axes)
    count = draw(st.integers(2, 3))
    if kind == "segments":
        runs = [draw(sized_layouts(axes, depth - 1)) for _ in range(count)]
        return sum(n for n, _ in runs), Segments(tuple(runs))
    shares = [*axes.split("+"), "", ""][:count]
    factors = [draw(sized_layouts(share, depth - 1)) for share in draw(st.permutations(shares))]
    return int(np.prod([n for n, _ in factors])), Product(tuple(factors))


@given(sized_layouts(), st.integers(1, 3), st.integers(1, 4))
def test_every_element_is_held(sized: tuple[int, Layout], dp: int, tp: int) -> None:
    size, layout = sized
    mesh = Mesh.of(dp=dp, tp=tp)
    held = [held_indices(layout, size, mesh, rank) for rank in range(mesh.size)]
    assert {len(h) for h in held} == {local_size(layout, size, mesh)}
    assert set(np.concatenate(held).tolist()) == set(range(size))


@given(st.integers(1, 40), st.integers(1, 8), st.integers(1, 4))
def test_each_element_is_no_copy_once_in_its_group(size: int, tp: int, shared: int) -> None:
    mesh = Mesh.of(tp=tp * shared)
    layout = Split("tp", -(-size // tp), shared)
    held = [
        held_indices(layout, size, mesh, r)[held_first(layout, size, mesh, r)]
        for r in range(mesh.size)
    ]
    assert sorted(np.concatenate(held).tolist()) == list(range(size))
    assert is_exact(layout, size, mesh) == (shared == 1 and size % tp == 0)


@given(sized_layouts("dp"), sized_layouts("tp"), st.integers(1, 2), st.integers(1, 4))
def test_what_is_taken_is_joined(
    rows: tuple[int, Layout], columns: tuple[int, Layout], dp: int, tp: int
) -> None:
    mesh = Mesh.of(dp=dp, tp=tp)
    array = np.arange(rows[0] * columns[0]).reshape(rows[0], columns[0])
    sharding = Sharding((rows[1], columns[1]))
    parts = {r: sharding.take(array, mesh, r) for r in range(mesh.size)}
    assert {p.shape for p in parts.values()} == {sharding.local_shape(array.shape, mesh)}
    np.testing.assert_array_equal(sharding.join(parts, array.shape, mesh), array)


def test_a_fused_projection_with_few_kv_heads() -> None:
    mesh = Mesh.of(tp=4)
    layout = Segments(((8, Split("tp")), (2, Split("tp", 1, 2))))
    parts = [Sharding((layout,)).take(np.arange(10), mesh, r).tolist() for r in range(4)]
    assert parts == [[0, 1, 8], [2, 3, 8], [4, 5, 9], [6, 7, 9]]


def test_what_does_not_divide_is_filled_with_the_last() -> None:
    mesh = Mesh.of(tp=3)
    parts = [Sharding((Split("tp"),)).take(np.arange(4), mesh, r).tolist() for r in range(3)]
    assert parts == [[0, 1], [2, 3], [3, 3]]


@given(st.integers(1, 9), st.integers(1, 4))
def test_a_sum_over_what_is_held_once_is_the_sum(size: int, tp: int) -> None:
    mesh = Mesh.of(tp=tp)
    array = np.arange(1, size + 1)
    sharding = Sharding((Split("tp"),), once=(0,))
    assert sum(sharding.take(array, mesh, r).sum() for r in range(tp)) == array.sum()


def test_a_run_that_is_not_cut_is_held_once_too() -> None:
    mesh = Mesh.of(tp=2)
    layout = Segments(((2, Split("tp")), (2, None)))
    assert not is_exact(layout, 4, mesh)
    sharding = Sharding((layout,), once=(0,))
    parts = [sharding.take(np.arange(1, 5), mesh, r).tolist() for r in range(2)]
    assert parts == [[1, 3, 4], [2, 0, 0]]


def test_a_part_of_a_sum_lies_on_the_first_rank() -> None:
    mesh = Mesh.of(dp=2, tp=2)
    sharding = Sharding((None,), partial=("tp",))
    assert [sharding.take(np.ones(1), mesh, r).item() for r in range(4)] == [1, 0, 1, 0]
    with pytest.raises(UsageError, match="sum still to be made"):
        sharding.join({0: np.ones(1)}, (1,), mesh)


def test_normal_forms() -> None:
    assert product_of([(4, None), (2, None)]) is None
    assert product_of([(1, None), (4, Split("tp"))]) == Split("tp")
    assert product_of([(2, None), (3, None), (4, Split("tp"))]) == Product(
        ((6, None), (4, Split("tp")))
    )
    assert segments_of([(2, None), (3, None)]) is None
    assert segments_of([(3, Split("tp")), (0, None)]) == Split("tp")


def test_layouts_are_described() -> None:
    heads = Product(((4, Split("tp")), (8, None)))
    assert describe(heads) == "4:tp * 8"
    assert describe(Segments(((32, heads), (16, Split("tp", 1, 2))))) == "[32:4:tp * 8 | 16:tp/2]"
    assert str(Sharding((None, Split("dp")), ("tp",))) == "[., dp] sum over tp"


def test_a_layout_of_another_size_is_refused() -> None:
    layout = Product(((4, Split("tp")), (8, None)))
    with pytest.raises(UsageError, match="32 elements on a dim of 30"):
        local_size(layout, 30, Mesh.of(tp=2))
    with pytest.raises(UsageError, match="a tensor of 2 dims has a sharding of 1"):
        Sharding((None,)).local_shape((2, 3), Mesh.of(tp=2))
