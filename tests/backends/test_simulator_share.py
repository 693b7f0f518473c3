"""Max-min fair sharing: capacity, efficiency, fairness."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.simulator.fluid_share import FULL, Use, exact, share

RESOURCES = 5


@st.composite
def uses(draw: st.DrawFn) -> list[Use]:
    found: list[Use] = []
    for _ in range(draw(st.integers(1, 8))):
        names = draw(st.sets(st.integers(0, RESOURCES - 1), min_size=1))
        parts = [(r, exact(draw(st.floats(0.001, 1.0)))) for r in sorted(names)]
        found.append(tuple(parts))
    return found


def load_of(running: list[Use]) -> list[float]:
    load = [0.0] * RESOURCES
    for use in running:
        for resource, part in use:
            load[resource] += part
    return load


@settings(max_examples=400, deadline=None)
@given(uses())
def test_no_resource_is_overfull_and_none_lies_idle_that_could_be_used(running: list[Use]) -> None:
    rates, binding = share(running, load_of(running))
    used = [0.0] * RESOURCES
    for use, rate in zip(running, rates, strict=True):
        assert 0.0 < rate <= 1.0
        for resource, part in use:
            used[resource] += part * rate
    assert max(used) <= 1.0 + 1e-9
    for use, rate, bound in zip(running, rates, binding, strict=True):
        if rate < 1.0:
            assert bound in {r for r, _ in use}
            assert used[bound] == pytest.approx(1.0, abs=1e-9)
        else:
            assert bound == -1


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=8))
def test_one_resource_is_divided_max_min_fairly(parts: list[float]) -> None:
    running: list[Use] = [((0, exact(p)),) for p in parts]
    rates, _ = share(running, load_of(running))
    got = [rate * use[0][1] for rate, use in zip(rates, running, strict=True)]
    held_back = [g for g, rate in zip(got, rates, strict=True) if rate < 1.0]
    # those that are held back have equal parts, and nobody has more than they
    for amount in held_back:
        assert amount == pytest.approx(max(got), rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(uses())
def test_the_order_of_tasks_does_not_matter(running: list[Use]) -> None:
    rates, _ = share(running, load_of(running))
    back, _ = share(running[::-1], load_of(running))
    assert back[::-1] == pytest.approx(rates, rel=1e-9)


def test_two_that_need_all_get_half_each() -> None:
    running: list[Use] = [((2, 1.0),), ((2, 1.0),)]
    assert share(running, load_of(running)) == ([0.5, 0.5], [2, 2])


def test_the_modest_one_is_not_slowed() -> None:
    running: list[Use] = [((2, 1.0),), ((0, 1.0), (2, 0.25))]
    rates, binding = share(running, load_of(running))
    assert rates == pytest.approx([0.75, 1.0])
    assert binding == [2, -1]


def test_who_leaves_a_full_resource_alone_is_not_slowed() -> None:
    running: list[Use] = [((2, 0.9), (3, 0.9)), ((2, 0.9),), ((3, 0.9),), ((1, 0.5),)]
    rates, binding = share(running, load_of(running))
    assert rates[3] == 1.0
    assert rates[0] == pytest.approx(0.5 / 0.9)
    assert set(binding[:3]) <= {2, 3}


def test_rounding_is_no_contention() -> None:
    third = exact(1 / 3)
    running: list[Use] = [((0, third),)] * 3
    assert sum(p for u in running for _, p in u) <= FULL
    assert share(running, load_of(running))[0] == [1.0, 1.0, 1.0]
