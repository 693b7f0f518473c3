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


ROUND = dataclasses.replace(
    DEVICE, cube_cores=20, vector_cores=40, hbm_bandwidth_gb_per_s=1000.0,
    hbm_efficiency_fraction=1.0, hidden_fraction=0.5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("demand", "us", "bound"),
    [
        (Demand(cube_us=40, cube_cores=4), 10, "cube"),
        (Demand(cube_us=40, cube_cores=0), 40, "cube"),
        (Demand(cube_us=40, cube_cores=1), 40, "cube"),
        (Demand(cube_us=40, cube_cores=2), 20, "cube"),
        (Demand(cube_us=40, cube_cores=20), 2, "cube"),
        (Demand(cube_us=40, cube_cores=21), 2, "cube"),  # more than there are
        (Demand(vector_us=80, vector_cores=41), 2, "vector"),
        (Demand(cube_us=40, cube_cores=20, vector_us=80, vector_cores=40), 2, "cube"),
        (Demand(cube_us=40, cube_cores=20, vector_us=80, vector_cores=20), 4, "vector"),
    ],
)
def test_cores_that_a_task_keeps_busy(demand: Demand, us: float, bound: str) -> None:
    (phase,) = phases(ROUND, demand)
    assert (phase.us, phase.bound) == (us, bound)
    work = {"cube": demand.cube_us / 20, "vector": demand.vector_us / 40}
    assert dict(phase.use) == {name: w / us for name, w in work.items() if w}


def test_links_named_twice_add_up_and_the_slowest_binds() -> None:
    rate = {"a": 100.0, "b": 50.0}.__getitem__
    demand = Demand(link_bytes=(("a", 1000.0), ("b", 600.0), ("a", 1000.0)))
    (phase,) = phases(ROUND, demand, rate)
    assert phase == (20.0, (("a", 1.0), ("b", 0.6)), "a")
    (phase,) = phases(ROUND, dataclasses.replace(demand, cube_us=20 * 30, cube_cores=20), rate)
    assert phase == (30.0, (("cube", 1.0), ("a", 2 / 3), ("b", 0.4)), "cube")
    (phase,) = phases(ROUND, Demand(link_bytes=(("a", 0.0), ("b", 50.0))), rate)
    assert phase == (1.0, (("b", 1.0),), "b")


@pytest.mark.parametrize("split", [False, True])
def test_how_fast_cores_can_be_fed(split: bool) -> None:
    device = dataclasses.replace(ROUND, cube_vector_split=split)
    hbm, l2 = device.core_hbm_bytes_per_us, device.core_l2_bytes_per_us
    read, each = device.core_l2_read_bytes_per_us, device.vectors_per_core

    def moved(**demand: float) -> tuple[float, str]:
        (phase,) = phases(device, Demand(**demand))  # type: ignore[arg-type]
        return phase.us, phase.bound

    assert moved(load_bytes=1e6, cube_cores=1) == (1e6 / hbm, "hbm")
    assert moved(store_bytes=1e6, vector_cores=2) == (1e6 / (hbm * 2 / each), "hbm")
    assert moved(load_bytes=1e6, cube_cores=1, vector_cores=2 * each) == (1e6 / (2 * hbm), "hbm")
    assert moved(load_bytes=1e6, cube_cores=99) == (1e6 / device.hbm_bytes_per_us, "hbm")
    assert moved(load_bytes=1e6) == (1e6 / device.hbm_bytes_per_us, "hbm")
    assert moved(l2_bytes=1e6) == (1e6 / device.l2_bytes_per_us, "l2")
    assert moved(l2_bytes=1e6, vector_cores=each) == (1e6 / l2, "l2")
    assert moved(l2_bytes=1e6, cube_cores=1) == (1e6 / (read if split else l2), "l2")
    both = read + l2 if split else l2
    assert moved(l2_bytes=1e6, cube_cores=1, vector_cores=each) == (1e6 / both, "l2")
    assert moved(load_bytes=1e6, l2_bytes=1e6 * l2 / hbm, vector_cores=each) == (1e6 / hbm, "hbm")


def test_what_is_hidden_of_loads_and_stores() -> None:
    """40 us of loads and 20 us of stores on a device that hides half of the n-1 of n tiles."""
    demand = Demand(load_bytes=40e6, store_bytes=20e6, cube_us=20 * 100, cube_cores=20, tiles=4)
    device = dataclasses.replace(ROUND, hbm_bandwidth_gb_per_s=1000.0)
    first, steady, last = phases(device, demand)
    shown = 1 - 0.5 * 3 / 4
    assert first == (pytest.approx(40 * shown), (("hbm", 1.0),), "hbm")
    assert last == (pytest.approx(20 * shown), (("hbm", 1.0),), "hbm")
    assert (steady.us, steady.bound) == (100, "cube")
    assert dict(steady.use) == {"cube": 1.0, "hbm": pytest.approx(60 * (1 - shown) / 100)}
    one_tile = phases(device, dataclasses.replace(demand, tiles=1))
    assert [p.us for p in one_tile] == [40, 100, 20]
    assert one_tile[1].use == (("cube", 1.0),)
    assert phases(device, dataclasses.replace(demand, tiles=0)) == one_tile
    short = phases(device, dataclasses.replace(demand, cube_us=20.0))
    assert (short[1].us, short[1].bound) == (pytest.approx(60 * (1 - shown)), "hbm")
    no_loads = phases(device, dataclasses.replace(demand, load_bytes=0.0, tiles=1))
    assert [p.us for p in no_loads] == [100, 20]
    no_stores = phases(device, dataclasses.replace(demand, store_bytes=0.0, tiles=1))
    assert [p.us for p in no_stores] == [40, 100]
