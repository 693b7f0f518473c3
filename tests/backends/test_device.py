"""The built-in profiles and what a device answers."""

from __future__ import annotations

import dataclasses

import pytest

from gecompiler.backends.device import Device, device_names, load_device
from gecompiler.backends.device_figures import FIGURES
from gecompiler.ir.errors import ScheduleError, UsageError
from gecompiler.ir.schedule import Demand
from gecompiler.ir.target import Target
from gecompiler.ir.types import DType


def as_target(target: Target) -> Target:
    return target


@pytest.mark.parametrize("name", device_names())
def test_every_figure_has_value_source_and_kind(name: str) -> None:
    device = load_device(name)
    assert [f.name for f in device.figures()] == list(FIGURES)
    for figure in device.figures():
        assert figure.source.strip()
        assert figure.kind in ("vendor", "measured", "derived")
        assert getattr(device, figure.name) == figure.value


def test_the_two_profiles_are_there_and_implement_target() -> None:
    assert {"ascend910", "ascend910b"} <= set(device_names())
    assert as_target(load_device("ascend910")).name == "ascend910"


def test_ascend910_has_four_hardware_queues() -> None:
    device = load_device("ascend910")
    assert device.limits.max_streams == 4
    assert device.capabilities()["max_streams"] == 4


@pytest.mark.parametrize("alias", ["Ascend910B1", "ASCEND910B", "ascend910_b1"])
def test_names_go_by_alias_and_without_case(alias: str) -> None:
    assert load_device(alias) == load_device("ascend910b")


def test_equal_profiles_are_equal_and_hash_alike() -> None:
    one, two = load_device("ascend910"), load_device("ascend910")
    assert one == two
    assert hash(one) == hash(two)
    assert one != dataclasses.replace(two, hbm_bandwidth_gb_per_s=1.0)


def test_unknown_name_says_the_nearest() -> None:
    with pytest.raises(UsageError, match="ascend910"):
        load_device("ascend91")


@pytest.mark.parametrize(("name", "tflops"), [("ascend910", 262.144), ("ascend910b", 363.725)])
def test_peak_is_cores_times_flop_times_clock(name: str, tflops: float) -> None:
    assert load_device(name).capabilities()["peak_f16_tflops"] == pytest.approx(tflops, rel=1e-4)


def test_wider_types_are_never_faster_on_the_cube() -> None:
    for device in map(load_device, device_names()):
        rates = [device.cube_flop_per_us(t) for t in (DType.I8, DType.F16, DType.F32, DType.F64)]
        assert rates == sorted(rates, reverse=True)
        assert device.cube_flop_per_us(DType.F8E4M3FN) >= device.cube_flop_per_us(DType.F16)


def test_work_is_in_the_units_of_capacities() -> None:
    device = load_device("ascend910b")
    demand = Demand(load_bytes=3, store_bytes=4, l2_bytes=9, cube_us=5, vector_us=6)
    demand = dataclasses.replace(demand, link_bytes=(("hccs", 8.0), ("hccs", 1.0)))
    work = device.work(demand)
    assert work == {"cube": 5, "vector": 6, "hbm": 7, "l2": 9, "hccs": 9}
    assert set(work) <= set(device.capacities())


def test_unknown_link_is_an_error() -> None:
    device = load_device("ascend910")
    assert device.link_bytes_per_us("hccs:0-1") == device.capacities()["hccs"]
    with pytest.raises(ScheduleError, match="hccs"):
        device.link_bytes_per_us("hcs:0-1")


def test_a_device_cannot_be_changed() -> None:
    device = load_device("ascend910")
    with pytest.raises(dataclasses.FrozenInstanceError):
        device.max_streams = 8  # type: ignore[misc]
    assert isinstance(device, Device)


def test_what_is_countable_comes_from_the_profile() -> None:
    device = load_device("ascend910b")
    other = dataclasses.replace(device, max_notifies=7, queue_entries=99, max_events=5)
    limits = (other.limits.max_notifies, other.limits.queue_entries, other.limits.max_events)
    assert limits == (7, 99, 5)
    said = {f.name: f for f in device.figures()}
    assert (device.limits.max_notifies, said["max_notifies"].kind) == (1024, "vendor")
    assert "rtGetMaxStreamAndTask" in said["queue_entries"].source
