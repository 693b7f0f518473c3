"""Phases of one task alone: what overlaps, what does not, and what more hardware changes."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.device import Device, load_device
from gecompiler.backends.simulator.fluid import phases
from gecompiler.ir.schedule import Demand

DEVICE = load_device("ascend910b")
NOTHING_HIDDEN = dataclasses.replace(DEVICE, hidden_fraction=0.0)
ALL_HIDDEN = dataclasses.replace(DEVICE, hidden_fraction=1.0)

amounts = st.one_of(st.just(0.0), st.floats(1.0, 1e9))


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    return Demand(
        load_bytes=draw(amounts),
        store_bytes=draw(amounts),
        l2_bytes=draw(amounts),
        cube_us=draw(st.one_of(st.just(0.0), st.floats(0.01, 1e5))),
        vector_us=draw(st.one_of(st.just(0.0), st.floats(0.01, 1e5))),
        cube_cores=draw(st.integers(0, 30)),
        vector_cores=draw(st.integers(0, 60)),
        link_bytes=draw(st.sampled_from([(), (("hccs:0-1", 1e6),)])),
        fixed_us=draw(st.floats(0, 10)),
        tiles=draw(st.integers(1, 100)),
    )


def test_all_overlaps_when_all_can_be_hidden() -> None:
    demand = Demand(load_bytes=1e6, cube_us=2400, cube_cores=24, l2_bytes=0, tiles=10**9)
    assert ALL_HIDDEN.alone_us(demand) == pytest.approx(100, rel=1e-6)


def test_nothing_overlaps_when_nothing_is_hidden() -> None:
    demand = Demand(load_bytes=139.2e6, store_bytes=69.6e6, cube_us=2400, cube_cores=24, tiles=99)
    assert NOTHING_HIDDEN.alone_us(demand) == pytest.approx(100 + 100 + 50)
    assert [p.bound for p in phases(NOTHING_HIDDEN, demand)] == ["hbm", "cube", "hbm"]


def test_first_load_and_last_store_are_never_hidden() -> None:
    demand = Demand(load_bytes=139.2e6, store_bytes=139.2e6, cube_us=24e3, cube_cores=24, tiles=4)
    first, steady, last = phases(ALL_HIDDEN, demand)
    assert (first.us, last.us) == (pytest.approx(25), pytest.approx(25))
    assert steady.us == pytest.approx(1000)


def test_few_cores_cannot_draw_the_whole_bandwidth() -> None:
    wide = Demand(load_bytes=1e8, l2_bytes=1e8, vector_us=1, vector_cores=48)
    narrow = dataclasses.replace(wide, vector_cores=1)
    assert DEVICE.alone_us(narrow) > 20 * DEVICE.alone_us(wide)


def test_no_demand_takes_no_time() -> None:
    assert phases(DEVICE, Demand()) == ()
    assert DEVICE.alone_us(Demand()) == 0
    assert DEVICE.alone_us(Demand(fixed_us=3)) == 3


@settings(max_examples=300, deadline=None)
@given(demands())
def test_work_is_conserved_over_the_phases(demand: Demand) -> None:
    found: dict[str, float] = {}
    capacity = DEVICE.capacities()
    for phase in phases(DEVICE, demand):
        assert phase.us > 0
        assert phase.bound in dict(phase.use)
        for resource, part in phase.use:
            assert 0 <= part <= 1
            done = part * phase.us * capacity[resource.split(":")[0]]
            found[resource] = found.get(resource, 0.0) + done
    for resource, work in DEVICE.work(demand).items():
        assert found.get(resource, 0.0) == pytest.approx(work, rel=1e-9, abs=1e-9)


@settings(max_examples=300, deadline=None)
@given(demands(), st.floats(1.01, 10))
def test_more_of_anything_never_makes_a_lone_task_slower(demand: Demand, more: float) -> None:
    before = DEVICE.alone_us(demand)
    bigger: list[Device] = [
        dataclasses.replace(DEVICE, hbm_bandwidth_gb_per_s=DEVICE.hbm_bandwidth_gb_per_s * more),
        dataclasses.replace(DEVICE, l2_read_bytes_per_cycle=DEVICE.l2_read_bytes_per_cycle * more),
        dataclasses.replace(DEVICE, hccs_gb_per_s=DEVICE.hccs_gb_per_s * more),
        dataclasses.replace(DEVICE, hidden_fraction=min(1.0, DEVICE.hidden_fraction * more)),
    ]
    for device in bigger:
        assert device.alone_us(demand) <= before * (1 + 1e-9)


@settings(max_examples=200, deadline=None)
@given(demands(), st.integers(1, 50))
def test_more_tiles_never_make_it_slower(demand: Demand, more: int) -> None:
    finer = dataclasses.replace(demand, tiles=demand.tiles + more)
    assert DEVICE.alone_us(finer) <= DEVICE.alone_us(demand) * (1 + 1e-9)


@settings(max_examples=200, deadline=None)
@given(demands())
def test_alone_is_never_below_any_resource_bound(demand: Demand) -> None:
    capacity = DEVICE.capacities()
    alone = DEVICE.alone_us(demand) * (1 + 1e-9)
    for resource, work in DEVICE.work(demand).items():
        assert alone >= work / capacity[resource.split(":")[0]]
