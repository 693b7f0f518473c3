"""Offsets of blocks by hand: which hole is taken, when neighbours join, what never comes free."""

from __future__ import annotations

import pytest
from fakes import FakeTarget

from gecompiler.ir.diagnostics import Diagnostics
from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule import Buffer, BufferKind
from gecompiler.passes.memory import fit
from gecompiler.passes.memory.advice import gib, report_memory
from gecompiler.passes.memory.fit import (
    Layout,
    Request,
    best_layout,
    by_size,
    by_start,
    live_at_peak,
    live_bytes,
)
from gecompiler.passes.memory.plan import MemoryPlan

FOREVER = None


def wanted(size: int, begin: int, last: int | None) -> Request:
    """On one stream: in use from a task to another, or for ever."""
    needs = None if last is FOREVER else (last + 1,)
    return Request(size, begin, begin if last is FOREVER else last, (begin,), needs)


def placed(requests: list[Request], tightest: bool) -> tuple[tuple[int, ...], int]:
    floor = [(i,) for i in range(20)]
    found = by_start(requests, floor, tightest=tightest)
    assert found.planner == ("best fit by start" if tightest else "first fit by start")
    return found.offsets, found.bytes


TWO_HOLES = [
    wanted(1024, 0, 1), wanted(512, 0, FOREVER), wanted(512, 0, 1), wanted(512, 0, FOREVER),
    wanted(512, 2, 9), wanted(1024, 3, 9),
]  # fmt: skip


def test_the_tightest_hole_and_the_first() -> None:
    assert placed(TWO_HOLES, tightest=True) == ((0, 1024, 1536, 2048, 1536, 0), 2560)
    assert placed(TWO_HOLES, tightest=False) == ((0, 1024, 1536, 2048, 0, 2560), 3584)
    floor = [(i,) for i in range(10)]
    assert best_layout(TWO_HOLES, floor).planner == "best fit by start"
    assert best_layout([], []) == Layout((), 0, "best fit by start")


def test_of_holes_as_tight_the_lower_one() -> None:
    holes = [wanted(512, 0, 1), wanted(512, 0, FOREVER), wanted(512, 0, 1), wanted(512, 0, FOREVER)]
    assert placed([*holes, wanted(512, 2, 9)], tightest=True) == ((0, 512, 1024, 1536, 0), 2048)


@pytest.mark.parametrize("tightest", [True, False])
def test_neighbours_that_are_free_are_one_hole(tightest: bool) -> None:
    parts = [wanted(512, 0, 1), wanted(512, 0, 2), wanted(512, 0, FOREVER)]
    assert placed([*parts, wanted(1024, 3, 9)], tightest) == ((0, 512, 1024, 0), 1536)
    assert placed([*parts, wanted(1024, 2, 9)], tightest) == ((0, 512, 1024, 1536), 2560)
    rest = [wanted(512, 3, 9), wanted(512, 4, 9)]  # what is left of the hole is a hole
    assert placed([*parts, *rest], tightest) == ((0, 512, 1024, 0, 512), 1536)


@pytest.mark.parametrize("tightest", [True, False])
def test_the_last_hole_grows_beyond_the_end(tightest: bool) -> None:
    assert placed([wanted(512, 0, 1), wanted(2048, 2, 3)], tightest) == ((0, 0), 2048)
    kept = [wanted(1024, 0, FOREVER), wanted(512, 0, 1), wanted(2048, 2, 3)]
    assert placed(kept, tightest) == ((0, 1024, 1024), 3072)
    inner = [wanted(1024, 0, 1), wanted(512, 0, FOREVER), wanted(2048, 2, 3)]
    assert placed(inner, tightest) == ((0, 1024, 1536), 3584)


@pytest.mark.parametrize("tightest", [True, False])
def test_the_largest_of_one_task_first_and_nothing_for_no_bytes(tightest: bool) -> None:
    found = placed(
        [wanted(512, 0, 1), wanted(0, 0, 1), wanted(1024, 0, 1), wanted(512, 0, 1)], tightest
    )
    assert found == ((1024, 0, 0, 1536), 2048)


@pytest.mark.parametrize("tightest", [True, False])
def test_a_hole_is_taken_by_who_knows_that_it_is_one(tightest: bool) -> None:
    def two(size: int, begin: int, knows: tuple[int, int], needs: tuple[int, int]) -> Request:
        return Request(size, begin, begin, knows, needs)

    made = [two(512, 0, (0, 0), (1, 0)), two(512, 0, (0, 0), (0, 5)), two(512, 0, (0, 0), (1, 0))]
    floor = [(0, 0)] * 9
    for size, knows, at in (
        (512, (1, 0), 0),  # the middle one is in use still
        (1024, (1, 0), 1024),
        (1536, (1, 5), 0),
        (512, (0, 5), 512),
        (512, (0, 4), 1536),
        (512, (0, 0), 1536),
    ):
        found = by_start([*made, two(size, 1, knows, (9, 9))], floor, tightest=tightest)
        assert found.offsets == (0, 512, 1024, at), (size, knows)
        assert found.bytes == max(1536, at + size)


@pytest.mark.parametrize("tightest", [True, False])
@pytest.mark.parametrize(("knows", "at"), [((9, 4), 1536), ((9, 5), 512), ((0, 5), 0)])
def test_what_a_hole_waits_for_is_not_forgotten_before_all_know_it(
    tightest: bool, knows: tuple[int, int], at: int
) -> None:
    made = [
        Request(512, 0, 0, (0, 0), (0, 0)),
        Request(512, 0, 0, (0, 0), (0, 5)),
        Request(512, 0, 0, (0, 0), None),
    ]
    idle = [Request(0, place, place, (0, 0), (0, 0)) for place in range(1, 200)]
    size = 1024 if at == 0 else 512
    low = Request(512, 200, 999, (0, 0), None) if at else Request(0, 200, 200, (0, 0), (0, 0))
    last = Request(size, 201, 201, knows, (99, 99))
    floor = [(min(9, place // 8), 0) for place in range(202)]
    found = by_start([*made, *idle, low, last], floor, tightest=tightest)
    assert (found.offsets[-1], found.bytes) == (at, 2048 if at == 1536 else 1536)


@pytest.mark.parametrize("tightest", [True, False])
def test_holes_that_waited_for_different_tasks_are_one_when_all_know(tightest: bool) -> None:
    ends = ((1, 0), (0, 1), None, (0, 2), (2, 0), None)
    made = [Request(512, 0, 0, (0, 0), needs) for needs in ends]
    idle = [Request(0, place, place, (0, 0), (0, 0)) for place in range(1, 200)]
    last = [Request(1024, place, 999, (9, 9), None) for place in (200, 201)]
    found = by_start([*made, *idle, *last], [(9, 9)] * 202, tightest=tightest)
    assert (found.offsets[-2:], found.bytes) == ((0, 1536), 3072)


def test_what_is_live_at_once() -> None:
    assert live_bytes([]) == 0
    assert live_bytes([wanted(5, 0, 1), wanted(7, 0, 1), wanted(2, 1, 2)]) == 14
    assert live_bytes([wanted(5, 0, 1), wanted(7, 1, 1), wanted(11, 2, 2)]) == 12
    handed_on = [wanted(10, 0, 1), wanted(7, 1, 2), wanted(8, 2, 3)]
    assert live_bytes(handed_on) == 17  # a task's inputs and outputs are there together
    assert live_at_peak(handed_on) == [0, 1]
    assert live_at_peak([wanted(5, 0, 0), wanted(5, 1, 1)]) == [0]  # of peaks as high the first
    kept = [
        wanted(3, 0, FOREVER),
        wanted(4, 2, 4),
        wanted(4, 4, 5),
        wanted(9, 6, 6),
        wanted(1, 7, 9),
    ]
    assert live_bytes(kept) == 12
    assert live_at_peak(kept) == [3, 0]
    assert live_at_peak(kept[:3]) == [1, 2, 0]  # the largest first, then in order


@pytest.mark.parametrize(
    ("requests", "offsets", "size"),
    [
        ([], (), 0),
        ([wanted(512, 0, 1), wanted(1024, 0, 1)], (1024, 0), 1536),
        ([wanted(1024, 1, 2), wanted(1024, 0, 1)], (1024, 0), 2048),  # the earlier of two as large
        ([wanted(1024, 0, 1), wanted(1024, 0, 1)], (0, 1024), 2048),
        ([wanted(1024, 0, 1), wanted(512, 2, 3)], (0, 0), 1024),
        ([wanted(1024, 0, FOREVER), wanted(512, 2, 3)], (0, 1024), 1536),
        ([wanted(1024, 3, 4), wanted(512, 0, FOREVER)], (0, 1024), 1536),
        ([wanted(2048, 0, 3), wanted(1536, 0, 9), wanted(1024, 2, 9), wanted(512, 5, 9)],
         (0, 2048, 3584, 0), 4608),
        ([wanted(2048, 0, 3), wanted(1536, 0, 9), wanted(1024, 2, 9), wanted(2048, 5, 9)],
         (0, 2048, 4096 - 512, 0), 4608),
        ([wanted(0, 0, 9), wanted(512, 0, 9)], (0, 0), 512),
        ([wanted(3072, 0, 2), wanted(1024, 4, 6), wanted(512, 1, 5)], (0, 0, 3072), 3584),
    ],
)  # fmt: skip
def test_the_largest_first(requests: list[Request], offsets: tuple[int, ...], size: int) -> None:
    assert by_size(requests) == Layout(offsets, size, "first fit by size")


def test_the_largest_first_only_where_that_can_help_and_is_no_long_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    floor = [(i,) for i in range(9)]
    hole = [wanted(512, 0, 3), wanted(1024, 1, FOREVER), wanted(1536, 4, 5)]
    assert live_bytes(hole) == 2560
    assert by_start(hole, floor, tightest=True).bytes == 3072
    assert best_layout(hole, floor) == Layout((0, 1536, 0), 2560, "first fit by size")
    monkeypatch.setattr(fit, "MOST_BY_SIZE", 3)
    assert best_layout(hole, floor).planner == "first fit by size"
    monkeypatch.setattr(fit, "MOST_BY_SIZE", 2)
    assert best_layout(hole, floor) == Layout((0, 512, 1536), 3072, "best fit by start")


def planned(arena: int, *sizes: tuple[str, BufferKind, int]) -> MemoryPlan:
    buffers = tuple(Buffer(name, 0, size, kind) for name, kind, size in sizes)
    peak = (("big", 3 << 29), ("small", 5 << 20))
    return MemoryPlan(
        (*buffers, Buffer("view", 0, 1 << 40, "weight", "w")), arena, 0, 0, "p", (), peak
    )


MIB = 1 << 20
TOO_LARGE = planned(
    3 << 30, ("w", "weight", 768 * MIB), ("v", "weight", 256 * MIB), ("k", "state", 512 * MIB),
    ("x", "input", 64 * MIB), ("y", "activation", 9 * MIB), ("o", "output", 9 * MIB),
)  # fmt: skip


def test_what_takes_the_memory_is_told_by_kind() -> None:
    diagnostics = Diagnostics()
    target = FakeTarget().with_limits(memory_bytes=1 << 30)
    report_memory(TOO_LARGE, target, "model.onnx", diagnostics, strict=False)
    (warning,) = diagnostics
    assert warning.code == "out-of-memory"
    assert warning.message == (
        "3.00 GiB of memory are needed, fake has 1.00 GiB: weights 1.00 GiB, "
        "state (KV cache) 0.50 GiB, inputs 64.00 MiB, activations 1.44 GiB; "
        "largest at the peak: 'big' 1.50 GiB, 'small' 5.00 MiB"
    )
    assert warning.hint.endswith("narrower weights; 3 such cards would hold it")
    with pytest.raises(ScheduleError) as caught:
        report_memory(TOO_LARGE, target, "model.onnx", diagnostics, strict=True)
    error = caught.value
    assert (error.message, error.hint) == (warning.message, warning.hint)
    assert error.where == "model.onnx"
    assert len(list(diagnostics)) == 1


def test_kinds_of_which_there_is_nothing_are_not_told() -> None:
    diagnostics = Diagnostics()
    plan = planned(2049, ("x", "input", 0), ("y", "activation", 2049))
    report_memory(plan, FakeTarget().with_limits(memory_bytes=1024), "m", diagnostics, strict=False)
    (warning,) = diagnostics
    assert ": activations 0.00 MiB; " in warning.message
    assert "; 3 such cards" in warning.hint


def test_what_just_fits_is_no_matter() -> None:
    diagnostics = Diagnostics()
    target = FakeTarget().with_limits(memory_bytes=3 << 30)
    report_memory(TOO_LARGE, target, "m", diagnostics, strict=True)
    assert list(diagnostics) == []


def test_sizes_as_they_are_told() -> None:
    assert gib(1 << 28) == "0.25 GiB"
    assert gib((1 << 28) - MIB) == "255.00 MiB"
    assert gib(3 << 29) == "1.50 GiB"
