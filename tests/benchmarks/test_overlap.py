"""A product beside the all-reduce of its result: between the ideal and the serial time."""

from __future__ import annotations

import pytest

from benchmarks.overlap import MEASURED, compare, parts_of
from gecompiler.ir.schedule import Demand


def test_tiles_that_are_sent_as_they_are_done() -> None:
    found = compare()
    for overlap in found.values():
        assert overlap.ideal < overlap.overlapped < overlap.serial
    measured = found["measured"]
    assert measured.product == pytest.approx(MEASURED["product"], rel=1e-3)
    assert measured.all_reduce == pytest.approx(MEASURED["all_reduce"], rel=1e-3)
    assert measured.overlapped == pytest.approx(MEASURED["overlapped"], rel=0.1)


def test_parts_add_up_to_the_whole() -> None:
    whole = Demand(load_bytes=6e6, cube_us=300.0, cube_cores=24, fixed_us=5.0, tiles=30)
    parts = parts_of(whole, 4, 1.0)
    assert sum(p.load_bytes for p in parts) == whole.load_bytes
    assert sum(p.cube_us for p in parts) == whole.cube_us
    assert [p.fixed_us for p in parts] == [5.0, 1.0, 1.0, 1.0]
