"""Matrix products: physics that must hold whatever the tiling, and sanity against peak."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecompiler.backends.cost.gemm import Gemm, gemm_demand
from gecompiler.backends.device import Device, device_names, load_device
from gecompiler.ir.types import DType

DEVICES = [load_device(n) for n in device_names()]
ASCEND = [d for d in DEVICES if d.name.startswith("ascend")]
A2 = load_device("ascend910b")


def gemm(m: int, n: int, k: int, dtype: DType = DType.F16, batch: int = 1) -> Gemm:
    element = dtype.bits / 8
    return Gemm(
        batch,
        m,
        n,
        k,
        dtype,
        batch * m * k * element,
        batch * k * n * element,
        0.0,
        batch * m * n * element,
    )


def time_us(device: Device, product: Gemm) -> float:
    return device.alone_us(gemm_demand(device, product))


sizes = st.integers(1, 9000)
dtypes = st.sampled_from([DType.F16, DType.BF16, DType.F32, DType.I8, DType.F64])


@settings(max_examples=60, deadline=None)
@given(sizes, sizes, sizes, dtypes, st.integers(1, 8), st.sampled_from(DEVICES))
def test_never_faster_than_peak_or_memory(
    m: int, n: int, k: int, dtype: DType, batch: int, device: Device
) -> None:
    product = gemm(m, n, k, dtype, batch)
    found = gemm_demand(device, product)
    flop = 2.0 * batch * m * n * k
    assert found.cube_us >= flop / device.cube_flop_per_us(dtype) * (1 - 1e-9)
    assert found.load_bytes >= product.a_bytes + product.b_bytes
    assert found.store_bytes == product.out_bytes
    assert found.l2_bytes >= (found.load_bytes + found.store_bytes) * (1 - 1e-9)
    assert 1 <= found.cube_cores <= device.cube_cores
    assert found.tiles >= 1
    peak = device.cube_flop_per_us(dtype) * device.cube_cores
    assert device.alone_us(found) >= flop / peak


@settings(max_examples=40, deadline=None)
@given(sizes, sizes, sizes, st.sampled_from(DEVICES))
def test_a_faster_memory_never_slows_it(m: int, n: int, k: int, device: Device) -> None:
    faster = dataclasses.replace(device, hbm_bandwidth_gb_per_s=device.hbm_bandwidth_gb_per_s * 1.7)
    assert time_us(faster, gemm(m, n, k)) <= time_us(device, gemm(m, n, k)) * (1 + 1e-9)


@pytest.mark.parametrize("device", ASCEND, ids=lambda d: d.name)
@pytest.mark.parametrize("size", [2048, 4096, 8192])
def test_big_square_products_come_near_the_peak(device: Device, size: int) -> None:
    rate = 2.0 * size**3 / time_us(device, gemm(size, size, size))
    assert 0.75 <= rate / (device.cube_flop_per_us(DType.F16) * device.cube_cores) <= 0.98


@pytest.mark.parametrize("device", ASCEND, ids=lambda d: d.name)
def test_one_token_is_bound_by_reading_the_weights(device: Device) -> None:
    found = gemm_demand(device, gemm(1, 11008, 4096))
    weights_us = 11008 * 4096 * 2 / device.hbm_bytes_per_us
    assert device.alone_us(found) == pytest.approx(weights_us, rel=0.15)


def test_twice_the_batch_takes_less_than_twice_while_weights_bind() -> None:
    one, many = time_us(A2, gemm(8, 4096, 4096)), time_us(A2, gemm(16, 4096, 4096))
    assert many < 1.1 * one


def test_an_edge_tile_costs_its_padding() -> None:
    assert (
        gemm_demand(A2, gemm(2049, 2048, 2048)).cube_us
        == gemm_demand(A2, gemm(2064, 2048, 2048)).cube_us
    )


def test_what_overflows_l2_is_read_again() -> None:
    size = 16384
    big = gemm_demand(A2, gemm(size, size, size))
    assert big.load_bytes > 2 * size * size * 2
    roomy = dataclasses.replace(A2, l2_mib=8192.0)
    assert gemm_demand(roomy, gemm(size, size, size)).load_bytes == 2 * size * size * 2


def test_measured_products_of_the_second_generation() -> None:
    """24 cores, fp16 in and fp32 out (hw-native-sys/pto-isa): a bound on how far off it may be."""
    for size, measured in ((3072, 206.7), (6144, 1506.0), (7680, 3168.0)):
        product = gemm(size, size, size)._replace(out_bytes=4.0 * size * size)
        assert time_us(A2, product) == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize(
    ("m", "n", "k", "measured"),
    [(2048, 2048, 1024, 59.5), (8192, 8192, 8192, 4188.5), (512, 4096, 512, 18.4)],
)
def test_products_of_a_gpu_in_waves_of_whole_tiles(m: int, n: int, k: int, measured: float) -> None:
    """A100 SXM, bf16 (ai-dynamo/aiconfigurator): 2, 19 and 1 waves of 256 by 128."""
    found = time_us(load_device("a100"), gemm(m, n, k, DType.BF16))
    assert found == pytest.approx(measured, rel=0.15)


def test_a_wave_is_lost_by_one_tile_more() -> None:
    device = load_device("a100")
    full = time_us(device, gemm(256 * 108, 128, 4096))
    more = time_us(device, gemm(256 * 109, 128, 4096))
    assert more > 1.4 * full


def test_empty_products_cost_nothing() -> None:
    assert gemm_demand(A2, gemm(0, 5, 5)).cube_us == 0
    assert gemm_demand(A2, gemm(5, 5, 0)).cube_us == 0
