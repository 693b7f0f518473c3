"""Meshes and shardings: what is cut and joined is whole again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecompiler.ir.errors import UsageError
from gecompiler.ir.parallel import Mesh, Sharding

SIZES = st.integers(1, 3)


@given(pp=SIZES, dp=SIZES, ep=SIZES, sp=SIZES, tp=SIZES)
def test_ranks_and_places_are_one_to_one(pp: int, dp: int, ep: int, sp: int, tp: int) -> None:
    mesh = Mesh.of(pp=pp, dp=dp, ep=ep, sp=sp, tp=tp)
    assert mesh.size == pp * dp * ep * sp * tp
    assert [mesh.rank(mesh.coordinates(r)) for r in range(mesh.size)] == list(range(mesh.size))
    for axes in ("tp", "dp+sp", "pp"):
        groups = mesh.groups(axes)
        assert sorted(r for group in groups for r in group) == list(range(mesh.size))
        assert all(len(group) == mesh.axis_size(axes) for group in groups)
        names = {mesh.communicator(axes, r) for r in range(mesh.size)}
        assert len(names) == len(groups)


def test_tensor_parallel_neighbours_are_next_to_each_other() -> None:
    mesh = Mesh.of(tp=4, dp=2)
    assert mesh.axes == (("dp", 2), ("tp", 4))
    assert mesh.groups("tp") == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert mesh.groups("dp") == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert mesh.communicator("tp", 6) == "tp:4"


def test_unknown_axis_is_named() -> None:
    with pytest.raises(UsageError, match="no mesh axis 'tq'") as caught:
        Mesh.of(tq=2)
    assert "tp" in str(caught.value)


@given(tp=st.integers(1, 4), dp=st.integers(1, 3))
def test_what_is_cut_is_joined(tp: int, dp: int) -> None:
    mesh = Mesh.of(tp=tp, dp=dp)
    array = np.arange(12 * 6 * 12).reshape(12, 6, 12)
    sharding = Sharding.of(3, {0: "tp", 1: "dp"} if 6 % dp == 0 else {0: "tp"})
    parts = {r: sharding.take(array, mesh, r) for r in range(mesh.size)}
    assert all(p.shape == sharding.local_shape(array.shape, mesh, r) for r, p in parts.items())
    np.testing.assert_array_equal(sharding.join(parts, array.shape, mesh), array)
